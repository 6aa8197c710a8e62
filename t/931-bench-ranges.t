#!/usr/bin/perl

# A tiny run of bench/ranges: what it prints, and that it ends clean.

use strict;
use warnings;

use File::Temp ();
use Test::More;

Test::More->builder->plan(tests => 8);

my $dir = File::Temp::tempdir('zmap-test-XXXXXX', TMPDIR => 1, CLEANUP => 1);
chmod 0755, $dir;
my @under_test = map {
    my $file = $ENV{'TEST_NGINX_' . ($_ eq 'nginx' ? 'BINARY' : 'MODULE')};
    defined $file ? ("--$_", $file) : ();
} qw(nginx module);


sub bench {
    my (@arguments) = @_;

    my $pid = open(my $fh, '-|') // die "fork: $!";
    if ($pid == 0) {
        open(STDERR, '>', "$dir/messages");
        exec 'bench/ranges', '--dir', $dir, @arguments or die "exec: $!";
    }
    binmode($fh, ':encoding(UTF-8)');
    my $text = do { local $/; <$fh> // '' };
    close($fh);

    return ($? >> 8, $text);
}


sub read_file {
    my ($path) = @_;

    open(my $fh, '<:encoding(UTF-8)', $path) or return '';
    local $/;

    return <$fh> // '';
}


# the medians, and the words at the end, of a row
sub cells {
    my ($text, $label) = @_;

    my ($row) = $text =~ /^\| \Q$label\E \| (.*) \|$/m;

    return map { s/ \(.*//r } split / \| /, $row // '';
}


my ($code, $text) = bench(@under_test, qw(--pairs 1 --seconds 1 --size 9
    --connections 2 --data mixed --frames 64), '--markdown', "$dir/table.md");

is($code, 0, 'exit code') or diag(read_file("$dir/messages"));
is(read_file("$dir/table.md"), $text, 'the file has the table, too');

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

($code, $text) = bench('--nginx', '/bin/false', '--size', 2, '--frames', 64);
isnt($code, 0, 'nginx does not start: exit code');
is_deeply([glob "$dir/zmap-bench-*"], [], 'nothing is left behind');
