#!/usr/bin/perl

# What one worker found wrong with a file, by its walk or by decoding it, all
# others know without a walk of their own.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $GZIP = 'Accept-Encoding: gzip';
my $ZSTD = 'Accept-Encoding: zstd';

my $t = Test::Zmap->new(workers => 2, log_level => 'debug_http')->plan(41);
my $s = Test::Zmap::Status->new($t);

my $body = $t->random(300_000, 1);
my @blocks = map { [raw => $_] } unpack '(a100000)*', $body;
my %frame = (window => 1 << 17, fcs => length $body, blocks => \@blocks);
my $good = $t->frame(%frame, checksum => 1);
my $sum = $t->frame(%frame, checksum => 12345);
my $cut = substr $good, 0, -10_000;

$t->raw_zst("$_.bin", $cut) for qw(cut alone off/cut head beside);
$t->raw_zst("$_.bin", $sum) for qw(sum off/sum stream/sum);
$t->write('beside.bin', 'the plain file');
$t->raw_zst('good.bin', $good);
$t->raw_zst('wide.bin', $t->frame(window => 1 << 24, fcs => 5,
                                  blocks => [[raw => '12345']]));
$t->settle('wide.bin.zst');

my $conf = $t->conf($s->location . <<'EOT', http => <<'EOH');
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1000 max=1k ~nothing;
    add_header X-Pid $pid always;

    location /off/ { zstd_mmap_verify off; }
    location /stream/ { zstd_mmap_chunk 32k; }
    location /narrow/ { alias %%DIR%%/; zstd_mmap_decode_window 1m; }
    location = /alone.bin { zstd_mmap_stage off; }
EOT
    zstd_mmap_zone z:1m hugepages=off;
    zstd_mmap_buffers 1m max=400k;
EOH
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& reuseport/;
$t->run($conf);

my ($one, $two) = $t->worker_pids();


# asks until that worker answers; the others are asked another file
sub ask {
    my ($pid, $method, $uri, @headers) = @_;

    my $c;
    $t->poll(sub {
        $c = $t->connect();
        return 1 if $c->get('/good.bin', $ZSTD)->header('X-Pid') == $pid;
        $c->close();
        return 0;
    }) or die "worker $pid takes no connection\n";

    my $r = $c->request($method, $uri, headers => \@headers);
    $c->close();

    return $r;
}


sub walks {
    my ($pid) = @_;

    return $t->log_count(qr/ \Q$pid\E#.*zstd mmap: walk at/);
}


# the answer of the worker that never walked the file, checks of their own
sub refuses {
    my ($pid, $uri, @headers) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    # so that its own walk of that one is over
    ask($pid, 'GET', '/good.bin', $ZSTD);
    my $before = walks($pid);
    is(ask($pid, 'GET', $uri, @headers)->status, 500,
       "$uri, @headers: refused by another");
    is(walks($pid), $before, "$uri, @headers: without a walk");
}


# a walk

is(ask($one, 'GET', '/cut.bin', $GZIP)->status, 500, 'a file cut short');
refuses($two, '/cut.bin', $ZSTD);
is($s->get->{counters}{verify_failures}, 1, 'it was found once');
is($s->get->{reasons}{corrupt}, 2, 'and refused twice');
is($t->log_count(qr/\[error\].*cut\.bin\.zst" is not usable: truncated/), 2,
   'each worker says so');
refuses($two, '/cut.bin', $GZIP);

is(ask($one, 'HEAD', '/head.bin', $ZSTD)->status, 500, 'found by a HEAD');
refuses($two, '/head.bin', $GZIP);

is(ask($one, 'GET', '/beside.bin', $ZSTD)->body, 'the plain file',
   'a plain file beside');
my $before = walks($two);
is(ask($two, 'GET', '/beside.bin', $ZSTD)->body, 'the plain file',
   'a plain file beside: for another');
is(walks($two), $before, 'a plain file beside: without a walk');

# one that looks at no more than the first header

is(ask($one, 'GET', '/off/cut.bin', $GZIP)->status, 500, 'verify off: decoded');
refuses($two, '/off/cut.bin', $ZSTD);

# a decode into one buffer, in pieces, and after the header

my $r = ask($one, 'GET', '/sum.bin', $GZIP);
is($r->status, 500, 'a wrong checksum');
refuses($two, '/sum.bin', $ZSTD);

is(ask($one, 'GET', '/off/sum.bin', $GZIP)->status, 500,
   'verify off: a wrong checksum');
refuses($two, '/off/sum.bin', $ZSTD);

$t->reload(conf => $conf =~ s/max=400k/max=100k/r) or die "no reload\n";
($one, $two) = $t->worker_pids();

$r = ask($one, 'GET', '/stream/sum.bin', $GZIP);
is($r->status, 200, 'a wrong checksum of a stream');
ok(!$r->complete, 'which is cut');
refuses($two, '/stream/sum.bin', $ZSTD);

# verdicts outlive workers and reloads

refuses($one, '/cut.bin', $ZSTD);
$t->reload() or die "no reload\n";
($one, $two) = $t->worker_pids();
refuses($one, '/cut.bin', $ZSTD);
refuses($two, '/sum.bin', $GZIP);

# what is wrong for one location only, or where nothing is staged

is(ask($one, 'GET', '/narrow/wide.bin', $GZIP)->status, 500, 'a wide window');
is(ask($one, 'GET', '/wide.bin', $GZIP)->body, '12345',
   'a wide window: elsewhere');
is(ask($two, 'GET', '/wide.bin', $GZIP)->body, '12345',
   'a wide window: of another worker');

is(ask($one, 'GET', '/alone.bin', $ZSTD)->status, 500, 'no zone');
ask($two, 'GET', '/good.bin', $ZSTD);
$before = walks($two);
is(ask($two, 'GET', '/alone.bin', $ZSTD)->status, 500, 'no zone: another');
is(walks($two), $before + 1, 'no zone: which walks, too');

# a new version

$t->replace('cut.bin.zst', $good);
$t->settle('cut.bin.zst');
ok(ask($_, 'GET', '/cut.bin', $ZSTD)->body eq $good, 'a new version')
    for $one, $two;
