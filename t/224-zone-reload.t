#!/usr/bin/perl

# Reloads: a zone of the same name, size and mode keeps its content, a changed
# one is new while old workers finish on the old, a failed reload changes
# nothing, a removed zone is given back.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(36);

$t->expect_alert(qr/\[emerg\].*(?:Address\ already\ in\ use
                   |still\ could\ not\ bind|"zstd_mmap_zone"|lacks
                   |may\ not\ have\ huge)/x);

my @zst = map { $t->zst("f$_.bin", $t->random(100_000, $_), level => 1) }
    0 .. 3;
my $big = $t->zst('big.bin', $t->random(6_000_000, 9), level => 1);
$t->settle('big.bin.zst');


sub configuration {
    my ($zone, %opt) = @_;

    my ($name) = $zone =~ /^(\w+)/;
    my $listen = $opt{listen} // '';
    my $stage = defined $name ? "zstd_mmap_stage $name min_uses=1;" : '';

    return $t->conf(<<"EOT", http => $zone ? "zstd_mmap_zone $zone;" : '');
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    $listen
    zstd_mmap on;
    zstd_mmap_send memory;
    location / { $stage }
    location = /status { zstd_mmap_status json; }
EOT
}


sub status { return JSON::PP::decode_json($t->get('/status')->body) }
sub staged { return status()->{counters}{staged} }


sub right {
    return scalar grep {
        my $r = $t->get("/f$_.bin", 'Accept-Encoding: zstd');
        $r->status == 200 && $r->complete && $r->body eq $zst[$_];
    } (0 .. 3) x 3;
}


sub slow_reader {
    my $c = $t->connect(port => $t->port(2), rcvbuf => 4096);
    $c->send_request('GET', '/big.bin',
        headers => ['Accept-Encoding: zstd', 'Connection: close']);
    my $got = $c->read_some(1000);
    $c->{buffer} = $got . $c->{buffer};

    return $c;
}


# KB of mappings of a zone of that size that the master has
sub mapped {
    my ($mb) = @_;

    open(my $fh, '<', '/proc/' . $t->master_pid() . '/maps') or die "maps: $!";

    no warnings 'portable';
    return scalar grep {
        /^(\w+)-(\w+) rw-s/ && hex($2) - hex($1) == $mb << 20;
    } <$fh>;
}


my $conf = configuration('z:14m hugepages=off');
$t->run($conf);
is(right(), 12, 'before');
is(staged(), 4, 'all are staged');
is(mapped(14), 1, 'mapped once');

for my $n (1 .. 3) {
    ok($t->reload(conf => $conf), "reload $n");
    is(right(), 12, "reload $n: right");
}
is(staged(), 4, 'same zone: nothing was staged again');
is(status()->{zones}{z}{segments}, 4, 'same zone: the segments are there');
is(mapped(14), 1, 'same zone: mapped once');

# failed reloads; the last one keeps the zone
my $taken = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0,
    Listen => 1) or die "listen: $!";
my $listen = 'listen 127.0.0.1:' . $taken->sockport() . ';';
my @failures = (
    ['bad size', configuration('z:1k'), qr/invalid value.*zstd_mmap_zone/],
    ['no such pages', configuration('z:4000g hugepages=on'), qr/emerg/],
    ['pages that are not there', configuration('z:512g hugepages=on'),
     qr/zstd_mmap_zone "z" (?:lacks \d+ huge pages|may not have huge)/],
    ['port taken, another size',
     configuration('z:16m hugepages=off', listen => $listen),
     qr/still could not bind/],
    ['port taken, same zone',
     configuration('z:14m hugepages=off', listen => $listen),
     qr/still could not bind/],
);
my %seen;

for my $row (@failures) {
    my ($name, $text, $re) = @$row;

    my @workers = sort $t->worker_pids();
    my $count = $t->log_count($re);
    $t->_write_conf($text);
    $t->kill('HUP', $t->master_pid());
    ok($t->wait_log($re, $count + 1), "$name: refused");
    is(right(), 12, "$name: right");
    is(join(' ', mapped(14), mapped(16), staged(), sort $t->worker_pids()),
       "1 0 4 @workers", "$name: nothing has changed");
}

# another size, under a reader of the old zone
my $c = slow_reader();
ok($t->reload(conf => configuration('z:16m hugepages=off'), old => 'stay'),
   'another size');
is(right(), 12, 'another size: right');
ok($t->poll(sub { status()->{zones}{z}{size} == 16 << 20 }),
   'another size: in the status');
my $r = $c->response('GET');
ok($r->complete && $r->body eq $big, 'a reader of the old zone gets it all');
ok($t->poll(sub { $t->worker_pids() == 2 && !mapped(14) && mapped(16) }),
   'the old zone is gone');

$c = slow_reader();
ok($t->reload(conf => configuration(''), old => 'stay'), 'no zone');
is(right(), 12, 'no zone: right');
$r = $c->response('GET');
ok($r->complete && $r->body eq $big, 'a reader of the removed zone');
ok($t->poll(sub { $t->worker_pids() == 2 && !mapped(16) }), 'it is gone');
