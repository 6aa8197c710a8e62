#!/usr/bin/perl

# Under load: reloads, workers killed, a binary upgrade, a QUIT.  No wrong byte
# at any time; no request dropped but by a kill; no segment lost by a reload or
# the death of a worker; no page, descriptor or mapping left.
#
# ZMAP_SOAK: seconds (8).  20 reloads for 8 s, 200 for 80 s.

use strict;
use warnings;

use JSON::PP ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Load;
use Test::Zmap::Machine;

my $SECONDS = $ENV{ZMAP_SOAK} || 8;
my $RELOADS = POSIX::ceil($SECONDS * 2.5);
my $POOL = 40;
my $FILES = 6;
my @CLIENTS = qw(fresh fresh kept slow);

my $machine = Test::Zmap::Machine->new()->pool($POOL);
my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(28);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

# the masters are children of this process, however they were started
my %PRCTL = (x86_64 => 157, aarch64 => 167);
my $prctl = $PRCTL{(POSIX::uname())[4]} // die "no number of prctl()\n";
syscall($prctl, 36, 1, 0, 0, 0) == 0 or die "PR_SET_CHILD_SUBREAPER: $!";

my %files;
for my $n (0 .. $FILES - 1) {
    my $text = $t->text(150_000, $n) . $t->random(150_000, $n);
    my $zst = $t->zst("f$n.bin", $text, level => 1);
    $files{"/f$n.bin"} = { zstd => [$zst], identity => [$text] };
}
my $big = $t->random(3_000_000, 9);
$files{'/big.bin'} = { zstd => [$t->zst('big.bin', $big, level => 1)],
                       identity => [$big] };
$t->settle('big.bin.zst');

my $conf = $t->conf(<<'EOT', http => <<'EOH');
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_stage z;
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone z:32m hugepages=on;
zstd_mmap_buffers 4m max=1m hugepages=off;
EOH

# nginx takes no USR2 from a process that is a child of what started it
$t->_write_conf($conf =~ s/%%GLOBALS%%/$t->_globals()/er
                      =~ s/daemon off/daemon on/r);


sub status { return JSON::PP::decode_json($t->get('/status')->body) }


# the master whose pid is in the file, another one than $old; waits for it
sub new_master {
    my ($old) = @_;

    $t->{pid} = $t->poll(sub {
        my ($pid) = $t->_slurp('nginx.pid') =~ /^([1-9]\d*)\n/;
        return $pid && $pid != $old ? $pid : 0;
    }) || die "no new master\n";
    $t->poll(sub { $t->worker_pids() == 2 }) or die "no workers\n";
}


sub start_daemon {
    my ($code, $output) = $t->capture($t->_command());
    die "nginx: $output" if $code;
    new_master(0);
}


sub load {
    return Test::Zmap::Load->start($t, \%files, kinds => [@CLIENTS],
                                   slow_port => $t->port(2));
}


sub stage_all {
    for my $uri ((sort keys %files) x 3) {
        $t->get($uri, 'Accept-Encoding: zstd')->body eq $files{$uri}{zstd}[0]
            or die "wrong reply\n";
    }
}


# checks of their own
sub nothing_lost {
    my ($count, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    cmp_ok($count->{complete}, '>', 20, "$name: replies");
    is(join(' ', map { "$_:$count->{$_}" } qw(cut lost refused wrong)),
       'cut:0 lost:0 refused:0 wrong:0', "$name: no request is dropped")
        or diag(join "\n", @{$count->{faults}});
}


sub staged_is {
    my ($count, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $status = status();
    is($status->{zones}{z}{segments}, keys %files, "$name: all segments");
    is($status->{counters}{staged}, $count, "$name: nothing staged again");
    is($machine->free(), $POOL - 16, "$name: 16 pages are taken");
}


sub held {
    my ($pid) = @_;

    my @fds = glob("/proc/$pid/fd/*");
    open(my $fh, '<', "/proc/$pid/maps") or die "maps: $!";
    my @maps = <$fh>;

    return { fds => scalar @fds, maps => scalar @maps };
}


# checks of their own: what the master has, but for a little of its heap
sub nothing_left {
    my ($before, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $after = held($t->master_pid());
    is($after->{fds}, $before->{fds}, "$name: no descriptor is left");
    cmp_ok($after->{maps} - $before->{maps}, '<', $t->sanitized() ? 64 : 8,
           "$name: nor a mapping");
}


# the harness knows one master only
my $old = 0;
END { kill 'QUIT', $old if $old }

start_daemon();
stage_all();
staged_is(scalar keys %files, 'before');
my $before = held($t->master_pid());

# reloads
my $load = load();
my $done = grep { $t->reload(old => 'stay') } 1 .. $RELOADS;
is($done, $RELOADS, "$RELOADS reloads");
nothing_lost($load->stop(), 'reloads');
ok($t->poll(sub { $t->worker_pids() == 2 }), 'reloads: old workers end');
staged_is(scalar keys %files, 'reloads');

nothing_left($before, 'reloads');

# workers killed
$load = load();
my $end = time() + $SECONDS / 2;
my $kills = 0;
while (time() < $end) {
    sleep(0.05 + rand 0.2);
    my @pids = $t->worker_pids();
    $kills += eval { $t->kill('KILL', $pids[rand @pids]) } // 0 if @pids;
}
my $count = $load->stop();
cmp_ok($kills, '>=', $SECONDS, 'workers were killed');
is("$count->{refused} $count->{wrong}", '0 0', 'kills: no wrong reply')
    or diag(join "\n", grep { /^(?:refused|wrong)/ } @{$count->{faults}});
cmp_ok($count->{complete}, '>', 20, 'kills: replies');

# a death inside the lock has the zone emptied
ok($t->poll(sub { $t->worker_pids() == 2 }), 'kills: two workers again');
stage_all();
ok($t->poll(sub { stage_all();
                  status()->{zones}{z}{segments} == keys %files }),
   'kills: all segments');
is($machine->free(), $POOL - 16, 'kills: 16 pages are taken');
nothing_left($before, 'kills');
note("$kills kills, " . $t->log_count(qr/died inside/) . ' inside the lock');

# a binary upgrade: the new one starts empty, the old one is told to quit
$load = load();
$old = $t->master_pid();
kill 'USR2', $old;
new_master($old);
ok(-e $t->run_dir() . '/nginx.pid.oldbin', 'upgrade: a new binary starts');
is($machine->free(), $POOL - 32, 'upgrade: both have a zone');
kill 'QUIT', $old;
ok($t->poll(sub { waitpid($old, POSIX::WNOHANG()) == $old }),
   'upgrade: the old one ends');
$old = 0;
stage_all();
nothing_lost($load->stop(), 'upgrade');
is($machine->free(), $POOL - 16, 'upgrade: the old pages are back');

# a QUIT while requests wait, in nginx and not only in the kernel: staged,
# streamed and kept bodies
my @waiting = map {
    my ($uri, $coding) = @$_;
    my $c = $t->connect(port => $t->port(2), rcvbuf => 4096);
    $c->send_request('GET', $uri, headers => ["Accept-Encoding: $coding"]);
    $c->{buffer} = $c->read_some(1000) . $c->{buffer};
    [$c, $files{$uri}{$coding}[0]];
} (['/big.bin', 'zstd'], ['/big.bin', 'identity'], ['/f0.bin', 'zstd'],
   ['/f1.bin', 'identity']) x 3;
kill 'QUIT', $t->master_pid();
$t->wait_log(qr/gracefully shutting down/);
my $right = grep { my ($c, $body) = @$_;
                   my $r = $c->response('GET');
                   $r->complete && $r->body eq $body } @waiting;
is($right, @waiting, 'QUIT: replies under way are completed');
ok($t->poll(sub { $t->_reap() && $machine->free() == $POOL }),
   'QUIT: every page is back');
