#!/usr/bin/perl

# Requests that are in flight at a reload and at QUIT end with all their bytes;
# at TERM they end short.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(log_level => 'info')->plan(18);

my $content = $t->text(500_000, 1) . $t->random(3_500_000, 1);
my $shorter = substr $content, 0, 3_000_000;
my $coded = $t->zst('sized.bin', $content, level => 1);
$t->zst('unsized.bin', $content, level => 1, size => 0);
$t->zst('oneshot.bin', $shorter, level => 1);

my $conf = $t->conf(<<'EOF', http => 'zstd_mmap_buffers 8m max=3m;');
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
EOF
$t->run($conf);

my @table = (
    ['stream with a length', '/sized.bin', '1.1', 'identity', $content],
    ['stream in chunks', '/unsized.bin', '1.1', 'identity', $content],
    ['stream to http/1.0', '/unsized.bin', '1.0', 'identity', $content],
    ['one buffer', '/oneshot.bin', '1.1', 'identity', $shorter],
    ['frames', '/sized.bin', '1.1', 'zstd', $coded],
);


sub start {
    my @readers;

    for my $row (@table) {
        my ($name, $uri, $version, $coding) = @$row;
        my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
        $c->send_request('GET', $uri, version => $version,
                         headers => ["Accept-Encoding: $coding"]);
        push @readers, [$c, $c->read_some(100_000)];
    }

    return @readers;
}


sub response {
    my ($reader) = @_;

    my ($c, $got) = @$reader;
    $c->{buffer} = $got . $c->{buffer};

    return $c->response('GET');
}


sub all_complete {
    my ($when, @readers) = @_;

    for my $n (0 .. $#table) {
        my $r = response($readers[$n]);
        ok($r->complete && $r->body eq $table[$n][4],
           "$when: $table[$n][0] is whole")
            or diag('status ' . $r->status . ', ' . length $r->body);
    }
}


my ($old) = $t->worker_pids();
my @readers = start();
ok($t->reload(old => 'stay', conf => $conf =~ s/max=3m/max=64k/r),
   'a new worker beside the old one');
is($t->get('/unsized.bin')->status, 200, 'it serves');
ok(scalar(grep { $_ == $old } $t->worker_pids()), 'the old one stays');
all_complete('reload', @readers);
ok($t->poll(sub { !grep { $_ == $old } $t->worker_pids() }),
   'the old worker ends');

# several reloads at once
@readers = start();
$t->reload(old => 'stay') for 1 .. 3;
my $whole = grep { response($readers[$_])->body eq $table[$_][4] }
    0 .. $#table;
is($whole, scalar @table, 'three reloads: all are whole');

@readers = start();
$t->kill('QUIT', $t->master_pid());
all_complete('quit', @readers);
$t->stop();

$t->run($conf);
@readers = start();
$t->kill('TERM', $t->master_pid());
my @r = map { response($_) } @readers;
is(scalar(grep { !$_->timed_out } @r), scalar @r, 'term: all end at once');
is(scalar(grep { $_->complete && $_->version ne '1.0'
                 && $_->body ne $content } @r[0, 1]), 0,
   'term: none is short and looks complete');
$t->stop();
ok(!$t->master_pid(), 'nginx has ended');
