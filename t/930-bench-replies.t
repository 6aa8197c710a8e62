#!/usr/bin/perl

# A tiny run of bench/replies: what it prints, and that it ends clean.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap::Bench;

my $spread = qr/([\d.]+) \([\d.]+\x{2013}[\d.]+\)/;

Test::More->builder->plan(tests => 12);

my $bench = Test::Zmap::Bench->new();


# [peer, module, ratio, ...] of a row of a section
sub cells {
    my ($text, $title, $label) = @_;

    my ($section) = $text =~ /^### \Q$title\E\n(.*?)(?:^### |\z)/ms;
    my ($row) = ($section // '') =~ /^\| \Q$label\E \| (.*) \|$/m;

    return [split / \| /, $row // ''];
}


sub is_row {
    my ($cells, $name) = @_;

    my @numbers = map { /^$spread$/ ? $1 : () } @$cells[0 .. 2];

    ok(@numbers == 3 && $numbers[0] > 0 && $numbers[1] > 0
       && abs($numbers[1] / $numbers[0] - $numbers[2])
          < 0.02 + 0.1 * $numbers[2],
       "$name: two costs and their ratio") or diag("@$cells");
}


my ($code, $text) = $bench->run('replies', '--pairs', 1, '--seconds', 1,
    '--connections', 2, '--only', 'staged:4k,decoded:16k,calls:4k',
    '--markdown', $bench->path('tables.md'));

is($code, 0, 'exit code') or diag($bench->messages);
is($bench->content('tables.md'), $text, 'the file has the tables, too');

my $staged = cells($text, 'Staged frames', '4 KB');
is_row($staged, 'staged frames');
is($staged->[3], "\x{2264} 0.75", 'staged frames: the target');
like($staged->[4] // '', qr/^(?:yes|no)$/, 'staged frames: whether it holds');

is_row(cells($text, 'Decoded again', '16 KB'), 'decoded again');

# without root it depends on the machine whether a process may be traced
my ($calls) = $text =~ /^\| staged frames, 4 KB \| module \| (.*) \|$/m;
my $traced = '1 epoll_wait, 1 recvfrom, 1 writev';
$traced = qr/^(?:\Q$traced\E|not counted: .*)$/ if $> != 0;
like($calls // '', ref $traced ? $traced : qr/^\Q$traced\E$/,
     'system calls of a staged reply');

is_deeply($bench->left, [], 'nothing is left behind');

($code, $text) = $bench->run('replies', '--only', 'staged:5k');
isnt($code, 0, 'an unknown row: exit code');
like($bench->messages, qr/no such rows: staged:5k/, 'an unknown row: message');

($code, $text) = $bench->run('replies', '--nginx', '/bin/false',
                             '--only', 'staged:4k');
isnt($code, 0, 'nginx does not start: exit code');
is_deeply($bench->left, [], 'nginx does not start: nothing is left behind');
