#!/usr/bin/perl

# The table of files forgets a file whose walk is held in a thread: the next
# request has an object of its own, and no two jobs ever walk the same one.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Gate;

my $t = Test::Zmap->new()->plan(5);
my $gate = Gate->new($t);

my $text = $t->text(300_000, 1);
$t->zst('a.txt', $text);
$t->zst('b.txt', 'small');
$t->settle('b.txt.zst');

$gate->run($t->conf(<<'EOC', http => 'zstd_mmap_cache max=1;'));
    zstd_mmap on;
    location = /a.txt { zstd_mmap_threads default min=1; }
EOC


# asks for a.txt and returns when the request waits
sub ask {
    my $waits = $t->log_count(qr/"\/a\.txt" waits for job/);

    my $c = $t->connect();
    $c->send_request('GET', '/a.txt');
    $t->wait_log(qr/"\/a\.txt" waits for job/, $waits + 1)
        or die "it does not wait\n";

    return $c;
}


$gate->shut();
my @clients = (ask());
ok($gate->held(1), 'a walk is held');

is($t->get('/b.txt')->body, 'small', 'another file takes its place');
push @clients, ask();
ok($gate->held(2), 'another object, another walk');

# both objects have jobs of the same version
push @clients, map { ask() } 1 .. 3;
is($t->log_count(qr/start job/), 2, 'who comes now waits for the second one');

$gate->open();
is(scalar(grep { $_->response('GET')->body eq $text } @clients), 5,
   'all have the body');
