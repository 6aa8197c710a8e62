#!/usr/bin/perl

# Random ranges over streamed bodies of one frame, of many, with a seek table,
# and of frames whose sizes only the table says.  At full size:
# t/large/ranges.t.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/frames';
use Body;
use Ranges;
use Test::Zmap;

my $SIZE = 3_000_001;
my $COUNT = 40;

my $t = Test::Zmap->new(log_level => 'info')->plan(13);
my $body = Body->new($t, $SIZE);

for my $dir (qw(map read)) {
    $body->many("$dir/seekable.bin", 65536, table => 1);
    $body->many("$dir/frames.bin", 100_000);
    $body->one("$dir/one.bin");
    $body->many("$dir/table.bin", 65536, size => 0, table => 1);
}
$t->settle('read/table.bin.zst');

$t->run($t->conf(<<'EOF', http => 'zstd_mmap_buffers 1m max=32k;'));
    zstd_mmap on;
    zstd_mmap_chunk 16k;
    location /read/ { zstd_mmap_input read; }
EOF


my $seed = 0;

for my $dir (qw(map read)) {
    for my $name (qw(seekable frames one)) {
        my $ranges = Ranges->new($t, "/$dir/$name.bin", $body);
        is(join("\n", $ranges->random($COUNT, ++$seed)), '', "$dir: $name");
        is($ranges->ask('0-', 0, $SIZE - 1), '', "$dir: $name, all of it")
            if $dir eq 'map';
        $ranges->close();
    }

    my $ranges = Ranges->new($t, "/$dir/table.bin", $body);
    is($ranges->ask('5-9', 5, 9), '', "$dir: sizes by table, at once");
    is(join("\n", $ranges->random($COUNT, ++$seed)), '', "$dir: table");
}
