#!/usr/bin/perl

# The client of these tests: signals change nothing of what it reports, a
# connection that cannot be had is an error in time.

use strict;
use warnings;

use IO::Handle ();
use Socket qw(PF_INET SOCK_STREAM inet_aton pack_sockaddr_in
              unpack_sockaddr_in);
use Test::More;
use Time::HiRes qw(ITIMER_REAL setitimer time);

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new()->plan(9);


# a listener of a queue that is full, its port, and what fills it
sub full_queue {
    socket(my $listener, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
    bind($listener, pack_sockaddr_in(0, inet_aton('127.0.0.1')))
        or die "bind: $!";
    listen($listener, 0) or die "listen: $!";
    my ($port) = unpack_sockaddr_in(getsockname($listener));

    my @fill = map {
        socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
        $socket->blocking(0);
        connect($socket, pack_sockaddr_in($port, inet_aton('127.0.0.1')));
        $socket;
    } 1 .. 4;

    return ($listener, $port, \@fill);
}


# $work while a signal comes every $seconds
sub under_signals {
    my ($seconds, $handler, $work) = @_;

    local $SIG{ALRM} = $handler;
    setitimer(ITIMER_REAL, $seconds, $seconds);
    my $result = eval { $work->() };
    my $error = $@;
    setitimer(ITIMER_REAL, 0);
    diag($error) if $error;

    return $result;
}


# signals while connect() waits
my ($listener, $port, $fill) = full_queue();
my $signals = 0;
my $drain = sub {
    return if ++$signals < 10;
    $listener->blocking(0);
    while (accept(my $one, $listener)) { }
};

my $c = under_signals(0.02, $drain, sub { $t->connect(port => $port) });
ok($c, 'connected after signals');
cmp_ok($signals, '>=', 10, 'which came while it waited');
$c->close() if $c;
close($listener);

# errors are told
my $start = time();
my @full = full_queue();
ok(!eval { $t->connect(port => $full[1], timeout => 0.3) }, 'a full queue');
like($@, qr/timed out/, 'is an error');
cmp_ok(time() - $start, '<', $t->timeout(), 'in time');
close($full[0]);
ok(!eval { $t->connect(port => $full[1]) }, 'a port of nobody');
like($@, qr/refused/, 'is an error at once');

# signals at any moment of a request
my $body = $t->random(300_000, 1);
$t->write('plain.bin', $body);
$t->run($t->conf(''));
$signals = 0;
my $right = under_signals(0.0005, sub { $signals++ }, sub {
    return scalar grep { my $r = $t->get('/plain.bin');
                         $r->complete && $r->body eq $body } 1 .. 300;
});
is($right, 300, 'requests among signals');
cmp_ok($signals, '>', 20, 'which came');
