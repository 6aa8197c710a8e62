#!/usr/bin/perl

# Tiny runs of bench/stream and bench/latency: what they print, and that they
# end clean.

use strict;
use warnings;

use File::Temp ();
use Test::More;

my $spread = qr/[\d.]+ \([\d.]+\x{2013}[\d.]+\)/;

Test::More->builder->plan(tests => 12);

my $dir = File::Temp::tempdir('zmap-test-XXXXXX', TMPDIR => 1, CLEANUP => 1);
chmod 0755, $dir;
my @under_test = map {
    my $file = $ENV{'TEST_NGINX_' . ($_ eq 'nginx' ? 'BINARY' : 'MODULE')};
    defined $file ? ("--$_", $file) : ();
} qw(nginx module);


sub bench {
    my ($name, @arguments) = @_;

    my $pid = open(my $fh, '-|') // die "fork: $!";
    if ($pid == 0) {
        open(STDERR, '>', "$dir/messages");
        exec "bench/$name", '--dir', $dir, @arguments or die "exec: $!";
    }
    binmode($fh, ':encoding(UTF-8)');
    my $text = do { local $/; <$fh> // '' };
    close($fh);

    return ($? >> 8, $text);
}


sub messages {
    open(my $fh, '<:encoding(UTF-8)', "$dir/messages") or die "messages: $!";
    local $/;

    return <$fh> // '';
}


my ($code, $text) = bench('stream', @under_test, '--pairs', 1, '--bodies', 1,
    '--size', 5, '--only', 'level-3,frames-256k,unsized', '--parts');

is($code, 0, 'stream: exit code') or diag(messages());

for my $label ('one frame, level 3', 'frames of 256 KiB',
               'one frame, size unknown')
{
    like($text, qr/^\| \Q$label\E, [\d.]+:1 \| (?:$spread \| ){3}\S+ 0.80 \|/m,
         "stream: $label");
}

like($text, qr/^\| one frame, level 3 \| (?:$spread \| ){4}$spread \|$/m,
     'stream: its parts');
is_deeply([glob "$dir/zmap-bench-*"], [], 'stream: nothing is left behind');

($code, $text) = bench('stream', @under_test, '--only', 'level-4');
isnt($code, 0, 'an unknown row: exit code');
like(messages(), qr/no such rows: level-4/, 'an unknown row: message');

($code, $text) = bench('latency', @under_test, '--runs', 1, '--requests', 5,
                       '--clients', 2);

is($code, 0, 'latency: exit code') or diag(messages());
like($text, qr/^\| \Q$_\E \| (?:$spread \| ){7}\S+ 2.0 \|/m, "latency: $_")
    for 'in the event loop', 'in a thread pool';
is_deeply([glob "$dir/zmap-bench-*"], [], 'latency: nothing is left behind');
