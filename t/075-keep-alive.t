#!/usr/bin/perl

# Several requests in one connection, also pipelined, with streamed replies.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my %body = (
    small   => $t->text(500, 1),
    shot    => $t->text(60_000, 2),
    stream  => $t->text(400_000, 3),
    unknown => $t->text(300_000, 4),
    empty   => '',
);

my %uri = map { $_ => "/$_.txt" } keys %body;

$t->zst('unknown.txt', $body{unknown}, size => 0);
$t->zst("$_.txt", $body{$_}) for grep { $_ ne 'unknown' } keys %body;
$t->zst('bad.txt', $body{stream});
$t->raw_zst('bad.txt', substr $t->read('bad.txt.zst'), 0, -1);

my @order = (sort(keys %body), reverse(sort keys %body),
             (sort keys %body) x 2);

$t->plan(3 * @order + 4);

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=64k;'));
    zstd_mmap on;
    zstd_mmap_chunk 8k;
EOC


sub right {
    my ($r, $name) = @_;
    return $r->status == 200 && $r->complete && $r->body eq $body{$name};
}


my $c = $t->connect();
ok(right($c->get($uri{$_}), $_), "one after another: $_") for @order;
$c->close();

# all requests are sent before the first reply is read
$c = $t->connect();
$c->send_request('GET', $uri{$_}) for @order;
ok(right($c->response(), $_), "pipelined: $_") for @order;
is($c->get('/bad.txt')->status, 500, 'a bad file at the end');
$c->close();

# a reader that takes its time
$c = $t->connect(rcvbuf => 4096);
$c->send_request('GET', $uri{$_}) for @order;
ok(right($c->response(), $_), "pipelined, small window: $_") for @order;
$c->close();

# HEAD has no body that could be taken for the next reply
$c = $t->connect();
is($c->head($uri{stream})->header('Content-Length'), length $body{stream},
   'HEAD of a streamed file');
is($c->head($uri{unknown})->status, 200, 'HEAD of a file of unknown size');
ok(right($c->get($uri{small}), 'small'), 'GET after HEAD');
$c->close();
