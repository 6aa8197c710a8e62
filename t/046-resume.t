#!/usr/bin/perl

# Broken downloads that curl resumes, and what a player of videos does: an open
# end that is given up early, the end of the file, seeks.  Bodies that are kept,
# streams of many frames, and of one.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use POSIX ();
use Test::More;

use lib 't/lib', 't/frames';
use Body;
use Ranges;
use Test::Zmap;
use Test::Zmap::Http2;
use Test::Zmap::Status;

my $KIB = 1024;

my $t = Test::Zmap->new(log_level => 'info')->plan(36);
my $status = Test::Zmap::Status->new($t);

my %body = (kept => Body->new($t, 4_000_000),
            frames => Body->new($t, 8_000_000),
            one => Body->new($t, 8_000_000));

$body{kept}->one('kept.mp4');
$body{frames}->many('frames.mp4', 100_000);
$body{one}->one('one.mp4');
$t->settle('one.mp4.zst');

$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 16m max=4m;'));
    listen 127.0.0.1:%%PORT2%% http2;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    @{[$status->location]}

    # so much at once, then so much a second
    location /slow/ { alias %%DIR%%/; limit_rate 500k; }
EOF

my $got = $t->run_dir() . '/got';


sub slurp {
    open(my $fh, '<:raw', $got) or return '';
    local $/;

    return <$fh> // '';
}


# A download that dies when more than $n bytes of it have come.
sub die_at {
    my ($n, @args) = @_;

    my $pid = fork() // die "fork: $!";
    if ($pid == 0) {
        no warnings 'exec';
        exec 'curl', '-q', '-sS', '--noproxy', '*', '-N', '-C', '-', '-o',
            $got, @args;
        POSIX::_exit(127);
    }

    $t->poll(sub { (-s $got // 0) > $n });
    kill 'KILL', $pid;
    local $?;
    waitpid($pid, 0);

    return -s $got // 0;
}


sub resume {
    my ($name, $port, @options) = @_;

    my $body = $body{$name};
    my $size = $body->size;
    my $host = 'http://127.0.0.1:' . $t->port($port);
    my $what = "$name, @options";
    my @broken = (0);

    unlink $got;
    push @broken, die_at($broken[-1], @options, "$host/slow/$name.mp4")
        for 1, 2;
    shift @broken;
    ok($broken[0] > 0 && $broken[0] < $broken[1] && $broken[1] < $size,
       "$what: broken twice") or diag("@broken of $size");

    my ($code, $output) = $t->capture('curl', '-q', '-sS', '--noproxy', '*',
        '-C', '-', '-w', '%{http_code} %{size_download}', '-o', $got,
        @options, "$host/$name.mp4");
    is("$code $output", '0 206 ' . ($size - $broken[1]),
       "$what: resumed where it broke");
    is(sha256_hex(slurp()), sha256_hex($body->bytes(0, $size)),
       "$what: the right bytes");
}


# first and last byte: the end, where the index may be, then seeks
sub seeks {
    my ($size) = @_;

    return (['-65536', $size - 65536, $size - 1],
            ['32-500031', 32, 500_031],
            ['700000-765535', 700_000, 765_535],
            ['100000-299999', 100_000, 299_999],
            [$size - 300_000 . '-', $size - 300_000, $size - 1],
            ['0-1', 0, 1]);
}


sub play {
    my ($name) = @_;

    my $body = $body{$name};
    my $size = $body->size;
    my $uri = "/$name.mp4";

    my $c = $t->connect(rcvbuf => 16 * $KIB);
    $c->send_request('GET', $uri, headers => ['Range: bytes=0-']);
    my $r = $c->response_head();
    is($r->status . ' ' . $r->header('Content-Range'),
       '206 bytes 0-' . ($size - 1) . "/$size", "$name: open end");
    ok($c->read_some(200 * $KIB) eq $body->bytes(0, 200 * $KIB),
       "$name: its beginning");
    $c->abort();

    my $ranges = Ranges->new($t, $uri, $body);
    is(join("\n", grep { length } map { $ranges->ask(@$_) } seeks($size)), '',
       "$name: seeks over one connection");
    $ranges->close();
}


# reads until the stream has ended, or has so many bytes
sub read_stream {
    my ($h2, $id, $bytes) = @_;

    my $s = $h2->stream($id);
    my $end = time + $t->timeout();

    while (!$s->{done} && !$s->{reset} && time < $end) {
        last if $bytes && length $s->{body} >= $bytes;
        $h2->read(1) or last;
    }

    return $s;
}


sub play_http2 {
    my ($h2, $name) = @_;

    my $body = $body{$name};
    my $size = $body->size;
    my $uri = "/$name.mp4";
    my @faults;

    my $id = $h2->open($uri, range => 'bytes=0-');
    my $bytes = read_stream($h2, $id, 200 * $KIB)->{body};
    $h2->reset($id);
    ok(length $bytes >= 200 * $KIB && length $bytes < $size
       && $bytes eq $body->bytes(0, length $bytes),
       "$name, h2: open end, and a reset");

    for my $seek (seeks($size)) {
        my ($range, $first, $last) = @$seek;
        $id = $h2->open($uri, range => "bytes=$range");
        my $s = read_stream($h2, $id);
        push @faults, "$range: $s->{status}, " . length $s->{body}
            unless $s->{status} == 206 && $s->{done}
                   && $s->{body} eq $body->bytes($first, $last - $first + 1);
    }
    is(join("\n", @faults), '', "$name, h2: seeks over the same connection");
}


for my $name (qw(kept frames one)) {
    resume($name, 1, '--http1.1');
    resume($name, 2, '--http2-prior-knowledge');
    play($name);

    is($status->get->{counters}{streamed}, 0, 'none of these was a stream')
        if $name eq 'kept';
}

my $h2 = Test::Zmap::Http2->new($t->port(2), window => 65535,
                                timeout => $t->timeout());
play_http2($h2, $_) for qw(kept frames one);

# two streams at a time: one is given up, the other goes on
my $slow = $h2->open('/one.mp4', range => 'bytes=0-');
my $other = $h2->open('/frames.mp4', range => 'bytes=5000000-');
read_stream($h2, $slow, 100 * $KIB);
$h2->reset($slow);
my $s = read_stream($h2, $other);
ok($s->{status} == 206 && $s->{done}
   && $s->{body} eq $body{frames}->bytes(5_000_000, 3_000_000),
   'h2: one of two streams is reset');
$h2->close();

ok($status->poll(sub { $_[0]{streams} == 0 }), 'no stream is left behind');
