#!/usr/bin/perl

# A seek table that lies, met again by another object of the same version: next
# to a body whose true length was learnt, or by a request that knows it already
# where no object is remembered.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Gate;

my $TIMEOUT = 5;

my $t = Test::Zmap->new()->plan(13);
my $gate = Gate->new($t);

my $text = $t->text(25_000, 1);
my @frames = map { [$t->compress($_, size => 0), $_] } unpack '(a5000)*', $text;
my %more = (short => -1, long => 1_000);

for my $name (keys %more) {
    my $coded = $t->seekable(\@frames, decoded => { 2 => 5000 + $more{$name} });

    for my $dir (qw(kept job)) {
        my $path = $t->raw_zst("$dir/$name.txt", $coded);
        link $path, $t->path("$dir/$name-2.txt.zst") or die "link: $!";
    }

    $t->raw_zst("off/$name.txt", $coded);
}
$t->settle('off/short.txt.zst', 'off/long.txt.zst');

my $server = <<'EOC';
    zstd_mmap on;
    location /job/ { zstd_mmap_threads default min=1; }
    location /off/ { zstd_mmap_verify checksum; }
EOC

$gate->run($t->conf($server));


# what is wrong with a reply that should have all of it
sub fault {
    my ($r) = @_;

    my $n = $r->header('Content-Length') // '-';

    return 'status ' . $r->status if $r->status != 200;
    return "$n: cut" if !$r->complete;
    return $r->body eq $text ? '' : "$n: other bytes";
}


# asks for it and returns when the request waits for a job
sub ask {
    my ($uri) = @_;

    my $waits = $t->log_count(qr/"\Q$uri\E" waits for job/);
    my $c = $t->connect();

    $c->send_request('GET', $uri);
    $t->wait_log(qr/"\Q$uri\E" waits for job/, $waits + 1)
        or die "it does not wait\n";

    return $c;
}


for my $name (sort keys %more) {
    is(fault($t->get("/kept/$name.txt")), '', "$name: all of it");
    is(fault($t->get("/kept/$name.txt")), '', "$name: with its length, kept");
    is(fault($t->get("/kept/$name-2.txt")), '', "$name: by another name");
}

# while the job of the one that has learnt it is held, the other comes
for my $name (sort keys %more) {
    is(fault($t->get("/job/$name.txt")), '', "$name: all of it");
    $t->head("/job/$name-2.txt");
    $gate->shut();
    my @clients = (ask("/job/$name.txt"), ask("/job/$name-2.txt"));
    $gate->held(1);
    $gate->open();
    is(join(' ', map { fault($_->response('GET')) } @clients), ' ',
       "$name: a job, by another name");
}

# each request has an object of its own
$t->stop();
$gate->run($t->conf($server, http => 'zstd_mmap_cache off;'));
for my $name (sort keys %more) {
    my $c = $t->connect(timeout => $TIMEOUT);
    my $r = $c->get("/off/$name.txt", 'Accept-Encoding: zstd');
    is($r->status, 200, "$name: verified for its frames, not remembered");
}
is(fault($t->get('/off/long.txt')), '', 'and for its body');
