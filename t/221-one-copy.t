#!/usr/bin/perl

# One copy for all workers: many first requests at the same moment, and a
# worker that is stopped while it copies.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;

my $FILES = 12;
my $AT_ONCE = 8;

my $t = Test::Zmap->new(workers => 2, log_level => 'info')->plan(9);
my $hold = Hold->new($t);

my %zst;
for my $n (0 .. $FILES - 1) {
    $zst{"/f$n.bin"} = $t->zst("f$n.bin", $t->random(700_000, $n), level => 1);
}
$zst{'/held.bin'} = $t->zst('held.bin', $t->random(500_000, 99), level => 1);
$t->settle('held.bin.zst');

$hold->run($t->conf(<<'EOT', http => 'zstd_mmap_zone z:16m hugepages=off;'));
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1;
    add_header X-Pid $pid;
    location = /status { zstd_mmap_status json; }
EOT


sub status { return JSON::PP::decode_json($t->get('/status')->body) }


# all requests are sent before any answer is read
sub ask_at_once {
    my ($uri) = @_;

    my @c = map { $t->connect() } 1 .. $AT_ONCE;
    my %pids;
    $_->send_request('GET', $uri, headers => ['Accept-Encoding: zstd'])
        for @c;

    my $right = 0;
    for my $c (@c) {
        my $r = $c->response('GET');
        $right++ if $r->complete && $r->body eq $zst{$uri};
        $pids{$r->header('X-Pid') // ''} = 1;
        $c->close();
    }

    return ($right, scalar keys %pids);
}


my ($right, $shared) = (0, 0);
for my $n (0 .. $FILES - 1) {
    my ($count, $pids) = ask_at_once("/f$n.bin");
    $right += $count;
    $shared++ if $pids == 2;
}

is($right, $FILES * $AT_ONCE, 'all replies are right');
cmp_ok($shared, '>', 0, 'both workers were asked for the same file at once');

my $status = status();
is($status->{zones}{z}{segments}, $FILES, 'a segment for each file');
is($status->{counters}{staged}, $FILES, 'each was copied once');

# the first worker stands in the middle of its copy
$hold->order('read', 'stop');
my $c = $t->connect();
$c->send_request('GET', '/held.bin', headers => ['Accept-Encoding: zstd']);
my $pid = $hold->stopped();
ok($pid, 'a worker stops while it copies');

my $ok = 0;
for (1 .. 6) {
    my $r = $t->get('/held.bin', 'Accept-Encoding: zstd');
    $ok++ if $r->complete && $r->body eq $zst{'/held.bin'}
             && $r->header('X-Pid') != $pid;
}
is($ok, 6, 'the other worker serves the file meanwhile');
is(status()->{zones}{z}{segments}, $FILES, 'and makes no second copy');

$t->kill('CONT', $pid);
my $r = $c->response('GET');
ok($r->complete && $r->body eq $zst{'/held.bin'}, 'the first goes on');

$status = status();
is($status->{zones}{z}{segments}, $FILES + 1, 'and its copy is there');
