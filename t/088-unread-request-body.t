#!/usr/bin/perl

# A request body that comes late, or never, and a reply that is streamed.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 20);

my $body = $t->random(1 << 20, 1) x 12;

# longer than lingering_timeout and lingering_time together
my $stall = 3.5;

my @files = qw(sized unsized);

$t->plan(5 * @files + 16);

$t->zst('sized.txt', $body);
$t->zst('unsized.txt', $body, size => 0);
my $short = $t->random(300_000, 2);
$t->zst("$_.txt", $short) for qw(paced stalled);
$t->zst('small.txt', 'small');
$t->settle('small.txt.zst', map { "$_.txt.zst" } @files);

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=64k;'));
    # the first chunk fills the socket
    listen 127.0.0.1:%%PORT2%% sndbuf=4k;

    zstd_mmap on;
    lingering_timeout 1s;
    lingering_time 2s;

    location = /status { zstd_mmap off; stub_status; }

    # the first wait is one for the rate, and longer than the timeout
    location = /paced.txt {
        lingering_timeout 300ms;
        lingering_time 300ms;
        limit_rate 150k;
    }
EOC


sub begin {
    my ($uri, $sent, %opt) = @_;

    my $c = $t->connect(rcvbuf => $opt{rcvbuf} // 4096, port => $opt{port});
    $c->send("GET $uri HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
             . "\r\n$sent");

    return $c;
}


# time has to pass here, nothing is waited for: all clients rest at once
my %never = map { $_ => begin("/$_.txt", '') } @files;
my %part = map { $_ => begin("/$_.txt", 'hello') } @files;
my %late = map { $_ => begin("/$_.txt", '') } @files;
my $stalled = begin('/stalled.txt', '', port => $t->port(2));
sleep($stall);

my $r = $stalled->response();
ok($r->complete && $r->body eq $short, 'stalled at once: whole');
is($stalled->read_some(1), '', 'stalled at once: then an end');

for my $name (@files) {
    $r = $never{$name}->response();
    ok($r->complete && $r->body eq $body, "$name, no request body: whole");

    my $began = time();
    is($never{$name}->read_some(1), '', "$name: then nothing more");
    ok($never{$name}{eof} && !$never{$name}{reset}
       && time() - $began < 5 * ($ENV{TEST_SCALE} || 1),
       "$name: and an orderly end");

    $r = $part{$name}->response();
    ok($r->complete && $r->body eq $body, "$name, half of it: whole");

    $late{$name}->{buffer} = $late{$name}->read_some(100_000);
    $late{$name}->send('0123456789');
    $r = $late{$name}->response();
    ok($r->complete && $r->body eq $body, "$name, late: whole");
}

my $c = begin('/paced.txt', '', rcvbuf => 1 << 20);
$r = $c->response();
ok($r->complete && $r->body eq $short, 'at a limited rate: whole');
is($c->read_some(1), '', 'at a limited rate: then an end');

# a request body that came as a whole leaves the connection usable
is($late{sized}->get('/small.txt')->body, 'small', 'after a late one: usable');

$c = begin('/sized.txt', '0123456789');
$r = $c->response();
ok($r->complete && $r->body eq $body, 'with the request: whole');
is($c->get('/small.txt')->body, 'small', 'and usable');

my $next = "GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n";
$c = begin('/sized.txt', "0123456789$next");
$r = $c->response();
ok($r->complete && $r->body eq $body, 'with the next request: whole');
is($c->response()->body, 'small', 'which is answered');

# late and with the next request
$c = begin('/unsized.txt', '');
$c->{buffer} = $c->read_some(100_000);
$c->send("0123456789$next");
$r = $c->response();
ok($r->complete && $r->body eq $body, 'late with the next request: whole');
is($c->response()->body, 'small', 'which is answered');

# as a small reply, which is never streamed
$c = begin('/small.txt', '');
is($c->response()->body, 'small', 'a small reply: whole');
is($c->read_some(1), '', 'and an end');

# a client that leaves while its request body is due
$c = begin('/sized.txt', '012');
like($c->read_some(20), qr/ 200 /, 'one that leaves');
$c->abort();

$_->close() for $c, $stalled, values %never, values %part, values %late;

ok($t->poll(sub { $t->get('/status')->body =~ /^Active connections: 1 $/m }),
   'no connection is left over');
is($t->log_count(qr/\[(?:error|crit)\]/), 0, 'nothing to complain of');
