#!/usr/bin/perl

# Streamed replies under nginx's own settings for output.

use strict;
use warnings;

use Compress::Zlib ();
use Test::More;

use lib 't/lib';
use Test::Zmap;


my @settings = (
    '', 'sendfile on', 'sendfile off', 'sendfile on; tcp_nopush on',
    'tcp_nodelay off', 'output_buffers 1 1k', 'output_buffers 2 333',
    'postpone_output 0', 'postpone_output 1', 'postpone_output 100000',
    'postpone_output 10m', 'limit_rate 8m',
    'limit_rate 4m; limit_rate_after 100k', 'chunked_transfer_encoding off',
    'directio 4k', 'directio 512; output_buffers 1 4k',
    'keepalive_timeout 0', 'sendfile_max_chunk 1k', 'aio off',
    'zstd_mmap_chunk 4k', 'zstd_mmap_chunk 4k; postpone_output 5000',
    'zstd_mmap_chunk 5000', 'zstd_mmap_chunk 16m', 'charset utf-8',
    'gzip on', 'gzip on; gzip_buffers 2 1k', 'gzip on; gzip_http_version 1.0',
    'ssi on; ssi_types *; ssi_ignore_recycled_buffers on; zstd_mmap decode;'
        . ' postpone_output 100000',
);

my $t = Test::Zmap->new(log_level => 'info');

my $text = $t->text(700_000, 1);

$t->zst('known.txt', $text);
$t->zst('unknown.txt', $text, size => 0);

# learnt would hide the first form
my @names = ('known', map { "unknown$_" } 0 .. $#settings);
symlink 'unknown.txt.zst', $t->path("$_.txt.zst") for @names[1 .. $#names];
$t->settle('known.txt.zst', 'unknown.txt.zst');

$t->plan(9 * @settings + 2);

my $locations = join '', map {
    "location /s$_/ { alias %%DIR%%/; $settings[$_]"
    . (length $settings[$_] ? ';' : '') . " }\n"
} 0 .. $#settings;

$t->certificate();
$t->run($t->conf(<<"EOC", http => 'zstd_mmap_buffers 1m max=4k;'));
    listen 127.0.0.1:%%PORT2%% http2;
    listen 127.0.0.1:%%PORT3%% ssl;
    ssl_certificate     localhost.crt;
    ssl_certificate_key localhost.key;
    gzip_types text/plain;

    zstd_mmap on;
    zstd_mmap_chunk 32k;
    $locations
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);
my $tls = 'https://127.0.0.1:' . $t->port(3);

for my $i (0 .. $#settings) {
    for my $name ('known', "unknown$i") {
        my $uri = "/s$i/$name.txt";
        my $what = "$settings[$i], $name" =~ s/\d+$//r;

        my %r = (
            '1.1' => $t->get($uri),
            '1.0' => $t->request('GET', $uri, version => '1.0'),
            h2    => $t->curl('--http2-prior-knowledge', $h2 . $uri),
            TLS   => $t->curl('--http1.1', $tls . $uri),
        );

        die "$what: a client hangs\n"
            if grep { ($_->exit // 0) == 28 } values %r;

        for my $version (sort keys %r) {
            ok($r{$version}->status == 200 && $r{$version}->complete
               && $r{$version}->body eq $text, "$what, $version");
        }
    }

    my $r = $t->get("/s$i/unknown$i.txt", 'Accept-Encoding: gzip');
    my $coding = $r->header('Content-Encoding') // '-';
    my $body = $coding eq 'gzip' ? Compress::Zlib::memGunzip($r->body)
        : $r->body;
    is("$coding " . ($body eq $text ? 'right' : 'wrong'),
       ($settings[$i] =~ /gzip on/ ? 'gzip' : '-') . ' right',
       "$settings[$i], gzip client");
}

# in one connection, other requests after it
my $c = $t->connect();
my @got = map { $c->get("/s0/$_.txt") } qw(known unknown0 known);
is(join(' ', map { $_->body eq $text } @got), '1 1 1', 'keep-alive');
$c->close();

is($t->log_count(qr/\[(?:crit|error|warn)\]/), 0, 'nothing to complain of');
