#!/usr/bin/perl

# A request body that ends between the first turn of a stream and the second:
# the time of a lingering close, begun by then, ends neither the reply nor the
# connection.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;


my $t = Test::Zmap->new(timeout => 20);
my $hold = Hold->new($t);

my $body = $t->random(1 << 20, 1) x 4;

# longer than lingering_timeout
my $rest = 4;

my @names = qw(sized unsized);

my $SIOCOUTQ = 0x5411;

$t->plan(7 * @names + 3);

# a worker that copies a file into the zone stands still where the request body
# was looked for and the stream has not begun
$t->zst("$_.txt", $body, level => 1, size => $_ eq 'sized') for @names;
$t->zst('small.txt', 'small');
$t->settle('small.txt.zst', map { "$_.txt.zst" } @names);

$hold->run($t->conf(<<'EOC', http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% sndbuf=4k;

    zstd_mmap on;
    lingering_timeout 3s;
    add_header X-Connection $connection;

    location ~ sized { zstd_mmap_stage z min_uses=1 max=12m; }
    location = /status { zstd_mmap off; stub_status; }
EOC
zstd_mmap_zone z:64m hugepages=off;
zstd_mmap_buffers 1m max=64k;
EOH


sub begin {
    my ($name) = @_;

    my $c = $t->connect(rcvbuf => 4096, port => $t->port(2));
    $hold->order('read', 'stop');
    $c->send("GET /$name.txt HTTP/1.1\r\nHost: localhost\r\n"
             . "Content-Length: 10\r\n\r\nhello");

    my $worker = $hold->stopped();
    ok($worker && $hold->taken(), "$name: the worker stands still");
    $c->send('world');
    ok($t->poll(sub { unacknowledged($c) == 0 }), "$name: the rest is there");
    $t->kill('CONT', $worker) if $worker;

    return $c;
}


# bytes that the other side's kernel may not have yet
sub unacknowledged {
    my ($c) = @_;

    my $bytes = pack 'i', -1;
    ioctl($c->{socket}, $SIOCOUTQ, $bytes) or die "ioctl: $!";

    return unpack 'i', $bytes;
}


# looked for twice, and not once more after the handler has begun to run
sub ends_early {
    my ($number) = @_;

    my $log = join '', $t->log_lines(qr/ \*$number /);
    my ($before, $after) = split /zstd mmap stream handler:/, $log, 2;

    return 2 == (() = $before =~ /http read discarded body/g)
        && defined $after && $after !~ /http read discarded body/;
}


my %client = map { $_ => begin($_) } @names;
my %head = map { $_ => $client{$_}->read_some(1000) } @names;

# time has to pass here, nothing is waited for: all clients rest at once
sleep($rest);

for my $name (@names) {
    my $c = $client{$name};
    my ($number) = $head{$name} =~ /X-Connection: (\d+)/;
    ok($number, "$name: the reply begins");

    $c->{buffer} = $head{$name};
    my $r = $c->response();
    ok($r->complete && $r->body eq $body, "$name: whole")
        or diag(length($r->body) . ' bytes');
    ok($number && ends_early($number), "$name: its request ended in between");

    $r = $c->get("/$name.txt");
    ok($r->complete && $r->body eq $body, "$name: the next one, too");
    is($c->get('/small.txt')->body, 'small', "$name: and a small one");
    $c->close();
}

is($t->log_count(qr/timed out/), 0, 'no time was out');
is($t->log_count(qr/\[(?:error|crit)\]/), 0, 'nothing to complain of');
ok($t->poll(sub { $t->get('/status')->body =~ /^Active connections: 1 $/m }),
   'no connection is left over');
