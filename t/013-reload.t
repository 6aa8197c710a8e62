#!/usr/bin/perl

# 200 reloads, half of them with a configuration that is refused: neither the
# master nor a worker gets larger, and nothing stays mapped or open.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $WARM_UP = 20;
my $RELOADS = 100;
my $KB_EACH = 1;

# freed memory goes back at once, so that it cannot look like a leak
$ENV{ASAN_OPTIONS} = join ':', grep { length } $ENV{ASAN_OPTIONS} // '',
    'quarantine_size_mb=0', 'thread_local_quarantine_size_kb=0';

my $t = Test::Zmap->new(log_level => 'info')->plan(8);

my $text = $t->text(200_000, 1);
$t->zst('a.txt', $text);
$t->zst('b.txt', $text, size => 0);
$t->settle('a.txt.zst', 'b.txt.zst');

my $location = <<'EOF';
zstd_mmap on;
zstd_mmap_decode on;
zstd_mmap_chunk 64k;
zstd_mmap_verify structure;
zstd_mmap_send_window 8m;
zstd_mmap_decode_window 8m;
zstd_mmap_max_size 1g;
zstd_mmap_vary on;
EOF

my $http = 'zstd_mmap_buffers 8m max=1m; zstd_mmap_cache max=9;';
my $good = $t->conf("$location location /x/ { $location }", http => $http);
my $bad = $good =~ s/(.*)zstd_mmap_vary on;/$1zstd_mmap_vary broken;/sr;

$t->expect_alert(qr/invalid value "broken" in "zstd_mmap_vary" directive/);
$t->run($good);


sub slurp {
    my ($path) = @_;

    open(my $fh, '<', $path) or die "$path: $!";
    local $/;

    return <$fh>;
}


sub measure {
    my ($pid) = @_;

    my ($rss) = slurp("/proc/$pid/status") =~ /^VmRSS:\s+(\d+)/m;

    return { rss  => $rss,
             pid  => $pid,
             maps => scalar(split /^/, slurp("/proc/$pid/maps")),
             fds  => descriptors($pid) };
}


sub descriptors { return scalar(() = glob("/proc/$_[0]/fd/*")) }


# the master and a worker that has used everything once
sub now {
    my $right = $t->get('/a.txt')->body eq $text
                && $t->get('/b.txt')->body eq $text
                && $t->get('/a.txt', 'Accept-Encoding: zstd')->status == 200;
    $right or die "wrong reply\n";

    return (measure($t->master_pid()), measure(($t->worker_pids())[0]));
}


# how many reloads ended as they should
sub reloads {
    my ($count) = @_;

    my $done = 0;
    for (1 .. $count) {
        $done++ if $t->reload(conf => $good)
                   && $t->get('/a.txt')->body eq $text;
    }

    return $done;
}


my $refusals = 0;


sub refused_reloads {
    my ($count) = @_;

    my $done = 0;
    my $worker = ($t->worker_pids())[0];
    $t->_write_conf($bad);
    for (1 .. $count) {
        $t->kill('HUP', $t->master_pid());
        $done++ if $t->wait_log(qr/\[emerg\].*"broken"/, ++$refusals)
                   && ($t->worker_pids())[0] == $worker;
    }

    return $done;
}


reloads($WARM_UP);
refused_reloads(5);
my ($master, $worker) = now();

is(reloads($RELOADS), $RELOADS, 'reloads, and a right reply after each');
is(refused_reloads($RELOADS), $RELOADS, 'refused, and the old worker stays');
my ($master_end, $worker_end) = now();

my $bound = 2 * $RELOADS * $KB_EACH;
for my $row (['master', $master, $master_end],
             ['worker', $worker, $worker_end])
{
    my ($who, $before, $after) = @$row;
    cmp_ok($after->{rss} - $before->{rss}, '<', $bound, "$who: memory");
    cmp_ok($after->{maps} - $before->{maps}, '<', 8, "$who: mappings");

    # connections that the test has closed go a little later
    ok($t->poll(sub { descriptors($after->{pid}) <= $before->{fds} }),
       "$who: descriptors");
    note("$who: $before->{rss} -> $after->{rss} kB, "
         . "$before->{maps} -> $after->{maps} mappings");
}
