#!/usr/bin/perl

# zstd_mmap_verify checksum: no byte of a version is sent before all of it was
# decoded once; with threads and without.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Gate;

my $t = Test::Zmap->new()->plan(86);
my $s = Test::Zmap::Status->new($t);
my $gate = Gate->new($t);

my $random = $t->random(3_000_000, 1);
my $text = $t->text(3_000_000, 2);
my $coded = $t->compress($random);
my $bad = substr($coded, 0, -4) . 'oops';
my $shot = $t->text(300_000, 3);

# a gigabyte in RLE blocks of 128 KiB
my $block = sub {
    return substr(pack('V', $_[0] | 1 << 1 | 131_072 << 3), 0, 3) . 'a';
};
my $long = $t->frame(window => 1 << 20, fcs => 8000 * 131_072, blocks => [])
    . $block->(0) x 7999 . $block->(1);

my %files = (
    good     => [$random, $coded],
    again    => [$random, $coded],
    order    => [$random, $coded],
    many     => [$random, $coded],
    bad      => [undef, $bad],
    beside   => [undef, $bad],
    shot     => [$shot, $t->compress($shot)],
    plainsum => [$random, $t->compress($random, check => 0)],
    frames   => [$random, join '', map { $t->compress($_) }
                          unpack '(a100000)*', $random],
    unsized  => [$text, $t->compress($text, size => 0)],
    head     => [$text, $t->compress($text)],
    cond     => [$text, $t->compress($text)],
    window   => [$text, $t->compress($text, args => ['--long=24'])],
    long     => [undef, $long],
);
my @places = qw(threads slices);

for my $place (@places) {
    $t->raw_zst("$place/$_.bin", $files{$_}[1]) for keys %files;
    $t->write("$place/beside.bin", 'plain');
}
$t->zst('small.txt', 'small');
$t->settle(map { "$_/long.bin.zst" } @places);

$gate->run($t->conf(<<"EOC", http => 'zstd_mmap_buffers 8m max=1m;'));
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_verify checksum;
    location /threads/ { zstd_mmap_threads default min=1k; }
    location = /threads/window.bin {
        zstd_mmap_threads default min=1k;
        zstd_mmap_decode_window 1m;
        zstd_mmap_send_window 1g;
    }
    location = /slices/window.bin {
        zstd_mmap_decode_window 1m;
        zstd_mmap_send_window 1g;
    }
    @{[$s->location]}
EOC

my @zstd = ('Accept-Encoding: zstd');


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


# decodes and verify_failures that the code costs
sub cost(&) {
    my ($code) = @_;

    my $change = $s->change($code);

    return join ' ', map { $change->{$_} // 0 } qw(decodes verify_failures);
}


# decoded bytes that it costs
sub produced(&) {
    my ($code) = @_;

    return $s->change($code)->{'bytes.decoded_produced'} // 0;
}


for my $place (@places) {
    my $r;
    my $is = sub {
        my ($want, $what) = @_;
        ok($r->status == 200 && $r->complete && $r->body eq $want,
           "$place, $what") or diag($r->head);
    };

    # once for frames, and for all that follows
    is(cost { $r = $t->get("/$place/good.bin", @zstd) }, '1 0',
       "$place: frames are decoded once");
    $is->($coded, 'frames');
    is(cost { $r = $t->get("/$place/good.bin", @zstd) }, '0 0',
       "$place: not again");
    is(cost { $r = $t->get("/$place/good.bin", @zstd, 'Range: bytes=0-9') },
       '0 0', "$place: nor for a range");
    is($r->body, substr($coded, 0, 10), "$place: the range");
    is(cost { $r = $t->get("/$place/good.bin") }, '1 0',
       "$place: a stream has its own decode");
    $is->($random, 'stream');

    # a stream first: verified, then decoded
    is(cost { $r = $t->get("/$place/again.bin") }, '2 0',
       "$place: a stream after its verification");
    $is->($random, 'the bytes');
    is(cost { $r = $t->get("/$place/order.bin", 'Range: bytes=5-9') }, '2 0',
       "$place: so is a range");
    is($r->status . $r->body, '206' . substr($random, 5, 5), "$place: range");

    # one that is decoded in one go is its own verification
    is(cost { $r = $t->get("/$place/shot.bin") }, '1 0', "$place: in one go");
    $is->($shot, 'in one go');
    is(cost { $r = $t->get("/$place/shot.bin", @zstd) }, '0 0',
       "$place: which does for its frames");

    # no byte of a bad one
    is(cost { $r = $t->get("/$place/bad.bin", @zstd) }, '1 1',
       "$place: bad frames");
    is($r->status, 500, "$place: are refused");
    is(cost { $r = $t->get("/$place/bad.bin") }, '0 0',
       "$place: the verdict stays");
    is($r->status, 500, "$place: for the stream, too");
    is($t->get("/$place/bad.bin", 'Range: bytes=0-9')->status, 500,
       "$place: and for a range");
    is($t->log_count(qr{$place/bad\.bin\.zst" is not usable: .*checksum}), 1,
       "$place: logged once");
    $r = $t->get("/$place/beside.bin");
    $is->('plain', 'a plain file instead');

    is(cost { $r = $t->get("/$place/plainsum.bin", @zstd) }, '1 0',
       "$place: frames without a checksum are decoded as well");
    $is->($files{plainsum}[1], 'and sent');
    $r = $t->get("/$place/frames.bin");
    $is->($random, 'many frames');

    # the length is known with the first reply
    $r = $t->get("/$place/unsized.bin");
    $is->($text, 'without a size');
    is($r->header('Content-Length'), 3_000_000, "$place: its length");
    is($r->header('Accept-Ranges'), 'bytes', "$place: and it has ranges");

    # what needs no body needs no verification
    is(cost { $t->head("/$place/head.bin", @zstd);
              $r = $t->head("/$place/head.bin") }, '0 0', "$place: HEAD");
    my $etag = $r->header('ETag');
    is(cost { $r = $t->get("/$place/head.bin", @zstd,
                           'If-None-Match: "x"') }, '1 0',
       "$place: a condition that is not met");
    $etag = $t->head("/$place/cond.bin")->header('ETag');
    is(produced { $r = $t->get("/$place/cond.bin", "If-None-Match: $etag") },
       length $text, "$place: a conditional request verifies first");
    is($r->status, 304, "$place: then 304");
    is(produced { $r = $t->get("/$place/cond.bin", "If-None-Match: $etag") },
       0, "$place: once");

    # what cannot be decoded cannot be verified
    $r = $t->get("/$place/window.bin", @zstd);
    is($r->status, 500, "$place: a window above decode_window");
    is($t->log_count(qr{$place/window\.bin\.zst" is not usable: .*window}), 1,
       "$place: logged");

    # another version
    $t->replace("$place/good.bin.zst", $bad);
    $t->settle("$place/good.bin.zst");
    is(cost { $r = $t->get("/$place/good.bin", @zstd) }, '1 1',
       "$place: replaced: verified anew");
    is($r->status, 500, "$place: replaced by a bad one");
    $t->replace("$place/good.bin.zst", $files{head}[1]);
    $t->settle("$place/good.bin.zst");
    is(cost { $r = $t->get("/$place/good.bin", @zstd) }, '1 0',
       "$place: replaced again");
    $is->($files{head}[1], 'replaced by a good one');
}

# many at once wait for one; others are served
$t->get('/small.txt');
$gate->shut();
my @c;
is(cost {
    @c = map { ask('/threads/many.bin', $_ % 2 ? @zstd : ()) } 1 .. 10;
    $t->wait_log(qr/"\/threads\/many.bin" waits for job/, 10);
    ok($gate->held(), 'many: held');
    is($t->get('/small.txt')->body, 'small', 'many: another reply');
    $gate->open();
    is(scalar(grep { my $r = $_->response('GET');
                     $r->complete
                     && ($r->body eq $coded || $r->body eq $random) } @c), 10,
       'many: all get all');
}, '6 0', 'many: one verification and five streams');

my $steps = qr/zstd mmap: step rc:1/;
my $began = $t->log_count($steps);
my @small;
is(cost {
    @c = map { ask('/slices/long.bin', @zstd) } 1 .. 3;
    $t->poll(sub { $t->log_count($steps) > $began });
    @small = map { $t->get('/small.txt')->body } 1 .. 3;
    is(scalar(grep { $_->response('GET')->body eq $long } @c), 3,
       'slices: all get all');
}, '1 0', 'slices: one verification');
is("@small", 'small small small', 'slices: others are served');
my @log = $t->log_lines(qr/$steps|zstd mmap: open ".*small/);
like($log[-1], $steps, 'slices: before its end');

# a worker remembers for itself
is($t->reload(), 1, 'reload');
is(cost { $t->get('/threads/many.bin', @zstd) }, '1 0',
   'reload: verified anew');
