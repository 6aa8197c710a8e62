#!/usr/bin/perl

# Writes the first seeds of the fuzz targets: seeds.pl FOLDER makes
# FOLDER/frame, FOLDER/seektable and FOLDER/accept.  Needs the zstd command.

use warnings;
use strict;

use File::Path qw/ make_path /;

@ARGV == 1 or die "usage: $0 FOLDER\n";

my $folder = shift;

make_path(map { "$folder/$_" } qw/ frame seektable accept /);

my $text = join '', map { "line $_ of a text that repeats itself\n" } 1 .. 40;
my $magic = '28b52ffd';
my $skippable = '502a4d1804000000deadbeef';
my $empty = $magic . '2000010000';
my $small = $magic . '2003190000414243';

my %hex = (
	'empty-file' => '',
	'empty-checksum' => $magic . '240001000099e9d851',
	'empty-frame' => $empty,
	'raw' => $small,
	'raw-window' => $magic . '0038190000414243',
	'raw-two-blocks' => $magic . '2003' . '08000041' . '1100004243',
	'raw-empty-last' => $magic . '2003180000414243' . '010000',
	'raw-empty-last-lies' => $magic . '2005180000414243' . '010000',
	'rle-max' => $magic . '003803001041',
	'rle-over' => $magic . '00380b001041',
	'rle-nothing' => $magic . '003803000041',
	'rle-no-room' => $magic . '200003000041',
	'bomb' => $magic . 'e000000000000100002b000042',
	'reserved-bit' => $magic . '0838010000',
	'unused-bit' => $magic . '1038010000',
	'reserved-block' => $magic . '0038070000',
	'window-2t' => $magic . '00ff010000',
	'window-8m' => $magic . '0068190000414243',
	'window-over-8m' => $magic . '0069190000414243',
	'dictionary-1' => $magic . '210700010000',
	'dictionary-2' => $magic . '22070000010000',
	'dictionary-4' => $magic . '230700000000010000',
	'content-2' => $magic . '60000003080041',
	'content-4' => $magic . 'a00300000019000041' . '4243',
	'content-8' => $magic . 'e0030000000000000019000041' . '4243',
	'header-full' => $magic . 'c73801020304112233445566778819000041',
	'skippable-only' => $skippable,
	'skippable-first' => $skippable . $small,
	'skippable-last' => $small . $skippable,
	'skippable-between' => $small . $skippable . $small,
	'skippable-empty' => '5f2a4d1800000000' . $small,
	'skippable-cut' => $small . '502a4d18050000006865',
	'skippable-4g' => $small . '502a4d18ffffffff',
	'two-frames' => $small . $empty,
	'many-frames' => $small x 9,
	'skippable-header-cut' => $small . '502a4d180500',
	'header-cut' => $small . $magic . 'e000000000000001',
	'compressed-then-raw' => $magic . '20031500000000' . $magic
		. '0038190000414243',
	'window-first' => $magic . '0038010000' . $empty,
	'window-second-256m' => $small . $magic . '0090190000414243',
	'dictionary-second' => $empty . $magic . '210700010000' . $magic
		. '210900010000',
	'content-over-by-one' => $magic . '2004190000414243',
	'tail' => $small . '00',
	'tail-newline' => $small . '0a',
	'legacy-5' => '25b52ffd000000',
	'legacy-7' => '27b52ffd2003c00000',
	'checksum-wrong' => $magic . '24000100000099e9d8',
	'compressed-least' => $magic . '6000001500000000',
);

save("frame/$_", pack 'H*', $hex{$_}) for keys %hex;

for my $options (
	'-1', '-19', '--no-check', '--no-content-size', '--fast=5',
	'--no-check --no-content-size', '--ultra -22 --no-content-size',
) {
	my $frame = zstd($text, $options);
	(my $name = "zstd $options") =~ tr/ =/-/s;

	save("frame/$name", $frame);
	save("frame/$name-cut", substr($frame, 0, -5));
	save("frame/$name-twice", $frame . zstd('abc', $options));
}

# four control bytes: see t/fuzz/seektable.c
my $loose = zstd($text, '--no-content-size');
my %file = (
	sized => pack('H*', $small) . zstd($text, '-1'),
	loose => $loose . zstd('abc' x 100, '--no-content-size'),
	mixed => $loose . pack('H*', $skippable . $empty . $small) . $loose,
);
my %control = (
	agrees => [1, 0, 0, 255], checksums => [3, 0, 0, 9],
	shorter => [1, 0, 255, 4], longer => [1, 1, 1, 255],
	coded => [9, 1, 1, 50], fewer => [5, 0, 0, 20], none => [0, 0, 0, 1],
);

for my $name (keys %file) {
	for my $how (keys %control) {
		save("seektable/$name-$how",
			pack('C4', @{$control{$how}}) . $file{$name});
	}
}

my $entries = pack 'V4', length $loose, length $text, length $loose,
	length $text;
for my $footer (
	pack('VCV', 2, 0, 0x8f92eab1), pack('VCV', 2, 3, 0x8f92eab1),
	pack('VCV', 3, 0, 0x8f92eab1), pack('VCV', 2, 4, 0x8f92eab1),
	pack('VCV', 0x8000001, 0, 0x8f92eab1), pack('VCV', 2, 0, 0x8f92eab0),
) {
	my $tabled = $loose x 2 . pack('VV', 0x184d2a5e, 25) . $entries . $footer;
	my $name = 'table-' . unpack 'H*', $footer;

	save("frame/$name", $tabled);
	save("seektable/$name", pack('C4', 0, 0, 0, 40) . $tabled);
}

my @lines = (
	'', '*', 'zstd', 'gzip, deflate, br, zstd', 'ZSTD ; Q=1.000',
	'*;q=0, zstd', 'zstd;q=0, *', 'identity;q=1, *;q=0', 'identity;q=0, br',
	'identity;q=0, *', 'identity;q=0, *, zstd;q=0', 'zstd;q=0.5, identity',
	'identity;q=0.501,zstd;q=0.5', 'x-zstd, zstd2, dcz', 'notzstd, zstd',
	'zstd;q=1.001', 'zstd;q=2', 'zstd;q=0.0001', 'zstd;q=', 'zstd;q=0.',
	'zstd;q=1.', 'zstd;q=05', 'zstd;q=999', 'zstd;q=1;q=0', 'zstd;q=.5',
	'zstd;q =1', 'zstd;q= 1', 'zstd;', 'zstd;;q=1', 'zstd;level=3;q=1',
	'gzip;a="b, zstd"', 'gzip;a="\\", zstd"', 'gzip;a="\\\\", zstd',
	'gzip;a="b, zstd', "gzip, br\nzstd", "zstd\nzstd;q=0",
	",, ,\t,zstd\t,", "zstd\0", "zstd\xa0;q=1", 'br;q=1.0, zstd;q=0.1',
	"gzip;a=\"\\\nidentity;q=0.000", 'zstd;q=1.0000', '"zstd", identity',
	'identity;q=0.5, zstd;q=0.5', 'zstd/1', 'zstd gzip',
);

save(sprintf('accept/line-%02d', $_), $lines[$_]) for 0 .. $#lines;


sub save {
	my ($name, $content) = @_;

	open my $fh, '>:raw', "$folder/$name" or die "$folder/$name: $!\n";
	print $fh $content;
	close $fh or die "$folder/$name: $!\n";
}


sub zstd {
	my ($content, $options) = @_;

	my $file = "$folder/content";
	open my $fh, '>:raw', $file or die "$file: $!\n";
	print $fh $content;
	close $fh or die "$file: $!\n";

	my $frame = `zstd -q -c $options $file`;
	$? == 0 or die "zstd $options failed\n";

	unlink $file;

	return $frame;
}
