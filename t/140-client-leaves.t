#!/usr/bin/perl

# Clients leave at every stage, by FIN and by RST, while others read on; and a
# connection is kept after each kind of error.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(log_level => 'info')->plan(18);

my $SIZE = 6_000_000;
my $content = $t->text(500_000, 1) . $t->random($SIZE - 500_000, 1);
my $small = $t->text(50_000, 2);
my $coded = $t->compress($content, level => 1);

$t->replace('sized.bin.zst', $coded);
$t->zst('unsized.bin', $content, level => 1, size => 0);
$t->zst('oneshot.bin', $small);
$t->raw_zst('bad.bin', 'this is no frame');
$t->settle('bad.bin.zst');

$t->run($t->conf(<<'EOF'));
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOF

my ($worker) = $t->worker_pids();
my @zstd = ('Accept-Encoding: zstd');

my %stages = (
    'after connecting' => sub { },
    'within the request line' => sub { $_[0]->send('GET /siz') },
    'within the header' =>
        sub { $_[0]->send("GET /$_[1] HTTP/1.1\r\nHost: loc") },
    'after the request' =>
        sub { $_[0]->send_request('GET', "/$_[1]", headers => $_[2]) },
    'after the first byte' => sub {
        $_[0]->send_request('GET', "/$_[1]", headers => $_[2]);
        $_[0]->read_some(1);
    },
    'after many bytes' => sub {
        $_[0]->send_request('GET', "/$_[1]", headers => $_[2]);
        $_[0]->read_some($_[1] eq 'oneshot.bin' ? 5_000 : 200_000);
    },
    'after two requests at once' => sub {
        $_[0]->send_request('GET', "/$_[1]", headers => $_[2]) for 1, 2;
        $_[0]->read_some(1);
    },
);


sub descriptors {
    my @fds = glob("/proc/$worker/fd/*");

    return scalar @fds;
}


# a reader that is slow all the while
sub slow_reader {
    my ($uri, @headers) = @_;

    my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
    $c->send_request('GET', $uri, headers => \@headers);
    my $got = $c->read_some(100_000);

    return [$c, $got];
}


sub finish {
    my ($reader) = @_;

    my ($c, $got) = @$reader;
    $c->{buffer} = $got . $c->{buffer};

    return $c->response('GET');
}


$t->get('/oneshot.bin');
my $idle = descriptors();

my @readers = (slow_reader('/sized.bin'), slow_reader('/unsized.bin'),
               slow_reader('/sized.bin', @zstd));
my $busy = descriptors();

for my $stage (sort keys %stages) {
    for my $file (qw(sized.bin unsized.bin oneshot.bin)) {
        for my $headers ([], \@zstd) {
            for my $how (qw(close abort)) {
                my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
                $stages{$stage}->($c, $file, $headers);
                $c->$how();
            }
        }
    }
    ok($t->poll(sub { descriptors() <= $busy }),
       "$stage: nothing is left of who went")
        or diag(descriptors() . " descriptors, $busy before");
}

my $whole = 0;
for my $n (0 .. $#readers) {
    my $r = finish($readers[$n]);
    my $want = $n == 2 ? $coded : $content;
    $whole++ if $r->complete && $r->body eq $want;
    $readers[$n][0]->close();
}
is($whole, scalar @readers, 'who stayed has all bytes');
ok($t->poll(sub { descriptors() <= $idle }), 'no descriptor is lost')
    or diag(descriptors() . " descriptors, $idle before");

# one connection, and an error before each good reply
my $c = $t->connect();
my @errors = (
    ['404', 'GET', '/absent.bin', []],
    ['405', 'POST', '/oneshot.bin', []],
    ['406', 'GET', '/oneshot.bin', ['Accept-Encoding: identity;q=0']],
    ['416', 'GET', '/oneshot.bin', ['Range: bytes=999999-']],
    ['304', 'GET', '/oneshot.bin', ['If-None-Match: *']],
);

for my $row (@errors) {
    my ($status, $method, $uri, $headers) = @$row;

    my $r = $c->request($method, $uri, headers => $headers,
                        $method eq 'POST' ? (body => 'x') : ());
    my $next = $c->get('/oneshot.bin');
    ok($r->status == $status && $r->complete && $next->complete
       && $next->body eq $small, "$status, and the connection goes on")
        or diag('status ' . $r->status . ', then ' . $next->status);
}

# nginx itself closes after these
is($t->get('/bad.bin')->status, 500, 'status 500');
is($t->get('/oneshot.bin', 'If-Match: "none"')->status, 412, 'status 412');
is(($t->worker_pids())[0], $worker, 'all by one worker');
ok($t->get('/sized.bin')->body eq $content, 'which goes on');
