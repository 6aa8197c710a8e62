#!/usr/bin/perl

# Ranges over decoded bodies that are streamed: the bytes of the range, the
# headers that a plain file would have, and the work of the frames in it.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $MTIME = 1600000000;
my $FRAME = 10_000;

my $t = Test::Zmap->new()->plan(173);
my $status = Test::Zmap::Status->new($t);

my ($cert, $key) = $t->certificate();

my $text = $t->text(400_000, 1);
my $size = length $text;
my $gap = $t->skippable('x' x 70_000);

my %coded = (
    one     => $t->compress($text),
    frames  => join('', map { $t->compress($_) } unpack "(a$FRAME)*", $text),
    gaps    => join($gap, '', (map { $t->compress($_) }
                    unpack '(a37777)*', $text), $t->compress(''), ''),
    loose   => $t->compress($text, size => 0),
    mixed   => short(60_000) . $t->compress(substr($text, 100_000), size => 0),
);

# a version that was found bad is not decoded again
my @short = ('50000-69999', '70000-79999', '99999-100001', '0-');
$coded{"short$_"} = short(60_000) . $t->compress(substr $text, 100_000)
    for 0 .. $#short;

my @dirs = qw(map read scratch staged);

for my $dir (@dirs, 'gzip') {
    for my $name (sort keys %coded) {
        $t->raw_zst("$dir/$name.txt", $coded{$name});
        $t->mtime("$dir/$name.txt.zst", $MTIME);
    }
}
$t->settle('gzip/one.txt.zst');
$t->write('plain', 'abc');

$t->run($t->conf(<<"EOF", http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    zstd_mmap_chunk 8k;
    @{[$status->location]}

    location /read/ { zstd_mmap_input read; }
    location /scratch/ { zstd_mmap_input scratch=1m; }
    location /staged/ { zstd_mmap_stage z min_uses=1; }
    location /gzip/ { gzip on; gzip_types text/plain; gzip_min_length 1; }
    location = /plain { zstd_mmap off; error_page 416 =206 /page/one.txt; }
    location /page/ { alias %%DIR%%/map/; ssi on; ssi_types *; }
    location /chunk/ { alias %%DIR%%/map/; zstd_mmap_chunk 256k; }
    location /none/ { alias %%DIR%%/map/; max_ranges 0; }
EOF
zstd_mmap_zone z:8m hugepages=off;
zstd_mmap_buffers 256k max=32k hugepages=off;
EOH


# says 100,000 bytes, has the first $n of them, and ends with an empty block
sub short {
    my ($n) = @_;

    my $frame = $t->compress(substr($text, 0, $n), check => 0);
    my $block = substr $frame, 7 + 3;     # one block behind a header of 7 bytes

    return $t->frame(single => 1, fcs => 100_000,
                     blocks => [[compressed => $block], [raw => '']]);
}


# what is wrong with a reply to a range of first..last; empty: nothing
sub fault {
    my ($r, $first, $last) = @_;

    my $content = sprintf 'bytes %d-%d/%d', $first, $last, $size;
    my $seen = join ' ', $r->status, $r->header('Content-Range') // '-',
        $r->header('Content-Length') // '-', $r->header('Accept-Ranges')
        // '-', $r->complete ? 'complete' : 'cut';
    my $n = $last - $first + 1;
    my $want = "206 $content $n - complete";

    return $seen if $seen ne $want;
    return $r->body eq substr($text, $first, $n) ? '' : 'other bytes';
}


# the same of a reply with the whole body
sub whole {
    my ($r) = @_;

    my $seen = join ' ', $r->status, $r->header('Content-Range') // '-',
        $r->header('Accept-Ranges') // '-', $r->complete ? 'complete' : 'cut';

    return $seen if $seen ne '200 - bytes complete';
    return $r->body eq $text ? '' : 'other bytes';
}


my %rows = (
    'the first byte'  => ['0-0', 0, 0],
    'the first ones'  => ['0-99', 0, 99],
    'over a border'   => ['9990-10010', 9990, 10010],
    'from a border'   => ['10000-10001', 10000, 10001],
    'up to a border'  => ['9000-9999', 9000, 9999],
    'the middle'      => ['200000-299999', 200000, 299999],
    'the last byte'   => [($size - 1) . '-', $size - 1, $size - 1],
    'an open end'     => ['399000-', 399000, $size - 1],
    'a suffix'        => ['-12345', $size - 12345, $size - 1],
    'all'             => ['0-', 0, $size - 1],
    'an end too far'  => ['390000-999999999', 390000, $size - 1],
);

for my $dir (@dirs) {
    for my $name (qw(one frames gaps)) {
        my $uri = "/$dir/$name.txt";
        for my $what (sort keys %rows) {
            my ($range, $first, $last) = @{$rows{$what}};
            is(fault($t->get($uri, "Range: bytes=$range"), $first, $last), '',
               "$uri: $what");
        }
    }
}

# what is no single range of what is there
my $uri = '/map/frames.txt';
my $tag = sprintf '"%x-%x"', $MTIME, $size;
is(whole($t->get($uri, 'Range: bytes=0-1,5-6')), '', 'several: the whole');
is($t->get($uri, "Range: bytes=$size-")->status, 416, 'behind the end: 416');
is(fault($t->get($uri, 'Range: bytes=5-9', "If-Range: $tag"), 5, 9), '',
   'If-Range with the tag');
is(whole($t->get($uri, 'Range: bytes=5-9', 'If-Range: "other"')), '',
   'If-Range with another');
my $r = $t->get('/none/frames.txt', 'Range: bytes=5-9');
ok($r->status == 200 && $r->body eq $text, 'max_ranges 0: the whole');
$r = $t->head($uri, 'Range: bytes=5-9');
is(join(' ', $r->status, $r->header('Content-Range')),
   "206 bytes 5-9/$size", 'HEAD: as GET');

# a filter that changes the bytes takes the ranges
$r = $t->get('/gzip/frames.txt', 'Accept-Encoding: gzip', 'Range: bytes=5-9');
ok($r->status == 200 && $r->header('Content-Encoding') eq 'gzip'
   && $r->complete, 'gzip: the whole');

# a length that is not known has none, and later the beginning is decoded again
$r = $t->get('/map/loose.txt', 'Range: bytes=5-9');
is(join(' ', $r->status, $r->header('Accept-Ranges') // '-'), '200 -',
   'an unknown length: the whole');
is(fault($t->get('/map/loose.txt', 'Range: bytes=300000-300009'), 300000,
         300009), '', 'a learnt one: the range');

# no byte has the place of another where a frame is shorter than it says
for my $dir (@dirs) {
    for my $i (0 .. $#short) {
        $r = $t->get("/$dir/short$i.txt", "Range: bytes=$short[$i]");
        my $body = $r->body // '';
        my ($first) = $short[$i] =~ /^(\d+)/;
        ok(!$r->complete && $body eq substr($text, $first, length $body),
           "/$dir: a frame that is short, $short[$i]");
    }
    ok(!$t->get("/$dir/mixed.txt")->complete,
       "/$dir: one of them before a frame that has no size");
}

# a 206 that is none: of error_page, with the Content-Range of the 416
$r = $t->get('/plain', 'Range: bytes=100-');
ok($r->status == 206 && $r->complete && $r->body eq $text,
   'a page for a 416, as 206: the whole');

# other protocols
$r = $t->request('GET', $uri, version => '1.0',
                 headers => ['Range: bytes=123456-234567']);
is(fault($r, 123456, 234567), '', 'http/1.0');
for my $protocol ('http1.1', 'http2') {
    $r = $t->curl("--$protocol", '-H', 'Range: bytes=123456-234567',
                  'https://127.0.0.1:' . $t->port(2) . $uri);
    ok($r->status == 206
       && $r->body eq substr($text, 123456, 234567 - 123456 + 1),
       "$protocol over TLS");
}

# the cost: a frame or two of them, and not what lies before and behind
for my $row (['/map/', '205000-205099', 1], ['/chunk/', '205000-205099', 1],
             ['/chunk/', '210000-219999', 1], ['/chunk/', '219999-220000', 2])
{
    my ($dir, $range, $n) = @$row;
    my ($first, $last) = split /-/, $range;
    my $change = $status->change(sub {
        $t->get("${dir}frames.txt", "Range: bytes=$range") });
    is($change->{'bytes.decoded_sent'}, $last - $first + 1,
       "$dir: bytes=$range: sent");
    cmp_ok($change->{'bytes.decoded_produced'}, '<=', $n * $FRAME,
           "$dir: bytes=$range: decoded");
}
