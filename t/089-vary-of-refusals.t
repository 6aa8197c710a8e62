#!/usr/bin/perl

# Where a refusal leaves a request to the plain file, both answers say Vary.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $body = $t->text(5000, 1);
my $coded = $t->compress($body);

# what only those clients meet that take no frames
my %refused = (
    'too-large/' => ['zstd_mmap_max_size 1k', $coded],
    'trailing/'  => ['zstd_mmap_verify off', $coded . 'over'],
    'window/'    => ['zstd_mmap_decode_window 1k', $coded],
);
my @where = sort keys %refused;

my %vary = (
    'own/'    => ['gzip_vary off', 'Accept-Encoding'],
    'nginx/'  => ['gzip_vary on', 'Accept-Encoding'],
    'none/'   => ['zstd_mmap_vary off', undef],
);
my @vary = sort keys %vary;

$t->plan(@where * @vary * 10 + 2);

my $locations = '';
for my $where (@where) {
    $t->write("$where$_", 'plain file') for 'a.txt';
    $t->raw_zst("${where}a.txt", $refused{$where}[1]);
    $locations .= "location /$_$where { alias %%DIR%%/$where;"
        . " $refused{$where}[0]; $vary{$_}[0]; }\n" for @vary;
}
$t->settle(map { "${_}a.txt.zst" } @where);

$t->run($t->conf("zstd_mmap on;\n$locations"));

for my $vary (@vary) {
    my $expected = $vary{$vary}[1];

    for my $where (@where) {
        my $uri = "/$vary${where}a.txt";

        # each twice: the second time something is known of the file
        for my $round (1, 2) {
            # a verdict of one client holds for all: frames come first
            my $r = $t->get($uri, 'Accept-Encoding: zstd');
            my $frames = $where ne 'trailing/'
                || $round == 1 && $vary eq $vary[0];
            is($r->body, $frames ? $refused{$where}[1] : 'plain file',
               "$uri, $round: for zstd");
            is($r->header('Vary'), $expected, "$uri, $round: its Vary");

            $r = $t->get($uri);
            is($r->body, 'plain file', "$uri, $round: the plain file");
            is($r->header('Vary'), $expected, "$uri, $round: its Vary");
        }

        is($t->head($uri)->header('Vary'), $expected, "$uri: Vary of HEAD");
        is($t->get($uri, 'If-None-Match: *')->header('Vary'), $expected,
           "$uri: Vary of 304");
    }
}

# no refusal: nothing beside our answer
my $r = $t->get('/too-large/a.txt');
is($r->body, $body, 'without the limit: decoded');
is($r->header('Vary'), 'Accept-Encoding', 'its Vary');
