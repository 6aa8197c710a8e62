#!/usr/bin/perl

# Reading a mapping raises SIGBUS though the file is what it was, as after an
# I/O error: critical in the log, and nothing is held against the file.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

# the log of the walk is at level debug
my $t = Test::Zmap->new();
my $fault = Preload->new($t);

my $page = 4096;
my $small = $t->random(60_000, 1);
my $large = $t->random(900_000, 2);
my %body = (small => $small, large => $large);
my %zst = map { $_ => $t->compress($body{$_}) } keys %body;

# the page of the header; one inside of a block, which no walk reads; the one
# with the header of the last block
my $last = int((length($large) - length($large) % 131072) / $page);
my @table = (
    # name, file, page, headers, what comes
    ['walk, frames', 'small', 0, 'zstd', 'refused'],
    ['walk, decoded', 'small', 0, 'identity', 'refused'],
    ['walk, stream', 'large', 0, 'identity', 'refused'],
    ['late in the walk, frames', 'large', $last, 'zstd', 'refused'],
    ['late in the walk, stream', 'large', $last, 'identity', 'refused'],
    ['decode', 'small', 7, 'identity', 'refused'],
    ['stream', 'large', 20, 'identity', 'cut short'],
    ['late in a stream', 'large', $last - 2, 'identity', 'cut short'],
);

$t->plan(9 * @table + 2);

for my $n (0 .. $#table) {
    $t->raw_zst("f$n.txt", $zst{$table[$n][1]});
    $t->write("lost.$n", '');
}

$t->raw_zst('other.txt', $zst{small});
$t->settle('other.txt.zst', map { "f$_.txt.zst" } 0 .. $#table);

$fault->run($t->conf('zstd_mmap on; zstd_mmap_chunk 64k;',
                     http => 'zstd_mmap_buffers 4m max=64k;'));

my ($worker) = $t->worker_pids();

# the first mmap of a worker is that of its buffers
$t->get('/other.txt');


sub outcome {
    my ($r, $want) = @_;

    return 'right' if $r->status == 200 && $r->complete && $r->body eq $want;
    return 'refused' if $r->status == 500;
    # the header may wait for the first bytes of the body
    return 'cut short' if $r->status =~ /^(?:0|200)$/ && !$r->complete
                          && !$r->timed_out;
    return 'wrong: status ' . $r->status;
}


for my $n (0 .. $#table) {
    my ($name, $file, $lost, $coding, $expected) = @{$table[$n]};

    my $uri = "/f$n.txt";
    my $want = $coding eq 'zstd' ? $zst{$file} : $body{$file};
    my @headers = ("Accept-Encoding: $coding");

    $fault->arm('mmap', 1, lose => [$t->path("lost.$n"), $lost * $page]);
    my $got = outcome($t->get($uri, @headers), $want);
    is($fault->fired(), 1, "$name: a page is lost");
    $fault->disarm();
    is($got, $expected, "$name: $expected");

    my $line = qr/html\/f$n\.txt\.zst" is not usable/;
    is($t->log_count(qr/\[crit\].*$line: .*lost pages/), 1,
       "$name: one critical line");
    is($t->log_count($line), 1, "$name: and no other");
    is(outcome($t->get('/other.txt'), $small), 'right',
       "$name: another file is served");

    # the page can be read again
    $t->write("lost.$n", substr $zst{$file}, $lost * $page, $page);
    my $walks = $t->log_count(qr/walk at 0 of/);
    is(outcome($t->get($uri, @headers), $want), 'right',
       "$name: the next reply is right");
    is($t->log_count(qr/walk at 0 of/) - $walks, $name =~ /walk/ ? 1 : 0,
       "$name: walked again from its beginning, if that was cut");
    is(outcome($t->get($uri), $body{$file}), 'right', "$name: decoded");
    is(outcome($t->get($uri, 'Accept-Encoding: zstd'), $zst{$file}), 'right',
       "$name: frames");
}

is(($t->worker_pids())[0], $worker, 'the same worker all the time');
is($t->log_count(qr/\[error\]/), 0, 'no file is called bad');
