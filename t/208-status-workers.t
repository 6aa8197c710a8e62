#!/usr/bin/perl

# The status of several workers: sums of what they counted, and what each of
# them holds; over reloads and deaths.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $t = Test::Zmap->new(workers => 2, log_level => 'info')->plan(18);
my $s = Test::Zmap::Status->new($t);

my $text = $t->random(200_000, 1);
$t->zst('a.txt', $text);
$t->settle('a.txt.zst');

my $conf = $t->conf('zstd_mmap on;' . $s->location,
                    http => 'zstd_mmap_buffers 1m;');
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& reuseport sndbuf=8k/;
$t->run($conf);

my ($asked, $wrong) = (0, 0);


# asks until each worker has kept the body
sub ask_both {
    return $t->poll(sub {
        my $r = $t->get('/a.txt');
        $asked++;
        $wrong++ if $r->body ne $text;
        my @workers = @{$s->get->{workers}};
        return @workers == 2
               && 2 == grep { $_->{buffers}{kept} >= length $text } @workers;
    });
}


sub counters {
    return [@{$s->get->{counters}}{qw(requests decoded decodes cached)}];
}


sub pids { return [sort map { $_->{pid} } @{$s->get->{workers}}] }


is_deeply(pids(), [sort $t->worker_pids()], 'both are there from the start');
is_deeply([map { $_->{buffers}{size} } @{$s->get->{workers}}], [0, 0],
          'without buffers, before they are asked');
ok(ask_both(), 'both answer, and keep the body each');
is_deeply(counters(), [$asked, $asked, 2, $asked - 2],
          'one decode of each worker; the rest is cached');
is_deeply([map { $_->{files} } @{$s->get->{workers}}], [1, 1],
          'one file in each table');

# a reload

my @old = sort $t->worker_pids();
ok($t->reload(), 'a reload');
is_deeply(pids(), [sort $t->worker_pids()], 'a reload: the new workers');
isnt(join(' ', @{pids()}), "@old", 'which are others');
is_deeply(counters(), [$asked, $asked, 2, $asked - 2],
          'a reload: the same counters');
ok(ask_both(), 'both answer again');
is_deeply(counters(), [$asked, $asked, 4, $asked - 4],
          'and have decoded again');

# a death

$t->expect_alert(qr/exited on signal 9/);
my ($killed) = $t->worker_pids();
$t->kill('KILL', $killed);
ok($t->poll(sub {
    my @now = $t->worker_pids();
    return @now == 2 && !grep { $_ == $killed } @now;
}), 'a worker is killed and replaced');
is_deeply(pids(), [sort $t->worker_pids()], 'the dead one is not shown');
is_deeply(counters(), [$asked, $asked, 4, $asked - 4],
          'what it counted remains');
is($wrong, 0, 'no reply was wrong');

# a worker that leaves while a reader is slow

ok(ask_both(), 'both answer');
my $c = $t->connect(rcvbuf => 4096);
$c->send_request('GET', '/a.txt', headers => ['Connection: close']);
$c->read_some(500);
@old = $t->worker_pids();
$t->reload(old => 'stay');
my @left;
ok($t->poll(sub {
    @left = grep { my $pid = $_; grep { $_ == $pid } @old } @{pids()};
    return @left == 1;
}), 'an old worker is shown as long as it serves');

$t->kill('KILL', @left);
ok($t->poll(sub { !grep { $_ == $left[0] } @{pids()} }),
   'and not when it was killed');
$c->close();
