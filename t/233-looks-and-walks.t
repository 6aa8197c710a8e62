#!/usr/bin/perl

# One worker verifies a file; another looks for its verdict, and meanwhile has
# to walk the file anew for its index.  Then the first one dies.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Gate;

my $ZSTD = 'Accept-Encoding: zstd';

my $t = Test::Zmap->new(workers => 2)->plan(8);
my $gate = Gate->new($t);

$t->expect_alert(qr/exited on signal 9/);

my $text = $t->text(60_000, 1);
my $coded = join '', map { $t->compress($_) } unpack '(a20000)*', $text;

$t->raw_zst('a.txt', $coded);
$t->zst('other.txt', 'other');
$t->zst('small.txt', 'small');
$t->settle('a.txt.zst', 'other.txt.zst', 'small.txt.zst');

my $conf = "thread_pool one threads=1;\n" . $t->conf(<<'EOC', http => <<'EOH');
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1000;
    zstd_mmap_threads one min=1;
    zstd_mmap_verify checksum;
    add_header X-Pid $pid always;

    location = /small.txt { zstd_mmap_threads off; }
EOC
    zstd_mmap_zone z:1m hugepages=off;
EOH
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& reuseport/;
$gate->run($conf);

my ($one, $two) = $t->worker_pids();


# a connection to that worker
sub to {
    my ($pid) = @_;

    my $c;
    $t->poll(sub {
        $c = $t->connect();
        return 1 if $c->head('/small.txt', $ZSTD)->header('X-Pid') == $pid;
        $c->close();
        return 0;
    }) or die "worker $pid takes no connection\n";

    return $c;
}


# a request to that worker, which waits for a job
sub ask {
    my ($pid, $method, $uri, @headers) = @_;

    my $waits = $t->log_count(qr/waits for job/);
    my $c = to($pid);

    $c->send_request($method, $uri, headers => \@headers);
    $t->wait_log(qr/waits for job/, $waits + 1) or die "it does not wait\n";

    return $c;
}


is(to($one)->head('/a.txt', $ZSTD)->status, 200, 'walked by one');

$gate->shut();
ask($one, 'GET', '/a.txt', $ZSTD);
ok($gate->held(1), 'and verified');
my $looks = ask($two, 'GET', '/a.txt', $ZSTD);
ask($two, 'HEAD', '/other.txt', $ZSTD);
ok($gate->held(2), 'the thread of the other has to do');

# a walk is in the queue, and who has asked for it has left
my $waits = $t->log_count(qr/"\/a\.txt" waits for job/);
ask($two, 'GET', '/a.txt', 'Accept-Encoding: identity')->abort();
ok($t->wait_log(qr/"\/a\.txt" waits for job/, $waits + 2),
   'who looked waits for the walk');

my $replaced = $t->log_count(qr/exited on signal 9/);
$t->kill('KILL', $one);
$t->wait_log(qr/exited on signal 9/, $replaced + 1);
$gate->open();

my $r = $looks->response('GET');
is($r->status, 200, 'the other verifies');
ok($r->complete && ($r->body // '') eq $coded, 'and has the frames');
is($t->get('/a.txt')->body, $text, 'decoded');
is($t->log_count(qr/is not usable/), 0, 'no file is a bad one');
