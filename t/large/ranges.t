#!/usr/bin/perl

# t/044-ranges-random.t at full size: 500 random ranges of 1 GB each.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/frames';
use Body;
use Ranges;
use Test::Zmap;

my $SIZE = 1_000_000_007;
my $COUNT = 500;

# of frames whose length was learnt, but whose places are not known
my $SLOW_COUNT = 10;

my $t = Test::Zmap->new(log_level => 'info', timeout => 60)->plan(8);
my $body = Body->new($t, $SIZE);

$body->many('seekable.bin', 1 << 20, table => 1);
$body->many('frames.bin', 3_000_000);
$body->one('one.bin');
$body->many('table.bin', 1 << 20, size => 0, table => 1);
$t->settle('table.bin.zst');

$t->run($t->conf(<<'EOF'));
    zstd_mmap on;
    keepalive_requests 10000;
    location /read/ { alias %%DIR%%/; zstd_mmap_input read; }
EOF


my $seed = 100;


sub random {
    my ($uri, $count) = @_;

    my $ranges = Ranges->new($t, $uri, $body);
    my $start = time;
    is(join("\n", $ranges->random($count, ++$seed)), '',
       "$uri: $count ranges");
    note(time - $start, ' s');
}


random('/seekable.bin', $COUNT);
random('/read/seekable.bin', $COUNT);
random('/frames.bin', $COUNT);
random('/read/frames.bin', $COUNT);
random('/one.bin', $COUNT);
random('/read/one.bin', $SLOW_COUNT);

my $ranges = Ranges->new($t, '/table.bin', $body);

is($ranges->ask('5-9', 5, 9), '', 'sizes by table: a range at once');
random('/table.bin', $COUNT);
