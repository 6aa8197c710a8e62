#!/usr/bin/perl

# Decode buffers: given back whatever the client does; full means streamed.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my @points = (0, 1, 100, 400, 5000, 60_000, 150_000);

my $t = Test::Zmap->new(timeout => 15)->plan(23);

my $shot = $t->random(250_000, 1);
my $big = $t->random(1_500_000, 2);

$t->zst('shot.txt', $shot);
$t->zst('known.txt', $big);
$t->zst('unknown.txt', $big, size => 0);
$t->zst('page.txt', 'one page');

# four of these fill the buffers, and no held body leaves room for the fourth
my %full = map { ("full$_" => $t->random(250_000, 10 + $_)) } 1 .. 4;
$t->zst("$_.txt", $full{$_}) for keys %full;

$t->settle(map { "$_.txt.zst" } 'page', 'shot', keys %full);

my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=256k;');
    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOC
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;

$t->run($conf);

my $pool = 1 << 20;
my $used = qr/zstd mmap: buffer \w+, used (\d+) of $pool/;
my $no_room = qr/zstd mmap: buffer 0+, used/;
my @two_ranges = ('Range: bytes=0-0,2-2');


# what is in use while a reply of one page is the only one
sub in_use {
    $t->get('/page.txt');
    my ($last) = ($t->log_lines($used))[-1] =~ $used;
    return $last;
}


# slow readers of the four, with the beginnings of their replies
sub fill {
    return map {
        my $c = $t->connect(rcvbuf => 4096);
        $c->send_request('GET', "/$_.txt", headers => ['Connection: close']);
        [$_, $c, $c->read_some(500)];
    } sort keys %full;
}


# Bodies stay in the buffers when they are sent.  Those that nobody holds make
# room: each of the four is in one buffer.
sub given_back {
    return $t->poll(sub {
        my $before = $t->log_count($no_room);
        my @readers = fill();
        $_->[1]->close() for @readers;
        return $t->log_count($no_room) == $before
            && @readers == grep { $_->[2] =~ /^HTTP\/1\.1 200/ } @readers;
    });
}


is(in_use(), 4096, 'a reply holds the pages that it needs');

for my $name (qw(shot known unknown)) {
    for my $end (qw(close abort)) {
        for my $point (@points) {
            my $c = $t->connect(rcvbuf => 4096);
            $c->send_request('GET', "/$name.txt");
            $c->read_some($point);
            $c->$end();
        }

        ok(given_back(), "$name, $end at many points: all is given back");
    }
}

my ($worker) = $t->worker_pids();

# four replies of 62 pages fill 256 pages; the fifth finds no room
my @slow = fill();
like($_->[2], qr/^HTTP\/1\.1 200/, 'a slow reader begins') for @slow;

my $r = $t->get('/shot.txt');
ok($r->complete && $r->body eq $shot, 'no room: the body is right');
is($r->header('Content-Length'), 250_000, 'no room: it has its length');
is($t->get('/shot.txt', @two_ranges)->status, 200, 'no room: streamed');
ok($t->log_count($no_room) > 0, 'no room: no buffer was found');

$r = $t->get('/known.txt');
ok($r->complete && $r->body eq $big, 'no room: a stream is right too');

my @right = grep {
    my ($name, $c, $begin) = @$_;
    (($begin . $c->read_some(1 << 20)) =~ /\r\n\r\n(.*)/s)[0] eq $full{$name};
} @slow;
is(@right, 4, 'the slow readers have their bytes');
$_->[1]->close() for @slow;

ok(given_back(), 'all is given back');
is($t->get('/shot.txt', @two_ranges)->status, 206, 'room again: one buffer');

# keep-alive connections that rest hold nothing
my @idle = map { $t->connect() } 1 .. 10;
my @done = grep { $_->get('/shot.txt')->body eq $shot } @idle;
is(@done, 10, 'ten connections');
ok(given_back(), 'connections at rest hold nothing');
$_->close() for @idle;

is(join(' ', $t->worker_pids()), $worker, 'the same worker all the time');
is($t->log_count(qr/\[(?:crit|error)\]/), 0, 'no error in the log');
