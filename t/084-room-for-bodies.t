#!/usr/bin/perl

# Many stalled streams leave room in the buffers for bodies that fit into one.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


# with the defaults two chunks of each take more than all the buffers
my $streams = 70;

my $t = Test::Zmap->new(log_level => 'info', timeout => 20)->plan(11);

my $body = $t->text(100_000, 1);
my $flipped = $t->compress($t->random(100_000, 2));
substr($flipped, 50_000, 1) ^= "\1";

# more than the sockets take
$t->zst('large.txt', 'large' x (8 << 20));
$t->zst('small.txt', $body);
$t->raw_zst("flipped$_.txt", $flipped) for 1, 2;
$t->zst('full.txt', 'x' x (4 << 20));
$t->settle('large.txt.zst', 'small.txt.zst', 'full.txt.zst');

$t->run($t->conf('zstd_mmap on;'));

my @c = map { $t->connect(rcvbuf => 4096) } 1 .. $streams;
$_->send_request('GET', '/large.txt') for @c;

my @heads = map { $_->read_some(17) } @c;
is(scalar(grep { /\AHTTP\/1\.1 200 OK/ } @heads), $streams, 'all have begun');

my $r = $t->get('/small.txt', 'Range: bytes=100-199');
is($r->status, 206, 'a small body meanwhile: its range');
is($r->body, substr($body, 100, 100), 'the right one');

# the largest body that has a buffer
$r = $t->get('/full.txt', 'Range: bytes=-5');
is($r->status, 206, 'a body of 4 MiB meanwhile: its range');

$r = $t->get('/flipped1.txt');
is($r->status, 500, 'a bad one meanwhile: 500');
ok($r->complete, 'as a whole answer');

# a stream that finds no room is a stream all the same
my $c = $t->connect();
$c->send_request('GET', '/large.txt', headers => ['Connection: close']);
$r = $c->response();
ok($r->complete && $r->body eq 'large' x (8 << 20), 'one more stream: whole');

$_->abort() for @c;

# what was given to them comes back
ok($t->poll(sub { $t->get('/flipped2.txt')->status == 500 }),
   'when they are gone: 500 too');
is($t->get('/small.txt', 'Range: bytes=0-0')->status, 206, 'and ranges');
is($t->log_count(qr/\[crit\]/), 0, 'nothing critical');
is($t->log_count(qr/flipped.*is not usable/), 2, 'two files are blamed');
