#!/usr/bin/perl

# More files than the zone has room for, of random sizes, asked for at random
# by two workers, slow readers among them; then the same with workers that are
# killed: evictions happen, bytes are right, "used" stays within "size".
#
# ZMAP_SOAK: seconds (8).  SEED: of the random sizes and moments (printed).

use strict;
use warnings;

use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Load;

my $SECONDS = $ENV{ZMAP_SOAK} || 8;
my $SEED = $ENV{SEED} || time() % 1_000_000 | 0;
my $FILES = 200;
my @CLIENTS = qw(fresh kept kept slow slow slow);

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(18);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);
diag("$SECONDS s, SEED=$SEED");
srand($SEED);

my $random = $t->random(3 << 20, $SEED);
my (%files, $total);
for my $n (1 .. $FILES) {
    my $size = int 2 ** rand 21.5;
    my $text = substr $random, rand(length($random) - $size), $size;
    my $zst = $t->frame(single => 1, fcs => $size, fcs_bytes => 4,
        blocks => [map { [raw => substr $text, $_ << 17, 1 << 17] }
                   0 .. ($size - 1) >> 17]);
    $t->raw_zst("f$n.bin", $zst);
    $files{"/f$n.bin"} = { zstd => [$zst] };
    $files{"/f$n.bin"}{identity} = [$text] if $n % 4 == 0;
    $total += length $zst;
}
$t->settle("f$FILES.bin.zst");

$t->run($t->conf(<<'EOT', http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_stage z;
    zstd_mmap_send memory;
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone z:8m hugepages=off;
zstd_mmap_buffers 4m max=1m hugepages=off;
EOH


sub status {
    my $body = $t->get('/status')->body;

    return eval { JSON::PP::decode_json($body) };
}


# calls $work again and again; the largest "used" and the loaded segments
sub run_load {
    my ($seconds, $work) = @_;

    my $load = Test::Zmap::Load->start($t, \%files, kinds => [@CLIENTS],
                                       seed => $SEED,
                                       slow_port => $t->port(2));
    my ($used, $seen, $segments) = (0, 0, 0);
    my $end = time() + $seconds;

    while (time() < $end) {
        sleep(0.05);
        $work->() if $work;
        my $status = status() // next;
        my $zone = $status->{zones}{z};
        $seen++;
        $used = $zone->{used} if $zone->{used} > $used;
        $segments = $zone->{segments} if $zone->{segments} > $segments;
    }

    return ($load->stop(), $used, $segments, $seen);
}


cmp_ok($total, '>', 2 * (8 << 20), 'the files are twice the zone');

my ($count, $used, $segments, $seen) = run_load($SECONDS);
my $counters = status()->{counters};

cmp_ok($count->{complete}, '>', 50 * $SECONDS / ($ENV{TEST_SCALE} || 1),
       'many replies');
is(join(' ', map { "$_:$count->{$_}" } qw(cut lost ended refused wrong)),
   'cut:0 lost:0 ended:0 refused:0 wrong:0', 'all are right')
    or diag(join "\n", @{$count->{faults}});
cmp_ok($seen, '>', $SECONDS, 'the status was looked at');
cmp_ok($used, '<=', 8 << 20, 'used stays within size');
cmp_ok($used, '>', 4 << 20, 'the zone was full');
cmp_ok($segments, '>', 2, 'of segments');
cmp_ok($counters->{evicted}, '>', 10, 'evictions happen');
cmp_ok($counters->{staged}, '>=', $counters->{evicted},
       'not more than were staged');
diag("staged $counters->{staged}, evicted $counters->{evicted}, "
     . "used up to $used, $count->{complete} replies");

# the same, and every now and then a worker dies
my $kills = 0;
($count, $used) = run_load($SECONDS / 2, sub {
    my @pids = $t->worker_pids();
    return if !@pids || rand() < 0.7;
    $kills += eval { $t->kill('KILL', $pids[rand @pids]) } // 0;
});
cmp_ok($kills, '>', 0, 'workers were killed');
is("$count->{refused} $count->{wrong}", '0 0', 'killed: none is wrong')
    or diag(join "\n", grep { /^(?:refused|wrong)/ } @{$count->{faults}});
cmp_ok($count->{complete}, '>', 10, 'killed: replies');
cmp_ok($used, '<=', 8 << 20, 'killed: used stays within size');
ok($t->poll(sub { $t->worker_pids() == 2 }), 'two workers again');

# No pin is left: a file that needs nearly all of the zone finds room.  An
# attempt evicts 16 segments, the next one follows twice as many uses later, up
# to 255: uses are what counts, not time.
my $all = $t->raw_zst('all.bin', $t->frame(single => 1, fcs => 7_500_000,
    blocks => [([rle => 'x', 1 << 17]) x 57, [rle => 'x', 28_896]])
    . $t->skippable("\0" x 7_000_000));
$t->settle('all.bin.zst');
my $staged = status()->{counters}{staged};
my $uses = 0;
while ($uses++ < 16 * 255 && status()->{counters}{staged} == $staged) {
    $t->get('/all.bin', 'Accept-Encoding: zstd', 'Range: bytes=0-0');
}
is(status()->{counters}{staged}, $staged + 1,
   'a file of nearly the size of the zone is staged: no pin is left');
note("after $uses uses");
cmp_ok(status()->{zones}{z}{used}, '>', 7_000_000, 'used tells of it');

my @wrong = grep {
    my $r = $t->get($_, 'Accept-Encoding: zstd');
    !$r->complete || $r->body ne $files{$_}{zstd}[0];
} sort keys %files;
is("@wrong", '', 'all files are served');
is($t->log_count(qr/\[(?:crit|error)\]/), 0, 'no error in the log');
