#!/usr/bin/perl

# Where decoding takes a file from: a mapping, 64 KiB reads, a scratch.  The
# bytes, and what becomes of a bad file, are the same.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new();

my @inputs = qw(map read scratch small);

my $random = $t->random(9_500_000, 1);
my $text = $t->text(700_000, 2);
my $mixed = substr($random, 0, 3_000_000) . $text . $text;
my $gap = $t->skippable("\0" x 3_000_000);

# name => [the decoded bytes, the coded ones]
my %files = (
    empty      => ['', $t->compress('')],
    tiny       => ['hello', $t->compress('hello')],
    oneshot    => [$text, $t->compress($text)],
    blocks     => [substr($random, 0, 900_000),
                   $t->frame(window => 1024, checksum => 1, blocks =>
                       [map { [raw => $_] }
                        unpack '(a1000)*', substr $random, 0, 900_000])],
    frames     => [$mixed, join '', map { $t->compress($_) }
                           unpack '(a10000)*', $mixed],
    gaps       => [$text, join $gap, $gap, $t->compress(substr $text, 0, 9),
                          $t->compress(substr $text, 9), ''],
    streamed   => [$mixed, $t->compress($mixed)],
    unsized    => [$mixed, $t->compress($mixed, size => 0)],
    large      => [$random, $t->compress($random)],
);

# a fault at the end, found before the header and after it
my %bad = (
    checksum => substr($t->compress($random), 0, -4) . 'oops',
    oneshot  => substr($t->compress($text), 0, -4) . 'oops',
);

my @ask = map { my $name = $_; map { ["/$_/$name", $files{$name}[0]] }
                @inputs } sort keys %files;

$t->plan(3 * @ask + 3 * @inputs + 9);

for my $name (sort keys %files) {
    $t->raw_zst("$_/$name", $files{$name}[1]) for @inputs;
}
for my $name (sort keys %bad) {
    $t->raw_zst("$_/bad-$name", $bad{$name}) for @inputs;
}
$t->settle('small/unsized.zst');

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 8m max=1m;'));
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    location /read/ { zstd_mmap_input read; }
    location /scratch/ {
        zstd_mmap_input scratch;
        location /scratch/map/ { alias %%DIR%%/map/; zstd_mmap_input map; }
    }
    location /small/ { zstd_mmap_input scratch=1m; }
    location /direct/ {
        alias %%DIR%%/read/;
        zstd_mmap_input read;
        directio 4k;
    }
EOC


sub windows { return $t->log_count(qr/zstd mmap: window rc:0/) }


for my $row (@ask) {
    my ($uri, $body) = @$row;
    my $before = windows();
    my $r = $t->get($uri);
    ok($r->status == 200 && $r->complete, "$uri: complete");
    ok($r->body eq $body, "$uri: the bytes");
    is(windows() > $before ? 'read' : 'mapped',
       $uri =~ m{^/map} ? 'mapped' : 'read', "$uri: where from");
}

for my $input (@inputs) {
    my $r = $t->get("/$input/bad-oneshot");
    is($r->status, 500, "$input: a fault before the header");

    $r = $t->get("/$input/bad-checksum");
    ok($r->status == 200 && !$r->complete, "$input: and after it");

    # what it was found to be holds for the frames as well
    $r = $t->get("/$input/bad-checksum", 'Accept-Encoding: zstd');
    is($r->status, 500, "$input: the verdict stays");
}

# readers that take turns with one window
my @slow = map { $t->connect(port => $t->port(2), rcvbuf => 8192) } 1 .. 4;
my @uris = qw(/scratch/large /scratch/unsized /small/large /read/streamed);
$slow[$_]->send_request('GET', $uris[$_]) for 0 .. $#slow;
my @got = ('') x @slow;
for my $turn (1 .. 20) {
    $got[$_] .= $slow[$_]->read_some(50_000) for 0 .. $#slow;
}
for my $n (0 .. $#slow) {
    $slow[$n]{buffer} = $got[$n] . $slow[$n]{buffer};
    my $r = $slow[$n]->response('GET');
    my ($name) = $uris[$n] =~ m{([^/]+)$};
    ok($r->complete && $r->body eq $files{$name}[0],
       "$uris[$n] beside others");
}

ok($t->get('/scratch/map/oneshot')->body eq $text, 'set anew inside');
ok($t->get('/direct/streamed')->body eq $mixed, 'with O_DIRECT');

# a file that is another one in the middle of a stream
my $c = $t->connect(port => $t->port(2), rcvbuf => 8192);
$c->send_request('GET', '/read/large');
my $some = $c->read_some(100_000);
$t->write('read/large.zst', $t->compress($t->random(9_500_000, 3)));
$c->{buffer} = $some . $c->{buffer};
my $r = $c->response('GET');
ok(!$r->complete, 'overwritten under a stream: cut');
ok($r->body eq substr($random, 0, length $r->body), 'and never mixed');
ok($t->get('/read/large')->body eq $t->random(9_500_000, 3),
   'the next reply has the new bytes');
