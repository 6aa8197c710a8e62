#!/usr/bin/perl

# A range in frames that are larger than what zstd_mmap_streams has room for
# in one piece is decoded by chunks, as the body is.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $KB = 1024;
my $FRAME = 950_000;

my $t = Test::Zmap->new()->plan(9);
my $s = Test::Zmap::Status->new($t);

my $body = $t->random(3 * $FRAME, 1);

$t->raw_zst('frames.txt', join '', map {
    $t->frame(window => 128 * $KB, fcs => $FRAME, checksum => 1,
              blocks => [map { [raw => $_] } unpack '(a50000)*', $_])
} unpack "(a$FRAME)*", $body);
$t->settle('frames.txt.zst');

$t->run($t->conf($s->location . <<'EOT', http => <<'EOH'));
    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOT
    zstd_mmap_buffers 8m max=1m;
    zstd_mmap_streams 1m;
EOH

ok($t->get('/frames.txt')->body eq $body, 'the body');

for my $range ([5, 9], [$FRAME - 10, $FRAME + 10], [100_000, 2_800_000]) {
    my ($from, $to) = @$range;

    my $r = $t->get('/frames.txt', "Range: bytes=$from-$to");
    is($r->status, 206, "$from-$to: 206");
    ok($r->body eq substr($body, $from, $to - $from + 1), "$from-$to: bytes");
}

is($t->head('/frames.txt', 'Range: bytes=5-9')->status, 206,
   'HEAD of a range');
ok($s->poll(sub { $_[0]{streams} == 0 }), 'all is given back');
