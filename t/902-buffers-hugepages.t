#!/usr/bin/perl

# "zstd_mmap_buffers ... hugepages=": whatever the pool of huge pages has, the
# same bytes are served; the log says once what was had, the status as well.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Hugepages;
use Test::Zmap::Status;

my $LINE = qr/zstd_mmap_buffers/;

my $pool = Test::Zmap::Hugepages->new();
my $t = Test::Zmap->new(log_level => 'info')->plan(13 * 6 + 5);
my $s = Test::Zmap::Status->new($t);

my $text = $t->text(500_000, 1);
$t->zst('a.txt', $text);
$t->settle('a.txt.zst');

my $runs = 0;


# four huge pages of buffers, in a new worker
sub start {
    my ($mode) = @_;

    my $conf = $t->conf('zstd_mmap on;' . $s->location,
                        http => "zstd_mmap_buffers 8m $mode;");
    $runs++ ? $t->reload(conf => $conf) : $t->run($conf);
}


# what a worker makes of it: pages of the status, lines of the log that match,
# free pages then
sub seen {
    my ($name, $pages, $lines, $left) = @_;

    my $all = $t->log_count($LINE);
    my $matching = ref $lines ? $t->log_count($lines) : 0;

    my @right = grep {
        my $r = $t->get('/a.txt');
        $r->status == 200 && $r->complete && $r->body eq $text
    } 1 .. 3;
    is(@right, 3, "$name: the same bytes");
    is($t->get('/a.txt', 'Range: bytes=99-149999')->body,
       substr($text, 99, 149_901), "$name: and a range of them");

    ok($s->poll(sub { $_[0]{buffers}{pages} eq $pages
                      && $_[0]{buffers}{size} == 8 << 20 }),
       "$name: $pages pages") or diag(explain($s->worker));
    is($pool->free, $left, "$name: pages of the pool");

    is($t->log_count($LINE) - $all, ref $lines ? 1 : 0,
       "$name: " . (ref $lines ? 'one line' : 'no line') . ' in the log');
    is(ref $lines ? $t->log_count($lines) - $matching : 0,
       ref $lines ? 1 : 0, "$name: as it should be");
}


sub lacks {
    my ($n, $pages) = @_;

    return qr/\[warn\].*zstd_mmap_buffers.*\b$pages pages.*\b$n are missing/;
}


$pool->set('enabled', 'madvise');

$pool->pool(4);
start('');
seen('by default', 'thp', 0, 4);
start('hugepages=off');
seen('off', 'thp', 0, 4);
start('hugepages=auto');
is($pool->free, 4, 'auto: nothing is taken before it is needed');
seen('auto', 'hugetlb', 0, 0);
start('hugepages=off');
ok($t->poll(sub { $pool->free == 4 }), 'the end of a worker gives back');

$pool->pool(0);
start('hugepages=auto');
seen('auto, an empty pool', 'thp', lacks(4, 'thp'), 0);

$pool->pool(3);
start('hugepages=auto');
seen('auto, a pool that is too small', 'thp', lacks(1, 'thp'), 3);

$pool->pool(4);
$pool->take(2);
start('hugepages=auto');
seen('auto, a neighbour has two pages', 'thp', lacks(2, 'thp'), 2);
$pool->give_back;
ok($t->poll(sub { $pool->free == 4 }), 'the neighbour goes');
start('hugepages=auto');
seen('auto, without the neighbour', 'hugetlb', 0, 0);
start('hugepages=off');
$t->poll(sub { $pool->free == 4 });

$pool->set('enabled', 'never');
$pool->pool(0);
start('hugepages=auto');
seen('auto, no huge page at all', 'plain', lacks(4, 'plain'), 0);
start('hugepages=off');
seen('off, no huge page at all', 'plain', 0, 0);
$pool->set('enabled', 'always');
start('hugepages=off');
seen('off, transparent ones for all', 'thp', 0, 0);
$pool->set('enabled', 'madvise');

# a limit that does not show in the pool

$pool->pool(4);
start('hugepages=auto');
$pool->limit(3, $t->worker_pids());
seen('auto, a cgroup allows three', 'thp',
     qr/\[warn\].*zstd_mmap_buffers.*\bthp pages/, 4);
unlike(($t->log_lines($LINE))[-1], qr/[1-9]\d* are missing/,
       'the pool does not lack them');

# no page is lost when a worker dies

start('hugepages=auto');
seen('auto, after all that', 'hugetlb', 0, 0);
$t->expect_alert(qr/exited on signal 9/);
my ($pid) = $t->worker_pids();
$t->kill('KILL', $pid);
$t->poll(sub { my @now = $t->worker_pids(); @now == 1 && $now[0] != $pid });
seen('auto, the next worker of one that was killed', 'hugetlb', 0, 0);

$t->stop();
ok($t->poll(sub { $pool->free == 4 }), 'all pages are back at the end');
