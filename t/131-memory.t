#!/usr/bin/perl

# The worker's own memory stays as it is, over many requests and over many
# chunks of one reply.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $SCALE = $ENV{TEST_SCALE} || 1;

# a sanitizer keeps what was freed
$ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
    'quarantine_size_mb=1', 'thread_local_quarantine_size_kb=64';

my $t = Test::Zmap->new(log_level => 'info')->plan(8);

my @files = map { $t->text(2000 + 7000 * $_, $_) } 0 .. 9;
$t->zst("$_.txt", $files[$_], size => $_ % 3 ? 1 : 0) for 0 .. 9;
$t->raw_zst('bad.txt', 'this is no frame');

# 128 MiB, so that the frames are 4 KiB
my $blocks = 1024;
$t->raw_zst('large.bin', $t->frame(window => 1 << 20,
    blocks => [map { [rle => chr(65 + $_ % 26), 131072] } 1 .. $blocks]));
$t->settle('large.bin.zst');

$t->run($t->conf(<<'EOF', http => 'zstd_mmap_buffers 1m max=32k;'));
    zstd_mmap on;
    zstd_mmap_chunk 16k;
    location /small/ { alias %%DIR%%/; zstd_mmap_chunk 4k; }
EOF

my ($worker) = $t->worker_pids();


# bytes that are the worker's own: no pages of mapped files
sub anonymous {
    open(my $fh, '<', "/proc/$worker/status") or die "status: $!";
    local $/;
    my ($kib) = <$fh> =~ /^RssAnon:\s+(\d+) kB/m or die "no RssAnon\n";

    return 1024 * $kib;
}


# requests that were not answered as they should be
sub mixed {
    my ($count) = @_;

    my $wrong = 0;
    my $c = $t->connect();

    for my $i (1 .. $count) {
        my $n = $i % 10;
        my $kind = int($i / 10) % 6;
        my $r = $kind == 0 ? $c->get("/$n.txt", 'Accept-Encoding: zstd')
            : $kind == 1 ? $c->head("/$n.txt")
            : $kind == 2 ? $c->get("/$n.txt", 'If-Match: "none"')
            : $kind == 3 ? $c->get('/bad.txt')
            : $kind == 4 && $n % 3 && $n < 4
                ? $c->get("/$n.txt", 'Range: bytes=1-100')
            : $c->get("/$n.txt");
        my $want = $kind == 2 ? 412 : $kind == 3 ? 500
            : $kind == 4 && $n % 3 && $n < 4 ? 206 : 200;

        $wrong++ if $r->status != $want || !$r->complete
            || $want == 200 && $kind > 3 && $r->body ne $files[$n];
        $c->close(), $c = $t->connect()
            if !$r->complete || $r->status == 412
               || ($r->header('Connection') // '') eq 'close';
    }

    return $wrong;
}


# nginx closes after a 412 though it says otherwise
is(mixed(1000), 0, 'requests to warm up');
my $warm = anonymous();
is(mixed(3000), 0, '3000 requests more');
my $grown = anonymous() - $warm;
cmp_ok($grown, '<=', 256 * 1024 * $SCALE, 'no growth over them')
    or diag("$warm before, $grown more");


# (status, bytes, growth from the first 8 MiB to the end) of one long reply
sub long_reply {
    my ($uri) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => ['Connection: close']);
    my $head = $c->read_some(1000);
    my $size = length $head;
    my $first = 0;

    while (my $n = length $c->read_some(262144)) {
        $size += $n;
        $first ||= anonymous() if $size > 8 << 20;
        $head = substr($head, 0, 1000) if $size > 128 << 20;
        $t->{peak} = anonymous() if $size > 120 << 20;
    }
    $c->close();

    my ($status) = $head =~ m{^HTTP/1.1 (\d+)};
    my $body = $size - (index($head, "\r\n\r\n") + 4);

    return ($status, $body, $t->{peak} - $first);
}


my ($status, $size, $growth) = long_reply('/small/large.bin');
is($status, 200, 'a reply of 32768 chunks');
is($size, $blocks * 131072, 'came in full');
cmp_ok($growth, '<=', 128 * 1024 * $SCALE, 'without growth')
    or diag("$growth bytes more");

# the window of the idle decoder is kept, once
my $after = anonymous();
long_reply('/small/large.bin');
cmp_ok(anonymous() - $after, '<=', 128 * 1024 * $SCALE, 'nor by another one');
is(($t->worker_pids())[0], $worker, 'all by one worker');
