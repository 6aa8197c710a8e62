#!/usr/bin/perl

# Methods, request bodies and URIs that are not the module's.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new()->plan(41);

my $text = $t->text(3000, 1);
$t->zst('a.txt', $text);
my $long = $t->text(300_000, 2);
$t->zst('long.txt', $long);
$t->zst('loose.txt', $text, size => 0);
$t->zst('dav/old.txt', 'old');
$t->zst('index.html', 'an index');
$t->raw_zst('dir/', $t->compress('a file without a name'));
mkdir $t->path('void.zst') or die "mkdir: $!";

$t->run($t->conf(<<'EOF', http => 'zstd_mmap_buffers 1m max=100k;'));
zstd_mmap on;
location /dav/ { dav_methods PUT DELETE MKCOL; }
location /off/ { alias %%DIR%%/; zstd_mmap off; }
location /always/ { alias %%DIR%%/; zstd_mmap always; }
location /decode/ { alias %%DIR%%/; zstd_mmap decode; }
location /trick/ { alias %%DIR%%/; error_page 405 =200 $uri; }
location /empty-name/ { alias %%DIR%%/dir/; index none; }
EOF

my $opened = qr/zstd mmap: open/;


sub status {
    my ($method, $uri, @rest) = @_;

    return $t->request($method, $uri, @rest)->status;
}

# POST

for my $where ('', '/always', '/decode') {
    is($t->post("$where/a.txt", 'x=1')->status, 405,
       "POST of a file that exists, $where/");
}
is($t->post('/a.txt', '')->status, 405, 'also without a body');
is($t->post('/a.txt', 'x', 'Accept-Encoding: zstd')->status, 405,
   'of a zstd client');
is($t->post('/absent.txt', 'x')->status, $t->post('/off/absent.txt', 'x')
   ->status, 'a file that does not exist is left to nginx');
is($t->post('/absent.txt', 'x')->status, 404, 'which says 404');
is($t->post('/void', 'x')->status, 404, 'a directory named .zst is no file');
is($t->post('/', 'x')->status, $t->post('/off/', 'x')->status,
   'POST of a directory');
my $r = $t->post('/trick/a.txt', 'x');
is($r->status . ' ' . $r->body, "200 $text", 'error_page 405 =200 works');

# methods that are never ours

my $before = $t->log_count($opened);
for my $method (qw(PUT DELETE OPTIONS PATCH TRACE PROPFIND)) {
    is(status($method, '/a.txt'), status($method, '/off/a.txt'),
       "$method is left to nginx");
}
is($t->log_count($opened), $before, 'none of them opened a file');
is($t->read('a.txt.zst'), $t->compress($text), 'and the file is untouched');

is(status('PUT', '/dav/new.txt', body => 'new'), 201, 'PUT by dav');
is($t->get('/dav/new.txt')->body, 'new', 'is there');
is(status('DELETE', '/dav/new.txt'), 204, 'DELETE by dav');
is($t->get('/dav/new.txt')->status, 404, 'is gone');
is(status('DELETE', '/dav/old.txt'), 404, 'DELETE removes no .zst');
is($t->get('/dav/old.txt')->body, 'old', 'which is still served');

# a request body on GET is read and dropped: the connection goes on


sub chunked {
    my ($body) = @_;

    return sprintf("%x\r\n%s\r\n0\r\n\r\n", length $body, $body);
}


for my $uri ('/a.txt', '/long.txt', '/loose.txt') {
    my $body = $uri eq '/long.txt' ? $long : $text;
    my $c = $t->connect();

    for my $size (10, 200_000) {
        $r = $c->request('GET', $uri, body => 'G' x $size);
        ok($r->status == 200 && $r->body eq $body, "$uri: a body of $size");
    }

    $c->send("GET $uri HTTP/1.1\r\nHost: localhost\r\n"
             . "Transfer-Encoding: chunked\r\n\r\n"
             . chunked("GET / HTTP/1.1\r\n\r\n"));
    ok($c->response()->body eq $body, "$uri: a chunked body");
    is($c->get('/dav/old.txt')->body, 'old', "$uri: the next request");
    $c->close();
}

$r = $t->request('HEAD', '/a.txt', body => 'x' x 100);
is($r->status . ' ' . $r->header('Content-Length'), '200 3000',
   'HEAD with a body');
$r = $t->raw("GET /a.txt HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue"
             . "\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
is($r->body, $text, 'a client that waits to be told');

# a URI that ends in "/" is no file

is($t->get('/')->status, $t->get('/off/')->status, 'the directory itself');
is($t->get('/empty-name/')->status, 403, '.zst is no name of a file');
is($t->get('/a.txt/')->status, 404, 'a file is no directory');
