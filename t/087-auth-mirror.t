#!/usr/bin/perl

# auth_request and mirror that go to .zst files; internal redirects, error_page.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(25);

my $text = $t->text(300_000, 1);
my $small = $t->text(3000, 2);

$t->zst('small.txt', $small);
$t->zst('stream.txt', $text);
$t->zst('unknown.txt', $text, size => 0);
$t->raw_zst('bad.txt', 'no frame');
$t->zst('404.html', 'our own page');
$t->zst('500.html', 'our own error');

my $locations = join '', map {
    "location /auth-$_/ { alias %%DIR%%/; auth_request /part/$_.txt; }\n"
    . "location /mirror-$_/ { alias %%DIR%%/; mirror /part/$_.txt; }\n"
} qw(small stream unknown bad missing);

$t->run($t->conf(<<"EOC", http => 'zstd_mmap_buffers 1m max=64k;'));
    zstd_mmap on;
    zstd_mmap_chunk 8k;

    $locations

    location /part/ { alias %%DIR%%/; }
    location /own/ { alias %%DIR%%/; error_page 404 /404.html;
                     error_page 500 /500.html; }
    location /try/ { try_files /missing /small.txt.zst =404; }
    location /rewritten/ { rewrite ^ /stream.txt last; }
    location /status/ { alias %%DIR%%/; error_page 404 =200 /stream.txt; }
EOC

for my $part (qw(small stream unknown)) {
    for my $name (qw(small stream)) {
        my $body = $name eq 'small' ? $small : $text;

        my $r = $t->get("/auth-$part/$name.txt");
        ok($r->complete && $r->body eq $body,
           "auth_request to $part lets $name pass");

        $r = $t->get("/mirror-$part/$name.txt", 'Accept-Encoding: identity');
        ok($r->complete && $r->body eq $body, "mirror to $part, $name");
    }
}

is($t->get('/auth-bad/small.txt')->status, 500, 'auth_request to a bad file');
is($t->get('/auth-missing/small.txt')->status, 500,
   'auth_request to a missing one');
is($t->get('/mirror-bad/small.txt')->body, $small, 'mirror to a bad file');
is($t->get('/mirror-missing/small.txt')->body, $small,
   'mirror to a missing one');

my $r = $t->get('/own/missing.txt');
is($r->status . ' ' . $r->body, '404 our own page', 'error page, decoded');

$r = $t->get('/own/missing.txt', 'Accept-Encoding: zstd');
is($r->status . ' ' . ($r->header('Content-Encoding') // '-'), '404 zstd',
   'error page, frames');
is($r->body, $t->read('404.html.zst'), 'error page, the frames of it');

$r = $t->get('/own/bad.txt');
is($r->status . ' ' . $r->body, '500 our own error',
   'a bad file: the error page of its 500');

$r = $t->get('/rewritten/x');
ok($r->complete && $r->body eq $text, 'a stream after a rewrite');

$r = $t->get('/status/missing.txt');
ok($r->status == 200 && $r->complete && $r->body eq $text,
   'a stream as an error page');

is($t->get('/try/x', 'Accept-Encoding: zstd')->header('Content-Encoding'),
   undef, 'FILE.zst itself is a file of its own');

$r = $t->get('/small.txt.zst', 'Accept-Encoding: zstd');
is($r->body, $t->read('small.txt.zst'), 'and can be asked for');

is($t->log_count(qr/zero size buf|header already sent/), 0, 'no complaints');
