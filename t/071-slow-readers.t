#!/usr/bin/perl

# Many slow readers at once: each gets its own file, whole.

use strict;
use warnings;

use Digest::SHA qw(sha1_hex);
use Test::More;

use lib 't/lib';
use Test::Zmap;


my $clients = 200;

my $t = Test::Zmap->new(log_level => 'info', timeout => 20)->plan(9);

my (@size, @digest);

for my $i (0 .. $clients - 1) {
    my $body = "file $i\n" . $t->random(20_000 + 397 * $i, $i)
        . ('abc' x (100 * $i));
    $size[$i] = length $body;
    $digest[$i] = sha1_hex($body);
    $t->raw_zst("f$i.txt", $t->frame(checksum => 1, window => 65536,
        blocks => [map { [raw => $_] } unpack '(a50000)*', $body]))
        if $i % 2;
    $t->zst("f$i.txt", $body, size => $i % 4) if !($i % 2);
}

$t->settle('f' . ($clients - 1) . '.txt.zst');

my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;');
    listen 127.0.0.1:%%PORT%% sndbuf=8k;
    zstd_mmap on;
    zstd_mmap_chunk 4k;
EOC
$conf =~ s/^\s*listen 127\.0\.0\.1:%%PORT%%;\n//m;
$conf =~ s/events \{/events {\n    worker_connections 1024;/;

$t->run($conf);


# reads a little of each connection in turn, until all have ended
sub read_all {
    my ($piece, @order) = @_;

    my (%client, %bytes);
    for my $i (@order) {
        $client{$i} = $t->connect(rcvbuf => 4096);
        $client{$i}->send_request('GET', "/f$i.txt", version => '1.0');
        $bytes{$i} = '';
    }

    while (%client) {
        for my $i (sort { $a <=> $b } keys %client) {
            my $got = $client{$i}->read_some($piece + $i % 7);
            $bytes{$i} .= $got;
            next if length $got;
            $client{$i}->close();
            delete $client{$i};
        }
    }

    return \%bytes;
}


for my $round (1 .. 3) {
    my $bytes = read_all(5000 + 1000 * $round, 0 .. $clients - 1);
    my (@status, @short, @other);

    for my $i (0 .. $clients - 1) {
        my ($head, $body) = split /\r\n\r\n/, $bytes->{$i}, 2;
        push @status, $i unless $head =~ /^HTTP\/1\.1 200 /;
        push @short, $i unless length $body == $size[$i];
        push @other, $i unless sha1_hex($body) eq $digest[$i];
    }

    is("@status", '', "round $round: all answered with 200");
    is("@short", '', "round $round: no body is short or long");
    is("@other", '', "round $round: every client has its own bytes");
}
