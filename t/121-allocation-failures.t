#!/usr/bin/perl

# The n-th allocation of a request fails, for each n: first only those of the
# module and of libzstd, then all of the worker.  The reply is right, refused or
# cut short; the worker lives, and the next reply is right.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

my $FILES = 60;

my $t = Test::Zmap->new(log_level => 'info')->plan(21);
my $fault = Preload->new($t);

$t->expect_alert(qr/\[(?:emerg|alert)\].*(?:malloc|posix_memalign|memalign)\(/);

my $text = $t->text(300_000, 1);
my $small = $t->text(40_000, 2);
my %body = (oneshot => $small, sized => $text, unsized => $text);
my %zst = (
    oneshot => $t->compress($small),
    sized   => $t->compress($text),
    unsized => $t->compress($text, size => 0),
);

# each request has a file that no table knows yet, old enough to be kept
for my $n (0 .. $FILES - 1) {
    $t->replace("$_-$n.txt.zst", $zst{$_}) for keys %zst;
}
$t->settle("sized-" . ($FILES - 1) . ".txt.zst");

$fault->run($t->conf('zstd_mmap on; zstd_mmap_chunk 64k;',
                     http => 'zstd_mmap_buffers 4m max=64k;'));

my @zstd = ('Accept-Encoding: zstd');
my %ask = (
    'frames'           => ['sized', @zstd],
    'decoded'          => ['oneshot'],
    'stream'           => ['sized'],
    'stream in chunks' => ['unsized'],
    'stream to http/1.0' => ['unsized'],
);

my $file = 0;


sub ask {
    my ($name) = @_;

    my ($kind, @headers) = @{$ask{$name}};
    my $want = @headers ? $zst{$kind} : $body{$kind};
    my $r = $t->request('GET', "/$kind-$file.txt", headers => \@headers,
                        version => $name =~ /1\.0/ ? '1.0' : '1.1');

    return 'right' if $r->status == 200 && $r->complete && $r->body eq $want;
    return 'refused' if $r->status == 500;
    return 'cut short' if !$r->complete && !$r->timed_out;
    return 'wrong: status ' . $r->status;
}


sub fail_each {
    my ($name, $first, %opt) = @_;

    my ($failed, @wrong) = (0);

    for my $n (1 .. 2000) {
        $first->();
        my ($worker) = $t->worker_pids();
        $file = ($file + 1) % $FILES;
        $fault->arm('alloc', $n, %opt);
        my $got = ask($name);
        my $fired = $fault->fired();
        $fault->disarm();
        last if !$fired;

        $failed++;
        push @wrong, "allocation $n: $got\n" if $got =~ /wrong/;
        push @wrong, "allocation $n: the worker is gone\n"
            if ($t->worker_pids())[0] != $worker;
        push @wrong, "allocation $n: the next reply is not right\n"
            if ask($name) ne 'right';
        last if @wrong;
    }

    return ($failed, @wrong);
}


sub check {
    my ($name, $what, $least, @args) = @_;

    my ($failed, @wrong) = fail_each($name, @args);
    is(scalar @wrong, 0, "$name, $what") or diag(@wrong);
    cmp_ok($failed, '>=', $least, "$name, $what: they failed");
}


my $nothing = sub { };
my $new_worker = sub { $t->reload() or die "no new worker\n" };

# file, entry, decoder, context, window ..; idle decoders are used again
check('decoded', 'first request of a worker', 8, $new_worker);
check('stream in chunks', 'first request of a worker', 9, $new_worker);
check('stream to http/1.0', 'first request of a worker', 9, $new_worker);
check('frames', 'calls of the module', 2, $nothing);
check('stream', 'calls of the module', 2, $nothing);

check('frames', 'all calls of nginx', 6, $nothing, any => 1);
check('decoded', 'all calls of nginx', 6, $nothing, any => 1);
check('stream', 'all calls of nginx', 6, $nothing, any => 1);
check('stream in chunks', 'all calls of nginx', 6, $nothing, any => 1);
check('stream to http/1.0', 'all calls of nginx', 6, $nothing, any => 1);

$t->log_like(qr/\[crit\].*no memory/, 'the log tells of it');
