#!/usr/bin/perl

# The end of a worker while its threads are held: by reload, QUIT, TERM and
# KILL; and the end of streams in the middle of a step, with nothing lost.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Gate;

my $ROUNDS = 30;
my $CLIENTS = 10;

my $t = Test::Zmap->new()->plan(45);
my $s = Test::Zmap::Status->new($t);
my $gate = Gate->new($t);

$t->expect_alert(qr/exited on signal 9/);

my $text = $t->text(300_000, 1);
my $shot = $t->compress($text);
my $random = $t->random(4_000_000, 2);
my $stream = $t->compress($random);

# more than one: after the walk a second job begins, with the worker leaving
my @walked = map { "walked-$_" } 1 .. 12;
my @kinds = (@walked, qw(decoded frames header));
my $JOBS = @kinds + 1;
my @ends = qw(reload quit term kill look);

for my $end (@ends) {
    $t->raw_zst("$end-$_.txt", $shot) for @kinds;
    $t->raw_zst("$end-stream.bin", $stream);
}
$t->zst('small.txt', 'small');

# some tenths of a second: blocks of nothing, which take no room on disk
open(my $fh, '>:raw', $t->path('long.zst')) or die "long: $!";
print $fh $t->frame(blocks => []);
seek($fh, 90_000_000, 1);
print $fh "\1\0\0";
close($fh);
$t->settle('long.zst');


sub conf {
    my ($buffers) = @_;

    return $t->conf(<<"EOC", http => "zstd_mmap_buffers $buffers;");
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_threads default min=1k;
    @{[$s->location]}
EOC
}


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect(rcvbuf => 4096, port => $t->port(2));
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


# one that waits in each way, and what it is to get
sub clients {
    my ($end) = @_;

    $t->head("/$end-$_.txt") for qw(decoded header);
    my $running = ask("/$end-stream.bin");
    my $got = $running->read_some(100_000);

    $gate->shut();
    my $waits = $t->log_count(qr/waits for job/);
    my @clients = (
        [ask("/$end-decoded.txt"), $text],
        [ask("/$end-decoded.txt", 'Range: bytes=0-99'), substr $text, 0, 100],
        [ask("/$end-header.txt", 'If-None-Match: "x"'), $text],
        (map { [ask("/$end-$_.txt"), $text] } @walked),
        [ask("/$end-frames.txt", 'Accept-Encoding: zstd'), $shot],
    );
    $t->wait_log(qr/waits for job/, $waits + @clients) or die "no wait\n";

    # it takes what is there, and no more comes
    while ($gate->held_now() < $JOBS && length $got < length $random) {
        $got .= $running->read_some(10_000);
    }
    ok($gate->held($JOBS), "$end: all are held");
    $running->{buffer} = $got . $running->{buffer};

    return (@clients, [$running, $random]);
}


sub check_whole {
    my ($end, @clients) = @_;

    my $whole = grep {
        my ($c, $body) = @$_;
        my $r = $c->response('GET');
        my $ok = $r->complete && $r->body eq $body;
        diag($r->head . length($r->body) . ' of ' . length $body) if !$ok;
        $ok;
    } @clients;
    is($whole, scalar @clients, "$end: all get all");
}


# none of them has to wait, or takes what it has for a whole reply
sub check_cut {
    my ($end, @clients) = @_;

    my @wrong = grep {
        my $r = $_->[0]->response('GET');
        $r->complete && $r->status < 500 || $r->timed_out;
    } @clients;
    is(scalar @wrong, 0, "$end: all are cut");
}


sub left { return $t->log_count(qr/client prematurely closed/) }

sub gone { my ($pid) = @_; return $t->poll(sub { !kill 0, $pid }) }

sub descriptors { return scalar(my @fds = glob "/proc/$_[0]/fd/*") }


sub rss {
    open(my $fh, '<', "/proc/$_[0]/status") or die "status: $!";

    return (join('', <$fh>) =~ /^VmRSS:\s+(\d+)/m)[0] * 1024;
}


# reload
$gate->run(conf('16m max=1m'));
my ($old) = $t->worker_pids();
my @clients = clients('reload');
ok($t->reload(old => 'stay'), 'reload: a new worker');
ok($t->wait_log(qr/gracefully shutting down/), 'reload: the old one is told');
is($t->get('/small.txt')->body, 'small', 'reload: the new one serves');
ok(kill(0, $old), 'reload: the old one is there');
$gate->ahead(5);
$gate->open();
check_whole('reload', @clients);
$gate->ahead(0);
ok(gone($old), 'reload: the old one ends');

# QUIT
@clients = clients('quit');
($old) = $t->worker_pids();
my $told = $t->log_count(qr/gracefully shutting down/);
my $master = $t->master_pid();
$t->kill('QUIT', $master);
ok($t->wait_log(qr/gracefully shutting down/, $told + 1), 'quit: told');
ok(kill(0, $old), 'quit: the worker is there');
$gate->open();
check_whole('quit', @clients);
$t->stop();
ok(!kill(0, $old), 'quit: gone');

# TERM: the master would kill a worker that stays for a second
$gate->run(conf('16m max=1m'));
@clients = clients('term');
($old) = $t->worker_pids();
$t->kill('TERM', $t->master_pid());
ok($t->wait_log(qr/SIGTERM\) received.*exiting/), 'term: told');
sleep 0.2;
my $began = time();
$gate->open();
ok(gone($old), 'term: the worker ends');
cmp_ok(time() - $began, '<', 2 * $t->timeout() / 10, 'term: at once');
check_cut('term', @clients);
$t->stop();

# KILL
$gate->run(conf('16m max=1m'));
@clients = clients('kill');
($old) = $t->worker_pids();
$t->kill('KILL', $old);
check_cut('kill', @clients);
$gate->open();
$gate->forget();
ok($t->poll(sub { my @pids = $t->worker_pids();
                  @pids == 1 && $pids[0] != $old }), 'kill: a new worker');
is($t->get('/kill-decoded.txt')->body, $text, 'kill: which serves');


# a walk that nobody waits for ends at its next look at that
sub looks { return $t->log_count(qr/walk rc:1 at/) }

for my $signal (qw(QUIT TERM)) {
    ($old) = $t->worker_pids();
    my $before = looks();
    $gate->shut();
    my $c = ask('/long');
    ok($gate->held(), "$signal: a long walk is held");
    if ($signal eq 'QUIT') {
        my $left = left();
        $c->abort();
        $t->poll(sub { left() > $left }) or die "not left\n";
    }
    $told = $t->log_count(qr/SIG$signal\) received/);
    $t->kill($signal, $old);
    ok($t->wait_log(qr/SIG$signal\) received/, $told + 1), "$signal: told");
    sleep 0.1;
    $gate->open();
    ok(gone($old), "$signal: the worker ends");
    cmp_ok(looks() - $before, '<=', 1, "$signal: the walk is given up");
    ok($t->poll(sub { my @pids = $t->worker_pids();
                      @pids == 1 && $pids[0] != $old }),
       "$signal: there is another");
}

# streams that end in the middle of a step
$t->{log_level} = 'info';

for my $buffers ('16m max=1m', '64k max=4k') {
    $t->reload(conf => conf($buffers)) or die "no reload\n";
    my ($worker) = $t->worker_pids();
    my ($idle, $growth, $most, $in_buffers, $early) = (0, 0, 0, 0, 0);
    my $left = left();
    my $streamed = $s->get->{counters}{streamed};

    for my $round (1 .. $ROUNDS) {
        $t->head('/look-stream.bin');
        my $pass = $round % 4 * 3;
        $gate->shut(pass => $pass);
        my @c = map { ask('/look-stream.bin') } 1 .. $CLIENTS;

        # one step of a stream fills its socket
        $streamed += $CLIENTS;
        $t->poll(sub { $s->get->{counters}{streamed} == $streamed })
            or die "not begun\n";
        $gate->held($CLIENTS - $pass) or die "not held\n";
        $most = descriptors($worker) if descriptors($worker) > $most;
        $in_buffers |= $s->worker->{buffers}{used} > 0;

        my $charged = $s->worker->{streams};
        $_->abort() for @c;
        $left += $CLIENTS;
        $t->poll(sub { left() == $left }) or die "not left\n";
        $early++ if !$pass && $s->worker->{streams} != $charged;
        $gate->open();
        $t->poll(sub { $gate->held_now() == 0 });

        next if $round != 8;
        $s->poll(sub { $_[0]{buffers}{used} == 0 });
        ($idle, $growth) = (descriptors($worker), -rss($worker));
    }

    is($early, 0, "$buffers: what a thread still has is charged");
    ok($s->poll(sub { $_[0]{buffers}{used} == 0 && $_[0]{streams} == 0 }),
       "$buffers: no buffer is lost") or diag(explain($s->worker));
    ok($t->poll(sub { descriptors($worker) <= $idle }),
       "$buffers: no descriptor") or diag(descriptors($worker));
    cmp_ok($most, '>=', $idle + 2 * $CLIENTS, "$buffers: they had some");
    cmp_ok($growth + rss($worker), '<', $t->sanitized() ? 1 << 27 : 4 << 20,
           "$buffers: no memory");
    is($in_buffers ? 'buffers' : 'malloc',
       $buffers =~ /64k/ ? 'malloc' : 'buffers', "$buffers: the pieces");
    ok($t->get('/look-stream.bin')->body eq $random, "$buffers: the next one");
}
