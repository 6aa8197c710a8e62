#!/usr/bin/perl

# Body and header filters of nginx behind the module: nothing is coded twice,
# decoded bytes are an ordinary body, and replies of others stay as they are.

use strict;
use warnings;

use IO::Uncompress::Gunzip ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new()->plan(47);

my $text = $t->text(20_000, 1);
my $coded = $t->zst('a.txt', $text);
my $long = $t->text(300_000, 2);
my $long_coded = $t->zst('long.txt', $long);
my $loose = $t->text(30_000, 3);
$t->zst('loose.txt', $loose, size => 0);
my $html = '<html><!--# echo var="arg_who" --> and text</html>';
$t->zst('a.html', $html);
my $latin = "caf\xe9 " x 300;
my $latin_coded = $t->zst('latin.html', $latin);
$t->write('plain.bin', 'x' x 1000);
$t->zst('empty.txt', '');
my $include = join '|', map { "<!--# include virtual=\"/$_.txt\" -->" }
    qw(a empty long loose);
$t->zst('page.html', "($include)");

my $buffers = 'zstd_mmap_buffers 1m max=100k; zstd_mmap_cache off;';

$t->run($t->conf(<<'EOF', http => $buffers));
zstd_mmap on;
location /gzip/ {
    alias %%DIR%%/;
    gzip on;
    gzip_types *;
    gzip_vary on;
}
location /gzip-bare/ { alias %%DIR%%/; gzip on; gzip_types *; }
location /gunzip/ { alias %%DIR%%/; gunzip on; gzip on; gzip_types *; }
location /ssi/ { alias %%DIR%%/; zstd_mmap decode; ssi on; }
location /sub/ {
    alias %%DIR%%/;
    zstd_mmap decode;
    sub_filter text page;
    sub_filter_types *;
}
location /charset/ {
    alias %%DIR%%/;
    charset utf-8;
    source_charset latin-1;
}
location /slow/ { alias %%DIR%%/; limit_rate 20m; limit_rate_after 1k; }
location /return/ {
    zstd_mmap on;
    location = /return/204 { return 204; }
    location = /return/205 { return 205; }
    location = /return/302 { return 302 /a.txt; }
}
location /proxied/ {
    zstd_mmap on;
    proxy_pass http://127.0.0.1:%%PORT2%%/;
    proxy_set_header Accept-Encoding zstd;
    proxy_set_header Range $http_range;
}
}

charset_map latin-1 utf-8 { E9 C3A9; }

server {
    listen 127.0.0.1:%%PORT2%%;
    location = /204 { return 204; }
    location = /205 { return 205; }
    location = /206.zst { alias %%DIR%%/a.txt.zst;
                          add_header Content-Encoding zstd; }
    location = /plain { alias %%DIR%%/plain.bin; }
EOF


sub get {
    my ($uri, $coding, @headers) = @_;

    return $t->get($uri, "Accept-Encoding: $coding", @headers);
}


sub gunzip {
    my ($bytes) = @_;

    my $plain;
    IO::Uncompress::Gunzip::gunzip(\$bytes, \$plain)
        or return 'not gzip: ' . $IO::Uncompress::Gunzip::GunzipError;

    return $plain;
}


sub vary_count {
    my ($r) = @_;

    return scalar grep { /Accept-Encoding/i } $r->header_lines('Vary');
}

# gzip of decoded bytes, by three ways to make them

for my $row (['a.txt', $text, 'one buffer'], ['long.txt', $long, 'streamed'],
             ['loose.txt', $loose, 'of unknown size'])
{
    my ($file, $body, $name) = @$row;

    my $r = get("/gzip/$file", 'gzip');
    is(join('+', $r->header_lines('Content-Encoding')), 'gzip',
       "$name: gzip codes decoded bytes");
    ok($r->complete && gunzip($r->body) eq $body, "$name: the right ones");
    is(vary_count($r), 1, "$name: one Vary");
    like($r->header('ETag'), qr/^W\//, "$name: with a weak tag");
}

for my $where (qw(gzip gzip-bare gunzip)) {
    my $r = get("/$where/a.txt", 'gzip, zstd');
    is(join('+', $r->header_lines('Content-Encoding')), 'zstd',
       "/$where/: frames are coded once");
    is($r->body, $coded, "/$where/: and come as they are");
    is(vary_count($r), 1, "/$where/: one Vary");
}

my $r = get('/gzip-bare/a.txt', 'gzip');
is(vary_count($r), 1, 'gzip_vary off: one Vary of the module');
is(gunzip($r->body), $text, 'and gzip works');
$r = get('/gzip/a.txt', 'br');
is($r->header('Content-Encoding'), undef, 'neither coding');
is($r->body, $text, 'plain bytes');
$r = get('/gzip/a.txt', 'zstd', 'Range: bytes=2-9');
is($r->status . ' ' . $r->body, '206 ' . substr($coded, 2, 8),
   'ranges of frames although gzip is on');

# filters that change text see text

$r = get('/ssi/a.html?who=me', 'zstd');
is($r->body, '<html>me and text</html>', 'ssi in decode mode');
is($r->header('Content-Encoding'), undef, 'no coding');
is(get('/ssi/page.html', 'zstd')->body, "($text||$long|$loose)",
   'a page of subrequests, each decoded');
is(get('/sub/a.html', 'zstd')->body, $html =~ s/text/page/r,
   'sub_filter in decode mode');

$r = get('/charset/latin.html', 'gzip');
is($r->body, "caf\xc3\xa9 " x 300, 'decoded bytes are recoded');
is($r->header('Content-Type'), 'text/html; charset=utf-8', 'and say so');
$r = get('/charset/latin.html', 'zstd');
is($r->body, $latin_coded, 'frames are not');
is($r->header('Content-Type'), 'text/html', 'and do not say so');

for my $row (['a.txt', 'gzip', $text], ['a.txt', 'zstd', $coded],
             ['long.txt', 'gzip', $long], ['long.txt', 'zstd', $long_coded],
             ['loose.txt', 'gzip', $loose])
{
    my ($file, $coding, $body) = @$row;
    $r = get("/slow/$file", $coding);
    ok($r->complete && $r->body eq $body,
       "limit_rate, $file for a $coding client");
}

# replies of others


sub ours {
    return join ' ', grep { $_[0]->header_lines($_) }
        qw(Content-Encoding Vary ETag);
}


for my $uri ('/return/204', '/return/302', '/proxied/204') {
    my ($status) = $uri =~ /(\d+)/;
    $r = get($uri, 'zstd');
    is($r->status . ' ' . ours($r), "$status ", "$uri is left alone");
}

for my $uri ('/return/205', '/proxied/205') {
    $r = get($uri, 'zstd');
    is($r->status . ' ' . ours($r), '205 ', "$uri is left alone");
}

$r = get('/proxied/plain', 'zstd', 'Range: bytes=0-9');
is($r->status . ' ' . ($r->header('Content-Encoding') // '-'), '206 -',
   'a proxied 206 gets no coding');
$r = get('/proxied/206.zst', 'gzip', 'Range: bytes=10-19');
is($r->status . ' ' . $r->header('Content-Encoding'), '206 zstd',
   'a proxied part of a coded body is not decoded');
is($r->body, substr($coded, 10, 10), 'its bytes pass');
