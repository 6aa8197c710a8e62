#!/usr/bin/perl

# Damage in the middle of a streamed body: it never looks complete.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $chunk = 16384;
my $size = 64 * $chunk;
my $body = $t->random($size, 1);
my $text = $t->text($size, 2);


sub flip {
    my ($bytes, $at) = @_;
    substr($bytes, $at, 1) ^= "\1";
    return $bytes;
}


# the whole body has left when its checksum is looked at, unless care is taken
my %damaged = (
    middle          => flip($t->compress($body), $size / 2),
    checksum        => flip($t->compress($body), -1),
    'first-chunk'   => flip($t->compress($body), 1000),
    coded           => flip($t->compress($text), 200_000),
    'one-over'      => flip($t->compress($body . 'x'), -1),
    'one-under'     => flip($t->compress(substr $body, 0, -1), -1),
    'last-frame'    => $t->compress($body) . flip($t->compress($body), -1),
    'content-size'  => $t->frame(fcs => $size, blocks =>
        [(map { [raw => $_] } unpack '(a65536)*', substr $body, 0, -65536),
         [compressed => $t->random(5000, 3)]]),
);

# A frame whose blocks give ten bytes less than it says, and the last of them
# is empty: a decoder may take the end of it for an orderly one.
for my $bytes (4096 * 24, 4096 * 24 + 100) {
    my $coded = $t->compress(substr($text, 0, $bytes), check => 0, size => 0);
    my ($size) = unpack 'V', substr($coded, 6, 3) . "\0";
    die "not one compressed block\n"
        if ($size & 7) != 5 || 9 + ($size >> 3) != length $coded;
    $damaged{"short-$bytes"} = $t->frame(fcs => $bytes + 10, blocks =>
        [[compressed => substr $coded, 9], [raw => '']]);
}

my %unsized = (
    'u-middle'      => flip($t->compress($body, size => 0), $size / 2),
    'u-checksum'    => flip($t->compress($text, size => 0), -1),
    'u-coded'       => flip($t->compress($text, size => 0), 200_000),
    'u-second'      => $t->compress($text, size => 0)
        . flip($t->compress($text), -1),
);

my %bytes = (%damaged, %unsized);

# no verdict from one request to the next: each of them streams
my @how = ('1.1', '1.0', 'h2', 'TLS 1.1', 'TLS 1.0');

$t->plan(@how * 2 * keys(%bytes) + 4 * keys(%bytes) + 5);

for my $name (keys %bytes) {
    $t->raw_zst("$_/$name.txt", $bytes{$name}) for qw(kept once);
    $t->write("beside/$name.txt", 'plain');
    $t->raw_zst("beside/$name.txt", $bytes{$name});
}

$t->settle(map { ("kept/$_.txt.zst", "beside/$_.txt.zst") } keys %bytes);

$t->certificate();
$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;'));
    listen 127.0.0.1:%%PORT2%% http2;
    listen 127.0.0.1:%%PORT3%% ssl;
    ssl_certificate     localhost.crt;
    ssl_certificate_key localhost.key;

    zstd_mmap on;
    zstd_mmap_chunk 16k;

    location ~ /short { zstd_mmap_chunk 4k; }
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);
my $tls = 'https://127.0.0.1:' . $t->port(3);


sub fetch {
    my ($how, $uri) = @_;

    return $t->curl('--http2-prior-knowledge', $h2 . $uri) if $how eq 'h2';
    return $t->curl("--http$1", $tls . $uri) if $how =~ /^TLS (.*)/;
    return $t->request('GET', $uri, version => $how);
}


for my $name (sort keys %bytes) {
    my $whole = $name =~ /coded|u-(?:checksum|second)/ ? $text : $body;

    for my $how (@how) {
        # a new version each time: nothing is known of it
        $t->replace("once/$name.txt.zst", $bytes{$name});

        my $r = fetch($how, "/once/$name.txt");
        die "$name, $how: a client hangs\n" if ($r->exit // 0) == 28;
        ok($r->status == 200 && !$r->complete, "$name, $how: not complete")
            or diag('status ' . $r->status . ', exit ' . ($r->exit // '-'));
        ok(!$r->timed_out, "$name, $how: ended at once");
    }

    my $r = $t->get("/kept/$name.txt");
    ok($r->status == 200 && !$r->complete, "$name: first request aborted");
    is($t->get("/kept/$name.txt")->status, 500, "$name: then 500");
    is($t->get("/kept/$name.txt", 'Accept-Encoding: zstd')->status, 500,
       "$name: then 500 for zstd clients too");

    $t->get("/beside/$name.txt");
    is($t->get("/beside/$name.txt")->body, 'plain', "$name: then plain");
}

my ($lines) = map { scalar @$_ }
    [$t->log_lines(qr/\[error\].*\/kept\/.*is not usable/)];
is($lines, scalar keys %bytes, 'one line of each');

$t->zst('good.txt', $body);
my $r = $t->get('/good.txt');
ok($r->complete && $r->body eq $body, 'the worker serves on');

# without a header only the close tells of a cut
for my $name ('good', 'once/middle') {
    $t->replace("$name.txt.zst", $t->read("$name.txt.zst"));
    my $c = $t->connect();
    $c->send("GET /$name.txt\r\n");
    my $got = $c->read_some(2 * $size);
    ok($name eq 'good' ? !$c->{reset} && $got eq $body : $c->{reset},
       "$name: http/0.9");
}

$r = $t->get('/good.txt', 'If-None-Match: "other"');
ok($r->complete && $r->body eq $body, 'also a conditional request');
