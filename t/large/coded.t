#!/usr/bin/perl

# Coded files of more than 4 GiB: all of their frames, by descriptor and from
# memory, ranges of them and of their decoded bytes at 2^31 and 2^32, frames
# that lie behind a skippable one of 4 GiB, counters, the worker's memory.

use strict;
use warnings;

use List::Util qw(max);
use Test::More;

use lib 't/lib', 't/frames';
use Body;
use Ranges;
use Sparse;
use Test::Zmap;
use Test::Zmap::Status;

my $MIB = 1 << 20;

# what a worker may have of its own, and of the file while it is decoded
my $MEMORY = 24 * $MIB;
my $MAPPED = 32 * $MIB;

my $ZSTD = 'Accept-Encoding: zstd';

my $t = Test::Zmap->new(log_level => 'info', timeout => 120)->plan(100);
my $status = Test::Zmap::Status->new($t);

my $raw = Sparse::Blocks->new($t, 'raw.bin', 68);
my %behind = map { $_ => behind($_) } 3_000_000, 12_000_000;
$t->settle('12000000.bin.zst');

my $blocks = (stat $t->path('raw.bin.zst'))[12];
note(sprintf 'raw: %d MB, %d MB on the disk', $raw->file->size / 1e6,
     $blocks * 512 / 1e6);

$t->run($t->conf(<<"EOF", http => <<'EOH'));
    zstd_mmap on;
    sendfile on;
    @{[$status->location]}
    location /map/ { alias %%DIR%%/; zstd_mmap_stage z min_uses=1; }
    location /read/ { alias %%DIR%%/; zstd_mmap_input read; }
    location /scratch/ { alias %%DIR%%/; zstd_mmap_input scratch; }
    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /nosendfile/ { alias %%DIR%%/; sendfile off;
                            zstd_mmap_send sendfile; }
EOF
    zstd_mmap_zone z:32m hugepages=off;
EOH

my ($worker) = $t->worker_pids();


# two frames, a skippable one of 4 GiB, the other frames
sub behind {
    my ($size) = @_;

    my $body = Body->new($t, $size);
    my $file = Sparse->new($t, "$size.bin");

    for (my $pos = 0; $pos < $size; $pos += 100_000) {
        if ($pos == 200_000) {
            $file->add(pack 'VV', 0x184d2a53, 0xffffffff);
            $file->hole(0xffffffff);
        }
        $file->add($t->frame(fcs => 100_000, window => 1 << 20,
                             blocks => [[raw => $body->bytes($pos,
                                                             100_000)]]));
    }
    $file->close();

    return [$body, $file];
}


# the worker's bytes: its own, of files
sub memory {
    open(my $fh, '<', "/proc/$worker/status") or die "status: $!";
    my %kib = map { /^(Rss\w+):\s+(\d+) kB/ ? ($1 => $2) : () } <$fh>;

    return (1024 * ($kib{RssAnon} + $kib{RssShmem}), 1024 * $kib{RssFile});
}


# a reply with all bytes, from which counter it is known, and the memory
sub check_all {
    my ($uri, $body, $counter, @headers) = @_;

    my @idle = memory();
    my @peak = @idle;
    my ($pos, $wrong) = (0, -1);
    my ($r, $n);
    my $start = time;

    my $change = $status->change(sub {
        my $check = $body->checker(0);
        my $c = $t->connect();
        $c->send_request('GET', $uri, headers => \@headers);
        $r = $c->response_head();
        $n = $c->read_body($r, sub {
            $wrong = $pos if $wrong < 0 && !$check->($_[0]);
            $pos += length $_[0];
            return unless $pos % (64 * $MIB) < $MIB;
            my @now = memory();
            @peak = map { max($peak[$_], $now[$_]) } 0, 1;
        });
        $c->close();
    });

    is(join(' ', $r->status, $r->header('Content-Length') // '-',
            $r->header('Content-Encoding') // 'identity'),
       join(' ', 200, $body->size, @headers ? 'zstd' : 'identity'),
       "$uri: head");
    is(join(' ', $wrong, $n, $r->complete), join(' ', -1, $body->size, 1),
       "$uri: all bytes");
    cmp_ok($peak[0] - $idle[0], '<=', $MEMORY, "$uri: the worker's memory");
    cmp_ok($peak[1] - $idle[1], '<=', $MAPPED, "$uri: of the file");
    is(join(' ', map { $change->{$_} // 0 } "bytes.$counter",
            qw(requests errors staged)),
       join(' ', $body->size, 1, 0, 0), "$uri: counters");
    note(sprintf '%s: %d s, %d and %d KiB more', $uri, time - $start,
         map { ($peak[$_] - $idle[$_]) / 1024 } 0, 1);
}


sub check_ranges {
    my ($uri, $body, @headers) = @_;

    my $size = $body->size;
    my $last = $size - 1;
    my $ranges = Ranges->new($t, $uri, $body, @headers);
    my @places = (['0-0', 0, 0], ["$last-", $last, $last],
                  ['-100000', $size - 100_000, $last]);

    for my $border (grep { $_ < $size } 1 << 31, 1 << 32) {
        push @places, map { ["$_->[0]-$_->[1]", @$_] }
            [$border - 1, $border - 1], [$border, $border],
            [$border - 1, $border], [$border - 70_000, $border + 70_000];
    }

    for my $place (@places) {
        is($ranges->ask(@$place), '', "$uri, @headers: bytes=$place->[0]");
    }
    $ranges->close();

    my $r = $t->get($uri, @headers, "Range: bytes=$size-");
    is($r->status . ' ' . ($r->header('Content-Range') // '-'),
       "416 bytes */$size", "$uri, @headers: behind the end");
    $r = $t->head($uri, @headers);
    is($r->status . ' ' . ($r->header('Content-Length') // '-'), "200 $size",
       "$uri, @headers: HEAD");
}


# the first one walks it
my $start = time;
is($t->head('/map/raw.bin')->status, 200, 'it is walked');
cmp_ok((memory())[1], '<=', $MAPPED, 'and does not stay mapped');
note(time - $start, ' s');

check_all('/map/raw.bin', $raw->file, 'frames_sent', $ZSTD);
check_all('/memory/raw.bin', $raw->file, 'frames_sent', $ZSTD);
check_all('/nosendfile/raw.bin', $raw->file, 'frames_sent', $ZSTD);
check_all('/map/raw.bin', $raw, 'decoded_sent');
check_all('/read/raw.bin', $raw, 'decoded_sent');

check_ranges("/$_/raw.bin", $raw->file, $ZSTD) for qw(map memory);
check_ranges("/$_/raw.bin", $raw) for qw(map read);

for my $size (sort { $a <=> $b } keys %behind) {
    my ($body, $file) = @{$behind{$size}};
    for my $dir (qw(map read scratch)) {
        my $uri = "/$dir/$size.bin";
        my $ranges = Ranges->new($t, $uri, $body);
        is($ranges->ask('0-', 0, $size - 1), '', "$uri: all");
        is($ranges->ask('199990-200010', 199_990, 200_010), '',
           "$uri: on both sides of the skippable frame");
        is($ranges->ask('-5', $size - 5, $size - 1), '', "$uri: the end");
        $ranges->close();
    }

    # two frames, what the others lie behind, and something of them
    my $ranges = Ranges->new($t, "/map/$size.bin", $file, $ZSTD);
    my $first = $file->size - $size;
    is($ranges->ask("$first-" . ($first + 300_000), $first, $first + 300_000),
       '', "$size.bin: coded bytes");
    $ranges->close();
}

is($status->get->{zones}{z}{segments}, 0, 'nothing is staged');
