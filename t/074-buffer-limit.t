#!/usr/bin/perl

# A body of max bytes is decoded into one buffer, one byte more is streamed: a
# reply in one buffer has several ranges at once, a stream has one.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $mib = 1 << 20;

# the directive, and the max that follows from it
my @table = (
    ['zstd_mmap_buffers 1m max=64k;', 65536],
    ['zstd_mmap_buffers 1m max=1m;', $mib],
    ['zstd_mmap_buffers 64k;', 65536],
    ['', 4 * $mib],
    ['zstd_mmap_buffers 64m;', 4 * $mib],
);

my %size = map { ($_ => 1, $_ + 1 => 1) } map { $_->[1] } @table;
my %body = map { $_ => $t->text($_ > $mib ? 1000 : $_, $_) } keys %size;

for my $size (keys %size) {
    $body{$size} .= 'x' x ($size - length $body{$size});
    $t->zst("$size.txt", $body{$size});
}

$t->plan(2 * 3 * @table);

$t->run($t->conf('zstd_mmap on;'));

for my $row (@table) {
    my ($directive, $max) = @$row;
    my $name = $directive || 'default';

    $t->reload(conf => $t->conf('zstd_mmap on;', http => $directive))
        or die "no new worker\n";

    for my $size ($max, $max + 1) {
        my $r = $t->get("/$size.txt");
        ok($r->complete && $r->body eq $body{$size}, "$name $size bytes");

        is($r->header('Accept-Ranges'), 'bytes', "$name $size bytes: ranges");
        is($t->get("/$size.txt", 'Range: bytes=1-2,5-6')->status,
           $size > $max ? 200 : 206, "$name $size bytes: two ranges");
    }
}
