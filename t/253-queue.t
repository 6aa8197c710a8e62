#!/usr/bin/perl

# A pool whose queue is full, and descriptors that have run out: the event loop
# does the work, or the request is refused; what follows is right.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Gate;

my $t = Test::Zmap->new()->plan(32);
my $s = Test::Zmap::Status->new($t);
my $gate = Gate->new($t);

my $text = $t->text(500_000, 1);
my $random = $t->random(3_000_000, 2);
my $zst = $t->compress($text);

$t->raw_zst("$_.txt", $zst) for qw(a b c d e f fd);
$t->zst("$_.bin", $random) for qw(stream fd);
$t->write('beside.txt', 'plain');
$t->raw_zst('beside.txt', $zst);
$t->zst('small.txt', 'small');

# blocks of nothing, which take no room on disk
open(my $fh, '>:raw', $t->path('long.zst')) or die "long: $!";
print $fh $t->frame(blocks => []);
seek($fh, 60_000_000, 1);
print $fh "\1\0\0";
close($fh);
$t->settle('long.zst');

my $conf = $t->conf(<<"EOC", http => 'zstd_mmap_buffers 8m max=1m;');
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_threads one min=1k;
    open_file_cache max=100;
    open_file_cache_valid 1h;
    location = /checked { alias %%DIR%%/f.txt; zstd_mmap_verify checksum; }
    @{[$s->location]}
EOC
$gate->run("thread_pool one threads=1 max_queue=1;\n$conf");

my ($worker) = $t->worker_pids();


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


sub overflows { return $t->log_count(qr/thread pool "one" queue overflow/) }

sub slices { return $t->log_count(qr/walk rc:1 at/) }


# one in the thread, one in the queue
$t->head("/$_.txt") for qw(a b c d);
$t->head('/stream.bin');
$gate->shut();
my @waiting = ask('/a.txt');
ok($gate->held(), 'one is held');
push @waiting, ask('/b.txt');
$t->wait_log(qr/"\/b.txt" waits for job/);
is(overflows(), 0, 'one is in the queue');

my $r;
my $change = $s->change(sub { $r = $t->get('/c.txt') });
ok($r->complete && $r->body eq $text, 'a third one is decoded all the same');
cmp_ok(overflows(), '>=', 1, 'since the queue is full');
is_deeply([@$change{qw(decodes errors)}], [1, undef], 'counted');

my @many = map { ask('/d.txt') } 1 .. 20;
is(scalar(grep { my $r = $_->response('GET');
                 $r->complete && $r->body eq $text } @many), 20,
   'twenty at once');

$r = $t->get('/stream.bin');
ok($r->complete && $r->body eq $random, 'a stream');
$r = $t->get('/stream.bin', 'Range: bytes=2000000-2000009');
is($r->body, substr($random, 2_000_000, 10), 'a range of it');

$change = $s->change(sub {
    $r = $t->get('/checked', 'Accept-Encoding: zstd');
});
ok($r->complete && $r->body eq $zst, 'a verification');
is($change->{decodes}, 1, 'which is done once');

# not in turns as long as those of a thread
my $before = slices();
my $c = ask('/long', 'Accept-Encoding: zstd');
ok($t->poll(sub { slices() > $before }), 'a long walk has begun');
is($t->get('/small.txt')->body, 'small', 'another reply meanwhile');
is($c->response('GET')->status, 200, 'a long walk');
cmp_ok(slices() - $before, '>', 20, 'in many turns');
is($gate->held_now(), 1, 'nothing else was held');

$gate->open();
is(scalar(grep { my $r = $_->response('GET');
                 $r->complete && $r->body eq $text } @waiting), 2,
   'those in the pool get theirs');

# a full queue in the middle of a stream
my $full = overflows();
$t->head("/$_.txt") for qw(e f);
$c = $t->connect(rcvbuf => 4096, port => $t->port(2));
$c->send_request('GET', '/stream.bin', headers => ['Connection: close']);
my $got = $c->read_some(1000);
my $ended = 0;
$t->poll(sub { my $before = $ended;
               $ended = $t->log_count(qr/end of job/);
               return $ended == $before; });
$gate->shut();
@waiting = ask('/e.txt');
$gate->held();
push @waiting, ask('/f.txt');
$t->wait_log(qr/"\/f.txt" waits for job/);
$got .= $c->read_some(4_000_000);
ok($got =~ /\r\n\r\n(.*)/s && $1 eq $random,
   'a stream goes on where the queue has become full');
cmp_ok(overflows(), '>', $full, 'by the event loop');
$gate->open();
is(scalar(grep { my $r = $_->response('GET');
                 $r->complete && $r->body eq $text } @waiting), 2,
   'the others too');


# the next open, accept or dup of the worker fails
sub no_descriptors {
    my %used = map { m{(\d+)$} => 1 } glob("/proc/$worker/fd/*");
    my $free = 0;
    $free++ while $used{$free};
    limit($free);
}


sub limit {
    my ($limit) = @_;

    my ($code, $output) = $t->capture('prlimit', '--pid', $worker,
                                      "--nofile=$limit:4096");
    die "prlimit: $output" if $code;
}


limit(4096);
$t->head($_) for '/fd.txt', '/fd.bin', '/beside.txt';

# [uri, status, what happens]
my @rows = (
    ['/fd.txt', 200, 'a body is decoded by the event loop', $text],
    ['/fd.bin', 500, 'a stream is refused'],
    ['/beside.txt', 200, 'a body that has a plain file beside', $text],
);
my $dup = qr/\[crit\].*dup\(\) of a file to be decoded failed \(24/;

for my $row (@rows) {
    my ($uri, $status, $what, $body) = @$row;
    my $lines = $t->log_count($dup);
    $c = $t->connect();
    $c->get('/small.txt');
    no_descriptors();
    $r = $c->get($uri);
    limit(4096);
    is($r->status, $status, "no descriptor: $what");
    ok($r->body eq $body, "no descriptor: $uri") if $body;
    cmp_ok($t->log_count($dup), '>', $lines, "no descriptor: $uri: logged");
    $r = $t->get($uri);
    ok($r->complete && $r->body eq ($uri =~ /bin/ ? $random : $text),
       "$uri: the next reply");
    $c->close();
}

ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'no buffer is lost');
is(($t->worker_pids())[0], $worker, 'all by one worker');
