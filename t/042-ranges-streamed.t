#!/usr/bin/perl

# A streamed body has no ranges: a Range is answered with the whole body, and
# none are offered.  The frames of the same file have them.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;

my $t = Test::Zmap->new()->plan(2 * 9 + 3);

my %text = (long => $t->text(150_000, 1), loose => $t->text(20_000, 2));
my %coded = (long => $t->zst('long.txt', $text{long}, mtime => $MTIME),
             loose => $t->zst('loose.txt', $text{loose}, mtime => $MTIME,
                              size => 0));
my %tag = (long => sprintf('"%x-%x"', $MTIME, length $text{long}),
           loose => sprintf('"%x-%x-d"', $MTIME, length $coded{loose}));

my $server = 'zstd_mmap on; zstd_mmap_chunk 4k;';
my $http = 'zstd_mmap_buffers 256k max=32k;';

$t->run($t->conf($server, http => "$http zstd_mmap_cache off;"));


# status, ranges offered, range sent, and whether the body is this
sub said {
    my ($r, $body) = @_;

    return join ' ', $r->status, $r->header('Accept-Ranges') // '-',
        $r->header('Content-Range') // '-',
        $r->complete && $r->body eq $body ? 'right' : 'wrong';
}


for my $name (qw(long loose)) {
    my ($uri, $text) = ("/$name.txt", $text{$name});
    my $whole = '200 - - right';

    for my $range ('0-9', '5-', '-5', '0-1,5-6', '9000000-') {
        is(said($t->get($uri, "Range: bytes=$range"), $text), $whole,
           "$name: bytes=$range is ignored");
    }
    is(said($t->get($uri, 'Range: bytes=0-9', "If-Range: $tag{$name}"),
            $text), $whole, "$name: also with If-Range");
    is(said($t->head($uri, 'Range: bytes=0-9'), ''), $whole,
       "$name: HEAD offers none");

    my $r = $t->get($uri, 'Range: bytes=4-9', 'Accept-Encoding: zstd');
    is(said($r, substr $coded{$name}, 4, 6),
       '206 - bytes 4-9/' . length($coded{$name}) . ' right',
       "$name: frames have ranges");
    $r = $t->get($uri, 'Range: bytes=4-9', 'Accept-Encoding: zstd',
                 "If-Range: $tag{$name}");
    is(said($r, $coded{$name}), '200 bytes - right',
       "$name: but not under the tag of decoded bytes");
}

# once its length is known, a small body is decoded into one buffer

$t->settle('loose.txt.zst');
$t->reload(conf => $t->conf($server, http => $http));
$t->get('/loose.txt');
is($t->get('/loose.txt')->header('Content-Length'), 20_000,
   'the length was learnt');
my $r = $t->get('/loose.txt', 'Range: bytes=4-9');
ok($r->status == 206 && $r->body eq substr($text{loose}, 4, 6)
   || $r->status == 200 && $r->body eq $text{loose},
   'and a range is right or ignored');
is($r->header('ETag'), $tag{loose}, 'the tag stays');
