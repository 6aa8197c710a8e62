#!/usr/bin/perl

# A scratch that cannot grow is not asked for again at each step of a body.

use strict;
use warnings;

use Errno qw(ENOMEM);
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

my $t = Test::Zmap->new();
my $fault = Preload->new($t);

my $text = $t->random(5_000_000, 1);

$t->zst('small', 'abc');
$t->zst('big', $text);
$t->settle('big.zst');

$t->plan(6);

$fault->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;'));
    zstd_mmap on;
    zstd_mmap_input scratch=16m;
    location = /small { zstd_mmap_input read; }
EOC

my $refused = qr/no memory to read 16777216 bytes/;

is($t->get('/small')->body, 'abc', 'a scratch of 64k');
is($t->head('/big')->status, 200, 'a file that is walked');

$fault->arm('mmap', 1, errno => ENOMEM, always => 1);

my $r = $t->get('/big');
ok($r->complete && $r->body eq $text, 'read with it, as there is no other');
is($t->log_count($refused), 1, 'one attempt');

$fault->arm('mmap', 1000);
$fault->advance(30);

$r = $t->get('/big');
ok($r->complete && $r->body eq $text, 'later');
ok($t->log_count(qr/the scratch of \S+ got|window rc:0 at 0: 5\d{6} bytes/),
   'the scratch has grown');
