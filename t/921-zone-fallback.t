#!/usr/bin/perl

# The pool is empty, too small, or a neighbour has it: same bytes, one line of
# the log, the status says what the zone has.  "hugepages=on" refuses to start
# and says what is missing.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Machine;

my $machine = Test::Zmap::Machine->new();
my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(43);

$t->expect_alert(qr/\[emerg\].*zstd_mmap_zone "z" lacks \d+ huge pages/);

my @text = map { $t->text(100_000, $_) } 0 .. 3;
my @zst = map { $t->zst("f$_.txt", $text[$_]) } 0 .. 3;
$t->settle('f3.txt.zst');


sub configuration {
    my ($zone) = @_;

    return $t->conf(<<'EOT', http => <<"EOH");
    zstd_mmap on;
    zstd_mmap_stage z;
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone $zone;
zstd_mmap_buffers 1m hugepages=off;
EOH
}


sub serve {
    my ($name, $zone, $pages, $re) = @_;

    my $count = $t->log_count(qr/zstd_mmap_zone/);
    my $before = $t->log_count($re);

    $t->run(configuration($zone));

    my $right = grep {
        my $z = $t->get("/f$_.txt", 'Accept-Encoding: zstd');
        my $i = $t->get("/f$_.txt", 'Accept-Encoding: identity');
        $z->body eq $zst[$_] && $i->body eq $text[$_];
    } (0 .. 3) x 3;
    is($right, 12, "$name: the same bytes");

    my $status = JSON::PP::decode_json($t->get('/status')->body)->{zones}{z};
    is($status->{segments}, 4, "$name: staged");
    is($status->{pages}, $pages, "$name: the status says $pages");
    is($t->log_count($re) - $before, 1, "$name: the log says why");
    is($t->log_count(qr/zstd_mmap_zone/) - $count, 1, "$name: in one line");

    $t->stop();
}


sub refuses {
    my ($name, $missing) = @_;

    my $free = $machine->free();
    my $re = qr/\[emerg\].*"z" lacks $missing huge pages of 2 MB/;
    my $before = $t->log_count($re);

    unlink $t->run_dir() . '/nginx.pid';
    ok($t->start_failed(configuration('z:8m hugepages=on')),
       "$name: hugepages=on does not start");
    is($t->log_count($re) - $before, 1, "$name: says what is missing");
    ok($t->log_count(qr/lacks $missing.*vm\.nr_hugepages by $missing\b/),
       "$name: says how to reserve it");
    is($machine->free(), $free, "$name: and takes nothing");
}


my $plain = qr/"z" of 8388608 bytes has plain pages, since 4 huge pages/;
my $short = qr/"z" of 8388608 bytes has plain pages, since 1 huge pages/;
my $thp = qr/"z" of 8388608 bytes has thp pages, since 4 huge pages/;

$machine->set('shmem_enabled', 'never');
$machine->pool(0);
serve('pool empty', 'z:8m', 'plain', $plain);
refuses('pool empty', 4);

$machine->pool(3);
serve('pool too small', 'z:8m', 'plain', $short);
refuses('pool too small', 1);

# the zone of another nginx
$machine->pool(4);
# its four last checks are of this plan, too
my $neighbour = Test::Zmap->new(log_level => 'notice');
$neighbour->{planned} = 1;
$neighbour->run($neighbour->conf('zstd_mmap on;', http => <<'EOH'));
zstd_mmap_zone n:8m hugepages=on;
zstd_mmap_buffers 1m hugepages=off;
EOH
is($machine->free(), 0, 'a neighbour takes the pool');
serve('taken by a neighbour', 'z:8m', 'plain', $plain);
refuses('taken by a neighbour', 4);
$neighbour->stop();
ok($t->poll(sub { $machine->free() == 4 }), 'the neighbour leaves');

serve('pages are there', 'z:8m hugepages=on', 'hugetlb',
      qr/"z" of 8388608 bytes has hugetlb pages/);

$machine->pool(0);
$machine->set('shmem_enabled', 'advise');
serve('shmem_enabled is advise', 'z:8m', 'thp', $thp);
