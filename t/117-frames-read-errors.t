#!/usr/bin/perl

# Frames that cannot be read: before the header a refusal with one line in the
# log, after it a reply that is cut; and the next one is right.

use strict;
use warnings;

use Errno qw(EIO EINTR);
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

my $t = Test::Zmap->new(timeout => 20)->plan(83);
my $fault = Preload->new($t);

my $small = $t->compress($t->random(9000, 1));
my $large = $t->frame(window => 8 << 20,
    blocks => [map { [raw => $t->random(131072, $_)] } 1 .. 35]);

my $conf = $t->conf(<<'EOF', http => 'zstd_mmap_buffers 4m max=64k;');
    zstd_mmap on;
    sendfile on;
    location /off/ { alias %%DIR%%/; sendfile off; }
    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /direct/ { alias %%DIR%%/; directio 4k; zstd_mmap_send memory; }
EOF
$fault->run($conf);

my ($worker) = $t->worker_pids();
my @zstd = ('Accept-Encoding: zstd');

my $count = 0;


# a file that was walked and not sent, so that a request reads its version,
# then its bytes, then its version
sub fresh {
    my ($bytes) = @_;

    my $name = 'f' . ++$count . '.bin';
    $t->raw_zst($name, $bytes);
    $t->settle("$name.zst");
    $t->head("/$name", @zstd);

    return $name;
}


sub right {
    my ($r, $body) = @_;

    return $r->status == 200 && $r->complete && $r->body eq $body;
}


sub blamed {
    my ($name, $level, $why) = @_;

    return $t->log_count(
        qr/\[$level\].*\Q$name\E\.zst" is not usable: .*$why/);
}


# before the header

for my $call (qw(pread fstat)) {
    my $name = fresh($small);

    my $n = $call eq 'pread' ? 1 : 2;
    for my $turn (1, 2) {
        $fault->arm($call, $n, errno => EIO);
        my $r = $t->get("/$name", @zstd);
        is($fault->fired(), 1, "small, $call fails: it does");
        is($r->status, 500, "small, $call fails: 500");
        is($r->header('Content-Encoding'), undef,
           "small, $call fails: a page of its own");
        ok(!grep({ $_->header('ETag') } $r), "small, $call fails: no tag");
        $fault->disarm();
    }

    is(blamed($name, 'crit', 'Input/output error'), 1,
       "small, $call fails: one line");
    ok(right($t->get("/$name", @zstd), $small),
       "small, $call fails: then the frames");

    $t->write($name, 'plain');
    $t->replace("$name.zst", $small);
    $t->settle("$name.zst");
    $t->head("/$name", @zstd);
    $fault->arm($call, $n, errno => EIO);
    my $r = $t->get("/$name", @zstd);
    is($r->body, 'plain', "small, $call fails: the plain file beside");
    is($r->header('Vary'), 'Accept-Encoding', 'which varies');
    $fault->disarm();
}

# half of it, and a call that is interrupted

for my $dir ('', 'direct/') {
    my $name = fresh($small);
    $fault->arm('pread', 1, short => 1);
    my $r = $t->get("/$dir$name", @zstd);
    ok($fault->fired(), "${dir}small: a read that comes short");
    ok(right($r, $small), "${dir}small: the frames all the same");
    $fault->disarm();
}

my $name = fresh($small);
$fault->arm('pread', 1, errno => EINTR);
my $r = $t->get("/$name", @zstd);
ok($fault->fired() && right($r, $small), 'an interrupted read is made again');
$fault->disarm();

# after the header: what a condition let pass

for my $call (qw(pread fstat)) {
    $name = fresh($small);
    $fault->arm($call, $call eq 'pread' ? 1 : 2, errno => EIO);
    $r = $t->get("/$name", @zstd, 'If-Match: *');
    is($fault->fired(), 1, "conditional, $call fails: it does");
    ok(!right($r, $small) && !$r->complete,
       "conditional, $call fails: no whole reply");
    is(blamed($name, 'crit', 'Input/output error'), 1,
       "conditional, $call fails: one line");
    $fault->disarm();
}

# after the header: the first piece, and a later one

for my $where (['off', 'pread', 1], ['off', 'pread', 5], ['memory', 'fstat', 2],
               ['memory', 'fstat', 6], ['', 'fstat', 2], ['', 'fstat', 4])
{
    my ($dir, $call, $n) = @$where;
    my $what = "large, /$dir, $call $n";

    $name = fresh($large);
    $fault->arm($call, $n, errno => EIO);
    $r = $t->get("/$dir/$name", @zstd);
    is($fault->fired(), 1, "$what: fails");
    ok(!$r->complete && !$r->timed_out, "$what: no whole reply");
    is($r->body, substr($large, 0, length $r->body), "$what: no wrong byte");
    is(blamed($name, 'crit', 'Input/output error'), 1, "$what: one line");
    $fault->disarm();
    ok(right($t->get("/$dir/$name", @zstd), $large), "$what: then the frames");
}

# a read that finds an end where the file has none: nothing is made up

for my $where (['.', $small], ['off', $large], ['memory', $large]) {
    my ($dir, $body) = @$where;

    $name = fresh($body);
    $fault->arm('pread', 1, end => 1);
    $r = $t->get("/$dir/$name", @zstd);
    ok($fault->fired(), "/$dir, an end too early: found");
    ok(right($r, $body) || $r->body eq '', "/$dir, an end too early: no byte");
    $fault->disarm();

    $name = fresh($body);
    $fault->arm('pread', 1, end => 1, always => 1);
    $r = $t->get("/$dir/$name", @zstd);
    ok(!right($r, $body) && $r->body !~ /\0/,
       "/$dir, always an end too early: no byte");
    is(blamed($name, 'error', 'file changed while in use'),
       1, "/$dir, always an end too early: one line");
    $fault->disarm();
    ok(right($t->get("/$dir/$name", @zstd), $body),
       "/$dir, always an end too early: then the frames");
}

# after the header: a piece that comes short is read on

for my $dir (qw(off direct)) {
    $name = fresh($large);
    $fault->arm('pread', 3, short => 1);
    $r = $t->get("/$dir/$name", @zstd);
    ok($fault->fired() && right($r, $large), "large, /$dir: a short read");
    $fault->disarm();
}

is(($t->worker_pids())[0], $worker, 'the worker lives');
