#!/usr/bin/perl

# A file shrinks while open_file_cache still vouches for it: whatever the bytes
# come from, the request finds the new version, and no later one the old.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use Test::Zmap;

my @inputs = qw(map read scratch);

my $t = Test::Zmap->new()->plan(4 * @inputs);

my $old = $t->random(300_000, 1);
my $new = $t->random(50_000, 2);
my $long = $t->random(3_000_000, 3);

$t->zst("$_/whole", $old) for @inputs;
$t->zst("$_/stream", $long) for @inputs;
$t->settle('scratch/stream.zst');

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 8m max=1m;'));
    open_file_cache max=100;
    open_file_cache_valid 1h;
    zstd_mmap on;
    location /read/ { zstd_mmap_input read; }
    location /scratch/ { zstd_mmap_input scratch; }
EOC


# what happens at $uri within one second: it was looked at, and shrinks
sub shrink {
    my ($uri) = @_;

    $t->poll(sub { my $now = time(); $now - int $now < 0.2 })
        or die "no second begins\n";
    my $r = $t->head($uri);
    $t->write("$uri.zst", $t->compress($new));

    return $r->status == 200;
}


for my $input (@inputs) {
    ok(shrink("/$input/whole"), "$input: HEAD");
    my $r = $t->get("/$input/whole");
    is($r->status, 200, "$input: a file that shrinks");
    ok($r->body eq $new, "$input: the new bytes");

    # after the header there is no way back, but the next request has one
    shrink("/$input/stream");
    $t->get("/$input/stream");
    $r = $t->get("/$input/stream");
    ok($r->status == 200 && $r->body eq $new, "$input: a stream before it");
}
