#!/usr/bin/perl

# SIGBUS that no guarded read raised goes where it went before: it ends the
# worker, and a new one serves.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

# where a sanitizer would report it, and exit
$ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (), 'handle_sigbus=0';

my $t = Test::Zmap->new(log_level => 'info')->plan(11);
my $fault = Preload->new($t);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 7/);

my $text = $t->text(300_000, 1);
my $coded = $t->compress($text);
$t->replace('a.txt.zst', $coded);
$fault->run($t->conf('zstd_mmap on;'));


sub killed_by_bus {
    my ($name) = @_;

    my ($old) = $t->worker_pids();
    my $count = $t->log_count(qr/exited on signal 7/);
    $t->kill('BUS', $old);
    ok($t->wait_log(qr/exited on signal 7/, $count + 1), "$name: it dies");

    $t->poll(sub { ($t->worker_pids())[0] // $old != $old });
    my $r = $t->get('/a.txt');
    ok($r->complete && $r->body eq $text, "$name: a new worker serves");
}


# SIGBUS while the file is decoded
sub truncated_decode {
    my ($name) = @_;

    my ($old) = $t->worker_pids();
    $t->replace('a.txt.zst', $coded);
    $fault->arm('fstat', 2, truncate => [$t->path('a.txt.zst'), 0]);
    is($t->get('/a.txt')->status, 500, "$name: refused");
    is(($t->worker_pids())[0], $old, "$name: the worker lives");
    $t->replace('a.txt.zst', $coded);
}


killed_by_bus('before the first request');
truncated_decode('first fault');
truncated_decode('second fault');
killed_by_bus('a worker whose guard has caught faults');

# the guard of the next cycle's workers
ok($t->reload(), 'reload');
truncated_decode('after a reload');
