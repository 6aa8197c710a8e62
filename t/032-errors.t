#!/usr/bin/perl

# Answers that are not the file carry no header of the file: 405, 412, 416,
# 5xx and error pages.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;
my $EARLIER = 'Sat, 12 Sep 2020 12:26:40 GMT';

my $t = Test::Zmap->new()->plan(8 * 6 + 26);

my $text = $t->text(5000, 1);
my $coded = $t->zst('a.txt', $text, mtime => $MTIME);
my $page = "the page of an error\n" x 20;
my $page_coded = $t->zst('page.html', $page, mtime => $MTIME);

# sound blocks, wrong checksum: found before a decoded body is sent
my $wrong = $t->frame(fcs => 300, checksum => 12345,
                      blocks => [[rle => 'w', 300]]);
$t->raw_zst('wrong.txt', $wrong);
$t->raw_zst('cut.txt', substr $coded, 0, -1);
$t->raw_zst('none.txt', '');
$t->settle('wrong.txt.zst');

my $locations = join '', map {
    "location /$_/ { alias %%DIR%%/; gzip_vary $_; }\n"
    . "location /page-$_/ { alias %%DIR%%/; gzip_vary $_; "
    . "error_page 404 405 412 416 500 /$_/page.html; }\n"
} qw(on off);

$t->run($t->conf("zstd_mmap on; $locations" . <<'EOF'));
location /plain-page/ {
    alias %%DIR%%/;
    error_page 404 405 412 416 500 /text;
}
location /left-on/ { alias %%DIR%%/; gzip_vary on; zstd_mmap_decode off; }
location /left-off/ { alias %%DIR%%/; gzip_vary off; zstd_mmap_decode off; }
location = /text { default_type text/x-page; return 200 "said by nginx\n"; }
location /status/ { alias %%DIR%%/; error_page 404 =200 /on/page.html; }
location /loop/ { alias %%DIR%%/; error_page 500 /loop/wrong.txt; }
EOF


# the headers of a file, those that came
sub ours {
    my ($r) = @_;

    return join ' ', grep { $r->header_lines($_) }
        qw(Content-Encoding ETag Last-Modified Vary Accept-Ranges);
}


# [name, method, file, headers, status]
my @errors = (
    ['far range', 'GET', 'a.txt', ['Range: bytes=900000-'], 416],
    ['another tag', 'GET', 'a.txt', ['If-Match: "other"'], 412],
    ['a later date', 'GET', 'a.txt', ["If-Unmodified-Since: $EARLIER"], 412],
    ['POST', 'POST', 'a.txt', [], 405],
    ['a cut file', 'GET', 'cut.txt', [], 500],
    ['an empty file', 'GET', 'none.txt', [], 500],
);

for my $coding (qw(zstd gzip)) {
    for my $error (@errors) {
        my ($name, $method, $file, $headers, $status) = @$error;
        my @headers = (@$headers, "Accept-Encoding: $coding");

        for my $where (qw(on off)) {
            my $r = $t->request($method, "/$where/$file",
                                headers => \@headers);
            is($r->status . ' ' . ours($r), "$status ",
               "$name, $coding client, gzip_vary $where");
        }

        my $r = $t->request($method, "/plain-page/$file",
                            headers => \@headers);
        is(join(' | ', $r->status, ours($r), $r->header('Content-Type'),
                $r->body), "$status |  | text/x-page | said by nginx\n",
           "$name, $coding client, a page of another handler");

        # where the page is a .zst of its own, its headers are the only ones
        $r = $t->request($method, "/page-off/$file", headers => \@headers);
        is(join(' | ', $r->status, $r->header('Content-Encoding') // '-',
                scalar(() = $r->header_lines('Vary')),
                $r->body eq ($coding eq 'zstd' ? $page_coded : $page)),
           "$status | " . ($coding eq 'zstd' ? 'zstd' : '-') . ' | 1 | 1',
           "$name, $coding client, a page that is only a .zst");
    }
}

# 416 tells the size of what the client would have got

my $far = 'Range: bytes=900000-';
is($t->get('/off/a.txt', $far, 'Accept-Encoding: zstd')
     ->header('Content-Range'), 'bytes */' . length $coded,
   '416 of frames: their size');
is($t->get('/off/a.txt', $far)->header('Content-Range'),
   'bytes */' . length $text, '416 of decoded bytes: theirs');
like($t->get('/off/a.txt', $far, 'Accept-Encoding: zstd')->body,
     qr/416 Requested Range Not Satisfiable/, 'a page that can be read');

# of a file that was left to nginx's static handler
$t->write('left.txt', $text);
$t->zst('left.txt', $text);
for my $where (qw(left-on left-off)) {
    my $r = $t->get("/$where/left.txt", $far);
    is($r->status . ' ' . ours($r), '416 ', "416 of a plain file, $where");
}

# checksum errors

my $r = $t->get('/off/wrong.txt', 'Accept-Encoding: gzip');
is($r->status . ' ' . ours($r), '500 ', 'a wrong checksum is a clean 500');
$r = $t->get('/off/wrong.txt', 'Accept-Encoding: zstd');
is($r->status . ' ' . ours($r), '500 ', 'known from then on');
$r = $t->get('/page-on/wrong.txt', 'Accept-Encoding: zstd');
is($r->status . ' ' . $r->header('Content-Encoding'), '500 zstd',
   'and its error page may be coded');
is($r->body, $page_coded, 'as it lies there');
$r = $t->get('/page-on/wrong.txt');
is($r->status . ' ' . $r->body, "500 $page", 'or decoded');
$r = $t->get('/loop/wrong.txt');
is($r->status, 500, 'an error page that is corrupt itself');
is(ours($r), '', 'has nothing of ours');

# missing files

for my $coding (qw(zstd gzip)) {
    $r = $t->get('/off/absent.txt', "Accept-Encoding: $coding");
    is($r->status . ' ' . ours($r), '404 ', "404, $coding client");

    $r = $t->get('/page-off/absent.txt', "Accept-Encoding: $coding");
    is($r->status, 404, "404 with a page, $coding client");
    is($r->body, $coding eq 'zstd' ? $page_coded : $page, 'the page');
    is($r->header('Content-Type'), 'text/html', 'its type');
    is($r->header('Content-Length'), length $r->body, 'its length');
}

$r = $t->get('/status/absent.txt', 'Range: bytes=0-3');
is($r->status . ' ' . $r->body, '206 the ', 'a page in place of the file');
is($t->get('/page-off/absent.txt', 'Range: bytes=0-3')->status, 404,
   'an error page has no ranges');
is($t->get('/page-off/absent.txt', 'If-None-Match: *')->status, 404,
   'nor conditions');
is($t->head('/page-off/absent.txt')->header('Content-Length'), length $page,
   'HEAD of a page');
