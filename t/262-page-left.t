#!/usr/bin/perl

# A client leaves while an included part of its page waits for a thread: that
# is noticed at once, not when the part is ready.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Gate;

my $t = Test::Zmap->new()->plan(4);
my $gate = Gate->new($t);

my $text = $t->text(100_000, 1);
$t->zst('part.txt', $text);
$t->write('page.html', '<!--#include virtual="part.txt" -->');
$t->settle('part.txt.zst');

$gate->run($t->conf(<<'EOC'));
    location = /page.html { ssi on; }
    location = /part.txt { zstd_mmap on; zstd_mmap_threads default min=1; }
    location = /status { stub_status; }
EOC

$gate->shut();
my $c = $t->connect();
$c->send_request('GET', '/page.html');
ok($t->wait_log(qr/"\/part\.txt" waits for job/), 'a part waits');

$c->abort();
ok($t->poll(sub { $t->get('/status')->body =~ /Active connections: 1 / }),
   'the client has left');
is($t->log_count(qr/end of job/), 0, 'before the part is ready');

$gate->open();
is($t->get('/page.html')->body, $text, 'the next one');
