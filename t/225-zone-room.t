#!/usr/bin/perl

# A zone with little room: more files than it can count, a file that cannot
# fit, one that a pinned segment is in the way of.  None of them empties it.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $TINY = 1300;

my $t = Test::Zmap->new(log_level => 'notice', timeout => 15)->plan(15);

# frames that differ in one byte, and a large one that is never sent in full
my %zst;
for my $n (1 .. $TINY) {
    my $name = "tiny/$n.txt";
    $t->raw_zst($name, $zst{"/$name"} = $t->frame(single => 1, fcs => 4,
        blocks => [[raw => sprintf '%04d', $n]]));
}


sub large {
    my ($name, $size, $seed) = @_;

    $t->raw_zst($name, $zst{"/$name"} = $t->frame(single => 1, fcs => 5,
        blocks => [[raw => sprintf '%05d', $seed]])
        . $t->skippable($t->random($size, $seed)));
}


large("part/$_.bin", 60_000, $_) for 1 .. 40;
large('pin.bin', 1_000_000, 50);
large('huge.bin', 2_900_000, 51);
large('more.bin', 5_000_000, 52);
$t->settle('more.bin.zst');

$t->run($t->conf(<<'EOT', http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
    zstd_mmap_send memory;
    zstd_mmap_stage z;
    location /tiny/ { zstd_mmap_stage y min_uses=1; }
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone y:1m hugepages=off;
zstd_mmap_zone z:4m hugepages=off;
EOH


sub status { return JSON::PP::decode_json($t->get('/status')->body) }
sub counters { return status()->{counters} }


sub right {
    my ($times, @uris) = @_;

    my $c = $t->connect();
    my $right = 0;
    for my $uri ((@uris) x $times) {
        my $r = $c->get($uri, 'Accept-Encoding: zstd');
        $right++ if $r->complete && $r->body eq $zst{$uri};
    }
    $c->close();

    return $right;
}


my @tiny = map { "/tiny/$_.txt" } 1 .. $TINY;
my $right = 0;
$right += right(1, $_) for @tiny;
is($right, $TINY, 'many small files: right');
my $y = status()->{zones}{y};
cmp_ok($y->{segments}, '>', 200, 'a page for each');
cmp_ok($y->{used}, '<=', 1 << 20, 'and no more than there are');

# counting still works in a full zone
my @hot = @tiny[0 .. 39];
right(3, @hot);
my $before = counters()->{staged};
is(right(4, @hot), 160, 'the first of them, again: right');
is(counters()->{staged}, $before, 'and staged');

# z: small parts, and a pinned segment
my @part = map { "/part/$_.bin" } 1 .. 40;
right(2, @part);
is(status()->{zones}{z}{segments}, 40, 'parts are staged');
right(2, '/pin.bin');
my $reader = $t->connect(port => $t->port(2), rcvbuf => 4096);
$reader->send_request('GET', '/pin.bin', headers => ['Accept-Encoding: zstd']);
my $got = $reader->read_some(1000);

# larger than the zone: no eviction at all
my $evicted = counters()->{evicted};
is(right(30, '/more.bin'), 30, 'larger than the zone: right');
is(counters()->{evicted}, $evicted, 'and evicts nothing');

# beside the pinned one there may be no room for it, however much is evicted:
# few attempts in many requests
$before = status();
is(right(100, '/huge.bin'), 100, 'too large beside what is pinned: right');
my $after = status();
cmp_ok($after->{counters}{evicted} - $before->{counters}{evicted}, '<=',
       16 * 7, 'few attempts: at most 16 evictions each');
is(right(1, @part), 40, 'the parts are served');
cmp_ok($after->{zones}{z}{used}, '<=', 4 << 20, 'used is within size');

$reader->{buffer} = $got . $reader->{buffer};
my $r = $reader->response('GET');
ok($r->complete && $r->body eq $zst{'/pin.bin'},
   'the pinned bytes stayed as they were');
$reader->close();

# when the pin has gone there is room
$before = counters()->{staged};
ok($t->poll(sub { right(20, '/huge.bin');
                  counters()->{staged} > $before }), 'then it is staged');
is(right(3, '/huge.bin', '/pin.bin', @part[0 .. 5]), 24, 'all is right');
