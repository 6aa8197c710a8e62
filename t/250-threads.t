#!/usr/bin/perl

# Bodies that are walked and decoded in threads: the same bytes as without, from
# every input, in one buffer and in pieces, whole and in ranges.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;


my $t = Test::Zmap->new();
my $s = Test::Zmap::Status->new($t);

my $random = $t->random(3_000_000, 1);
my $text = $t->text(700_000, 2);
my $gap = $t->skippable("\0" x 20_000);

# name => [the decoded bytes, the coded ones, jobs in threads of a request that
# is the first one: the walk and all that is decoded; 0: as many as there are]
my %files = (
    oneshot => [$text, $t->compress($text), 2],
    blocks  => [substr($random, 0, 900_000),
                $t->frame(window => 1024, checksum => 1, blocks =>
                    [map { [raw => $_] }
                     unpack '(a1000)*', substr $random, 0, 900_000]), 2],
    frames  => [$random, join('', map { $t->compress($_) }
                         unpack '(a50000)*', $random), 0],
    single  => [$random . $text, $t->compress($random . $text), 0],
    unsized => [$random . $text, $t->compress($random . $text, size => 0), 0],
    gaps    => ['hello', $gap . $t->compress('hello') . $gap, 2],
    empty   => ['', $gap . $t->compress(''), 1],
);

my @places = qw(map read scratch staged cached uncached direct);
my @rows = map { my $place = $_; map { [$place, $_] } sort keys %files }
    @places;

my @errors = (
    ['nowhere', qr/unknown thread pool "nowhere"/],
    ['default min=', qr/"zstd_mmap_threads".*"min="|"min=".*zstd_mmap_threads/],
    ['default min=x', qr/"min=x"/],
    ['default min=-1', qr/"min=-1"/],
    ['default max=1k', qr/"max=1k"/],
    ['default min=1k min=2k', qr/number of arguments.*zstd_mmap_threads/],
    ['off min=1k', qr/"min=1k"/],
    ['default; zstd_mmap_threads off',
     qr/"zstd_mmap_threads" directive is duplicate/],
);
my @good = ('default', 'default min=0', 'named min=1g', 'off',
            'named min=9223372036854775807');

$t->plan(@errors + @good + 4 * @rows + 26);


for my $row (@errors) {
    my ($args, $message) = @$row;
    my ($code, $output) = $t->test_config($t->conf("zstd_mmap_threads $args;"));
    ok($code && $output =~ $message, "refused: $args") or diag($output);
}

for my $args (@good) {
    my $conf = $t->conf("zstd_mmap_threads $args;");
    my ($code, $output) = $t->test_config("thread_pool named threads=1;\n"
                                          . $conf);
    is($code, 0, "taken: $args") or diag($output);
}

for my $row (@rows) {
    my ($place, $name) = @$row;
    $t->raw_zst("$place/$name", $files{$name}[1]);
}

# exactly at the border: decoded bytes of one, coded ones of the other
my $decoded = $t->compress($text);
my $coded = $t->skippable('x' x 10_000) . $t->compress('x');
for my $min (0, 1) {
    $t->raw_zst("decoded-$min/a", $decoded);
    $t->raw_zst("coded-$min/a", $coded);
}
$t->zst('small.txt', $t->text(1000, 3));
$t->settle('small.txt.zst');

my $border = join '', map {
    my $min = $_;
    my ($d, $c) = (length($text) + $min, length($coded) + $min);
    "location /decoded-$min/ { zstd_mmap_threads named min=$d; }\n"
    . "location /coded-$min/ { zstd_mmap_threads named min=$c; }\n"
} 0, 1;

my $conf = $t->conf(<<"EOC", http => <<'EOH');
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_threads named min=16k;
    location /read/ { zstd_mmap_input read; }
    location /scratch/ { zstd_mmap_input scratch=1m; }
    location /staged/ { zstd_mmap_stage z min_uses=1; }
    location /cached/ {
        open_file_cache max=100;
        open_file_cache_valid 1h;
    }
    location /uncached/ { sendfile off; }
    location /direct/ { directio 4k; zstd_mmap_input read; }
    location /one/ { alias %%DIR%%/map/; max_ranges 1; }
    location /gzip/ { alias %%DIR%%/map/; gzip on; gzip_types *; }
    location /rate/ {
        alias %%DIR%%/map/;
        limit_rate 30m;
        limit_rate_after 1m;
    }
    $border
    @{[$s->location]}
EOC
    zstd_mmap_buffers 16m max=1m;
    zstd_mmap_zone z:32m hugepages=off;
EOH
$t->run("thread_pool named threads=2;\n$conf");


my $read = 0;


# what came to the log since the last call
sub new_log {
    open(my $fh, '<', $t->run_dir() . '/error.log') or die "log: $!";
    seek($fh, $read, 0);
    local $/;
    my $text = <$fh> // '';
    $read += length $text;

    return $text;
}


# (jobs in threads, jobs by slices) that the code starts
sub jobs(&) {
    my ($code) = @_;

    new_log();
    $code->();
    my @started = new_log() =~ /start job \w+, thread:(\d)/g;

    return (scalar(grep { $_ } @started), scalar(grep { !$_ } @started));
}


for my $row (@rows) {
    my ($place, $name) = @$row;
    my ($body, $zst, $want) = @{$files{$name}};
    my ($r, $threads, $slices);

    my $change = $s->change(sub {
        ($threads, $slices) = jobs { $r = $t->get("/$place/$name") };
    });
    ok($r->complete && $r->body eq $body, "$place, $name: the bytes");
    ok($slices == 0 && ($want ? $threads == $want : $threads > 10),
       "$place, $name: all in threads") or diag("$threads, $slices");

    $r = $t->get("/$place/$name");
    my $zstd = $t->get("/$place/$name", 'Accept-Encoding: zstd');
    ok($r->complete && $r->body eq $body && $zstd->complete
       && $zstd->body eq $zst, "$place, $name: again, and its frames");
    is_deeply([@$change{qw(requests decoded errors decodes verify_failures)}],
              [1, 1, undef, 1, undef], "$place, $name: one decode");
}


for my $row (['decoded', $text], ['coded', 'x']) {
    my ($name, $body) = @$row;
    my $r;

    my @at = jobs { $r = $t->get("/$name-0/a") };
    ok($r->body eq $body, "$name: at the border");
    is("@at", $name eq 'coded' ? '2 0' : '1 0', "$name: in a thread");
    my @below = jobs { $r = $t->get("/$name-1/a") };
    ok($r->body eq $body, "$name: one byte below it");
    is("@below", '0 0', "$name: none in a thread");
}


sub ranges {
    my ($uri, $body, @ranges) = @_;

    my @wrong = grep {
        my ($from, $to) = @$_;
        my $r = $t->get($uri, "Range: bytes=$from-$to");
        $r->status != 206 || !$r->complete
            || $r->body ne substr $body, $from, $to - $from + 1;
    } @ranges;

    return scalar @wrong;
}

my $both = $random . $text;
is(ranges('/map/oneshot', $text, [0, 0], [5, 70_000], [699_999, 699_999]), 0,
   'ranges of one buffer');
is(ranges('/map/single', $both, [0, 9], [1_000_000, 1_200_000],
          [3_699_990, 3_699_999]), 0, 'ranges of one frame in pieces');
is(ranges('/map/frames', $random, [0, 9], [49_999, 50_001],
          [2_990_000, 2_999_999]), 0, 'ranges of many frames');

my $r = $t->get('/map/oneshot', 'Range: bytes=0-9,600000-600009');
ok($r->status == 206 && index($r->body, substr $text, 0, 10) > 0
   && index($r->body, substr $text, 600_000, 10) > 0, 'two ranges at once');
$r = $t->get('/map/single', 'Range: bytes=0-9,600000-600009');
ok($r->status == 200 && $r->body eq $both, 'two ranges of a stream: 200');
is($t->get('/map/single', 'Range: bytes=9999999-')->status, 416, 'no range');

# a job is what a body costs, and these have none
for my $name (qw(oneshot single)) {
    my @jobs = jobs {
        $r = $t->head("/map/$name");
        is($r->header('Content-Length'), length $files{$name}[0],
           "$name: HEAD");
        my $etag = $r->header('ETag');
        is($t->get("/map/$name", "If-None-Match: $etag")->status, 304,
           "$name: 304");
    };
    is("@jobs", '0 0', "$name: no job");
}

# header first: the body is not kept
$t->replace('later.zst', $t->compress($text));
$t->settle('later.zst');
my @jobs = jobs { $r = $t->head('/later') };
is("@jobs", '1 0', 'a new version: walked');
my $etag = $r->header('ETag');
@jobs = jobs { $r = $t->get('/later', "If-None-Match: $etag") };
is($r->status . " @jobs", '304 0 0', 'nothing is decoded for a 304');
@jobs = jobs { $r = $t->get('/later', 'If-None-Match: "x"') };
ok($r->complete && $r->body eq $text && "@jobs" eq '1 0',
   'decoded after the header');

my $gunzip = sub {
    my ($bytes) = @_;
    open(my $fh, '>:raw', $t->run_dir() . '/gz') or die "gz: $!";
    print $fh $bytes;
    close($fh);
    return ($t->capture('gzip', '-dc', $t->run_dir() . '/gz'))[1];
};
$r = $t->get('/gzip/unsized', 'Accept-Encoding: gzip');
ok($r->complete && $gunzip->($r->body) eq $both, 'through the gzip filter');
ok($t->get('/rate/unsized')->body eq $both, 'with limit_rate');
ok($t->get('/one/single', 'Range: bytes=1-2')->body eq substr($both, 1, 2),
   'one range only');
