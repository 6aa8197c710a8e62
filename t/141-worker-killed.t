#!/usr/bin/perl

# A worker that is killed while it streams: its clients see a short reply, and
# a new worker serves.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(log_level => 'info')->plan(8);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

my $content = $t->text(500_000, 1) . $t->random(5_500_000, 1);
my $coded = $t->zst('sized.bin', $content, level => 1);
$t->zst('unsized.bin', $content, level => 1, size => 0);

$t->run($t->conf(<<'EOF'));
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
EOF

my @table = (
    ['a length', '/sized.bin', '1.1', 'identity'],
    ['chunks', '/unsized.bin', '1.1', 'identity'],
    ['frames', '/sized.bin', '1.1', 'zstd'],
);

my @readers;
for my $row (@table) {
    my ($name, $uri, $version, $coding) = @$row;

    my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
    $c->send_request('GET', $uri, version => $version,
                     headers => ["Accept-Encoding: $coding"]);
    push @readers, [$c, $c->read_some(100_000)];
}

my ($old) = $t->worker_pids();
$t->kill('KILL', $old);

for my $n (0 .. $#table) {
    my ($c, $got) = @{$readers[$n]};
    $c->{buffer} = $got . $c->{buffer};
    my $r = $c->response('GET');
    ok($r->status == 200 && !$r->complete && !$r->timed_out,
       "$table[$n][0]: not complete");
}

ok($t->poll(sub { ($t->worker_pids())[0] // $old != $old }), 'a new worker');

for my $row (@table) {
    my ($name, $uri, $version, $coding) = @$row;

    my $r = $t->get($uri, "Accept-Encoding: $coding");
    ok($r->complete && $r->body eq ($coding eq 'zstd' ? $coded : $content),
       "$name: served by the new worker");
}

$t->log_like(qr/exited on signal 9/, 'the log tells of the old one');
