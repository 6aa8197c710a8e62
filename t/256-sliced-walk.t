#!/usr/bin/perl

# Files of millions of blocks without threads: walked in turns, between which
# others are served.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time sleep);

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $t = Test::Zmap->new()->plan(33);
my $s = Test::Zmap::Status->new($t);


# blocks of nothing, 3 bytes each, which take no room on disk
sub sparse {
    my ($name, $blocks, $end) = @_;

    open(my $fh, '>:raw', $t->path("$name.zst")) or die "$name: $!";
    print $fh $t->frame(window => 1 << 20, blocks => []);
    seek($fh, 3 * $blocks, 1);
    print $fh $end // "\1\0\0";
    close($fh);

    return -s $t->path("$name.zst");
}


my %size = map { $_ => sparse($_, 15_000_000) }
    qw(walk two leave all replaced appended off quit);
$size{term} = sparse('term', 60_000_000);
sparse('bad', 15_000_000, "\7\0\0");
$t->raw_zst('rle', $t->frame(window => 1 << 20, checksum => 1, blocks =>
            [map { [rle => chr($_ & 255), 1] } 1 .. 400_000]));
my $rle = join '', map { chr($_ & 255) } 1 .. 400_000;
$t->zst('small.txt', 'small');
$t->settle('rle.zst', 'bad.zst');

$t->run($t->conf(<<"EOC"));
    zstd_mmap on;
    location = /off/off { alias %%DIR%%/off; zstd_mmap_verify off; }
    @{[$s->location]}
EOC

my @zstd = ('Accept-Encoding: zstd');


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


sub begins { return $t->log_count(qr/walk at 0 of $_[0]/) }

sub turns { return $t->log_count(qr/walk rc:1 at/) }


# a request whose walk goes on
sub walking {
    my ($uri, @headers) = @_;

    my $before = turns();
    my $c = ask($uri, @headers);
    $t->poll(sub { turns() > $before + 1 }) or die "no walk\n";

    return $c;
}


sub is_small { return $t->get('/small.txt')->body eq 'small' }


# others are served between the turns; the longest that one of them waits is
# that of a turn, with some time for a busy machine
is_small();
my $c = walking('/walk', @zstd);
my ($replies, $longest) = (0, 0);
while (!$t->log_count(qr/walk rc:0 at $size{walk}/) && $replies < 2000) {
    my $began = time();
    last if !is_small();
    my $took = time() - $began;
    $longest = $took if $took > $longest;
    $replies++;
}
cmp_ok($replies, '>=', 3, 'others are served');
cmp_ok($longest, '<', $t->timeout() / 10, 'and soon');
my $r = $c->response('GET');
ok($r->status == 200 && $r->complete && length $r->body == $size{walk},
   'the reply');
cmp_ok(turns(), '>', 10, 'in many turns');
is(begins($size{walk}), 1, 'one walk');
my $before = turns();
is($t->head('/walk', @zstd)->status, 200, 'again');
is(turns(), $before, 'not walked again');

# a small file of many blocks
$r = $t->get('/rle');
ok($r->complete && $r->body eq $rle, 'tiny blocks');

# two clients, one walk
$before = begins($size{two});
my @c = (walking('/two', @zstd), ask('/two', @zstd), ask('/two'));
ok($c[0]->response('GET')->complete && $c[1]->response('GET')->complete,
   'two clients: both replies');
$r = $c[2]->response('GET');
ok($r->status == 200 && $r->complete && $r->body eq '',
   'two clients: decoded, nothing');
is(begins($size{two}), $before + 1, 'two clients: one walk');

# its client leaves, another one stays; all leave
@c = (walking('/leave', @zstd), ask('/leave', @zstd));
$before = $t->log_count(qr/client prematurely closed/);
$c[0]->abort();
ok($t->poll(sub { $t->log_count(qr/client prematurely closed/) > $before }),
   'the first one leaves');
is(length $c[1]->response('GET')->body, $size{leave}, 'the other one stays');

my $ends = $t->log_count(qr/end of job/);
$c = walking('/all', @zstd);
$c->abort();
ok($t->poll(sub { $t->log_count(qr/end of job/) > $ends }),
   'all leave: the walk goes on');
$before = turns();
is($t->head('/all', @zstd)->status, 200, 'all leave: the next one');
is(turns(), $before, 'all leave: needs no walk');

# the file is another one between two turns
$c = walking('/replaced', @zstd);
$t->replace('replaced.zst', $t->compress('new'));
$r = $c->response('GET');
ok($r->status == 200 && $r->complete && length $r->body == $size{replaced},
   'replaced: who has the old one');
is($t->get('/replaced')->body, 'new', 'replaced: the next one');

$before = begins('\\d+');
$c = walking('/appended', @zstd);
open(my $fh, '>>:raw', $t->path('appended.zst')) or die "appended: $!";
print $fh $t->skippable('');
close($fh);
$r = $c->response('GET');
ok($r->status == 200 && $r->complete
   && length $r->body == $size{appended} + 8, 'appended: the new version');
is(begins('\\d+'), $before + 2, 'appended: a second walk');
is($s->get->{counters}{errors}, 0, 'no error');

# a fault at its end
@c = (walking('/bad', @zstd), ask('/bad'), ask('/bad'));
is(scalar(grep { $_->response('GET')->status == 500 } @c), 3, 'bad: for all');
is($t->log_count(qr/bad\.zst" is not usable/), 1, 'bad: logged once');
is($t->get('/bad')->status, 500, 'bad: known');

# who needs no walk waits for one that goes on, and begins none
$before = begins($size{off});
is(length $t->get('/off/off', @zstd)->body, $size{off}, 'verify off: at once');
is($t->log_count(qr/"\/off\/off" waits/), 0, 'verify off: no walk');
$c = walking('/off');
is(length $t->get('/off/off', @zstd)->body, $size{off},
   'verify off: beside a walk');
is($c->response('GET')->status, 200, 'verify off: which ends');

# the worker leaves: who waits is served, with TERM not
my ($worker) = $t->worker_pids();
@c = (walking('/quit', @zstd), ask('/quit', @zstd));
$t->wait_log(qr/"\/quit" waits for job/, 2);
$t->kill('QUIT', $worker);
is(scalar(grep { length $_->response('GET')->body == $size{quit} } @c), 2,
   'QUIT: all get all');
ok($t->poll(sub { my @pids = $t->worker_pids();
                  @pids == 1 && $pids[0] != $worker }), 'QUIT: then it ends');

($worker) = $t->worker_pids();
@c = (walking('/term', @zstd), ask('/term', @zstd), ask('/term'));
# one that is not accepted yet would be the next worker's
$t->wait_log(qr/"\/term" waits for job/, 3);
$t->kill('TERM', $worker);
is(scalar(grep { my $r = $_->response('GET');
                 $r->status == 200 && $r->complete || $r->timed_out } @c), 0,
   'TERM: the walk is given up');
ok($t->poll(sub { my @pids = $t->worker_pids();
                  @pids == 1 && $pids[0] != $worker }), 'TERM: it ends');
ok(is_small(), 'and the next one serves');
