#!/usr/bin/perl

# A few kilobytes that decode to 1 GiB: limited where asked, never held.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 30)->plan(12);

my $gib = 1 << 30;

# 8192 RLE blocks of 128 KiB, 4 bytes each
my $bomb = $t->frame(window => 8 << 20,
                     blocks => [([rle => 'A', 131072]) x 8192]);
my $sized = $t->frame(window => 8 << 20, fcs => $gib,
                      blocks => [([rle => 'A', 131072]) x 8192]);

$t->raw_zst('bomb.txt', $bomb);
$t->raw_zst('sized.txt', $sized);
$t->settle('bomb.txt.zst', 'sized.txt.zst');

$t->run($t->conf(<<'EOC'));
    location / { zstd_mmap on; }

    location /limited/ { zstd_mmap on; zstd_mmap_max_size 10m;
                         alias %%DIR%%/; }
EOC


sub peak {
    my ($pid) = $t->worker_pids();
    open(my $fh, '<', "/proc/$pid/status") or die "status of $pid: $!";
    my ($kb) = join('', <$fh>) =~ /^VmHWM:\s+(\d+) kB/m;
    return $kb / 1024;
}


# the body in pieces: its length, and whether each byte was the right one
sub swallow {
    my ($uri) = @_;

    my $c = $t->connect();
    my $piece = 'A' x 65536;
    my ($length, $right) = (0, 1);

    $c->send_request('GET', $uri, version => '1.0');
    my $head = '';
    $head .= $c->read_some(1) until $head =~ /\r\n\r\n$/;

    while (1) {
        my $bytes = $c->read_some(65536);
        last unless length $bytes;
        $right = 0 unless $bytes eq substr $piece, 0, length $bytes;
        $length += length $bytes;
    }
    $c->close();

    return ($length, $right);
}


ok(length($bomb) < 33_000, 'the file has less than 33 KB');

is($t->get('/limited/sized.txt')->status, 500, 'above max_size: refused');
is($t->get('/limited/bomb.txt')->status, 500,
   'of raw and RLE blocks only: the size is known without a declared one');
my $before = peak();

my $begin = time();

for my $name (qw(sized bomb)) {
    my ($length, $right) = swallow("/$name.txt");
    is($length, $gib, "$name: the whole body");
    ok($right, "$name: the right bytes");
}

my $limit = 20 * ($ENV{TEST_SCALE} || 1);
cmp_ok(time() - $begin, '<', $limit, "2 GiB within $limit s");

is($t->get('/sized.txt', 'Accept-Encoding: zstd')->body, $sized,
   'the frames are as they are');

my $grown = peak() - $before;
my $scaled = ($ENV{TEST_SCALE} // 1) > 1;
my $bound = $scaled ? 128 : 40;
ok($grown < $bound, "the worker grew by less than $bound MiB")
    or diag("grown by $grown MiB");

# blocks that are coded hide the size until they are decoded
$t->raw_zst('coded.txt', $t->compress('B' x (64 << 20), size => 0));
my $r = $t->get('/limited/coded.txt');
ok(!$r->complete, 'coded blocks: aborted at the limit');
ok(length $r->body <= 10 << 20, 'coded blocks: not beyond the limit');
