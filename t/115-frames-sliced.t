#!/usr/bin/perl

# Large frames that are not staged, whole, however they leave: by slices of the
# descriptor or by copied pieces, over each protocol, with whatever bounds
# nginx sets to a turn.

use strict;
use warnings;

use Socket qw(SOL_SOCKET SO_RCVBUF);
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $SLICE = 2 << 20;


# where, its directives, how it leaves to plain HTTP/1: by slices, or copied
my @where = (
    ['slices', 'sendfile on;', 'slice'],
    ['copied', 'sendfile off;', 'copy'],
    ['memory', 'sendfile on; zstd_mmap_send memory;', 'copy'],
    ['read', 'sendfile off; zstd_mmap_send sendfile;', 'slice'],
    ['smallest', 'sendfile off; zstd_mmap_chunk 4k;', 'copy'],
    ['odd', 'sendfile off; zstd_mmap_chunk 69999;', 'copy'],
    ['rate', 'sendfile on; limit_rate 64m; limit_rate_after 1m;', 'slice'],
    ['rated', 'sendfile off; limit_rate 64m; limit_rate_after 1m;', 'copy'],
    ['threads', 'sendfile on; aio threads;', 'slice'],
    ['threaded', 'sendfile off; aio threads;', 'slice'],
    ['directio', 'sendfile on; directio 4k;', 'slice'],
    ['directly', 'sendfile off; directio 4k;', 'slice'],
    ['direct', 'zstd_mmap_send memory; directio 4k;', 'copy'],
    ['both', 'sendfile on; directio 4k; aio threads;', 'slice'],
    ['turns', 'sendfile on; sendfile_max_chunk 70000;', 'slice'],
    ['turned', 'sendfile off; sendfile_max_chunk 70000;', 'copy'],
    ['postponed', 'sendfile on; postpone_output 64k;', 'slice'],
    ['kept-back', 'sendfile on; postpone_output 8m;', 'slice'],
    ['at-once', 'sendfile on; postpone_output 0;', 'slice'],
    ['output', 'sendfile off; zstd_mmap_send sendfile; output_buffers 1 8k;',
     'slice'],
    ['nopush', 'sendfile on; tcp_nopush on;', 'slice'],
);

my $t = Test::Zmap->new(timeout => 20)->plan(@where * 5 + 29);
my ($cert, $key) = $t->certificate();

# the last block is neither of a page nor of a sector
my @blocks = map { [raw => $t->random(131072, $_)] } 1 .. 35;
my $coded = $t->frame(window => 8 << 20,
                      blocks => [@blocks, [raw => 'the last bytes']]);
my $exact = $t->frame(window => 8 << 20, blocks =>
    [(map { $blocks[$_] } 0 .. 30), [raw => $t->random(131072 - 102, 99)]]);
length $exact == 2 * $SLICE or die 'size ' . length $exact;

$t->raw_zst('big.bin', $coded);
$t->raw_zst('exact.bin', $exact);
$t->settle('big.bin.zst', 'exact.bin.zst');

my $locations = join '', map {
    "location /$_->[0]/ { alias %%DIR%%/; $_->[1] }\n"
} @where;

$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 2m max=64k;'));
    listen 127.0.0.1:%%PORT2%% ssl http2 sndbuf=64k;
    listen 127.0.0.1:%%PORT3%% http2;
    listen 127.0.0.1:%%PORT4%% sndbuf=256k;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    $locations
    location /stalled/ { alias %%DIR%%/; sendfile on; send_timeout 1s; }
    location /stalling/ { alias %%DIR%%/; sendfile off; send_timeout 1s; }
EOF

my @zstd = ('Accept-Encoding: zstd');
my @curl = map { ('-H', $_) } @zstd;
my $tls = 'https://127.0.0.1:' . $t->port(2);
my $plain = 'http://127.0.0.1:' . $t->port(3);


sub right {
    my ($r, $body) = @_;

    return $r->status == 200 && $r->complete && $r->body eq $body;
}


# what the log has of pieces since then
sub pieces {
    my ($before) = @_;

    my $new = substr $t->log(), $before;
    my @found = $new =~ /zstd mmap: (slice|copy of \d+ bytes) at (?:\d+) rc:0/g;
    my %kind = map { (split ' ', $_)[0] => 1 } @found;

    return join ' ', sort keys %kind;
}


for (@where) {
    my ($name, undef, $kind) = @$_;

    my $before = length $t->log();
    ok(right($t->get("/$name/big.bin", @zstd), $coded), "$name: http/1.1");
    is(pieces($before), $kind, "$name: $kind");
    ok(right($t->request('GET', "/$name/big.bin", headers => \@zstd,
                         version => '1.0'), $coded), "$name: http/1.0");
    ok(right($t->curl('--http1.1', @curl, "$tls/$name/big.bin"), $coded),
       "$name: tls");
    ok(right($t->curl('--http2', @curl, "$tls/$name/big.bin"), $coded),
       "$name: http/2");
}

# a size of two slices has two
for my $name (qw(slices copied)) {
    my $before = length $t->log();
    ok(right($t->get("/$name/exact.bin", @zstd), $exact),
       "$name: no more than two slices");
    my @found = substr($t->log(), $before) =~ /zstd mmap: slice at (\d+)/g;
    is("@found", $name eq 'slices' ? "0 $SLICE" : '', "$name: the slices");
}

# nginx sends by the descriptor to HTTP/2 without TLS
for my $name (qw(slices copied turns threads)) {
    ok(right($t->curl('--http2-prior-knowledge', @curl,
                      "$plain/$name/big.bin"), $coded),
       "$name: http/2 in plain text");
}

# one connection, one reply after the other
my $c = $t->connect();
my $good = grep { right($c->get("/$where[$_ % @where][0]/big.bin", @zstd),
                        $coded) } 0 .. @where - 1;
is($good, @where, 'all of them on one connection');

# three requests before the first reply
my @kinds = qw(slices copied memory read threads threaded);
for my $name (@kinds) {
    $c = $t->connect();
    $c->send("GET /$name/big.bin HTTP/1.1\r\nHost: localhost\r\n$zstd[0]"
             . "\r\n\r\n") for 1 .. 3;
    is(scalar(grep { right($c->response('GET'), $coded) } 1 .. 3), 3,
       "$name: three at once");
}

# many streams of one connection
my @out = map { $t->run_dir() . "/out$_" } 1 .. 18;
my ($code, $said) = $t->capture('curl', '-q', '-sS', '-k', '-Z', '--http2',
    @curl, map { ('-o', $out[$_],
                  "$tls/$kinds[$_ % @kinds]/big.bin") } 0 .. $#out);
is($code, 0, 'http/2: many at the same time') or diag($said);
my @same = grep {
    my ($differ) = $t->capture('cmp', $_, $t->path('big.bin.zst'));
    !$differ;
} @out;
is(@same, @out, 'http/2: all are right');

# clients that leave, and some that see the worker leave
for my $name (@kinds, 'rate', 'rated') {
    for my $n (1 .. 6) {
        $c = $t->connect(port => $t->port(4), rcvbuf => 16384);
        $c->send_request('GET', "/$name/big.bin", headers => \@zstd);
        $c->read_some(5000 * $n * $n);
        $n % 2 ? $c->abort() : $c->close();
    }
}

my @slow = map {
    my $c = $t->connect(port => $t->port(4), rcvbuf => 16384);
    $c->send_request('GET', "/$_/big.bin", headers => \@zstd);
    [$_, $c, $c->read_some(5000)];
} @kinds;
ok($t->reload(old => 'stay'), 'a reload in the middle');
for (@slow) {
    my ($name, $c, $begin) = @$_;
    $c->{buffer} = $begin . $c->{buffer};
    setsockopt($c->{socket}, SOL_SOCKET, SO_RCVBUF, pack('i', 1 << 22))
        or die "setsockopt: $!";
    ok(right($c->response('GET'), $coded), "$name: from the old worker");
}

# one who stops reading
for my $name (qw(stalled stalling)) {
    $c = $t->connect(port => $t->port(4), rcvbuf => 16384);
    my $lines = $t->log_count(qr/client timed out/);
    $c->send_request('GET', "/$name/big.bin", headers => \@zstd);
    my $begin = $c->read_some(5000);
    ok($t->wait_log(qr/client timed out/, $lines + 1), "$name: timed out");
    $c->{buffer} = $begin . $c->{buffer};
    ok(!$c->response('GET')->complete, "$name: cut");
}

is($t->log_count(qr/\[(?:error|crit)\]/), 0, 'no complaint');
