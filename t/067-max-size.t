#!/usr/bin/perl

# zstd_mmap_max_size: refused before the header, or aborted at the limit.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(38);

my $text = $t->text(1 << 20, 1);
my %size = (below => 999_999, at => 1_000_000, above => 1_000_001);

for my $name (keys %size) {
    my $body = substr $text, 0, $size{$name};
    $t->zst("known/$name.txt", $body);
    $t->zst("unknown/$name.txt", $body, size => 0);
}

$t->zst('beside/known.txt', $text);
$t->write('beside/known.txt', 'plain');
$t->settle('beside/known.txt.zst', 'unknown/above.txt.zst',
           'known/above.txt.zst');

$t->certificate();

$t->run($t->conf(<<'EOC'));
    listen 127.0.0.1:%%PORT2%% http2;
    listen 127.0.0.1:%%PORT3%% ssl;
    ssl_certificate     localhost.crt;
    ssl_certificate_key localhost.key;

    zstd_mmap on;
    zstd_mmap_max_size 1000000;

    location /free/ { zstd_mmap_max_size 0; alias %%DIR%%/; }
    location /other/ { alias %%DIR%%/unknown/; }
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);
my $tls = 'https://127.0.0.1:' . $t->port(3);

for my $name (qw(below at)) {
    my $body = substr $text, 0, $size{$name};
    for my $kind (qw(known unknown)) {
        my $r = $t->get("/$kind/$name.txt");
        ok($r->status == 200 && $r->complete && $r->body eq $body,
           "$kind, $name the limit: served");
    }
}

is($t->get('/known/above.txt')->status, 500, 'known, above: refused');
is($t->head('/known/above.txt')->status, 500, 'known, above: HEAD refused');
is($t->get('/known/above.txt')->header('ETag'), undef,
   'known, above: no tag');
is($t->get('/known/above.txt', 'Accept-Encoding: zstd')->status, 200,
   'known, above: frames are sent');
is($t->log_count(qr/\[error\].*"[^"]*known\/above\.txt\.zst"/), 1,
   'known, above: one line');
is($t->get('/beside/known.txt')->body, 'plain',
   'known, above: the plain file beside');
is($t->get('/free/known/above.txt')->body, substr($text, 0, 1_000_001),
   'known, above, no limit there: served');

my $start = substr $text, 0, 1_000_000;

for my $version ('1.0', '1.1') {
    for my $turn (1, 2) {
        my $r = $t->request('GET', '/unknown/above.txt', version => $version);
        my $what = "unknown, above, HTTP/$version, turn $turn";

        is($r->status, 200, "$what: the header was sent");
        ok(!$r->complete, "$what: aborted");
        ok(length $r->body <= 1_000_000, "$what: not beyond the limit");
        ok($r->body eq substr($start, 0, length $r->body),
           "$what: right so far");
    }
}

my $r = $t->curl('--http2-prior-knowledge', "$h2/unknown/above.txt");
is($r->exit, 92, 'unknown, above, h2: stream reset');
ok(length $r->body <= 1_000_000, 'unknown, above, h2: not beyond the limit');

for my $version ('1.0', '1.1') {
    $r = $t->curl("--http$version", "$tls/unknown/above.txt");
    like($r->exit, qr{^(?:18|56)$},
         "unknown, above, TLS, HTTP/$version: aborted");
    ok(length $r->body <= 1_000_000,
       "unknown, above, TLS, HTTP/$version: not beyond the limit");
}

is($t->get('/unknown/above.txt', 'Accept-Encoding: zstd')->body,
   $t->read('unknown/above.txt.zst'), 'unknown, above: frames are sent');
is($t->head('/unknown/above.txt')->status, 200,
   'unknown, above: HEAD decodes nothing');

# the limit is of a location, and no property of the file
$r = $t->get('/free/unknown/above.txt');
ok($r->complete && $r->body eq substr($text, 0, 1_000_001),
   'unknown, above, no limit there: served');
is($t->get('/unknown/above.txt')->status, 500,
   'once its size is learnt it is refused before the header');
is($t->log_count(qr/\[error\].*"[^"]*unknown\/above\.txt\.zst"/), 1,
   'unknown, above: one line');
