#!/usr/bin/perl

# Workers of earlier configurations still serve from a zone that the new ones
# fill: two reloads at once, an old worker killed while it shuts down, a death
# inside the lock before a reload, a zone renamed, two that change their sizes.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(29);
my $hold = Hold->new($t);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

my %zst;


sub large {
    my ($name, $size, $seed) = @_;

    $t->raw_zst($name, $zst{"/$name"} = $t->frame(single => 1, fcs => 5,
        blocks => [[raw => sprintf '%05d', $seed]])
        . $t->skippable($t->random($size, $seed)));
}


large("f$_.bin", 300_000, $_) for 0 .. 39;
large('one.bin', 5_000_000, 50);
large('two.bin', 5_000_000, 51);
large('all.bin', 16_000_000, 52);
$t->settle('all.bin.zst');
my @small = map { "/f$_.bin" } 0 .. 39;


sub configuration {
    my ($stage, @zones) = @_;

    return $t->conf(<<"EOT", http => join "\n", map { "zstd_mmap_zone $_;" }
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
    send_timeout 10m;
    zstd_mmap_send memory;
    zstd_mmap_stage $stage min_uses=1 max=17m;
    add_header X-Pid \$pid;
    location = /status { zstd_mmap_status json; }
EOT
        @zones);
}


sub status { return JSON::PP::decode_json($t->get('/status')->body) }


sub right {
    my $right = grep {
        my $r = $t->get($_, 'Accept-Encoding: zstd');
        $r->status == 200 && $r->complete && $r->body eq $zst{$_};
    } @_;

    return $right == @_;
}


# (connection, pid of the worker)
sub slow_reader {
    my ($uri) = @_;

    my $c = $t->connect(port => $t->port(2), rcvbuf => 4096);
    $c->send_request('GET', $uri,
        headers => ['Accept-Encoding: zstd', 'Connection: close']);
    $c->{buffer} = $c->read_some(1000) . $c->{buffer};
    my ($pid) = $c->{buffer} =~ /X-Pid: (\d+)/ or die "no head\n";

    return ($c, $pid);
}


sub gets {
    my ($c, $uri) = @_;

    my $r = $c->response('GET');

    return $r->complete && $r->body eq $zst{$uri};
}


# nothing is accepted by old workers any more, but they may have readers
sub reload_fully {
    my (%opt) = @_;

    my $count = $t->log_count(qr/gracefully shutting down/);
    $t->reload(%opt, old => 'stay') or die "no reload\n";
    $t->wait_log(qr/gracefully shutting down/, $count + 2)
        or die "old workers go on\n";
}


# mappings of a zone of that size that the master has
sub mapped {
    my ($mb) = @_;

    open(my $fh, '<', '/proc/' . $t->master_pid() . '/maps') or die "maps: $!";

    no warnings 'portable';
    return scalar grep {
        /^(\w+)-(\w+) rw-s/ && hex($2) - hex($1) == $mb << 20;
    } <$fh>;
}


my $conf = configuration('z', 'z:17m hugepages=off');
$hold->run($conf);

# two readers, each of an old worker of another configuration
right('/one.bin');
my ($one, $first) = slow_reader('/one.bin');
reload_fully();
right('/two.bin');
my ($two, $second) = slow_reader('/two.bin');
$t->kill('HUP', $t->master_pid());
ok($t->reload(old => 'stay'), 'two more at once under another reader');
ok($t->poll(sub { $t->worker_pids() == 4 }, 3 * $t->timeout()),
   'two old workers are there');
isnt($first, $second, 'one for each reader');

# the new ones need all the room that is not pinned
ok(right(@small, @small), 'new workers fill the zone: right');
cmp_ok(status()->{counters}{evicted}, '>', 10, 'and evict');
ok(right(('/all.bin') x 20), 'a file that needs all of it: right');
ok(right('/one.bin', '/two.bin'), 'the pinned ones: right');
cmp_ok(status()->{zones}{z}{used}, '<', 16_000_000, 'it has no room');

# one is killed while it shuts down, the other ends
$t->kill('KILL', $first);
$one->close();
ok($t->wait_log(qr/exited on signal 9/)
   && $t->poll(sub { $t->worker_pids() == 3 }), 'an old one is killed');
ok(right(@small), 'right');
ok(gets($two, '/two.bin'), 'the other reader gets all of it');
ok($t->poll(sub { $t->worker_pids() == 2 }), 'and its worker ends');
ok($t->poll(sub { right('/all.bin');
                  status()->{zones}{z}{used} >= 16_000_000 }),
   'no pin is left: there is room');
is(mapped(17), 1, 'one mapping of the zone');

# a death inside the lock; the next configuration has the broken zone
my ($two_again) = slow_reader('/two.bin');
$hold->order('locked', 'kill');
ok($t->poll(sub { $t->get('/f0.bin', 'Accept-Encoding: zstd');
                  $hold->taken_now() }), 'killed inside the lock');
ok($t->wait_log(qr/exited on signal 9/, 2)
   && $t->poll(sub { $t->worker_pids() == 2 }), 'a new worker');
reload_fully();
ok(right(@small), 'a reload keeps the zone: right');
$two_again->close();
ok($t->poll(sub { right(@small[0 .. 3]);
                  $t->log_count(qr/"z" was emptied/) }),
   'and empties it when the old readers have gone');
ok($t->poll(sub { right(@small);
                  status()->{zones}{z}{segments} >= @small }), 'all staged');

# the same size under another name
my $staged = status()->{counters}{staged};
my ($reader) = slow_reader('/two.bin');
reload_fully(conf => configuration('y', 'y:17m hugepages=off'));
ok(right(@small, @small), 'renamed: right');
ok($t->poll(sub { join(' ', keys %{status()->{zones}}) eq 'y' }),
   'renamed: the status has the new name');
ok($t->poll(sub { right(@small);
                  (status()->{zones}{y}{segments} // 0) == @small }),
   'renamed: all staged');
cmp_ok(status()->{counters}{staged} - $staged, '>=', @small,
       'renamed: anew');
ok(gets($reader, '/two.bin'), 'renamed: a reader of the old one');

# two zones that change their sizes, and change them again
for my $n (1 .. 4) {
    my ($x, $y) = $n % 2 ? (17, 6) : (6, 17);
    reload_fully(conf => configuration('x', "x:${x}m hugepages=off",
                                       "y:${y}m hugepages=off"));
    right(@small[0 .. 9]);
}
ok(right(@small), 'sizes changed: right');
ok($t->poll(sub { $t->worker_pids() == 2 }), 'sizes changed: old ones end');
is(join(' ', mapped(17), mapped(6)), '1 1', 'sizes changed: two mappings');

# only the mode
$t->reload(conf => configuration('x', 'x:6m hugepages=auto'))
    or die "no reload\n";
ok(right(@small), 'another mode: right');
is(join(' ', mapped(17), mapped(6)), '0 1', 'another mode: one mapping');
