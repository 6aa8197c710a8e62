#!/usr/bin/perl

# Descriptors and mappings: none is lost, there are never more mappings than
# the file table may hold, and a worker that ran out of descriptors recovers.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $FILES = 24;
my $TABLE = 8;

my $t = Test::Zmap->new(log_level => 'info')->plan(13);

my @body = map { $t->text(3000 + 500 * $_, $_) } 0 .. $FILES - 1;
my @zst;
for my $n (0 .. $FILES - 1) {
    $zst[$n] = $t->zst("$n.txt", $body[$n], size => $n % 4 ? 1 : 0);
}
my $large = $t->random(3_000_000, 1);
$t->zst('large.bin', $large, level => 1);
$t->raw_zst('bad.txt', 'this is no frame');
$t->settle('bad.txt.zst');

my $conf = $t->conf(<<'EOF', http => "zstd_mmap_cache max=$TABLE;");
    listen 127.0.0.1:%%PORT2%% sndbuf=32k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOF
$t->run($conf =~ s/^events/worker_rlimit_nofile 48;\n\nevents/mr);

my ($worker) = $t->worker_pids();


sub descriptors {
    my @fds = glob("/proc/$worker/fd/*");

    return scalar @fds;
}


sub mappings {
    open(my $fh, '<', "/proc/$worker/maps") or die "maps: $!";

    return scalar grep { m{/html/.*\.zst} } <$fh>;
}


# one request of each kind; false when one was not answered as it should be
sub round {
    my ($i) = @_;

    my $n = $i % $FILES;
    my $ok = 1;

    my $r = $t->get("/$n.txt");
    $ok &&= $r->complete && $r->body eq $body[$n];
    $r = $t->get("/$n.txt", 'Accept-Encoding: zstd');
    $ok &&= $r->complete && $r->body eq $zst[$n];
    my $tag = $r->header('ETag');
    $ok &&= $t->get("/$n.txt", 'Accept-Encoding: zstd',
                    "If-None-Match: $tag")->status == 304;
    $ok &&= $t->head("/$n.txt")->status == 200;
    $ok &&= $t->get('/bad.txt')->status == 500;
    $ok &&= $t->get('/absent.txt')->status == 404;
    $ok &&= $t->post("/$n.txt", 'x')->status == 405;
    $ok &&= $t->get("/$n.txt", 'Accept-Encoding: identity;q=0')->status
            == 406;

    my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
    $c->send_request('GET', '/large.bin',
        headers => $i % 2 ? ['Accept-Encoding: zstd'] : []);
    $c->read_some(1000);
    $i % 3 ? $c->abort() : $c->close();

    return $ok;
}


ok(round($_), 'a round of requests') || last for 0;
my $idle = $t->poll(sub { descriptors() <= 16 && descriptors() });
my $most = 0;
my $right = 0;

for my $i (1 .. 130) {
    $right += round($i) ? 1 : 0;
    my $now = mappings();
    $most = $now if $now > $most;
}

is($right, 130, 'more than 1000 requests');
ok($t->poll(sub { descriptors() <= $idle }), 'no descriptor is lost')
    or diag("$idle before, " . descriptors() . ' after');

# the entries of the table, and what a request holds that is about to end
cmp_ok($most, '<=', $TABLE + 4, 'mappings are bounded');
cmp_ok($most, '>=', $TABLE, 'by the table');
ok($t->poll(sub { mappings() <= $TABLE }), 'at rest there are no more');

# all descriptors taken by connections that say nothing
my $c = $t->connect();
ok($c->get('/1.txt')->body eq $body[1], 'a connection is open');

my @idle;
push @idle, $t->connect() for 1 .. 60;
ok($t->wait_log(qr/accept4?\(\) failed \(24: /), 'no descriptor is left');
my $r = $c->get('/2.txt');
is($r->status, 500, 'a request is refused');
$t->log_like(qr/\[crit\].*open\(\) .*2\.txt\.zst" failed \(24: /,
             'and the log says why');

$_->close() for @idle;
$c->close();
ok($t->poll(sub { descriptors() <= $idle }), 'descriptors come back');
ok($t->get('/2.txt')->body eq $body[2], 'and requests are served');
is(($t->worker_pids())[0], $worker, 'by the same worker');
