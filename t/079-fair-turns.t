#!/usr/bin/perl

# A fast big stream does not keep a small reply waiting.

use strict;
use warnings;

use POSIX ();
use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 20)->plan(5);

# 64 GiB of RLE blocks: more than is taken within the test
my $blocks = 1 << 19;
my $coded = $t->frame(window => 1 << 20, fcs => $blocks << 17,
                      blocks => [[rle => 'A', 131072]], last => 0);
my ($head, $block) = (substr($coded, 0, -4), substr($coded, -4));
my $last = substr($t->frame(blocks => [[rle => 'A', 131072]]), -4);

$t->raw_zst('big.txt', $head . $block x ($blocks - 1) . $last);
$t->zst('small.txt', 'small');
$t->settle('small.txt.zst');

$t->run($t->conf(<<'EOC'));
    zstd_mmap on;

    # a socket that never fills: a thousandth of what is decoded
    gzip on;
    gzip_types text/plain;
    gzip_comp_level 1;
EOC


# readers that take all they can get, until they are killed
sub reader {
    my ($coding) = @_;

    my $pid = fork() // die "fork: $!";
    return $pid if $pid;

    my $c = $t->connect();
    $c->send_request('GET', '/big.txt',
                     headers => ["Accept-Encoding: $coding"]);
    while (length $c->read_some(1 << 20)) { }
    POSIX::_exit(0);
}


is($t->head('/big.txt')->header('Content-Length'), $blocks << 17,
   'the big file');
is($t->get('/small.txt')->body, 'small', 'the small file');

my @readers = map { reader($_) } qw(identity identity gzip);

my ($slowest, $right) = (0, 0);
my $end = time() + 2;

while (time() < $end) {
    my $begin = time();
    $right++ if $t->get('/small.txt')->body eq 'small';
    my $took = time() - $begin;
    $slowest = $took if $took > $slowest;
}

my $running = grep { waitpid($_, POSIX::WNOHANG()) == 0 } @readers;
kill 'KILL', @readers;
waitpid $_, 0 for @readers;

is($running, 3, 'the streams ran all the time');

is($t->get('/small.txt', 'Accept-Encoding: gzip')->status, 200,
   'the worker serves on');

# one turn is a fraction of a millisecond of decoding
my $bound = 0.5 * ($ENV{TEST_SCALE} || 1);
ok($slowest < $bound && $right > 1, "no small reply took ${bound} s")
    or diag("slowest $slowest s, $right replies");
