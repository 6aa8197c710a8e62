#!/usr/bin/perl

# Decoded bodies of more than 2 and 4 GiB, of one frame and of many, with and
# without Frame_Content_Size, by both inputs: all bytes, ranges at 2^31 and
# 2^32, headers, counters, the worker's memory, and zstd_mmap_max_size.

use strict;
use warnings;

use List::Util qw(max);
use Test::More;

use lib 't/lib', 't/frames';
use Body;
use Ranges;
use Test::Zmap;
use Test::Zmap::Status;

my $GIB = 1 << 30;
my $MIB = 1 << 20;

# the window of the frames here, two chunks, and what an idle worker lacks
my $MEMORY = 24 * $MIB;

# name, size, frame (0: one), whether frames say their size
my @FILES = (
    ['one-2',      2.25 * $GIB + 1,  0,         1],
    ['loose-2',    2.25 * $GIB + 2,  0,         0],
    ['one-4',      4.5 * $GIB + 3,   0,         1],
    ['many-4',     4.5 * $GIB + 4,   1_000_000, 1],
    ['loose-4',    4.5 * $GIB + 5,   0,         0],
    ['loosemany-4', 4.5 * $GIB + 6,  16 * $MIB, 0],
    ['one-10',     10 * $GIB + 7,    0,         1],
    ['many-10',    10 * $GIB + 8,    4 * $MIB,  1],
);

my $t = Test::Zmap->new(log_level => 'info', timeout => 120)->plan(145);
my $status = Test::Zmap::Status->new($t);

# of the refused one, known and not, and beside a plain file
my $LIMITED = $FILES[3];
my $limit = $LIMITED->[1] - 1;
$t->write('beside/many-4.bin', 'plain');

$t->run($t->conf(<<"EOF", http => <<'EOH'));
    zstd_mmap on;
    keepalive_requests 10000;
    @{[$status->location]}
    location /map/ { alias %%DIR%%/; zstd_mmap_stage z min_uses=1; }
    location /read/ { alias %%DIR%%/; zstd_mmap_input read; }
    location /below/ { alias %%DIR%%/; zstd_mmap_max_size $limit; }
    location /at/ { alias %%DIR%%/; zstd_mmap_max_size $LIMITED->[1]; }
    location /beside/ { zstd_mmap_max_size $limit; }
EOF
    zstd_mmap_zone z:32m hugepages=off;
EOH

my ($worker) = $t->worker_pids();


# bytes that are the worker's own: no pages of files
sub anonymous {
    open(my $fh, '<', "/proc/$worker/status") or die "status: $!";
    my %kib = map { /^(Rss\w+):\s+(\d+) kB/ ? ($1 => $2) : () } <$fh>;

    return 1024 * ($kib{RssAnon} + $kib{RssShmem});
}


sub make {
    my ($name, $size, $frame, $sized) = @_;

    my $body = Body->new($t, $size);
    my $start = time;
    $frame ? $body->many($name . '.bin', $frame, size => $sized)
           : $body->one($name . '.bin', size => $sized);
    $t->settle("$name.bin.zst");
    note(sprintf '%s: %d MB coded, made in %d s', $name,
         (-s $t->path("$name.bin.zst")) / 1e6, time - $start);

    return $body;
}


# (first bytes that are wrong or -1, bytes, complete, peak of memory)
sub read_all {
    my ($c, $r, $body) = @_;

    my $check = $body->checker(0);
    my ($pos, $wrong, $peak) = (0, -1, 0);

    my $n = $c->read_body($r, sub {
        $wrong = $pos if $wrong < 0 && !$check->($_[0]);
        $pos += length $_[0];
        $peak = max($peak, anonymous()) if $pos % (64 * $MIB) < $MIB;
    });

    return ($wrong, $n, $r->complete, $peak);
}


# the whole body: bytes, length, counters and memory
sub check_all {
    my ($name, $dir, $body, $sized) = @_;

    my $uri = "/$dir/$name.bin";
    my $idle = anonymous();
    my $start = time;
    my ($r, @seen);

    my $change = $status->change(sub {
        my $c = $t->connect();
        $c->send_request('GET', $uri);
        $r = $c->response_head();
        @seen = read_all($c, $r, $body);
        $c->close();
    });
    my $peak = pop @seen;

    is($r->status . ' ' . ($r->header('Content-Length') // 'chunked'),
       '200 ' . ($sized ? $body->size : 'chunked'), "$uri: head");
    is("@seen", join(' ', -1, $body->size, 1), "$uri: all bytes");
    cmp_ok($peak - $idle, '<=', $MEMORY, "$uri: memory of the worker");
    is(join(' ', map { $change->{$_} // 0 } qw(bytes.decoded_sent
           bytes.decoded_produced streamed decodes errors staged)),
       join(' ', ($body->size) x 2, 1, 1, 0, 0), "$uri: counters");
    note(sprintf '%s: %d s, %d KiB more', $uri, time - $start,
         ($peak - $idle) / 1024);
}


# around 2^31 and 2^32, and at the ends
sub places {
    my ($size) = @_;

    my $last = $size - 1;
    my @places = (['0-0', 0, 0], ["$last-", $last, $last],
                  ['-100000', $size - 100_000, $last],
                  [$size - 10 . '-' . ($size + 5 * $GIB), $size - 10, $last]);

    for my $border (grep { $_ < $size } 1 << 31, 1 << 32) {
        push @places, map { ["$_->[0]-$_->[1]", @$_] }
            [$border - 1, $border - 1], [$border, $border],
            [$border - 70_000, $border + 70_000];
    }

    return @places;
}


sub check_ranges {
    my ($name, $dir, $body, @places) = @_;

    my $uri = "/$dir/$name.bin";
    my $ranges = Ranges->new($t, $uri, $body);

    for my $place (@places) {
        is($ranges->ask(@$place), '', "$uri: bytes=$place->[0]");
    }
    $ranges->close();

    my $size = $body->size;
    for my $range ("$size-", ($size + 10) . '-' . ($size + 20)) {
        my $r = $t->get($uri, "Range: bytes=$range");
        is($r->status . ' ' . ($r->header('Content-Range') // '-'),
           "416 bytes */$size", "$uri: bytes=$range");
    }

    my $r = $t->head($uri);
    is($r->status . ' ' . ($r->header('Content-Length') // '-'), "200 $size",
       "$uri: HEAD");
}


# the first file beyond 4 GiB of many frames
sub check_limit {
    my ($body) = @_;

    my $change = $status->change(sub {
        is($t->get('/below/many-4.bin')->status, 500, 'above the limit: 500');
        is($t->head('/below/many-4.bin')->status, 500, '... HEAD, too');
    });
    is_deeply($change, { requests => 2, errors => 2,
                         'reasons.too_large' => 2 },
              '... and counted, nothing else');

    link $t->path('many-4.bin.zst'), $t->path('beside/many-4.bin.zst')
        or die "link: $!";
    $change = $status->change(sub {
        is($t->get('/beside/many-4.bin')->body, 'plain',
           'above, a plain file beside: that');
    });
    is_deeply($change, { requests => 1, declined => 1,
                         'reasons.too_large' => 1 },
              '... and counted, nothing else');
    $t->unlink('beside/many-4.bin.zst');

    my $ranges = Ranges->new($t, '/at/many-4.bin', $body);
    is($ranges->ask('4294967290-4294967300', 4294967290, 4294967300), '',
       'at the limit: served');
    $ranges->close();
}


# where only decoding tells
sub check_late_limit {
    my ($name, $body) = @_;

    my $c = $t->connect();
    $c->send_request('GET', "/below/$name.bin");
    my $r = $c->response_head();
    my ($wrong, $n, $complete) = read_all($c, $r, $body);
    $c->close();

    is(join(' ', $r->status, $wrong, $complete), '200 -1 0',
       "$name, unknown size: right, and cut");
    ok($n <= $limit && $n >= $limit - $MIB, "$name: at the limit")
        or diag("$n bytes, not $limit");
    is($status->get->{zones}{z}{segments}, 0, 'nothing is staged');
}


my $both = 0;

for my $file (@FILES) {
    my ($name, $size, $frame, $sized) = @$file;
    my $body = make(@$file);
    my @dirs = ++$both % 2 ? qw(map read) : qw(read map);

    check_late_limit($name, $body) if $name eq 'loose-4';
    check_all($name, $dirs[0], $body, $sized);
    check_all($name, $dirs[1], $body, 1) if $frame && $size > 4 * $GIB;
    check_limit($body) if $file == $LIMITED;

    # each costs all that lies before where places are not known
    my @places = places($size);
    @places = grep { $_->[0] =~ /^(?:-100000|(\d+)-(?!\1$)\d+)$/ } @places
        unless $frame && $sized;
    check_ranges($name, $_, $body, @places)
        for $frame && $sized ? @dirs : $dirs[0];

    $t->unlink("$name.bin.zst");
}
