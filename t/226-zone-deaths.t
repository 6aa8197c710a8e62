#!/usr/bin/perl

# Workers die or stand still inside the zone: in the middle of a copy, with a
# pin, inside the lock.  Nothing is lost that can be kept, the others serve on.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(24);
my $hold = Hold->new($t);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

my $killed = 0;
my %zst;
for my $n (0 .. 5) {
    $zst{"/f$n.bin"} = $t->zst("f$n.bin", $t->random(80_000, $n), level => 1);
}
$zst{'/big.bin'} = $t->zst('big.bin', $t->random(9_000_000, 9), level => 1);
$t->settle('big.bin.zst');

$hold->run($t->conf(<<'EOT', http => 'zstd_mmap_zone z:16m hugepages=off;'));
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1 max=12m;
    zstd_mmap_send memory;
    add_header X-Pid $pid;
    location = /status { zstd_mmap_status json; }
EOT


sub status { return JSON::PP::decode_json($t->get('/status')->body) }
sub segments { return status()->{zones}{z}{segments} }


# how many replies of all files are right, asked so often
sub right {
    my ($times) = @_;

    my $right = 0;
    for my $uri (map { ($_) x $times } sort keys %zst) {
        my $r = $t->get($uri, 'Accept-Encoding: zstd');
        $right++ if $r->complete && $r->body eq $zst{$uri};
    }

    return $right;
}


sub all_staged {
    my ($name) = @_;

    my $bytes = 0;
    $bytes += length for values %zst;

    # an old version would be a segment, too
    ok($t->poll(sub { right(2) == 2 * keys %zst
                      && segments() == keys %zst
                      && status()->{zones}{z}{used} >= $bytes }),
       "$name: all staged");
}


sub wait_killed {
    my ($count) = @_;

    return $t->wait_log(qr/exited on signal 9/, $count)
        && $t->poll(sub { $t->worker_pids() == 2 });
}


# the death of a worker that pins /big.bin, a reply of which is under way
sub kill_pinned {
    my $c = $t->connect(port => $t->port(2), rcvbuf => 4096);
    $c->send_request('GET', '/big.bin', headers => ['Accept-Encoding: zstd']);
    my ($pid) = $c->read_some(400) =~ /X-Pid: (\d+)/;
    $t->kill('KILL', $pid);
    $killed++;
    my $done = wait_killed($killed);
    $c->close();

    return $done;
}


all_staged('before');
my $staged = status()->{counters}{staged};

# a worker with a pin dies: no segment is lost
ok(kill_pinned(), 'a worker with a pin was killed');
ok(right(4) == 4 * keys(%zst), 'all replies are right');
is(segments(), keys %zst, 'no segment is lost');
is(status()->{counters}{staged}, $staged, 'nothing was staged again');

# its pin goes with it, also when nobody asks for that version again: a new
# version finds room
for my $n (10, 11) {
    kill_pinned() or die "no new worker\n";
    my $zst = $t->compress($t->random(8_700_000 + $n * 50_000, $n),
                          level => 1);
    $zst{'/big.bin'} = $zst;
    $t->replace('big.bin.zst', $zst);
    $t->settle('big.bin.zst');
    ok(right(3) == 3 * keys(%zst), "version $n of a file of half the zone");
    all_staged("version $n");
}
$zst{'/big.bin'} = $t->compress($t->random(500_000, 12), level => 1);
$t->replace('big.bin.zst', $zst{'/big.bin'});
$t->settle('big.bin.zst');
right(3);

# killed while it copies: another one copies
$zst{'/f6.bin'} = $t->zst('f6.bin', $t->random(300_000, 6), level => 1);
$t->settle('f6.bin.zst');
$hold->order('read', 'kill');
my $r = $t->get('/f6.bin', 'Accept-Encoding: zstd');
ok($hold->taken() && !$r->complete, 'killed while it copies');
ok(wait_killed(++$killed), 'and there is a new one');
$t->poll(sub {
    $t->get('/f6.bin', 'Accept-Encoding: zstd');
    return $t->get('/f6.bin', 'Accept-Encoding: zstd')->body
           eq $zst{'/f6.bin'};
});
ok(right(2) == 2 * keys(%zst), 'all replies are right');
ok($t->poll(sub { right(1); segments() >= keys %zst }),
   'the file it died of is staged by another');

# killed inside the lock, twice: emptied, filled again
for my $n (1, 2) {
    $hold->order('locked', 'kill');
    $t->get('/f0.bin', 'Accept-Encoding: zstd');
    ok($hold->taken() && wait_killed(++$killed), "killed inside the lock, $n");
    ok($t->poll(sub { right(1);
                      $t->log_count(qr/"z" was emptied/) == $n }),
       "emptied, $n");
    all_staged("killed inside the lock, $n");
}
is($t->log_count(qr/died inside zstd_mmap_zone "z"/), 2, 'the log tells');

# stands still inside the lock: the other serves on, from the file
$hold->order('locked', 'stop');
my $c = $t->connect();
$c->send_request('GET', '/f1.bin', headers => ['Accept-Encoding: zstd']);
my $pid = $hold->stopped() or die "no worker stopped\n";
my $other = 0;
for (1 .. 10) {
    my $reply = $t->get('/f1.bin', 'Accept-Encoding: zstd');
    $other++ if $reply->complete && $reply->body eq $zst{'/f1.bin'}
                && $reply->header('X-Pid') != $pid;
}
is($other, 10, 'one stands still inside the lock, the other serves');
$t->kill('CONT', $pid);
$r = $c->response('GET');
ok($r->complete && $r->body eq $zst{'/f1.bin'}, 'and it goes on');
all_staged('after it');
is($t->log_count(qr/died inside/), 2, 'nobody died of that');
