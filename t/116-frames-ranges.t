#!/usr/bin/perl

# Ranges of large frames that leave in pieces: one range is right and is all
# that is read; several are answered with the whole (RFC 9110, 14.2).

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $SLICE = 2 << 20;
my $MTIME = 1600000000;
my $DATE = 'Sun, 13 Sep 2020 12:26:40 GMT';
my $LATER = 'Sun, 13 Sep 2020 12:26:41 GMT';

my $t = Test::Zmap->new(timeout => 20)->plan(74);
my ($cert, $key) = $t->certificate();

my $coded = $t->frame(window => 8 << 20, blocks => [
    (map { [raw => $t->random(131072, $_)] } 1 .. 34), [raw => 'the end']]);
my $size = length $coded;
my $last = $size - 1;
my $tag = sprintf '"%x-%x-zst"', $MTIME, $size;

$t->raw_zst('big.bin', $coded);
$t->mtime('big.bin.zst', $MTIME);
$t->zst('small.bin', 'small');
$t->settle('big.bin.zst');

$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 4m max=64k;'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    listen 127.0.0.1:%%PORT3%% http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    sendfile on;

    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /off/ { alias %%DIR%%/; sendfile off; }
    location /read/ { alias %%DIR%%/; sendfile off; zstd_mmap_send sendfile; }
    location /directio/ { alias %%DIR%%/; directio 4k; }
    location /direct/ { alias %%DIR%%/; directio 4k; zstd_mmap_send memory; }
    location /threads/ { alias %%DIR%%/; aio threads; }
    location /at-once/ { alias %%DIR%%/; postpone_output 0; }
    location /gone/ { alias %%DIR%%/; error_page 404 /big.bin; }
    location /none/ { alias %%DIR%%/; max_ranges 0; }
EOF

my @zstd = ('Accept-Encoding: zstd');
my ($worker) = $t->worker_pids();
my $tls = 'https://127.0.0.1:' . $t->port(2);
my $plain = 'http://127.0.0.1:' . $t->port(3);


sub curl {
    my ($protocol, $base) = @_;

    return sub {
        return $t->curl("--$protocol", map({ ('-H', $_) } @zstd, @_),
                        "$base/big.bin");
    };
}


sub get {
    my ($uri) = @_;

    return sub { return $t->get($uri, @zstd, @_) };
}


my %way = (
    sendfile  => get('/big.bin'),
    memory    => get('/memory/big.bin'),
    off       => get('/off/big.bin'),
    read      => get('/read/big.bin'),
    directio  => get('/directio/big.bin'),
    direct    => get('/direct/big.bin'),
    threads   => get('/threads/big.bin'),
    'at once' => get('/at-once/big.bin'),
    tls       => curl('http1.1', $tls),
    http2     => curl('http2', $tls),
    h2c       => curl('http2-prior-knowledge', $plain),
);

# the header lines, first and last byte; none: the whole
my @rows = (
    ['the first byte', ['bytes=0-0'], 0, 0],
    ['the first bytes', ['bytes=0-99'], 0, 99],
    ['a border', ['bytes=2097100-2097200'], 2097100, 2097200],
    ['up to a border', ['bytes=2097000-2097151'], 2097000, 2097151],
    ['from a border', ['bytes=2097152-2097160'], 2097152, 2097160],
    ['over both borders', ['bytes=2000000-4300000'], 2000000, 4300000],
    ['the last byte', ["bytes=$last-$last"], $last, $last],
    ['a suffix', ['bytes=-100000'], $size - 100000, $last],
    ['an open end', ['bytes=4194000-'], 4194000, $last],
    ['all of it', ["bytes=0-$last"], 0, $last],
    ['one that can be met', ["bytes=5-6,$size-"], 5, 6],
    ['two', ['bytes=0-9,20-29']],
    ['no unit that is known', ['lines=0-9']],
    ['the version by its tag', ['bytes=3000000-3000009', "If-Range: $tag"],
     3000000, 3000009],
    ['the version by its date', ['bytes=3000000-3000009', "If-Range: $DATE"],
     3000000, 3000009],
    ['another tag', ['bytes=3000000-3000009', 'If-Range: "other"']],
    ['another date', ['bytes=3000000-3000009', "If-Range: $LATER"]],
);


# what is wrong with a reply, or an empty string
sub fault {
    my ($r, $first, $end) = @_;

    my $want = defined $first
        ? substr $coded, $first, $end - $first + 1 : $coded;
    my $range = defined $first ? "bytes $first-$end/$size" : 'none';
    my $found = $r->header('Content-Range') // 'none';

    return 'status ' . $r->status
        if $r->status != (defined $first ? 206 : 200);
    return "range $found" if $found ne $range;
    return 'length ' . ($r->header('Content-Length') // 'none')
        if ($r->header('Content-Length') // '') ne length $want;
    return 'coding' if ($r->header('Content-Encoding') // '') ne 'zstd';
    return 'not complete' unless $r->complete;
    return 'wrong bytes' if $r->body ne $want;

    return '';
}


for my $way (sort keys %way) {
    my %fault;

    for (@rows) {
        my ($name, $headers, @range) = @$_;
        my ($range, @more) = @$headers;
        my $fault = fault($way{$way}->("Range: $range", @more), @range);
        $fault{$name} = $fault if $fault ne '';
    }

    is(join('; ', map { "$_: $fault{$_}" } sort keys %fault), '',
       "$way: ranges");

    my $r = $way{$way}->("Range: bytes=$size-");
    is($r->status, 416, "$way: beyond the end");
    is($r->header('Content-Range'), "bytes */$size", "$way: and its size");
    is($r->header('Content-Encoding'), undef, "$way: a page of its own");
}

# one connection, one range after the other
for my $uri (qw(/big.bin /memory/big.bin /read/big.bin)) {
    my $c = $t->connect();
    my $good = grep {
        my (undef, $headers, @range) = @$_;
        my ($range, @more) = @$headers;
        fault($c->get($uri, @zstd, "Range: $range", @more), @range) eq '';
    } @rows;
    is($good, @rows, "$uri: all ranges on one connection");
}

# header and first bytes go together
for my $uri (qw(/big.bin /memory/big.bin)) {
    my $before = length $t->log();
    my $r = $t->get($uri, @zstd, 'Range: bytes=2097152-2097160');
    $t->get('/small.bin');
    my ($calls) = substr($t->log(), $before)
        =~ /(writev: \d+ of \d+|sendfile: \@)/;
    my $head = length $r->head;
    my $n = $uri eq '/big.bin' ? $head : $head + 9;
    is($calls, "writev: $n of $n", "$uri: the header waits for the range");
}

# HEAD has the header of the reply to GET
for my $uri (qw(/big.bin /memory/big.bin)) {
    for my $range ('bytes=5-9', 'bytes=3000000-', "bytes=$size-",
                   'bytes=0-1,5-6')
    {
        my @r = map { $t->$_($uri, @zstd, "Range: $range") } qw(get head);
        is(join(' ', map { $_->status . ' '
               . ($_->header('Content-Range') // '') } $r[1]),
           join(' ', $r[0]->status, $r[0]->header('Content-Range') // ''),
           "$uri: HEAD, $range");
    }
}

# a limit of no ranges, and a page for what is not there
is(fault($t->get('/none/big.bin', @zstd, 'Range: bytes=0-1')), '',
   'max_ranges 0: the whole');
my $r = $t->get('/gone/nothing.bin', @zstd, 'Range: bytes=0-1');
ok($r->status == 404 && $r->complete && $r->body eq $coded,
   'an error page has no ranges');
$r = $t->get('/big.bin', @zstd, 'Range: bytes=0-1', "If-None-Match: $tag");
is($r->status, 304, 'a condition goes before the range');


# Pieces, as offset and size, that a request was answered with
sub pieces {
    my ($uri, $range) = @_;

    my $before = length $t->log();
    $t->get($uri, @zstd, "Range: $range");
    my $new = substr $t->log(), $before;
    my @slices = $new =~ /zstd mmap: slice at (\d+)/g;
    my @copies = map { /(\d+) bytes at (\d+)/; "$2+$1" }
        $new =~ /zstd mmap: copy of (\d+ bytes at \d+)/g;

    return join ' ', @slices, @copies;
}


# bytes that the worker read from files
sub bytes_read {
    open(my $fh, '<', "/proc/$worker/io") or die "io: $!";
    local $/;
    my ($bytes) = <$fh> =~ /^rchar: (\d+)/m or die "no rchar\n";

    return $bytes;
}


my $middle = $SLICE + 10;
is(pieces('/big.bin', "bytes=$last-"), $last, 'slices: the last byte only');
is(pieces('/big.bin', "bytes=5-$middle"), "5 $SLICE", 'slices: two of three');
is(pieces('/memory/big.bin', "bytes=$last-"), "$last+1",
   'copied: the last byte only');
is(pieces('/memory/big.bin', 'bytes=4000-5000'), '4000+1001',
   'copied: the range only');
is(pieces('/memory/big.bin', 'bytes=4000-300000'),
   '4000+258144 262144+37857', 'copied: pieces end at a border');

for my $range ([0, 9], [$middle, $middle], [4090, 4100], [$last, $last]) {
    my ($first, $end) = @$range;
    for my $way (qw(memory direct)) {
        my $before = bytes_read();
        $t->get("/$way/big.bin", @zstd, "Range: bytes=$first-$end");
        cmp_ok(bytes_read() - $before, '<=', 8192,
               "$way, $first-$end: no more than its blocks is read");
    }
}

is($t->log_count(qr/is not usable|\[crit\]/), 0, 'no complaint');
