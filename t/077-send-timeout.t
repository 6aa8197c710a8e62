#!/usr/bin/perl

# A client that takes nothing is dropped after send_timeout; slow ones are not.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(14);

# not of raw blocks alone, which tell their size
my $big = $t->text(100_000, 2) . $t->random(1_900_000, 1);

$t->zst('known.txt', $big);
$t->zst('unknown.txt', $big, size => 0);

my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;');
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    send_timeout 1s;
    reset_timedout_connection off;
EOC
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;

$t->run($conf);

# a client that reads a little every 0.1 s, for longer than the timeout
my $slow = $t->connect(rcvbuf => 4096);
$slow->send_request('GET', '/known.txt', version => '1.0');

for my $name (qw(known unknown)) {
    my $c = $t->connect(rcvbuf => 4096);
    my $begin = time();
    my $before = $t->log_count(qr/client timed out/);

    $c->send_request('GET', "/$name.txt");
    ok(length $c->read_some(100), "$name: the reply begins");

    my $bytes = '';
    my $late = $t->poll(sub {
        $bytes .= $slow->read_some(3000);
        return $t->log_count(qr/client timed out/) > $before;
    });

    ok($late, "$name: the stalled client is dropped");
    cmp_ok(time() - $begin, '>', 0.9, "$name: and not before its time");

    my $rest = $c->read_some(length $big);
    cmp_ok(length $rest, '<', length $big, "$name: its body is short");
    $c->close();
}

is($t->log_count(qr/client timed out/), 2, 'the slow client goes on');

# where nothing tells the length, what was cut must not look whole to a client
# that reads again too late
for my $version ('1.0', '1.1') {
    my $c = $t->connect(rcvbuf => 4096);
    my $before = $t->log_count(qr/client timed out/);

    $c->send_request('GET', '/unknown.txt', version => $version,
                     headers => ['Connection: close']);
    $t->poll(sub { $slow->read_some(3000);
                   $t->log_count(qr/client timed out/) > $before });
    my $r = $c->response('GET');
    ok(!$r->timed_out, "unknown, $version: it ends");
    ok(!$r->complete, "unknown, $version: and is not complete")
        or diag(length $r->body);
    $c->close();
}
is($t->log_count(qr/client timed out/), 4, 'both had stalled');
$slow->close();
