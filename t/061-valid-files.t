#!/usr/bin/perl

# Unusual files that are valid: frames as they lie, decoded bytes of all.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $text = $t->text(200_000, 1);
my $hi = $t->frame(single => 1, fcs => 2, blocks => [[raw => 'hi']]);
my $ho = $t->frame(checksum => 1, blocks => [[raw => 'h'], [rle => 'o', 1]]);
my $skip = $t->skippable('ignored');
my $no_size = $t->compress($text, size => 0);
my $sized = $t->compress($text);

# name, bytes, decoded
my @valid = (
    ['skippable first', $skip . $hi, 'hi'],
    ['skippable between', $hi . $skip . $ho, 'hiho'],
    ['skippable last', $hi . $skip, 'hi'],
    ['skippable first, between, last', join($skip, '', $hi, $ho, ''), 'hiho'],
    ['all skippable magics', join('', map { $t->skippable('x', $_) } 0 .. 15)
                             . $hi, 'hi'],
    ['empty skippable', $t->skippable('') . $hi . $t->skippable(''), 'hi'],
    ['skippable between large frames', $skip . $sized . $skip . $sized,
     $text x 2],
    ['unused bit', do { my $f = $hi; substr($f, 4, 1) |= "\x10"; $f }, 'hi'],
    ['two frames', $hi . $ho, 'hiho'],
    ['a thousand frames', $hi x 1000, 'hi' x 1000],
    ['empty frame first', $t->frame(single => 1, fcs => 0,
                                    blocks => [[raw => '']]) . $hi, 'hi'],
    ['empty frame last', $hi . $t->frame(blocks => [[raw => '']]), 'hi'],
    ['empty block last', $t->frame(blocks => [[raw => 'hi'], [raw => '']]),
     'hi'],
    ['empty RLE block', $t->frame(blocks => [[rle => 'x', 0], [raw => 'hi']]),
     'hi'],
    ['legal RLE block of 128k', pack('H*', '28b52ffd003803001041'),
     'A' x 131072],
    ['raw block of 128k', $t->frame(window => 131072,
                                    blocks => [[raw => 'x' x 131072]]),
     'x' x 131072],
    ['window of 1k', $t->frame(window => 1024,
                               blocks => [([rle => 'A', 1024]) x 5]),
     'A' x 5120],
    ['dictionary ID 0 in 4 bytes', $t->frame(dict => 0, dict_bytes => 4,
                                             blocks => [[raw => 'hi']]), 'hi'],
    ['size in 1 byte', $t->frame(single => 1, fcs => 255,
                                 blocks => [[rle => 'a', 255]]), 'a' x 255],
    ['size in 2 bytes', $t->frame(single => 1, fcs => 256, fcs_bytes => 2,
                                  blocks => [[rle => 'a', 256]]), 'a' x 256],
    ['size in 2 bytes, largest', $t->frame(fcs => 65791, fcs_bytes => 2,
                                           blocks => [[rle => 'a', 65791]]),
     'a' x 65791],
    ['size in 4 bytes', $t->frame(fcs => 3, fcs_bytes => 4,
                                  blocks => [[raw => 'abc']]), 'abc'],
    ['size in 8 bytes', $t->frame(fcs => 3, fcs_bytes => 8, checksum => 1,
                                  blocks => [[raw => 'abc']]), 'abc'],
    ['no size', $no_size, $text],
    ['a frame without size among others', $sized . $no_size . $hi,
     "$text${text}hi"],
    ['no checksum', $t->compress($text, check => 0), $text],
    ['incompressible', $t->compress($t->random(200_000, 7)),
     $t->random(200_000, 7)],
    ['level 1', $t->compress($text, level => 1), $text],
    ['level 19', $t->compress($text, level => 19), $text],
    ['rsyncable', $t->compress($text, args => ['--rsyncable', '-T1']), $text],
);

$t->plan(6 * @valid);

for my $i (0 .. $#valid) {
    $t->raw_zst("f$i.txt", $valid[$i][1]);
}

$t->settle("f$#valid.txt.zst");

# one-shot in the first server's worker; the second one streams what it can
$t->run($t->conf('location / { zstd_mmap on; }'));
check('one buffer');

$t->reload(conf => $t->conf('location / { zstd_mmap on; zstd_mmap_chunk 4k; }',
                            http => 'zstd_mmap_buffers 64k max=4k;'));
check('streamed');


sub check {
    my ($how) = @_;

    for my $i (0 .. $#valid) {
        my ($name, $coded, $decoded) = @{$valid[$i]};

        my $r = $t->get("/f$i.txt", 'Accept-Encoding: zstd');
        ok($r->status == 200 && $r->complete && $r->body eq $coded
           && ($r->header('Content-Encoding') // '') eq 'zstd',
           "$name, $how: frames");

        for my $turn (1, 2) {
            $r = $t->get("/f$i.txt");
            ok($r->status == 200 && $r->complete && $r->body eq $decoded
               && !defined $r->header('Content-Encoding'),
               "$name, $how: decoded, request $turn");
        }
    }
}
