#!/usr/bin/perl

# Frames on their way to a slow reader, and the file changes: written over in
# place, the reply ends short; replaced by another, the old one goes on.

use strict;
use warnings;

use Socket qw(SOL_SOCKET SO_RCVBUF);
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;

my $t = Test::Zmap->new(timeout => 20)->plan(50);

my $blocks = 96;
my $old = $t->frame(window => 8 << 20,
    blocks => [map { [raw => $t->random(131072, $_)] } 1 .. $blocks]);
my $new = $t->frame(window => 8 << 20,
    blocks => [map { [raw => $t->random(131072, -$_)] } 1 .. $blocks]);
my $small = $t->frame(window => 1 << 20,
                      blocks => [[raw => $t->random(60_000, 500)]]);
my $next = $t->frame(window => 1 << 20,
                     blocks => [[raw => $t->random(60_000, 501)]]);

# what says of itself whether it is whole
my $content = $t->random(131072 * $blocks, 600);
my $checked = $t->compress($content);
my $other = $t->compress(scalar reverse $content);
length $checked == length $other or die "sizes differ\n";

$t->run($t->conf(<<'EOF', http => 'zstd_mmap_buffers 4m max=64k;'));
    listen 127.0.0.1:%%PORT2%% sndbuf=256k;
    listen 127.0.0.1:%%PORT3%% sndbuf=8k;
    zstd_mmap on;
    sendfile on;
    location /off/ { alias %%DIR%%/; sendfile off; }
    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /direct/ { alias %%DIR%%/; directio 4k; zstd_mmap_send memory; }
    location /read/ { alias %%DIR%%/; sendfile off; zstd_mmap_send sendfile; }
    location /threads/ { alias %%DIR%%/; aio threads; }
EOF

my ($worker) = $t->worker_pids();
my @zstd = ('Accept-Encoding: zstd');
my @copied = qw(off memory direct);
my @all = ('.', @copied, qw(read threads));


sub setup {
    my ($name, $bytes) = @_;

    $t->replace("$name.zst", $bytes);
    $t->mtime("$name.zst", $MTIME);
    $t->settle("$name.zst");
}


# the same inode and size: no byte is missing at any time
sub overwrite {
    my ($name, $bytes) = @_;

    open(my $fh, '+<:raw', $t->path("$name.zst")) or die "$name: $!";
    syswrite($fh, $bytes) == length $bytes or die "$name: $!";
    close($fh) or die "$name: $!";
}


# the reply to a reader that waits in its middle until something is done
sub slow {
    my ($uri, $done, @headers) = @_;

    my $c = $t->connect(port => $t->port(2), rcvbuf => 16384);
    $c->send_request('GET', $uri, headers => [@zstd, @headers]);
    my $begin = $c->read_some(300_000);
    $done->();
    $c->{buffer} = $begin . $c->{buffer};
    setsockopt($c->{socket}, SOL_SOCKET, SO_RCVBUF, pack('i', 1 << 22))
        or die "setsockopt: $!";
    my $r = $c->response('GET');
    $c->close();

    return $r;
}


my $changed = qr/is not usable: file changed while in use/;

for my $dir (@all) {
    my $lines = $t->log_count($changed);
    setup('big.bin', $old);
    my $r = slow("/$dir/big.bin", sub { overwrite('big.bin', $new) });

    ok($r->status == 200 && !$r->complete && !$r->timed_out,
       "/$dir, written over: cut");
    is($t->log_count($changed), $lines + 1, "/$dir, written over: one line");

    # sendfile(2) and nginx read a slice when its turn has come
    if (grep { $_ eq $dir } @copied) {
        ok($r->body eq substr($old, 0, length $r->body),
           "/$dir, written over: nothing of the new bytes");
    }

    $t->settle('big.bin.zst');
    ok($t->get("/$dir/big.bin", @zstd)->body eq $new,
       "/$dir, written over: then the new ones");
}

for my $dir (@all) {
    setup('big.bin', $old);
    my $r = slow("/$dir/big.bin", sub { setup('big.bin', $new) });
    ok($r->status == 200 && $r->complete && $r->body eq $old,
       "/$dir, replaced: the old bytes");
    ok($t->get("/$dir/big.bin", @zstd)->body eq $new,
       "/$dir, replaced: then the new ones");
}

for my $dir (@all) {
    setup('big.bin', $old);
    my $r = slow("/$dir/big.bin",
                 sub { $t->unlink('big.bin.zst') },
                 'Range: bytes=5000000-11000000');
    ok($r->status == 206 && $r->complete
       && $r->body eq substr($old, 5_000_000, 6_000_001),
       "/$dir, deleted: the range of the old bytes");
}

for my $dir (@copied) {
    my $lines = $t->log_count($changed);
    setup('big.bin', $old);
    my $r = slow("/$dir/big.bin", sub { overwrite('big.bin', $new) },
                 'Range: bytes=2000000-');
    ok($r->status == 206 && !$r->complete
       && $r->body eq substr($old, 2_000_000, length $r->body),
       "/$dir, a range of what is written over: cut");
}

# the mtime put back: the checksum of the frame tells
for my $dir (@copied) {
    setup('big.bin', $checked);
    my $r = slow("/$dir/big.bin", sub {
        overwrite('big.bin', $other);
        $t->mtime('big.bin.zst', $MTIME);
    });
    $t->write('sent.zst', $r->body);
    my ($code) = $t->capture('zstd', '-tq', $t->path('sent.zst'));
    isnt($code, 0, "/$dir, written over, its mtime put back: seen");
}

# a mode is no content
setup('big.bin', $old);
my $r = slow('/memory/big.bin', sub { chmod 0640, $t->path('big.bin.zst') });
ok($r->complete && $r->body eq $old, 'another mode: whole');

# a kept copy that is on its way, while the next version is read and kept
setup('small.bin', $small);
$t->get('/memory/small.bin', @zstd);
my $c = $t->connect(port => $t->port(3), rcvbuf => 4096);
$c->send_request('GET', '/memory/small.bin', headers => \@zstd);
my $begin = $c->read_some(1);
overwrite('small.bin', $next);
$t->settle('small.bin.zst');
my $good = grep { $t->get('/memory/small.bin', @zstd)->body eq $next } 1 .. 3;
is($good, 3, 'a small file is written over: the new bytes');
$c->{buffer} = $begin . $c->{buffer};
$r = $c->response('GET');
ok($r->complete && $r->body eq $small, 'and a copy goes out as it was');

is(($t->worker_pids())[0], $worker, 'the worker lives');
is($t->log_count(qr/\[crit\]/), 0, 'nothing critical');
