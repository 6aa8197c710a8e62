#!/usr/bin/perl

# What is counted: each kind of request changes these counters, by so much, and
# no other.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $MTIME = 1600000000;
my $GZIP = 'Accept-Encoding: gzip';
my $ZSTD = 'Accept-Encoding: zstd';

my $t = Test::Zmap->new(log_level => 'info');
my $s = Test::Zmap::Status->new($t);

my $text = $t->text(100_000, 1);
my $tag = sprintf '"%x-%x"', $MTIME, length $text;

$t->zst("$_.txt", $text, mtime => $MTIME) for qw(a b c);
$t->zst('stream.txt', $t->random(600_000, 2));
$t->zst('unsized.txt', $text, size => 0);
$t->zst('nul.txt', '');
$t->raw_zst('rubbish.txt', 'no frame at all');
$t->raw_zst('beside.txt', 'no frame at all');
$t->write('beside.txt', 'plain');
$t->raw_zst('wide.txt', $t->frame(window => 9 << 20, fcs => 300,
                                  blocks => [[rle => 'w', 300]]));
$t->raw_zst('wider.txt', $t->frame(window => 192 << 20, fcs => 300,
                                   blocks => [[rle => 'w', 300]]));
$t->raw_zst('dictionary.txt', $t->frame(dict => 7, fcs => 300,
                                        blocks => [[rle => 'w', 300]]));
$t->raw_zst('sum.txt', $t->frame(fcs => 300, checksum => 2,
                                 blocks => [[rle => 'w', 300]]));
$t->raw_zst('sum-stream.txt', $t->frame(fcs => 600_000, checksum => 2,
    blocks => [map { [rle => 'w', 100_000] } 1 .. 6]));
$t->settle(map { "$_.txt.zst" } qw(a b c stream unsized nul rubbish beside
                                   wide wider dictionary sum sum-stream));

# name, request, status, what changes
my %ask = (requests => 1);
my @rows = (
    ['frames', ['GET', '/a.txt', $ZSTD], 200, { %ask, sent => 1 }],
    ['a range of frames', ['GET', '/a.txt', $ZSTD, 'Range: bytes=0-9'], 206,
     { %ask, sent => 1 }],
    ['HEAD of frames', ['HEAD', '/a.txt', $ZSTD], 200, { %ask, sent => 1 }],
    ['decoded bytes', ['GET', '/a.txt'], 200,
     { %ask, decoded => 1, decodes => 1 }],
    ['decoded bytes again', ['GET', '/a.txt', $GZIP], 200,
     { %ask, decoded => 1, cached => 1 }],
    ['a range of them', ['GET', '/a.txt', 'Range: bytes=-5'], 206,
     { %ask, decoded => 1, cached => 1 }],
    ['HEAD, not kept', ['HEAD', '/b.txt'], 200, { %ask, decoded => 1 }],
    ['304, not kept', ['GET', '/b.txt', "If-None-Match: $tag"], 304,
     { %ask, decoded => 1 }],
    ['a condition that fails', ['GET', '/b.txt', 'If-None-Match: "x"'], 200,
     { %ask, decoded => 1, decodes => 1 }],
    ['a stream', ['GET', '/stream.txt'], 200,
     { %ask, decoded => 1, decodes => 1, streamed => 1 }],
    ['a stream again', ['GET', '/stream.txt'], 200,
     { %ask, decoded => 1, decodes => 1, streamed => 1 }],
    ['HEAD of a stream', ['HEAD', '/stream.txt'], 200,
     { %ask, decoded => 1 }],
    ['unknown size', ['GET', '/unsized.txt'], 200,
     { %ask, decoded => 1, decodes => 1, streamed => 1 }],
    ['size learnt', ['GET', '/unsized.txt'], 200,
     { %ask, decoded => 1, decodes => 1 }],
    ['size learnt, kept', ['GET', '/unsized.txt'], 200,
     { %ask, decoded => 1, cached => 1 }],
    ['frames for nobody', ['GET', '/a.txt', 'Accept-Encoding: identity;q=0'],
     406, { %ask, declined => 1, 'reasons.not_accepted' => 1 }],
    ['no frame, no plain file', ['GET', '/rubbish.txt'], 500,
     { %ask, errors => 1, 'reasons.corrupt' => 1 }],
    ['no frame, again', ['GET', '/rubbish.txt', $ZSTD], 500,
     { %ask, errors => 1, 'reasons.corrupt' => 1 }],
    ['no frame, a plain file', ['GET', '/beside.txt', $ZSTD], 200,
     { %ask, declined => 1, 'reasons.corrupt' => 1 }],
    ['too large', ['GET', '/small/a.txt'], 500,
     { %ask, errors => 1, 'reasons.too_large' => 1 }],
    ['a window too large to decode', ['GET', '/wider.txt'], 500,
     { %ask, errors => 1, 'reasons.window' => 1 }],
    ['a dictionary', ['GET', '/dictionary.txt'], 500,
     { %ask, errors => 1, 'reasons.dictionary' => 1 }],
    ['a wrong checksum', ['GET', '/sum.txt'], 500,
     { %ask, decodes => 1, errors => 1, 'reasons.corrupt' => 1 }],
    ['a wrong checksum at the end of a stream', ['GET', '/sum-stream.txt'],
     200, { %ask, decoded => 1, decodes => 1, streamed => 1, errors => 1,
            'reasons.corrupt' => 1 }],
    ['module off', ['GET', '/off/a.txt'], 404, {}],
    ['another method', ['DELETE', '/a.txt'], 405, {}],
    ['a directory', ['GET', '/'], 403, {}],
);

$t->plan(2 * @rows + 5);

my $conf = $t->conf('zstd_mmap on;' . $s->location . <<'EOC',
    location /off/ { alias %%DIR%%/; zstd_mmap off; }
    location /small/ { alias %%DIR%%/; zstd_mmap_max_size 1k; }
EOC
    http => 'zstd_mmap_buffers 4m max=256k;');
$t->run($conf);


# verify_failures belongs to the verdicts of files: t/209-counted-reasons.t
sub without_bytes {
    my ($change) = @_;

    return { map { ($_ => $change->{$_}) }
             grep { !/^bytes|^verify_failures/ } keys %$change };
}


my %total;
for my $row (@rows) {
    my ($name, $request, $status, $expected) = @$row;
    my ($method, $uri, @headers) = @$request;
    my $r;
    my $change = without_bytes($s->change(sub {
        $r = $t->request($method, $uri, headers => \@headers);
    }));
    is($r->status, $status, "$name: status");
    is_deeply($change, $expected, "$name: counters") or diag(explain($change));
    $total{$_} += $expected->{$_} for keys %$expected;
}

# all of it together, and once more after reloads

my $json = $s->get;
my %all = (%{$json->{counters}},
           map { ("reasons.$_" => $json->{reasons}{$_}) }
           keys %{$json->{reasons}});
delete $all{verify_failures};
is_deeply({ map { ($_ => $all{$_}) } grep { $all{$_} } keys %all }, \%total,
          'the sums');

ok($t->reload(), 'a reload');
is_deeply($s->get->{counters}, $json->{counters}, 'a reload keeps them');
ok($t->reload(conf => $conf =~ s/4m max=256k/8m max=128k/r),
   'a reload with other values');
$t->get('/a.txt');
is($s->get->{counters}{requests}, $total{requests} + 1, 'and counts on');
