#!/usr/bin/perl

# A zone of huge pages: a pool of 40, a zone of 32 MB, two workers.  The pages
# are taken once, kept over reloads, and given back however nginx ends.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Machine;

my $POOL = 40;
my $FILES = 6;

my $machine = Test::Zmap::Machine->new();
my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(31);

$t->expect_alert(qr/\[emerg\].*zstd_mmap_zone "z" lacks \d+ huge pages/);
$t->expect_alert(qr/\[emerg\].*still could not bind/);
$t->expect_alert(qr/\[emerg\].*Address already in use/);

my @zst = map { $t->zst("f$_.bin", $t->random(300_000, $_), level => 1) }
    0 .. $FILES - 1;
$t->settle("f$_.bin.zst") for 0 .. $FILES - 1;


sub configuration {
    my ($zone, $listen) = @_;

    my $stage = $zone ? 'zstd_mmap_stage z;' : '';
    $listen //= '';

    return $t->conf(<<"EOT", http => <<"EOH");
    $listen
    zstd_mmap on;
    location / { $stage }
    location = /status { zstd_mmap_status json; }
EOT
$zone
zstd_mmap_buffers 1m hugepages=off;
EOH
}


sub zone_status {
    return JSON::PP::decode_json($t->get('/status')->body)->{zones}{z};
}


sub right {
    my ($times) = @_;

    return scalar grep {
        my $r = $t->get("/f$_.bin", 'Accept-Encoding: zstd');
        $r->status == 200 && $r->complete && $r->body eq $zst[$_];
    } (0 .. $FILES - 1) x $times;
}


# a check of its own: so many pages are free, soon
sub free_is {
    my ($count, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $t->poll(sub { $machine->free() == $count });
    is($machine->free(), $count, $name);
}


my $conf = configuration('zstd_mmap_zone z:32m;');
my $other = configuration('zstd_mmap_zone z:36m hugepages=on;');

$machine->pool($POOL);

for my $zone ('z:32m', 'z:32m hugepages=on', 'z:512m hugepages=on') {
    my ($code) = $t->test_config(configuration("zstd_mmap_zone $zone;"));
    is($code, 0, "nginx -t, $zone");
    free_is($POOL, "nginx -t, $zone: nothing is taken");
}

$t->run($conf);
free_is($POOL - 16, '16 pages are taken');
is(zone_status()->{pages}, 'hugetlb', 'the status says so');
is($t->log_count(qr/zstd_mmap_zone "z".* has hugetlb pages/), 1,
   'and one line of the log');

is(right(20), 20 * $FILES, 'files asked for often: right');
is(zone_status()->{segments}, $FILES, "$FILES segments, not twice as many");
free_is($POOL - 16, 'still 16 pages');

# beside a server that has the pages: no reason to refuse, and nothing taken
my ($code, $said) = $t->test_config(
    configuration('zstd_mmap_zone z:64m hugepages=on;')
    . "error_log %%RUN%%/test-warnings.log warn;\n");
is($code, 0, 'nginx -t beside it');
like($said, qr/"z" needs 32 huge pages of 2 MB, 24 are free now/,
     'warns of what is free now');
free_is($POOL - 16, 'and takes nothing');

ok($t->reload(conf => $conf), 'reload');
free_is($POOL - 16, 'reload: still 16 pages');
is(zone_status()->{segments}, $FILES, 'reload: the segments are there');

# reloads that fail give back what they took
my $taken = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0,
    Listen => 1) or die "listen: $!";
my $listen = 'listen 127.0.0.1:' . $taken->sockport() . ';';
for my $row (['too large', configuration('zstd_mmap_zone z:64m hugepages=on;'),
              qr/lacks 8 huge pages of 2 MB: .* vm\.nr_hugepages by 8/],
             ['port taken', configuration('zstd_mmap_zone z:36m;', $listen),
              qr/still could not bind/])
{
    my ($name, $text, $re) = @$row;

    $t->_write_conf($text);
    $t->kill('HUP', $t->master_pid());
    ok($t->wait_log($re), "$name: refused");
    free_is($POOL - 16, "$name: nothing more is taken");
    is(right(1), $FILES, "$name: right");
}

# another size: both for a while, then the new one; then none
ok($t->reload(conf => $other), 'another size');
free_is($POOL - 18, 'another size: 18 pages');
$t->reload(conf => configuration('')) or die "no reload\n";
free_is($POOL, 'no zone: all given back');

$t->reload(conf => $conf) or die "no reload\n";
is(right(3), 3 * $FILES, 'again a zone: right');
$t->stop();
free_is($POOL, 'QUIT: all given back');

$t->run($conf);
right(3);
$t->kill('TERM', $t->master_pid());
$t->poll(sub { $t->_reap() });
free_is($POOL, 'TERM: all given back');

# kill -9 of all, in the middle of replies
$t->run($conf);
right(3);
$t->kill('KILL', $t->master_pid(), $t->worker_pids());
$t->poll(sub { $t->_reap() });
free_is($POOL, 'KILL of all: all given back');
unlink $t->run_dir() . '/nginx.pid';
