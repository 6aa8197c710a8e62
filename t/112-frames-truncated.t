#!/usr/bin/perl

# Frames on their way, by sendfile and by read, from a file that is truncated:
# the reply ends short, nginx says so, and the worker goes on.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(log_level => 'info')->plan(17);

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


for my $uri ('/big.bin', '/read/big.bin') {
    my $alerts = $t->log_count(qr/\[alert\]/);

    for my $size (0, 8192 * 700, length($coded) - 5) {
        for my $version ('1.1', '1.0') {
            my $r = cut($uri, $size, $version);

            ok($r->status == 200 && !$r->complete && !$r->timed_out
               && length $r->body < length $coded,
               "$uri cut to $size, http/$version: not complete");
        }
    }

    my $new = $t->log_count(qr/\[alert\]/) - $alerts;
    is($new, 6, "$uri: an alert for each");
}

is(($t->worker_pids())[0], $worker, 'the worker lives');
is($t->get('/other.txt')->body, 'another file', 'and serves another file');

$t->replace('big.bin.zst', $coded);
ok($t->get('/big.bin', 'Accept-Encoding: zstd')->body eq $coded,
   'a restored file is sent');
