#!/usr/bin/perl

# Many clients that read a large decoded body slowly: what the worker holds for
# them is bounded by pieces and windows, and a small reply does not wait.
#
# ZMAP_SOAK: 60 clients of bodies of 120 MiB, in place of 20 of 40 MiB.

use strict;
use warnings;

use Digest::SHA qw(sha1_hex);
use List::Util qw(min);
use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $CLIENTS = $ENV{ZMAP_SOAK} ? 60 : 20;
my $MIB = 1 << 20;
my $SIZE = ($ENV{ZMAP_SOAK} ? 120 : 40) * $MIB;
my $SCALE = $ENV{TEST_SCALE} || 1;

# what each has read before it becomes slow: the window has been filled
my $READ = 3 * $MIB;
my $WINDOW = 2 * $MIB;

# read of one stream before each small request
my $SIP = 8192;
my $SMALL = 200;
my $LATENCY = 0.05 * $SCALE;

# a sanitizer keeps what was freed
$ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
    'quarantine_size_mb=1', 'thread_local_quarantine_size_kb=64';

my $t = Test::Zmap->new(log_level => 'info', timeout => 30)->plan(15);
my $status = Test::Zmap::Status->new($t);

# noise that a window of 2 MiB finds again, and text
my $unit = $t->random(192 << 10, 1) . $t->text(320 << 10, 2);
$unit = substr($unit, 0, 512 << 10);
my $body = $unit x ($SIZE / length $unit);
my $digest = sha1_hex($body);

$t->zst('single.bin', $body);
$t->raw_zst('frames.bin', join('', map { $t->compress($_) }
                               unpack '(a262144)*', $unit)
                          x ($SIZE / length $unit));
$t->zst('small.txt', 'small' x 800);
$t->settle('small.txt.zst');

my $conf = $t->conf('zstd_mmap on; ' . $status->location);
$conf =~ s/(listen 127\.0\.0\.1:%%PORT%%);/$1 sndbuf=256k;/;
$t->run($conf);

my ($worker) = $t->worker_pids();


sub slurp {
    my ($path) = @_;

    open(my $fh, '<', $path) or die "$path: $!";
    local $/;

    return <$fh> // '';
}


# bytes of the worker: own, of files, all
sub resident {
    my $text = slurp("/proc/$worker/status");
    my %kib = $text =~ /^(VmRSS|RssAnon|RssFile|RssShmem):\s+(\d+) kB/mg;

    return { own => 1024 * ($kib{RssAnon} + $kib{RssShmem}),
             file => 1024 * $kib{RssFile}, all => 1024 * $kib{VmRSS} };
}


# seconds that a process waited for a CPU which others had
sub waited {
    my ($pid) = @_;

    return (split ' ', slurp("/proc/$pid/schedstat"))[1] / 1e9;
}


sub begin {
    my ($uri) = @_;

    my @clients = map { $t->connect(rcvbuf => 262144) } 1 .. $CLIENTS;
    $_->send_request('GET', $uri) for @clients;

    return map { { c => $_, got => '' } } @clients;
}


# in turns, so that all streams run at once
sub read_on {
    my ($size, @clients) = @_;

    while (my @behind = grep { length $_->{got} < $size } @clients) {
        for my $client (@behind) {
            my $left = $size - length $client->{got};
            my $bytes = $client->{c}->read_some(min($left, 256 << 10));
            die "a reply ended early\n" unless length $bytes;
            $client->{got} .= $bytes;
        }
    }
}


# the slowest of many small replies, one stream moving on before each
sub slowest {
    my (@clients) = @_;

    my $c = $t->connect();
    my $slowest = 0;

    for my $i (1 .. $SMALL) {
        my $client = $clients[$i % @clients];
        $client->{got} .= $client->{c}->read_some($SIP);

        my $others = waited($worker) + waited($$);
        my $start = time();
        my $r = $c->get('/small.txt');
        my $time = time() - $start;
        $time -= waited($worker) + waited($$) - $others;

        die "no small reply\n" unless $r->complete && $r->status == 200;
        $slowest = $time if $time > $slowest;
    }

    return $slowest;
}


sub finish {
    my ($first, @others) = @_;

    $_->{c}->abort() for @others;
    my ($head) = $first->{got} =~ /^(.*?\r\n\r\n)/s;
    read_on($SIZE + length $head, $first);
    $first->{c}->close();

    return sha1_hex(substr $first->{got}, length $head);
}


sub measure {
    my ($name, $uri, $limit) = @_;

    my $idle = resident();
    my $before = $status->get;

    my @clients = begin($uri);
    read_on($READ, @clients);

    my $busy = resident();
    my %grown = map { $_ => $busy->{$_} - $idle->{$_} } keys %$busy;
    my $after = $status->get;

    note(sprintf '%s: %.1f MiB own, %.1f of files, %.1f in all', $name,
         map { $grown{$_} / $MIB } qw(own file all));

    is($after->{counters}{streamed} - $before->{counters}{streamed},
       $CLIENTS, "$name: all are streamed");
    cmp_ok($after->{bytes}{decoded_sent} - $before->{bytes}{decoded_sent},
           '<', $CLIENTS * $SIZE / 4, "$name: far from their ends");
    cmp_ok($grown{own}, '<', $limit * $SCALE, "$name: memory of the worker");

    my $slowest = slowest(@clients);
    note(sprintf '%s: the slowest small reply took %.1f ms', $name,
         1000 * $slowest);
    cmp_ok($slowest, '<', $LATENCY, "$name: small replies do not wait");

    is(finish(@clients), $digest, "$name: one of them, to the end");
    ok($status->poll(sub { $_[0]{streams} == 0 }), "$name: all have ended");
}


is($t->get('/small.txt')->status, 200, 'what the worker has when idle');

measure('frames', '/frames.bin', $CLIENTS * $MIB);
measure('single', '/single.bin', $CLIENTS * ($WINDOW + $MIB));

is($t->get('/small.txt')->status, 200, 'and serves on');
is(($t->worker_pids())[0], $worker, 'the same worker');
