#!/usr/bin/perl

# Files that change, or are bad, while a thread is at them: retried, refused or
# left to the plain file, and never mixed.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Gate;

my $t = Test::Zmap->new();
my $s = Test::Zmap::Status->new($t);
my $gate = Gate->new($t);

my $text = $t->text(700_000, 1);
my $new = $t->text(700_000, 2);
my $random = $t->random(3_000_000, 3);
my $other = $t->random(3_000_000, 4);
my $zst = $t->compress($text, check => 0);
my $fresh = $t->compress($new);
my @zstd = ('Accept-Encoding: zstd');
my @inputs = qw(map read scratch);

# found by the walk, by the decoder, and by its end
my %bad = (
    empty     => '',
    magic     => 'this is no frame' x 10_000,
    truncated => substr($zst, 0, 100_000),
    block     => $t->frame(window => 1 << 20, blocks =>
                           [([rle => 'a', 9]) x 9000, [reserved => 3, 'abc']]),
    content   => $t->frame(window => 1 << 20, fcs => 300_000, blocks =>
                           [([raw => 'a' x 999]) x 300]),
    corrupt   => do { my $z = $zst;
                      substr($z, $_, 1) ^= "\x5a" for 50_000 .. 50_099; $z },
    checksum  => substr($fresh, 0, -4) . 'oops',
);

$t->plan(6 * keys(%bad) + 12 * @inputs + 14);

for my $name (keys %bad) {
    for my $place (qw(bad beside twice)) {
        $t->raw_zst("$place/$name.txt", $bad{$name});
    }
    $t->write("$_/$name.txt", "plain $name") for qw(beside);
    $t->write("beside/$name.txt.gz", 'coded plain');
}
for my $input (@inputs) {
    $t->raw_zst("$input/$_.txt", $zst)
        for qw(touched twice replaced beside cut after);
    $t->write("$input/beside.txt", 'plain');
    $t->zst("$input/stream.bin", $random, check => 0);
}
$t->raw_zst('map/walk.txt', $zst);
$t->raw_zst("one/$_", $zst) for qw(held.txt bus.txt plain.txt);
$t->zst('one/stream.bin', $random);
$t->write('one/plain.txt', 'plain');
$t->raw_zst('map/gone.txt', $zst);
$t->zst('small.txt', 'small');
$t->settle('scratch/stream.bin.zst', 'small.txt.zst');

my $conf = $t->conf(<<"EOC", http => 'zstd_mmap_buffers 8m max=1m;');
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_threads default min=1;
    location /read/ { zstd_mmap_input read; }
    location /scratch/ { zstd_mmap_input scratch; }
    location /one/ { zstd_mmap_threads one min=1; }
    location /beside/ { gzip_static on; }
    @{[$s->location]}
EOC
$gate->run("thread_pool one threads=1;\n$conf");

my ($worker) = $t->worker_pids();


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


# asks while a thread is held that has decoded it
sub held {
    my ($uri, @headers) = @_;

    $t->head($uri);
    $gate->shut();
    my $c = ask($uri, @headers);
    $gate->held() or die "not held\n";

    return $c;
}


sub answer {
    my ($c) = @_;

    $gate->open();

    return $c->response('GET');
}


for my $name (sort keys %bad) {
    my $r;
    my @r;
    my $change = $s->change(sub {
        $r = $t->get("/bad/$name.txt");
        @r = map { $_->response('GET')->status }
            map { ask("/twice/$name.txt", $_ % 2 ? @zstd : ()) } 1 .. 6;
    });
    is($r->status, 500, "$name: refused");
    is("@r" =~ s/500|200//gr =~ s/ //gr, '', "$name: and for many");
    is($change->{verify_failures}, 2, "$name: counted, once a version")
        or diag(explain($change));
    is($t->log_count(qr{\[(?:error|crit)\].*bad/$name\.txt\.zst"}), 1,
       "$name: logged once");

    is($t->get("/beside/$name.txt")->body, "plain $name",
       "$name: the plain file");
    # a handler behind this one
    is($t->get("/beside/$name.txt", 'Accept-Encoding: gzip')->body,
       'coded plain', "$name: or what gzip_static has");
}

for my $input (@inputs) {
    # another file in its place: the one that was opened is still whole
    my $c = held("/$input/replaced.txt");
    $t->replace("$input/replaced.txt.zst", $fresh);
    my $r = answer($c);
    ok($r->complete && $r->body eq $text, "$input: renamed over");
    ok($t->get("/$input/replaced.txt")->body eq $new, "$input: the new one");

    # overwritten: what was decoded is thrown away, once
    $c = held("/$input/touched.txt");
    $t->write("$input/touched.txt.zst", $fresh);
    my $before = $t->log_count(qr/the file changed, retry/);
    $r = answer($c);
    ok($r->complete && $r->body eq $new, "$input: overwritten");
    is($t->log_count(qr/the file changed, retry/), $before + 1,
       "$input: retried");

    # and not twice
    $c = held("/$input/twice.txt");
    $t->write("$input/twice.txt.zst", $fresh);
    $before = $t->log_count(qr/the file changed, retry/);
    $gate->shut(pass => 1);
    $t->poll(sub { $t->log_count(qr/the file changed, retry/) > $before });
    $gate->held() or die "not held again\n";
    $t->write("$input/twice.txt.zst", $zst);
    is(answer($c)->status, 500, "$input: overwritten again");
    ok($t->get("/$input/twice.txt")->body eq $text, "$input: then served");

    # truncated: nothing that looks like a file is left
    $c = held("/$input/cut.txt");
    truncate $t->path("$input/cut.txt.zst"), 1000;
    is(answer($c)->status, 500, "$input: truncated");
    $c = held("/$input/beside.txt");
    truncate $t->path("$input/beside.txt.zst"), 1000;
    is(answer($c)->body, 'plain', "$input: truncated beside a plain file");

    # after the header
    $t->head("/$input/after.txt");
    $c = held("/$input/after.txt", 'If-None-Match: "x"');
    $t->write("$input/after.txt.zst", $fresh);
    $r = answer($c);
    ok(!$r->complete && $r->body eq '', "$input: after the header: cut");

    # in the middle of a stream
    $t->head("/$input/stream.bin");
    $c = $t->connect(rcvbuf => 4096, port => $t->port(2));
    $c->send_request('GET', "/$input/stream.bin",
                     headers => ['Connection: close']);
    my $got = $c->read_some(1000);
    $gate->shut();
    $got .= $c->read_some(10_000)
        while !$gate->held_now() && length $got < 3_000_000;
    ok($gate->held(), "$input: a step is held");
    $t->write("$input/stream.bin.zst", $t->compress($other, check => 0));
    $gate->open();
    $c->{buffer} = $got;
    $r = $c->response('GET');
    ok(!$r->complete && length $r->body
       && $r->body eq substr($random, 0, length $r->body),
       "$input: a stream is cut and not mixed");
    ok($t->get("/$input/stream.bin")->body eq $other, "$input: the next one");
}

# a walk
$gate->shut();
my $c = ask('/map/walk.txt');
ok($gate->held(), 'a walk is held');
$t->write('map/walk.txt.zst', $fresh);
my $r = answer($c);
ok($r->complete && $r->body eq $new, 'overwritten: walked anew');

# one thread is held, and what the next jobs of it read is gone: SIGBUS there
$t->head("/one/$_") for qw(held.txt bus.txt plain.txt stream.bin);
$gate->shut();
my @c = ask('/one/held.txt');
ok($gate->held(), 'the only thread is held');
my $change = $s->change(sub {
    push @c, map { ask("/one/$_") } qw(bus.txt bus.txt plain.txt stream.bin);
    $t->wait_log(qr/"\/one\/.*" waits for job/, 4);
    $t->wait_log(qr/start job/, $t->log_count(qr/end of job/) + 4);
    truncate $t->path("one/$_.zst"), 0 for qw(bus.txt plain.txt stream.bin);
    $gate->open();
    my @r = map { $_->response('GET') } @c;
    ok($r[0]->complete && $r[0]->body eq $text, 'the one that was held');
    is(join(' ', map { $_->status } @r[1, 2]), '500 500', 'SIGBUS: refused');
    is($r[3]->body, 'plain', 'SIGBUS: the plain file');
    ok(!$r[4]->complete && $r[4]->body eq '', 'SIGBUS: a stream is cut');
});
is($change->{bus_errors}, 3, 'counted');
is($t->get('/small.txt')->body, 'small', 'the worker lives');
$t->raw_zst('one/bus.txt', $fresh);
ok($t->get('/one/bus.txt')->body eq $new, 'another version is served');

# the last name of it is gone
$c = held('/map/gone.txt');
$t->unlink('map/gone.txt.zst');
$r = answer($c);
ok($r->complete && $r->body eq $text, 'unlinked');
is($t->get('/map/gone.txt')->status, 404, 'then there is none');

is(($t->worker_pids())[0], $worker, 'one worker all the while');
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'no buffer is lost');
