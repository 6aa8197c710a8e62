#!/usr/bin/perl

# Jobs whose requests or whose worker go, that find no room in the queue of
# their pool, and that last longer than their file is young.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $t = Test::Zmap->new()->plan(9);
my $s = Test::Zmap::Status->new($t);

# one byte a block: walking and decoding take long
sub slow {
    my ($name, $size) = @_;

    return $t->raw_zst($name, $t->frame(window => 1 << 17, fcs => $size,
        last => 0) . "\x0a\0\0x" x $size . "\1\0\0");
}

slow('slow.bin', 12_000_000);
slow('other.bin', 6_000_000);
my $text = 'x' x 3_000_000;
$t->zst('young.bin', $text);
$t->settle('slow.bin.zst', 'other.bin.zst', 'young.bin.zst');

my $conf = "thread_pool one threads=1;\nthread_pool full threads=1 "
    . "max_queue=1;\n" . $t->conf(<<"EOF", http => <<'EOF2');
    zstd_mmap on;
    location /slices/ { alias %%DIR%%/; }
    location /full/ { alias %%DIR%%/; zstd_mmap_threads full; }
    location /pieces/ {
        alias %%DIR%%/;
        zstd_mmap_threads one min=0;
        zstd_mmap_chunk 1m;
    }
    location /one/ {
        alias %%DIR%%/;
        zstd_mmap_threads one;
        zstd_mmap_verify checksum;
    }
    @{[$s->location]}
EOF
zstd_mmap_buffers 16m;
EOF2


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => \@headers);

    return $c;
}


sub jobs { return $t->log_count(qr/start job/) }


$t->run($conf);

# who waits for a walk is told nothing when the worker ends before it
for (1 .. 4) {
    my ($worker) = $t->worker_pids();
    my $before = jobs();
    my @waiting = map { ask('/slices/slow.bin', "Accept-Encoding: $_") }
        qw(zstd identity);
    $t->poll(sub { jobs() > $before });
    $t->kill('TERM', $worker);
    $t->poll(sub { my ($pid) = $t->worker_pids();
                   $pid && $pid != $worker });
}
is($t->log_count(qr/exited on signal/), 0, 'TERM within a walk');

# a client that goes while a thread makes a piece
$t->get('/pieces/young.bin');
my $steps = jobs();
my $c = ask('/pieces/slow.bin');
$c->read_some(1000);
ok($t->poll(sub { jobs() > $steps + 3 }), 'pieces are made in threads');
$c->abort();
ok($s->poll(sub { my $b = $_[0]{buffers};
                  $b->{used} == $b->{kept} && !$_[0]{streams} }),
   'the status shows that they are given back')
    or diag(explain($s->worker));

# a file that is young when its job begins and no longer when it ends
my $started = jobs();
my $slow = ask('/one/slow.bin');
$t->poll(sub { jobs() == $started + 1 });
chmod 0640, $t->path('young.bin.zst');
my $young = ask('/one/young.bin');
ok($t->poll(sub { jobs() == $started + 2 }), 'a job in the queue');
my $r = $young->response('GET');
ok($r->complete && $r->body eq $text, 'which is done');
$slow->abort();
$t->settle('young.bin.zst');
my $change = $s->change(sub { $t->get('/one/young.bin') });
is($change->{decodes}, 1, 'what it made of a young file is not kept');
$change = $s->change(sub { $t->get('/one/young.bin') });
is($change->{cached}, 1, 'the next body is');

# no room in the queue: slices that are as short as without threads
$t->stop();
$t->run($conf);
my @before = ($t->log_count(qr/start job \S+ thread:1/),
              $t->log_count(qr/walk at/));
my @c = map { slow("queue$_.bin", 3_000_000); ask("/full/queue$_.bin") }
    1 .. 3;
$_->response('HEAD') for @c;
$t->wait_log(qr/thread pool "full" queue overflow/);
ok($t->log_count(qr/queue overflow/), 'a full queue');
cmp_ok($t->log_count(qr/walk at/) - $before[1], '>', 10, 'short slices');
