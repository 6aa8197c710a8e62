#!/usr/bin/perl

# A worker that is told to leave finishes its slow streams first.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 15)->plan(18);

my $big = $t->random(1_000_000, 1);
my $shot = $t->random(500_000, 2);

$t->zst('known.txt', $big);
$t->zst('unknown.txt', $big, size => 0);
$t->zst('shot.txt', $shot);

my %body = (known => $big, unknown => $big, shot => $shot);

my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 2m max=600k;');
    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOC
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;

$t->run($conf);


sub begin {
    my %client;
    for my $name (sort keys %body) {
        my $c = $client{$name} = $t->connect(rcvbuf => 4096);
        $c->send_request('GET', "/$name.txt", version => '1.0');
        like($c->read_some(12), qr/^HTTP\/1\.1 200/, "$name: begun");
    }
    return \%client;
}


sub finish {
    my ($client, $what) = @_;

    for my $name (sort keys %$client) {
        my $rest = $client->{$name}->read_some(2_000_000);
        my ($body) = $rest =~ /\r\n\r\n(.*)/s;
        ok($body eq $body{$name} && !$client->{$name}{reset},
           "$what: $name is whole");
        $client->{$name}->close();
    }
}


my ($old) = $t->worker_pids();
my $client = begin();

ok($t->reload(old => 'stay'), 'a new worker after the reload');
is($t->get('/shot.txt')->body, $shot, 'the new worker serves');
ok((grep { $_ == $old } $t->worker_pids()), 'the old one is still there');
finish($client, 'reload');
ok($t->poll(sub { !grep { $_ == $old } $t->worker_pids() }),
   'the old one leaves when they are done');

$client = begin();
$t->kill('QUIT', $t->master_pid());
ok($t->poll(sub { !IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                         PeerPort => $t->port()) }),
   'nobody listens after QUIT');
finish($client, 'quit');
is($t->log_count(qr/open socket/), 0, 'no socket was left open');
