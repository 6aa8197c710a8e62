#!/usr/bin/perl

# A tiny run of bench/ranges: what it prints, and that it ends clean.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap::Bench;

Test::More->builder->plan(tests => 8);

my $bench = Test::Zmap::Bench->new();


# the medians, and the words at the end, of a row
sub cells {
    my ($text, $label) = @_;

    my ($row) = $text =~ /^\| \Q$label\E \| (.*) \|$/m;

    return map { s/ \(.*//r } split / \| /, $row // '';
}


my ($code, $text) = $bench->run('ranges', qw(--pairs 1 --seconds 1 --size 9
    --connections 2 --data mixed --frames 64),
    '--markdown', $bench->path('table.md'));

is($code, 0, 'exit code') or diag($bench->messages);
is($bench->content('table.md'), $text, 'the file has the table, too');

my ($frames, $decoded, $identity, $module, $ratio, $libzstd, $memory, $floor,
    @target) = cells($text, 'mixed, 64k, border');
is("$frames $decoded", '2 128', 'over a border: two frames are decoded');
ok($identity && $ratio
   && abs($module / $identity - $ratio) < 0.02 + 0.1 * $ratio,
   'two costs and their ratio') or diag($text);
ok($libzstd && $memory
   && abs($module / ($libzstd + $memory) - $floor) < 0.02 + 0.1 * $floor,
   'the floor, and the ratio to it') or diag($text);
like("@target", qr/^sendfile \x{2264} 3\.00 (?:yes|no)$/,
     'the target, and whether it holds');

($code, $text) = $bench->run('ranges', '--nginx', '/bin/false', '--size', 2,
                             '--frames', 64);
isnt($code, 0, 'nginx does not start: exit code');
is_deeply($bench->left, [], 'nothing is left behind');
