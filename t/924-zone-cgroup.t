#!/usr/bin/perl

# The pool has the pages, but a control group keeps nginx from them: when they
# are touched, or already when they are reserved.  Same bytes, one line of the
# log, the status says what the zone has; "hugepages=on" refuses to start.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Cgroup;
use Test::Zmap::Machine;

my $POOL = 8;

my $machine = Test::Zmap::Machine->new();
my $group = Test::Zmap::Cgroup->new();
my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(52);

$t->expect_alert(qr/\[emerg\].*zstd_mmap_zone "z" may not have huge pages/);
diag('version ' . $group->version());

my @text = map { $t->text(100_000, $_) } 0 .. 3;
my @zst = map { $t->zst("f$_.txt", $text[$_]) } 0 .. 3;
$t->settle('f3.txt.zst');


# a zone of four pages, buffers of two for each of two workers
sub configuration {
    my ($mode) = @_;

    return $t->conf(<<'EOT', http => <<"EOH");
    zstd_mmap on;
    zstd_mmap_stage z;
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone z:8m hugepages=$mode;
zstd_mmap_buffers 4m hugepages=auto;
EOH
}


sub serve {
    my ($name, $pages, $re, $buffers) = @_;

    my $count = $t->log_count(qr/zstd_mmap_zone/);
    my $before = $t->log_count($re);
    my $hit = $group->refusals('used');

    $group->inside(sub { $t->run(configuration('auto')) });

    my $right = grep {
        my $z = $t->get("/f$_.txt", 'Accept-Encoding: zstd');
        my $i = $t->get("/f$_.txt", 'Accept-Encoding: identity');
        $z->status == 200 && $z->body eq $zst[$_]
            && $i->status == 200 && $i->body eq $text[$_];
    } (0 .. 3) x 3;
    is($right, 12, "$name: the same bytes");

    my $status = JSON::PP::decode_json($t->get('/status')->body);
    is($status->{zones}{z}{segments}, 4, "$name: staged");
    is($status->{zones}{z}{pages}, $pages, "$name: the status says $pages");
    is($t->log_count($re) - $before, 1, "$name: the log says why");
    is($t->log_count(qr/zstd_mmap_zone/) - $count, 1, "$name: in one line");

    my %kinds = map { $_->{buffers}{pages} => 1 }
        grep { $_->{buffers}{size} } @{$status->{workers}};
    is(join(' ', sort keys %kinds), $buffers, "$name: buffers are $buffers");

    $t->stop();
    is($machine->free(), $POOL, "$name: the pool is whole");

    return $group->refusals('used') - $hit;
}


sub refuses {
    my ($name, $re) = @_;

    my $before = $t->log_count($re);

    unlink $t->run_dir() . '/nginx.pid';
    my $failed;
    $group->inside(sub {
        $failed = $t->start_failed(configuration('on'));
    });
    ok($failed, "$name: hugepages=on does not start");
    is($t->log_count($re) - $before, 1, "$name: and says so");
    is($machine->free(), $POOL, "$name: and takes nothing");
}


$machine->pool($POOL);
$machine->set('shmem_enabled', 'never');
$machine->set('enabled', 'never');

my $plain = qr/"z" of 8388608 bytes has plain pages, since the kernel gives/;
my $thp = qr/"z" of 8388608 bytes has thp pages, since the kernel gives it/;

# without a limit all of this is huge, so that the limits are what counts
my $hugetlb = qr/"z" of 8388608 bytes has hugetlb pages/;
is(serve('no limit', 'hugetlb', $hugetlb, 'hugetlb'), 0,
   'no limit: none was hit');

$group->limit(used => 1);
cmp_ok(serve('touched', 'plain', $plain, 'plain'), '>', 0,
       'touched: the limit was hit');
refuses('touched', qr/may not have huge pages of 2 MB: a limit of a cgroup/);

$machine->set('shmem_enabled', 'advise');
$machine->set('enabled', 'madvise');
$group->limit(used => 0);
cmp_ok(serve('touched, thp', 'thp', $thp, 'thp'), '>', 0,
       'touched, thp: the limit was hit');

$machine->set('shmem_enabled', 'never');
$group->limit(used => undef);
$group->limit(reserved => 1);
serve('reserved', 'plain', $plain, 'thp');
refuses('reserved', qr/may not have huge pages of 2 MB: a limit of a cgroup/);

# room for the zone, none for the workers
$group->limit(reserved => 4);
serve('reserved for the zone', 'hugetlb', $hugetlb, 'thp');

$group->limit(reserved => undef);
is(serve('no limit again', 'hugetlb', $hugetlb, 'hugetlb'), 0,
   'no limit again: none was hit');
