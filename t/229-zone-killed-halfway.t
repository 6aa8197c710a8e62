#!/usr/bin/perl

# Workers killed with the index half changed: in the middle of an eviction, of
# an insertion, of a table that is made anew.  The zone recovers each time, and
# no room is lost by it.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;

my $FILES = 24;

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(40);
my $hold = Hold->new($t);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

# 6 MB of files for 4 MB of room
my %zst;
for my $n (0 .. $FILES - 1) {
    $zst{"/f$n.bin"} = $t->zst("f$n.bin", $t->random(256_000, $n), level => 1);
}
# nearly all of the room: staged only when no page of it is lost
$t->raw_zst('all.bin', $zst{'/all.bin'} = $t->frame(single => 1, fcs => 4,
    fcs_bytes => 4, blocks => [[raw => 'abcd']])
    . $t->skippable("\0" x 4_000_000));
$t->settle('all.bin.zst');

$hold->run($t->conf(<<'EOT', http => 'zstd_mmap_zone z:4m hugepages=off;'));
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1;
    location = /status { zstd_mmap_status json; }
EOT


sub status { return JSON::PP::decode_json($t->get('/status')->body) }


sub right {
    my @wrong = grep {
        my $r = $t->get($_, 'Accept-Encoding: zstd');
        !$r->complete || $r->body ne $zst{$_};
    } @_;

    return !@wrong;
}


my @files = map { "/f$_.bin" } 0 .. $FILES - 1;
my $killed = 0;


# requests, until one is killed at that call; checks of their own
sub dies_at {
    my ($call, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $hold->order($call, 'kill');
    my $n = 0;
    my $gone = $t->poll(sub {
        $t->get($files[$n++ % @files], 'Accept-Encoding: zstd');
        return $hold->taken_now();
    });
    ok($gone, "$name: killed at $call");
    $killed++;
    ok($t->wait_log(qr/exited on signal 9/, $killed)
       && $t->poll(sub { $t->worker_pids() == 2 }), "$name: a new worker");
}


# all is right, the table was made anew so often, and no page is lost
sub recovers {
    my ($name, $emptied) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ok($t->poll(sub { right(@files[0 .. 3]);
                      $t->log_count(qr/"z" was emptied/) == $emptied }),
       "$name: emptied");
    ok(right(@files), "$name: all replies are right");

    my $before = status()->{counters}{staged};
    ok($t->poll(sub { right('/all.bin')
                      && status()->{zones}{z}{used} > 4_000_000 }),
       "$name: a file that needs all of the room is staged");
    cmp_ok(status()->{zones}{z}{used}, '<=', 4 << 20, "$name: used <= size");

    ok(right(@files, @files), "$name: and evicted again");
}


ok(right(@files, @files), 'before');
cmp_ok(status()->{counters}{evicted}, '>', 10, 'evictions happen');

dies_at('ngx_slab_free_locked', 'eviction, before the room is free');
recovers('eviction, before the room is free', 1);

dies_at('ngx_rbtree_delete', 'eviction, room free, still in the tree');
recovers('eviction, room free, still in the tree', 2);

$t->replace('f0.bin.zst', $zst{'/f0.bin'} = $t->compress(
    $t->random(300_000, 100), level => 1));
$t->settle('f0.bin.zst');
dies_at('ngx_rbtree_insert', 'a new slot, not yet in the tree');
recovers('a new slot, not yet in the tree', 3);

# the first death breaks the table, the second is in the middle of mending it
dies_at('ngx_rbtree_delete', 'mending');
dies_at('ngx_slab_init', 'mending, slots are free, room is not');
recovers('mending', 4);

# both workers are killed, one with a pin, one that mends
dies_at('ngx_slab_alloc_locked', 'mending, twice');
dies_at('ngx_slab_init', 'mending, twice: once');
dies_at('ngx_slab_init', 'mending, twice: and again');
ok($t->poll(sub { right(@files[0 .. 3]);
                  $t->log_count(qr/"z" was emptied/) == 5 }),
   'emptied after that');
is($t->log_count(qr/died inside zstd_mmap_zone "z"/), $killed,
   'all of them were inside the lock');
