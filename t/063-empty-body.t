#!/usr/bin/perl

# A file that decodes to nothing: an empty body, and no alert about it.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(58);

my $sized = pack 'H*', '28b52ffd240001000099e9d851';
my $unsized = $t->frame(blocks => [[compressed => "\0\0"]]);

$t->raw_zst('sized.txt', $sized);
$t->raw_zst('rle.txt', $t->frame(blocks => [[raw => '']]));

# an empty compressed block: literals of size 0, no sequences
$t->raw_zst('unsized.txt', $unsized);
$t->write("$_.shtml", "<<!--#include virtual=\"/part/$_.txt\" -->>")
    for qw(sized rle unsized);
$t->write('empty.txt', '');

# parts that nobody asked for before: their size is not learnt yet
for my $n (0 .. 3) {
    $t->raw_zst("new$n.txt", $unsized);
    $t->write("new$n.shtml", "<<!--#include virtual=\"/part/new$n.txt\" -->>");
}
$t->settle('unsized.txt.zst');

$t->run($t->conf(<<'EOC'));
    listen 127.0.0.1:%%PORT2%% http2;

    location / { zstd_mmap on; }

    location ~ \.shtml$ { ssi on; ssi_types *; }

    location /plain/ { alias %%DIR%%/; }

    location /part/ { zstd_mmap on; alias %%DIR%%/; }
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);

# the second turn of the unsized file has a length
for my $turn (1, 2) {
    for my $name (qw(sized rle unsized)) {

        for my $version ('1.0', '1.1') {
            my $r = $t->request('GET', "/$name.txt", version => $version);
            is($r->status . ' ' . $r->body . ' ' . $r->complete, '200  1',
               "$name, HTTP/$version, turn $turn");
        }

        my $r = $t->curl('--http2-prior-knowledge', "$h2/$name.txt");
        is($r->exit . ' ' . $r->status . ' ' . $r->body, '0 200 ',
           "$name, h2, turn $turn");

        for my $version ('1.0', '1.1') {
            $r = $t->request('GET', "/$name.shtml", version => $version);
            is($r->body, '<>',
               "$name, subrequest, HTTP/$version, turn $turn");
        }

        my $c = $t->connect();
        is($c->get("/$name.txt")->status . $c->get('/sized.txt')->status,
           '200200', "$name, keep-alive, turn $turn");
        $c->close();

        is($t->head("/$name.txt")->status, 200, "$name, HEAD, turn $turn");
    }
}

for my $name (qw(sized rle unsized)) {
    my $r = $t->get("/$name.txt");
    is($r->header('Content-Length'), 0, "$name: length is 0");

    $r = $t->get("/$name.txt", 'Accept-Encoding: zstd');
    is($r->body, $t->read("$name.txt.zst"), "$name: frames are not empty");

    is($t->get("/$name.txt", 'Range: bytes=0-0')->status,
       $t->get('/plain/empty.txt', 'Range: bytes=0-0')->status,
       "$name: a range is answered as for an empty plain file");
}

is($t->request('GET', '/new0.shtml', version => '1.0')->body, '<>',
   'unsized, first asked for as a part, HTTP/1.0');
is($t->get('/new1.shtml')->body, '<>',
   'unsized, first asked for as a part, HTTP/1.1');
is($t->curl('--http2-prior-knowledge', "$h2/new2.shtml")->body, '<>',
   'unsized, first asked for as a part, h2');
is($t->get('/new3.shtml', 'Accept-Encoding: zstd')->body, '<>',
   'unsized, first asked for as a part, zstd client');

is($t->log_count(qr/zero size buf/), 0, 'no zero size buf');
is($t->log_count(qr/is not usable/), 0, 'no complaint about the files');
is($t->curl('--http2-prior-knowledge', '--compressed', "$h2/sized.txt")->exit,
   0, 'an empty zstd body decodes');
