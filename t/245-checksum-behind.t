#!/usr/bin/perl

# The last bytes of a body are not sent before its checksum was compared, also
# where the checksum lies behind what was read for them.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my @inputs = qw(map read scratch);
my @behind = (-6 .. 2);          # where the last block ends, from a border on

my $t = Test::Zmap->new()->plan(2 * @inputs * @behind);

for my $behind (@behind) {
    my $size = 4 * 65536 + $behind - 9 - 2 * 3;
    my $body = $t->random($size, 1);

    my %frame = (single => 1, fcs => $size, fcs_bytes => 4,
                 blocks => [map { [raw => $_] } unpack '(a131072)*', $body]);

    for my $input (@inputs) {
        $t->raw_zst("$input/bad$behind", $t->frame(%frame, checksum => 12345));
        $t->raw_zst("$input/good$behind", $t->frame(%frame, checksum => 1));
    }
}

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;'));
    zstd_mmap on;
    zstd_mmap_chunk 256k;
    location /read/ { zstd_mmap_input read; }
    location /scratch/ { zstd_mmap_input scratch=1m; }
EOC

for my $input (@inputs) {
    for my $behind (@behind) {
        ok(!$t->get("/$input/bad$behind")->complete, "$input: $behind, wrong");
        ok($t->get("/$input/good$behind")->complete, "$input: $behind, right");
    }
}
