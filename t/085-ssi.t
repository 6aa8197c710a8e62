#!/usr/bin/perl

# SSI pages and their parts from .zst files: as from plain files.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my %part = (
    small   => 'a small part',
    shot    => $t->text(50_000, 1),
    stream  => $t->text(300_000, 2),
    unknown => $t->text(200_000, 3),
    other   => $t->text(250_000, 4),
    empty   => '',
    even    => $t->text(16 * 8192, 5),
    'even-unknown' => $t->text(10 * 8192, 6),
    'one-chunk'    => $t->text(8192, 7),
);

my %unsized = map { $_ => 1 } qw(unknown even-unknown one-chunk);

my $inc = sub { "<!--#include virtual=\"$_[0].txt\"$_[1] -->" };
my $each = sub {
    my ($extra, @names) = @_;
    return join '|', '<p>', (map { $inc->($_, $extra) } @names), "</p>\n";
};

my @all = sort keys %part;

# nothing, of a size that is not known; each is in one page only, whose first
# request streams it
my $nothing = $t->frame(blocks => [[compressed => "\4\0\0"]]);
my %nothing = map { $_ => '' } qw(nothing-1 nothing-2 nothing-3);
my $stub = '<!--#block name="one" -->stub<!--#endblock -->';

my %page = (
    one        => $each->('', 'small'),
    streamed   => $each->('', 'stream'),
    unknown    => $each->('', 'unknown'),
    empty      => $each->('', 'empty'),
    all        => $each->('', @all),
    reversed   => $each->('', reverse @all),
    waiting    => $each->(' wait="yes"', @all),
    again      => $each->('', ('stream', 'unknown', 'small') x 4),
    missing    => $each->('', 'small', 'missing', 'stream'),
    stubbed    => $stub . $each->(' stub="one"', 'missing', 'small'),
    'stubbed-empty' => $stub . $each->(' stub="one"', 'empty', 'small'),
    'stubbed-nothing' => $stub . $each->(' stub="one"', 'nothing-1', 'small'),
    'nothing-later' => $stub . $each->(' stub="one"', 'stream', 'nothing-2'),
    nothing    => $each->('', 'nothing-3'),
    even       => $each->('', 'even', 'even-unknown', 'one-chunk', 'even'),
    'stubbed-later' => $stub . $each->(' stub="one"', 'small', 'empty',
                                       'stream', 'empty', 'missing', 'empty'),
    set        => '<!--#include virtual="small.txt" set="v" -->'
        . '[<!--#echo var="v" encoding="none" -->]',
    'set-streamed' => '<!--#include virtual="other.txt" set="v" -->'
        . '[<!--#echo var="v" encoding="none" -->]' . $each->('', 'small'),
    'set-empty' => '<!--#include virtual="empty.txt" set="v" -->'
        . '[<!--#echo var="v" encoding="none" default="none" -->]',
    nested     => $each->('', 'small') . '<!--#include virtual="all.shtml" -->'
        . $each->('', 'stream'),
    long       => $t->text(150_000, 9) . $each->('', @all)
        . $t->text(150_000, 8),
    bad        => $each->('', 'small', 'bad', 'shot'),
);

for my $name (keys %part) {
    $t->write("plain/$name.txt", $part{$name});
    $t->zst("zst/$name.txt", $part{$name},
            size => $unsized{$name} ? 0 : 1);
}

# whole chunks, then an empty frame: the end of the stream brings no bytes
for my $name (qw(even even-unknown one-chunk)) {
    $t->raw_zst("zst/$name.txt",
                $t->read("zst/$name.txt.zst") . $t->compress(''));
}

for my $name (keys %nothing) {
    $t->write("plain/$name.txt", '');
    $t->raw_zst("zst/$name.txt", $nothing);
}

for my $name (keys %page) {
    $t->write("plain/$name.shtml", $page{$name}) if $name ne 'bad';
    $t->zst("zst/$name.shtml", $page{$name});
}

$t->raw_zst('zst/bad.txt', substr $t->read('zst/shot.txt.zst'), 0, -1);

my @clients = ([], ['Accept-Encoding: zstd'], ['Accept-Encoding: gzip, zstd']);
my @pages = sort grep { $_ ne 'bad' } keys %page;

$t->plan(@pages * 2 * (@clients + 2) + 8);

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=64k;'));
    listen 127.0.0.1:%%PORT2%% http2;
    subrequest_output_buffer_size 1m;

    location /plain/ { ssi on; ssi_types *; }

    location /zst/ {
        ssi on;
        ssi_types *;
        zstd_mmap decode;
        zstd_mmap_chunk 8k;
    }

    # the parts negotiate where the page does not
    location ~ ^/zst/.*\.txt$ {
        zstd_mmap on;
        zstd_mmap_chunk 8k;
    }
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);

# two rounds: then the sizes are learnt
for my $round (1, 2) {
    for my $name (@pages) {
        my $expected = expected($name);

        for my $client (@clients) {
            my $r = $t->get("/zst/$name.shtml", @$client);
            ok($r->status == 200 && $r->complete && $r->body eq $expected
               && !defined $r->header('Content-Encoding'),
               "$name, @$client, round $round")
                or diag(length($r->body) . ' of ' . length $expected);
        }

        my $r = $t->request('GET', "/zst/$name.shtml", version => '1.0');
        ok($r->complete && $r->body eq $expected, "$name, 1.0, round $round");

        $r = $t->curl('--http2-prior-knowledge', "$h2/zst/$name.shtml");
        ok($r->complete && $r->body eq $expected, "$name, h2, round $round");
    }
}


# what nginx itself makes of the plain files
sub expected {
    my ($name) = @_;
    return $t->get("/plain/$name.shtml")->body;
}


# the comparison is with something
like(expected('one'), qr/^<p>\|a small part\|<\/p>/, 'SSI works at all');
is(expected('set-streamed'), "[$part{other}]<p>|a small part|</p>\n",
   'a part is set');
is(length expected('all'),
   length(join '', values %part) + length("<p>||</p>\n") + @all - 1,
   'all parts are in it');

my $r = $t->get('/zst/bad.shtml');
like($r->body, qr/^<p>\|a small part\|.*500 Internal.*\|\Q$part{shot}\E\|/s,
     'a bad part: its error page, the others whole');

$r = $t->get('/zst/one.shtml', 'Accept-Encoding: zstd');
is($r->header('Vary'), undef, 'no Vary on a page that is always decoded');

$r = $t->get('/zst/stream.txt', 'Accept-Encoding: zstd');
is($r->header('Content-Encoding'), 'zstd', 'the part itself is negotiated');

# a slow reader of a page of streams
my $c = $t->connect(rcvbuf => 4096);
$c->send_request('GET', '/zst/again.shtml', version => '1.0');
my $bytes = '';
while (length(my $piece = $c->read_some(20_000))) { $bytes .= $piece }
ok((split /\r\n\r\n/, $bytes, 2)[1] eq expected('again'), 'a slow reader');
$c->close();

is($t->log_count(qr/zero size buf|header already sent/), 0, 'no complaints');
