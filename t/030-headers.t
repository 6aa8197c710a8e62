#!/usr/bin/perl

# Headers of both representations: type, coding, length, dates, tags.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;                     # 2020-09-13
my $DATE = 'Sun, 13 Sep 2020 12:26:40 GMT';

# name and the type that the configuration gives to it
my %type = ('a.js'          => 'application/javascript',
            'a.css'         => 'text/css',
            'a.html'        => 'text/html',
            'a.svg'         => 'image/svg+xml',
            'A.JS'          => 'application/javascript',
            'a.unknown'     => 'application/octet-stream',
            'a.zst'         => 'application/octet-stream',
            'a.css.html'    => 'text/html',
            'none'          => 'application/octet-stream',
            'dir.css/none'  => 'application/octet-stream',
            'a b%3F.css'    => 'text/css');

my $t = Test::Zmap->new()->plan(5 * keys(%type) + 35);

my (%text, %coded);


sub make {
    my ($name, $text, %opt) = @_;

    $text{$name} = $text;
    $coded{$name} = $t->zst($name, $text, mtime => $MTIME, %opt);
}


make($_ =~ s/%3F/?/r, "text of $_\n" x 50) for keys %type;
make('empty.txt', '');
make('unsized.html', $t->text(50_000, 1), size => 0);
make('large.html', $t->text(200_000, 2));
$t->settle('unsized.html.zst', 'large.html.zst');

$t->run($t->conf(<<'EOF', http => 'zstd_mmap_buffers 1m max=100k;'));
zstd_mmap on;
location /untagged/ { alias %%DIR%%/; etag off; }
location /charset/ {
    alias %%DIR%%/;
    charset utf-8;
    charset_types text/css application/javascript;
}
location /type/ { alias %%DIR%%/; default_type text/x-own; types { } }
location /added/ {
    alias %%DIR%%/;
    add_header X-Own yes;
    add_header Cache-Control no-transform;
    expires 1h;
}
EOF


sub get {
    my ($uri, $coding, @headers) = @_;

    return $t->get($uri, "Accept-Encoding: $coding", @headers);
}


sub tag { return sprintf '"%x-%x%s"', $MTIME, @_ }


# what a reply says about itself, in one line
sub said {
    my ($r) = @_;

    return join ' | ', $r->status, map { $r->header($_) // '-' }
        qw(Content-Type Content-Encoding Content-Length ETag Accept-Ranges);
}


for my $name (sort keys %type) {
    my $uri = '/' . $name =~ s/ /%20/gr;
    my $file = $name =~ s/%3F/?/r;

    for my $row (['gzip', '-', $text{$file}, tag(length $text{$file}, '')],
                 ['zstd', 'zstd', $coded{$file},
                  tag(length $coded{$file}, '-zst')])
    {
        my ($coding, $expected, $body, $tag) = @$row;
        my $r = get($uri, $coding);
        is(said($r), "200 | $type{$name} | $expected | " . length($body)
           . " | $tag | bytes", "$name for a $coding client");
        is($r->body, $body, "$name for a $coding client: body");
    }
    is(get($uri, 'zstd')->header('Last-Modified'), $DATE, "$name: date");
}

# sizes that are not the common case

my $r = get('/empty.txt', 'gzip');
is(said($r), '200 | text/plain | - | 0 | ' . tag(0, '') . ' | bytes',
   'an empty file, decoded');
is($r->body, '', 'nothing in it');
$r = get('/empty.txt', 'zstd');
is(said($r), '200 | text/plain | zstd | ' . length($coded{'empty.txt'})
   . ' | ' . tag(length $coded{'empty.txt'}, '-zst') . ' | bytes',
   'an empty file as frames');
is($r->body, $coded{'empty.txt'}, 'an empty frame is not nothing');

my $large = "200 | text/html | - | 200000 | " . tag(200_000, '')
    . ' | bytes';
is(said(get('/large.html', 'gzip')), $large, 'a streamed body of known size');
is(get('/large.html', 'gzip')->body, $text{'large.html'}, 'whole');
is(said($t->head('/large.html')), $large, 'HEAD says the same');

my $tag = tag(length $coded{'unsized.html'}, '-d');
is(said($t->head('/unsized.html')), "200 | text/html | - | - | $tag | -",
   'HEAD of a size that is not known yet');
$r = get('/unsized.html', 'gzip');
is(said($r), "200 | text/html | - | - | $tag | -", 'no length at first');
is($r->header('Transfer-Encoding'), 'chunked', 'but chunks');
ok($r->complete && $r->body eq $text{'unsized.html'}, 'whole');
$r = get('/unsized.html', 'gzip');
is($r->header('Content-Length'), 50_000, 'a length once it was learnt');
is($r->header('ETag'), $tag, 'and still the same tag');
ok($r->complete && $r->body eq $text{'unsized.html'}, 'the same bytes');
is(get('/unsized.html', 'zstd')->header('ETag'),
   tag(length $coded{'unsized.html'}, '-zst'), 'frames have a tag of theirs');

# HEAD and GET say the same

for my $coding (qw(zstd gzip)) {
    is(said($t->head('/a.html', "Accept-Encoding: $coding")),
       said(get('/a.html', $coding)), "HEAD and GET, $coding client");
}

# tags

my @tags = map { get('/a.html', $_)->header('ETag') } qw(zstd gzip);
isnt($tags[0], $tags[1], 'the representations have two tags');
is(scalar(grep { m{^"[^"]+"$} } @tags), 2, 'both strong');
is(get('/untagged/a.html', $_)->header('ETag'), undef, "etag off, $_")
    for qw(zstd gzip);
is(get('/untagged/unsized.html', 'gzip')->header('ETag'), undef,
   'etag off, size unknown');
is(get('/untagged/a.html', 'zstd')->header('Last-Modified'), $DATE,
   'a date remains');

# what nginx does to types and headers works on both

for my $coding (qw(zstd gzip)) {
    is(get('/charset/a.html', $coding)->header('Content-Type'),
       'text/html; charset=utf-8', "charset for a $coding client");
    is(get('/charset/a.js', $coding)->header('Content-Type'),
       'application/javascript; charset=utf-8', "of scripts, $coding");
    is(get('/type/a.html', $coding)->header('Content-Type'), 'text/x-own',
       "default_type for a $coding client");
    $r = get('/added/a.html', $coding);
    is(join(' | ', map { $r->header($_) // '-' } qw(X-Own Cache-Control)),
       'yes | max-age=3600, no-transform', "add_header, $coding client");
}

# the file itself, for those who ask for it

$r = get('/a.html.zst', 'zstd');
is($r->header('Content-Encoding'), undef, 'a .zst asked for is not coded');
is($r->header('Content-Type'), 'application/octet-stream', 'nor of its type');
is($r->body, $coded{'a.html'}, 'but the file');

# nginx's own plain file of that time and size has the same tag

$t->write('a.html', $text{'a.html'});
$t->mtime('a.html', $MTIME);
$t->reload(conf => $t->conf(''));
is($t->get('/a.html')->header('ETag'), $tags[1],
   'the tag of decoded bytes is that of the plain file');
