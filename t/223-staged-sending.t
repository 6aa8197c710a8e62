#!/usr/bin/perl

# Staged frames leave as memory, header and body in one writev; over TLS and
# HTTP/2, too, at any size; and what is decoded from a segment is right.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new()->plan(35);

my ($cert, $key) = $t->certificate();

my %text = (tiny => $t->text(300, 1), small => $t->text(60_000, 2),
            large => $t->random(700_000, 3), unsized => $t->text(90_000, 4),
            stream => $t->text(2_000_000, 5),
            medium => $t->random(150_000, 6));
my %zst = map { $_ => $t->zst("$_.txt", $text{$_},
                              size => $_ eq 'unsized' ? 0 : 1) } keys %text;
$t->settle(map { "$_.txt.zst" } keys %text);

$t->run($t->conf(<<"EOT", http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    zstd_mmap_stage z;
    sendfile on;
    tcp_nodelay off;
    open_file_cache max=100 inactive=60s;
    open_file_cache_valid 60s;
    add_header X-Connection \$connection;

    location = /status { zstd_mmap_status json; }
    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /cork/ { alias %%DIR%%/; tcp_nopush on; }
    location /sendfile/ { alias %%DIR%%/; zstd_mmap_send sendfile; }
EOT
zstd_mmap_zone z:8m hugepages=off;
zstd_mmap_buffers 8m max=1m hugepages=off;
EOH


sub status { return JSON::PP::decode_json($t->get('/status')->body) }


# The system calls that the log has for one request on a kept connection.  What
# is logged after a call is there for certain when the worker serves another.
sub calls {
    my ($uri, $zst) = @_;

    my $c = $t->connect();
    $c->get('/tiny.txt', 'Accept-Encoding: zstd');
    status();
    my $before = length $t->log();
    my $r = $c->get($uri, 'Accept-Encoding: zstd');
    $r->complete && $r->body eq $zst or die "wrong reply for $uri\n";
    my $number = $r->header('X-Connection');
    my $size = length($r->head) + length($r->body);
    $c->close();

    status();

    my $new = substr $t->log(), $before;
    my @calls = $new =~ /\*$number (writev: \d+ of \d+|sendfile: \@)/g;

    return (join(', ', @calls), $size);
}


# how often each system call was made
sub traced {
    my %calls;

    open(my $fh, '<', $t->run_dir() . '/trace') or return {};
    /^(\w+)\(/ && $calls{$1}++ while <$fh>;

    return \%calls;
}


# all are staged
for my $name (sort keys %text) {
    my $right = grep { $t->get("/$name.txt", 'Accept-Encoding: zstd')->body
                       eq $zst{$name} } 1 .. 3;
    is($right, 3, "$name: the frames");
}
my $staged = status()->{counters}{staged};
is($staged, keys %text, 'every file is staged');

# the segment is what leaves, not a copy of the worker's
my $copies = $t->log_count(qr/zstd mmap: kept body/);

for my $name (qw(tiny small)) {
    my ($calls, $size) = calls("/$name.txt", $zst{$name});
    is($calls, "writev: $size of $size", "$name: one writev");
}

like((calls('/large.txt', $zst{large}))[0], qr/sendfile/,
     'large: by sendfile');
unlike((calls('/memory/large.txt', $zst{large}))[0], qr/sendfile/,
       'zstd_mmap_send memory');
like((calls('/medium.txt', $zst{medium}))[0], qr/sendfile/,
     'medium: by sendfile');
unlike((calls('/cork/medium.txt', $zst{medium}))[0], qr/sendfile/,
       'medium: from memory where tcp_nopush is on');
like((calls('/cork/large.txt', $zst{large}))[0], qr/sendfile/,
     'large: by sendfile there, too');
like((calls('/sendfile/small.txt', $zst{small}))[0], qr/sendfile/,
     'zstd_mmap_send sendfile');

# sendfile is impossible here, nginx would read the file
my $reads = $t->log_count(qr/ read: \d+, /);
my $base = 'https://127.0.0.1:' . $t->port(2);
for my $protocol ('http1.1', 'http2') {
    for my $name (qw(tiny small large)) {
        my $r = $t->curl("--$protocol", '-H', 'Accept-Encoding: zstd',
                         "$base/$name.txt");
        ok($r->complete && $r->status == 200 && $r->body eq $zst{$name},
           "tls, $protocol: $name");
    }
}
is($t->log_count(qr/ read: \d+, /), $reads, 'tls: no file was read');
is($t->log_count(qr/zstd mmap: kept body/), $copies, 'no copy was looked for');

# decoded from the segment, in one buffer and streamed
for my $name (sort keys %text) {
    my $hits = $t->log_count(qr/find segment rc:0 /);
    my $r = $t->get("/$name.txt", 'Accept-Encoding: identity');
    ok($r->complete && $r->body eq $text{$name}
       && $t->log_count(qr/find segment rc:0 /) == $hits + 1,
       "$name: decoded from its segment");
}

is(status()->{counters}{staged}, $staged, 'nothing was staged again');

my $r = $t->get('/large.txt', 'Accept-Encoding: zstd',
                'Range: bytes=300000-300999');
is($r->body, substr($zst{large}, 300_000, 1000), 'a range of staged frames');

# a warm request on a kept connection needs these calls and no others, but for
# those of the log
my ($worker) = $t->worker_pids();
my $trace = $t->run_dir() . '/trace';
my $c = $t->connect();
$c->get('/small.txt', 'Accept-Encoding: zstd') for 1 .. 3;
status();

my $strace = fork() // die "fork: $!";
if (!$strace) {
    open(STDERR, '>', '/dev/null');
    exec('strace', '-q', '-e', 'trace=!write,gettid', '-o', $trace,
         '-p', $worker)
        or POSIX::_exit(127);
}
my $attached = $t->poll(sub {
    open(my $fh, '<', "/proc/$worker/status") or return 0;
    return grep { /^TracerPid:\s+[1-9]/ } <$fh>;
});
ok($attached, 'strace runs');

$c->get('/small.txt', 'Accept-Encoding: zstd') for 1 .. 10;

# the last call is written when it has returned, after the reply has come
$t->poll(sub { (traced()->{writev} // 0) >= 10 }, 2);
kill 'INT', $strace;
waitpid $strace, 0;

my %calls = %{traced()};
delete $calls{mmap} if $t->sanitized();
my $stats = (delete $calls{newfstatat} // 0) + (delete $calls{fstat} // 0);
cmp_ok($stats, '<=', 1, 'the version is compared once a second');
is(join(' ', map { "$_:$calls{$_}" } grep { $_ ne 'epoll_wait' }
                 sort keys %calls),
   'recvfrom:10 writev:10', 'ten warm requests: recv, writev, epoll');
cmp_ok($calls{epoll_wait} // 0, '<=', 22, 'and no more waits than that');
