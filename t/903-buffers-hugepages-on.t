#!/usr/bin/perl

# "zstd_mmap_buffers SIZE hugepages=on" starts only where the pool has the
# pages of all workers; afterwards it is as good as what the pool has left.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Hugepages;
use Test::Zmap::Status;

my $SHORT = qr/\[warn\].*zstd_mmap_buffers.*\bthp pages/;

my $pool = Test::Zmap::Hugepages->new();
my $t = Test::Zmap->new(workers => 2, log_level => 'info')->plan(19);
my $s = Test::Zmap::Status->new($t);

my $text = $t->text(500_000, 1);
$t->zst('a.txt', $text);
$t->settle('a.txt.zst');
$pool->set('enabled', 'madvise');


# two huge pages for each of two workers
sub conf {
    my ($mode, $size) = @_;

    my $conf = $t->conf('zstd_mmap on;' . $s->location,
        http => 'zstd_mmap_buffers ' . ($size // '4m') . " $mode;");
    $conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& reuseport/;

    return $conf;
}


# asks until both workers have answered; true when all replies were right
sub ask_both {
    return $t->poll(sub {
        die "wrong\n" if $t->get('/a.txt')->body ne $text;
        my @workers = @{$s->get->{workers}};
        return @workers == 2 && 2 == grep { $_->{files} } @workers;
    });
}


sub pages {
    return join ' ', sort map { $_->{buffers}{pages} } @{$s->get->{workers}};
}


sub lacks {
    my ($n) = @_;

    return qr/\[emerg\].*zstd_mmap_buffers.*\b$n\ are\ missing
              .*vm\.nr_hugepages/x;
}


$t->expect_alert(qr/\[emerg\].*zstd_mmap_buffers/);

for my $row ([0, 4], [3, 1], [1, 3]) {
    my ($have, $lack) = @$row;
    $pool->pool($have);
    my $before = $t->log_count(lacks($lack));
    ok($t->start_failed(conf('hugepages=on')),
       "$have of 4 pages: it does not start");
    $t->stop();
    is($t->log_count(lacks($lack)) - $before, 1,
       "$have of 4 pages: says how many are missing, and what to do");
}

$pool->pool(0);
my ($code, $output) = $t->test_config(conf('hugepages=on'));
is($code, 0, 'a test of the configuration is no start');
is($pool->free, 0, 'and takes no page');

# enough

$pool->pool(4);
$t->run(conf('hugepages=on'));
is($pool->free, 4, 'it starts, and takes no page before it is asked');
ok(ask_both(), 'both workers answer');
is(pages(), 'hugetlb hugetlb', 'from huge pages');
is($pool->free, 0, 'all are in use');

my @workers = sort $t->worker_pids();
ok($t->reload(), 'a reload with the same values is no start');
is(scalar(grep { my $pid = $_; grep { $_ == $pid } @workers }
          $t->worker_pids()), 0, 'and gives new workers');
ok(ask_both(), 'which answer');

# more than there is, at a reload: the old workers may hold what is asked for

my $warned = $t->log_count($SHORT);
$t->reload(conf => conf('hugepages=on', '64m'));
ok(ask_both(), 'a reload that needs more goes on');
is(pages(), 'thp thp', 'with other pages');
is($t->log_count($SHORT) - $warned, 2, 'and each worker says so');

# what happens to the pool later ends no service

$t->stop();
$t->poll(sub { $pool->free == 4 });
$t->run(conf('hugepages=on'));
$pool->pool(0);
ok(ask_both() && pages() eq 'thp thp',
   'pages that went away after the start are done without');
