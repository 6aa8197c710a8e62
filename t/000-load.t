#!/usr/bin/perl

# The module loads, and nginx starts and stops with it.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new()->plan(4);

my ($code, $output) = $t->test_config($t->conf('zstd_mmap off;'));
is($code, 0, 'nginx -t with the module') or diag($output);

($code, $output) = $t->test_config($t->conf('zstd_mmap maybe;'));
isnt($code, 0, 'nginx -t with a wrong value');

$t->write('plain.txt', 'plain');
$t->run($t->conf(''));
is($t->get('/plain.txt')->body, 'plain', 'a plain file is served');
is($t->get('/absent.txt')->status, 404, 'an absent one is not');
