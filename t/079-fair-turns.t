#!/usr/bin/perl

# A fast big stream does not keep a small reply waiting.

use strict;
use warnings;

use IO::Select ();
use POSIX ();
use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 20)->plan(8);

# 64 GiB of RLE blocks: more than is taken within the test
my $blocks = 1 << 19;
my $readers = 0;
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


# Readers that take all they can get, until they are killed; each writes down
# how many bytes came.
sub reader {
    my ($coding) = @_;

    my $name = $t->run_dir() . '/reader.' . ++$readers;
    open(my $out, '+>:raw', $name) or die "$name: $!";
    my $pid = fork() // die "fork: $!";
    return [$pid, $out] if $pid;

    my $c = $t->connect();
    my $got = 0;
    $c->send_request('GET', '/big.txt',
                     headers => ["Accept-Encoding: $coding"]);
    while (my $n = sysread_some($c)) {
        $got += $n;
        sysseek($out, 0, 0);
        syswrite($out, pack 'Q', $got);
    }
    POSIX::_exit(0);
}


# what is there; an idle socket is waited for
sub sysread_some {
    my ($c) = @_;

    IO::Select->new($c->{socket})->can_read();

    my $bytes;
    return sysread($c->{socket}, $bytes, 1 << 20);
}


sub bytes_of {
    my ($reader) = @_;

    sysseek($reader->[1], 0, 0);

    my $bytes;
    return sysread($reader->[1], $bytes, 8) ? unpack('Q', $bytes) : 0;
}


is($t->head('/big.txt')->header('Content-Length'), $blocks << 17,
   'the big file');
is($t->get('/small.txt')->body, 'small', 'the small file');

my @codings = qw(identity identity gzip);
my @readers = map { reader($_) } @codings;

my ($slowest, $right) = (0, 0);
my ($half, $end) = (time() + 1, time() + 2);
my @before;

while (time() < $end) {
    my $begin = time();
    $right++ if $t->get('/small.txt')->body eq 'small';
    my $took = time() - $begin;
    $slowest = $took if $took > $slowest;
    @before = map { bytes_of($_) } @readers if !@before && $begin > $half;
}

my @after = map { bytes_of($_) } @readers;
my @pids = map { $_->[0] } @readers;
my $running = grep { waitpid($_, POSIX::WNOHANG()) == 0 } @pids;
kill 'KILL', @pids;
waitpid $_, 0 for @pids;

# many turns of each: a turn is 1 MiB, here or before gzip
for my $n (0 .. $#readers) {
    my $turns = 10 * ($codings[$n] eq 'gzip' ? 1 << 10 : 1 << 20)
                / ($ENV{TEST_SCALE} || 1);
    cmp_ok($after[$n] - ($before[$n] // 0), '>', $turns,
           "reader $n, $codings[$n], gets bytes all the time");
}

is($running, 3, 'the streams ran all the time');

is($t->get('/small.txt', 'Accept-Encoding: gzip')->status, 200,
   'the worker serves on');

# one turn is a fraction of a millisecond of decoding
my $bound = 0.5 * ($ENV{TEST_SCALE} || 1);
ok($slowest < $bound && $right > 1, "no small reply took ${bound} s")
    or diag("slowest $slowest s, $right replies");
