#!/usr/bin/perl

# Frames on their way from a file that is truncated, by sendfile, copied, and
# read by nginx: the reply ends short, the log says so, the worker goes on.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(log_level => 'info')->plan(24);

my $coded = $t->frame(window => 8 << 20, blocks =>
    [map { [raw => $t->random(131072, $_)] } 1 .. 90]);

$t->expect_alert(
    qr/\[alert\].*(?:sendfile\(\) reported that|pread\(\) read only)/);

$t->zst('other.txt', 'another file');
$t->run($t->conf(<<'EOF'));
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
    sendfile on;

    location /read/ {
        alias %%DIR%%/;
        sendfile off;
    }

    location /nginx/ {
        alias %%DIR%%/;
        sendfile off;
        zstd_mmap_send sendfile;
    }
EOF

my ($worker) = $t->worker_pids();


sub cut {
    my ($uri, $size, $version) = @_;

    $t->replace('big.bin.zst', $coded);

    my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
    $c->send_request('GET', $uri, version => $version,
                     headers => ['Accept-Encoding: zstd']);
    my $head = $c->read_some(300_000);
    truncate($t->path('big.bin.zst'), $size) or die "truncate: $!";
    $c->{buffer} = $head . $c->{buffer};

    return $c->response('GET');
}


# the module finds it between two pieces, nginx inside of one
my $found = qr/\[alert\]|is not usable: file changed while in use/;

for my $uri ('/big.bin', '/read/big.bin', '/nginx/big.bin') {
    my $lines = $t->log_count($found);

    for my $size (0, 8192 * 700, length($coded) - 5) {
        for my $version ('1.1', '1.0') {
            my $r = cut($uri, $size, $version);

            ok($r->status == 200 && !$r->complete && !$r->timed_out
               && length $r->body < length $coded,
               "$uri cut to $size, http/$version: not complete");
        }
    }

    is($t->log_count($found) - $lines, 6, "$uri: a line for each");
}

is(($t->worker_pids())[0], $worker, 'the worker lives');
is($t->get('/other.txt')->body, 'another file', 'and serves another file');

$t->replace('big.bin.zst', $coded);
ok($t->get('/big.bin', 'Accept-Encoding: zstd')->body eq $coded,
   'a restored file is sent');
