#!/usr/bin/perl

# Without a master: a zone is filled and served, over a reload that keeps it,
# one that changes it and one that drops it, under a connection of old.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(log_level => 'notice')->plan(11);

my @zst = map { $t->zst("f$_.bin", $t->random(90_000, $_), level => 1) }
    0 .. 2;
$t->settle('f2.bin.zst');


# every configuration listens elsewhere, and only the first connection is used:
# nginx itself does not accept on after a reload in this mode
sub configuration {
    my ($n, $zone) = @_;

    my $conf = $t->conf(<<'EOT', http => $zone);
    zstd_mmap on;
    location / { %%STAGE%% }
    location = /status { zstd_mmap_status json; }
EOT
    my $stage = $zone ? 'zstd_mmap_stage z;' : '';

    return $conf =~ s/%%STAGE%%/$stage/r =~ s/%%PORT%%/%%PORT$n%%/r
        =~ s/^events/master_process off;\n\nevents/mr;
}


sub right {
    my ($c) = @_;

    return scalar grep {
        my $r = $c->get("/f$_.bin", 'Accept-Encoding: zstd');
        $r->status == 200 && $r->complete && $r->body eq $zst[$_];
    } 0 .. 2;
}


sub status {
    my ($c) = @_;

    return JSON::PP::decode_json($c->get('/status')->body);
}


# the harness waits for worker processes, of which there are none
sub start_single {
    my ($conf) = @_;

    $t->_write_conf($conf);
    $t->_spawn();
    $t->poll(sub { -s $t->run_dir() . '/nginx.pid' }) or die "no start\n";
}


sub reload_single {
    my ($n, $zone) = @_;

    my $count = $t->log_count(qr/using the "epoll" event method/);
    $t->_write_conf(configuration($n, $zone));
    kill 'HUP', $t->master_pid();
    $t->wait_log(qr/using the "epoll" event method/, $count + 1)
        or die "no reload\n";
}


start_single(configuration(1, 'zstd_mmap_zone z:4m hugepages=off;'));

my $old = $t->poll(sub { eval { $t->connect(port => $t->port(1)) } })
    or die "no connection\n";
is(right($old), 3, "round $_: right") for 1 .. 3;
is(status($old)->{zones}{z}{segments}, 3, 'all are staged');
is(status($old)->{counters}{staged}, 3, 'once');

reload_single(2, 'zstd_mmap_zone z:4m hugepages=off;');
is(right($old), 3, 'same zone kept: right');
is(status($old)->{counters}{staged}, 3, 'same zone kept: from the segments');

reload_single(3, 'zstd_mmap_zone z:8m hugepages=off;');
is(right($old), 3, 'another size: right');

reload_single(4, '');
is(right($old), 3, 'no zone: right');
is(status($old)->{zones}{z}{segments}, 3, 'no zone: the old has its own');
is($t->log_count(qr/died inside|exited on signal/), 0, 'no trouble');
