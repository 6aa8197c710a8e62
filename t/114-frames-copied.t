#!/usr/bin/perl

# Frames of small files that are not staged: read once into the worker's
# buffers, sent from there in one writev, and found by the next request of the
# same version.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $BORDER = 64 << 10;

my $t = Test::Zmap->new()->plan(50);
my $s = Test::Zmap::Status->new($t);
my ($cert, $key) = $t->certificate();


# one frame of exactly that many bytes, of its own content
sub coded {
    my ($size, $seed) = @_;

    my $frame = $t->frame(window => 1 << 20,
        blocks => [[raw => $t->random($size - 9, $seed)]]);
    length $frame == $size or die 'size ' . length $frame;

    return $frame;
}


my %zst = (tiny => coded(300, 1), page => coded(4096, 2),
           border => coded($BORDER, 3), above => coded($BORDER + 1, 4),
           medium => coded(100_000, 5));
$t->raw_zst("$_.bin", $zst{$_}) for keys %zst;
$t->settle(map { "$_.bin.zst" } keys %zst);

my $status = $s->location;
$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 4m max=80k;'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    $status
    zstd_mmap on;
    sendfile on;
    tcp_nodelay off;
    add_header X-Connection \$connection;

    location /off/ { alias %%DIR%%/; sendfile off; }
    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /sendfile/ { alias %%DIR%%/; zstd_mmap_send sendfile; }
    location /cached/ { alias %%DIR%%/; open_file_cache max=10; }
    location /directio/ { alias %%DIR%%/; directio 512; }
EOF

my @zstd = ('Accept-Encoding: zstd');
my $COPY = qr/zstd mmap: copy of \d+ bytes/;


# What one request makes: its reply, how often the file was read into memory,
# and its system calls.  What is logged after a call is there for certain when
# the worker serves another.
sub made {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $s->get;
    my $before = length $t->log();
    my $r = $c->get($uri, @zstd, @headers);
    my $number = $r->header('X-Connection') // '';
    $c->close();
    $s->get;

    my $new = substr $t->log(), $before;
    my @copies = $new =~ /$COPY/g;
    my @calls = $new =~ /\*$number (writev: \d+ of \d+|sendfile: \@)/g;

    return ($r, scalar(@copies), join ', ', @calls);
}


sub right {
    my ($r, $body) = @_;

    return $r->status == 200 && $r->complete && $r->body eq $body;
}


for my $name (qw(tiny page border)) {
    for my $again (0, 1) {
        my ($r, $copies, $calls) = made("/$name.bin");
        my $size = length($r->head) + length $r->body;
        my $which = $name . ($again ? ', again' : '');

        ok(right($r, $zst{$name}), "$which: the frames");
        is($calls, "writev: $size of $size", "$which: one writev");
        is($copies, $again ? 0 : 1,
           $again ? "$which: not read" : "$which: read once");
    }
}

my ($r, $copies, $calls) = made('/above.bin');
ok(right($r, $zst{above}), 'a byte above the border: the frames');
like($calls, qr/sendfile/, 'by sendfile');
is($copies, 0, 'and not read');

($r, $copies, $calls) = made('/sendfile/tiny.bin');
ok(right($r, $zst{tiny}) && $calls =~ /sendfile/,
   'zstd_mmap_send sendfile: not from the copy that is kept');

# without sendfile a copy, but what is large is not kept
for my $again (0, 1) {
    ($r, $copies, $calls) = made('/off/above.bin');
    ok(right($r, $zst{above}) && $copies == 1 && $calls !~ /sendfile/,
       'sendfile off: read each time above the border');
}

($r, $copies) = made('/off/border.bin');
is($copies, 0, 'sendfile off: a small copy is that of all locations');

# zstd_mmap_send memory keeps what fits into a buffer
($r, $copies) = made('/memory/above.bin');
ok(right($r, $zst{above}) && $copies == 1, 'memory: read once');
($r, $copies) = made('/memory/above.bin');
ok(right($r, $zst{above}) && $copies == 0, 'memory: and kept');
($r, $copies) = made('/off/above.bin');
ok(right($r, $zst{above}) && $copies == 0, 'what is kept is used');

# more than max: pieces, each time
for my $again (0, 1) {
    ($r, $copies, $calls) = made('/memory/medium.bin');
    ok(right($r, $zst{medium}) && $copies == 1 && $calls !~ /sendfile/,
       'memory, above max: read each time');
}

# nginx would read them into buffers of its own
for my $protocol ('http1.1', 'http2') {
    my $reads = $t->log_count(qr/ read: \d+, /);
    for my $name (qw(border medium)) {
        $r = $t->curl("--$protocol", map({ ('-H', $_) } @zstd),
                      'https://127.0.0.1:' . $t->port(2) . "/$name.bin");
        ok(right($r, $zst{$name}), "tls, $protocol: $name");
    }
    is($t->log_count(qr/ read: \d+, /), $reads,
       "tls, $protocol: not read by nginx");
}

# copies of whole blocks
for my $name (qw(tiny page)) {
    $t->replace("$name-d.bin.zst", $zst{$name});
    $t->settle("$name-d.bin.zst");
    ($r) = made("/directio/$name-d.bin");
    ok(right($r, $zst{$name}), "directio, $name: the frames");
}

# a version of the same size and mtime
for my $way (qw(replace write)) {
    my $new = coded(300, "new $way");
    $t->$way('tiny.bin.zst', $new);
    $t->mtime('tiny.bin.zst', 1600000000);
    $t->settle('tiny.bin.zst');
    ($r, $copies) = made('/tiny.bin');
    ok(right($r, $new) && $copies == 1, "another version by $way: read anew");
    ($r, $copies) = made('/tiny.bin');
    ok(right($r, $new) && $copies == 0, 'and kept');
}

# younger than 100 ms by its ctime
my $young = $t->poll(sub {
    $t->replace('young.bin.zst', $zst{tiny});
    my $ctime = (Time::HiRes::stat($t->path('young.bin.zst')))[10];
    my $before = $t->log_count($COPY);
    my @r = map { $t->get('/young.bin', @zstd) } 1, 2;
    return 0 if Time::HiRes::time() > $ctime + 0.09;

    return 'read ' . ($t->log_count($COPY) - $before) . ', right '
           . grep { right($_, $zst{tiny}) } @r;
});
is($young, 'read 2, right 2', 'a young file is read each time');

# no body, no read
$t->settle('young.bin.zst');
my $tag = $t->head('/young.bin', @zstd)->header('ETag');
my $none = $t->log_count($COPY);
$r = $t->head('/young.bin', @zstd);
ok($r->status == 200 && $r->header('Content-Length') == 300, 'HEAD');
$r = $t->get('/young.bin', @zstd, "If-None-Match: $tag");
is($r->status, 304, 'If-None-Match');
$r = $t->get('/young.bin', @zstd, 'If-Match: "other"');
is($r->status, 412, 'If-Match of another version');
is($t->log_count($COPY), $none, 'none of them reads the file');
($r, $copies) = made('/young.bin', 'If-None-Match: "other"');
ok(right($r, $zst{tiny}) && $copies == 1, 'a condition that lets it pass');

# ranges of what is kept
$r = $t->get('/border.bin', @zstd, 'Range: bytes=100-199');
is($r->body, substr($zst{border}, 100, 100), 'a range of the copy');
$r = $t->get('/border.bin', @zstd, 'Range: bytes=0-1,-2');
like($r->header('Content-Type'), qr{^multipart/byteranges},
     'several ranges of the copy');
