#!/usr/bin/perl

# Streamed bodies of sizes around the chunk borders, known and unknown sizes.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $chunk = 16384;
my $text = $t->text(7 * $chunk, 1);

my @sizes = map { my $k = $_; map { $k * $chunk + $_ } -1, 0, 1 } 1, 2, 3, 6;

# frames cut where chunks are, and where they are not
my %kind = (
    known   => sub { $t->compress($_[0]) },
    unknown => sub { $t->compress($_[0], size => 0) },
    frames  => sub { join '', map { $t->compress($_) }
                     unpack "(a$chunk)*", $_[0] },
    odd     => sub { join $t->skippable('x'), map { $t->compress($_) }
                     unpack '(a10000)*', $_[0] },
    blocks  => sub { $t->frame(checksum => 1, window => 1024,
                               blocks => [map { [raw => $_] }
                                          unpack '(a1000)*', $_[0]]) },
);

my @bodies = map { my $kind = $_; map { [$kind, $_] } @sizes }
    sort keys %kind;

$t->plan(4 * @bodies + 7 * @sizes + 1);

for my $row (@bodies) {
    my ($kind, $size) = @$row;
    my $coded = $kind{$kind}->(substr $text, 0, $size);
    $t->raw_zst("$kind-$size.txt", $coded);
    $t->raw_zst("10/$kind-$size.txt", $coded);
    $t->raw_zst("h2/$kind-$size.txt", $coded);
}

$t->settle("h2/$bodies[-1][0]-$bodies[-1][1].txt.zst");

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;'));
    listen 127.0.0.1:%%PORT2%% http2;

    zstd_mmap on;
    zstd_mmap_chunk 16k;
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);

for my $row (@bodies) {
    my ($kind, $size) = @$row;
    my $body = substr $text, 0, $size;
    my $name = "$kind-$size.txt";
    my %first;

    $first{'1.1'} = $t->get("/$name");
    $first{'1.0'} = $t->request('GET', "/10/$name", version => '1.0');
    $first{h2} = $t->curl('--http2-prior-knowledge', "$h2/h2/$name");

    for my $version (sort keys %first) {
        my $r = $first{$version};
        ok($r->status == 200 && $r->complete && $r->body eq $body,
           "$name, $version: the body");
    }

    my $length = $first{'1.1'}->header('Content-Length');

    if ($kind ne 'unknown') {
        is($length, $size, "$name: has its length at once");
        next;
    }

    is($length, undef, "$name: no length at first");
    is($first{'1.1'}->header('Transfer-Encoding'), 'chunked',
       "$name: chunked at first");
    is($first{'1.0'}->header('Content-Length'), undef,
       "$name, 1.0: ended by the close at first");
    is($first{'1.0'}->header('Transfer-Encoding'), undef,
       "$name, 1.0: not chunked");

    my %then = (
        '1.1' => $t->get("/$name"),
        '1.0' => $t->request('GET', "/10/$name", version => '1.0'),
        h2 => $t->curl('--http2-prior-knowledge', "$h2/h2/$name"),
    );

    for my $version (sort keys %then) {
        my $r = $then{$version};
        ok($r->complete && $r->body eq $body
           && $r->header('Content-Length') == $size
           && $r->header('ETag') eq $first{$version}->header('ETag'),
           "$name, $version: length is learnt, the tag is the same");
    }

    my $r = $t->get("/$name", 'If-None-Match: '
                              . $first{'1.1'}->header('ETag'));
    is($r->status, 304, "$name: the first tag still gives a 304");
}

like($t->get('/unknown-16384.txt')->header('ETag'),
     qr/^"[0-9a-f]+-[0-9a-f]+-d"$/,
     'tag of a size that the file does not tell');
