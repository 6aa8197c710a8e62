#!/usr/bin/perl

# Tiny runs of bench/stream and bench/latency: what they print, and that they
# end clean.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap::Bench;

my $spread = qr/[\d.]+ \([\d.]+\x{2013}[\d.]+\)/;

Test::More->builder->plan(tests => 12);

my $bench = Test::Zmap::Bench->new();


my ($code, $text) = $bench->run('stream', '--pairs', 1, '--bodies', 1,
    '--size', 5, '--only', 'level-3,frames-256k,unsized', '--parts');

is($code, 0, 'stream: exit code') or diag($bench->messages);

for my $label ('one frame, level 3', 'frames of 256 KiB',
               'one frame, size unknown')
{
    like($text, qr/^\| \Q$label\E, [\d.]+:1 \| (?:$spread \| ){3}\S+ 0.80 \|/m,
         "stream: $label");
}

like($text, qr/^\| one frame, level 3 \| (?:$spread \| ){4}$spread \|$/m,
     'stream: its parts');
is_deeply($bench->left, [], 'stream: nothing is left behind');

($code, $text) = $bench->run('stream', '--only', 'level-4');
isnt($code, 0, 'an unknown row: exit code');
like($bench->messages, qr/no such rows: level-4/, 'an unknown row: message');

($code, $text) = $bench->run('latency', '--runs', 1, '--requests', 5,
                             '--clients', 2);

is($code, 0, 'latency: exit code') or diag($bench->messages);
like($text, qr/^\| \Q$_\E \| (?:$spread \| ){7}\S+ 2.0 \|/m, "latency: $_")
    for 'in the event loop', 'in a thread pool';
is_deeply($bench->left, [], 'latency: nothing is left behind');
