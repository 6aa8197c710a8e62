#!/usr/bin/perl

# Files with a seek table: its sizes make lengths and ranges of frames that
# declare none.  A table that lies is ignored, and no byte of a reply has the
# place of another.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $MTIME = 1600000000;
my $FRAME = 10_000;
my $LIE = qr/\[warn\].*seek table of ".*" contradicts its frames/;

my $t = Test::Zmap->new()->plan(609);
my $status = Test::Zmap::Status->new($t);

my $text = $t->text(200_000, 1);
my $size = length $text;
my $few = substr $text, 0, 25_000;

my @sized = frames($text, $FRAME);
my @loose = frames($text, $FRAME, size => 0);
my @short = frames($text, 5_000, size => 0);
my @small = frames($few, 5_000, size => 0);
my @wide = ([$t->skippable('x' x 70_000), ''], @small);   # above one read
my @empty = ([$t->compress(''), ''], [$t->frame(blocks => [[raw => '']]), '']);
my @gaps = map { ($_, [$t->skippable('x' x 9_000, 14), ''], @empty) } @loose;

my %coded = (
    sized   => $t->seekable(\@sized),
    loose8  => $t->seekable(\@loose),
    loose12 => $t->seekable(\@loose, checksums => 1),
    short   => $t->seekable(\@short),
    mixed   => $t->seekable([map { $_ % 2 ? $sized[$_] : $loose[$_] }
                             0 .. $#loose], descriptor => 3),
    gaps    => $t->seekable([$gaps[1], @gaps], checksums => 1),
);

# what the walk finds
my %lies = (
    coded     => $t->seekable(\@loose, coded => { 3 => 1_000 }),
    rest      => $t->seekable(\@loose, entries => $#loose),
    more      => $t->seekable(\@loose, entries => @loose + 1),
    room      => $t->seekable(\@loose, decoded => { 7 => 200_000 }),
    limit     => $t->seekable(\@loose, decoded => { 0 => 0x40000001 }),
    declared  => $t->seekable([$sized[0], @loose[1 .. $#loose]],
                              decoded => { 0 => $FRAME + 1 }),
    gap       => $t->seekable(\@gaps, decoded => { 1 => 1 }),
    reserved  => $t->seekable(\@loose, descriptor => 0x40),
    number    => $t->seekable(\@loose, number => 0x20000000 + @loose),
    flag      => $t->seekable(\@loose, descriptor => 0x80),
);

# what only decoding finds: frame, and how much longer the table says it is
my %late = (
    'first-short'  => [0, -1],
    'first-long'   => [0, 1],
    'middle-short' => [9, -4_000],
    'middle-long'  => [9, 4_000],
    'middle-none'  => [9, -$FRAME],
    'last-short'   => [$#loose, -1],
    'last-long'    => [$#loose, 1],
);

my @dirs = qw(map read scratch staged threads);

for my $dir (@dirs) {
    put("$dir/$_.txt", $coded{$_}) for keys %coded;
    put("$dir/small.txt", $t->seekable(\@small));
    put("$dir/late-$_.txt", lying(\@loose, @{$late{$_}})) for keys %late;
    put("$dir/range-$_.txt", lying(\@loose, @{$late{$_}})) for keys %late;
    put("$dir/small-$_->[0].txt", lying(\@small, 2, $_->[1]))
        for [short => -1], [long => 1];
    put("$dir/small-$_->[0]-wide.txt", lying(\@wide, 3, $_->[1]))
        for [short => -1], [long => 1];
}

put("lies/$_.txt", $lies{$_}) for keys %lies;
put('lies/other.txt', $t->seekable(\@loose, variant => 0));
put('lies/sized.txt', $t->seekable(\@sized, decoded => { 2 => 1 }));
put('lies/conditional.txt', lying(\@small, 2, 1));
put('lies/head.txt', lying(\@small, 2, 1));
put('lies/broken.txt', broken());
put('checked/before.txt', lying(\@loose, 9, 1));
put('checked/frames.txt', lying(\@loose, 9, 1));

$t->settle('checked/frames.txt.zst');

$t->run($t->conf(<<"EOF", http => <<'EOH'));
    zstd_mmap on;
    zstd_mmap_chunk 8k;
    @{[$status->location]}

    location /read/ { zstd_mmap_input read; }
    location /scratch/ { zstd_mmap_input scratch=1m; }
    location /staged/ { zstd_mmap_stage z min_uses=1; }
    location /threads/ { zstd_mmap_threads default min=1k; }
    location /checked/ { zstd_mmap_verify checksum; }
EOF
zstd_mmap_zone z:8m hugepages=off;
zstd_mmap_buffers 256k max=48k hugepages=off;
EOH


sub frames {
    my ($content, $n, %opt) = @_;

    return map { [$t->compress($_, %opt), $_] } unpack "(a$n)*", $content;
}


sub put {
    my ($rel, $coded) = @_;

    $t->raw_zst($rel, $coded);
    $t->mtime("$rel.zst", $MTIME);
}


# the table says that frame $i is longer by $n
sub lying {
    my ($frames, $i, $n) = @_;

    return $t->seekable($frames,
                        decoded => { $i => length($frames->[$i][1]) + $n });
}


# a frame with a wrong checksum, and a table that agrees
sub broken {
    my @frames = map { [@$_] } @small;

    substr($frames[1][0], -1) ^= "\1";

    return $t->seekable(\@frames);
}


# status, Content-Range, Content-Length, Accept-Ranges and how it ended
sub seen {
    my ($r) = @_;

    return join ' ', $r->status, $r->header('Content-Range') // '-',
        $r->header('Content-Length') // '-', $r->header('Accept-Ranges')
        // '-', $r->complete ? 'complete' : 'cut';
}


# what is wrong with a reply to a range of first..last; empty: nothing
sub fault {
    my ($r, $first, $last) = @_;

    my $n = $last - $first + 1;
    my $want = "206 bytes $first-$last/$size $n - complete";

    return seen($r) if seen($r) ne $want;
    return $r->body eq substr($text, $first, $n) ? '' : 'other bytes';
}


# the same of a reply with all of $content, of known length or not
sub whole {
    my ($r, $content, $known) = @_;

    my $want = $known ? '200 - ' . length($content) . ' bytes complete'
        : '200 - - - complete';

    return seen($r) if seen($r) ne $want;
    return $r->body eq $content ? '' : 'other bytes';
}


# what is wrong with a reply that ends early, $n bytes behind $first at most
sub cut {
    my ($r, $first, $n) = @_;

    my $body = $r->body // '';

    return 'complete' if $r->complete;
    return 'other bytes' if $body ne substr $text, $first, length $body;
    return length $body <= $n ? '' : length($body) . ' bytes';
}


# lines of the log for that file
sub lines {
    my ($uri) = @_;

    return $t->log_count(qr/\[warn\].*seek table of "\S*\Q$uri\E\.zst"/);
}


my %rows = (
    'the first byte'  => ['0-0', 0, 0],
    'over a border'   => ['9990-10010', 9990, 10010],
    'from a border'   => ['10000-10001', 10000, 10001],
    'up to a border'  => ['9000-9999', 9000, 9999],
    'the middle'      => ['100000-149999', 100000, 149999],
    'the last byte'   => [($size - 1) . '-', $size - 1, $size - 1],
    'a suffix'        => ['-12345', $size - 12345, $size - 1],
    'all'             => ['0-', 0, $size - 1],
);

# ranges come first: nothing was decoded before them
for my $dir (@dirs) {
    for my $name (sort keys %coded) {
        my $uri = "/$dir/$name.txt";
        for my $what (sort keys %rows) {
            my ($range, $first, $last) = @{$rows{$what}};
            is(fault($t->get($uri, "Range: bytes=$range"), $first, $last), '',
               "$uri: $what");
        }
        is(whole($t->get($uri), $text, 1), '', "$uri: the whole");
    }
}

# the cost: a frame or two of them, and not what lies before and behind
my $change = $status->change(sub {
    $t->get('/map/loose8.txt', 'Range: bytes=105000-105099') });
is($change->{'bytes.decoded_sent'}, 100, 'sent: the range');
cmp_ok($change->{'bytes.decoded_produced'}, '<=', 2 * $FRAME,
       'decoded: its frame');

# headers: a size that is not declared does not make the tag
my %tag = (sized => sprintf('"%x-%x"', $MTIME, $size),
           loose8 => sprintf('"%x-%x-d"', $MTIME, length $coded{loose8}));
for my $name (sort keys %tag) {
    my $r = $t->head("/map/$name.txt");
    is(join(' ', $r->status, $r->header('Content-Length'),
            $r->header('ETag')), "200 $size $tag{$name}", "HEAD: $name");
    is(fault($t->get("/map/$name.txt", 'Range: bytes=5-9',
                     "If-Range: $tag{$name}"), 5, 9), '',
       "If-Range with the tag: $name");
    is(whole($t->get("/map/$name.txt", 'Range: bytes=5-9',
                     'If-Range: "other"'), $text, 1), '',
       "If-Range with another: $name");
    is($t->get("/map/$name.txt", "Range: bytes=$size-")->status, 416,
       "behind the end: $name");
    is($t->get("/map/$name.txt", "If-None-Match: $tag{$name}")->status, 304,
       "If-None-Match: $name");
}

# the table is no part of what is decoded, and one of what is sent as it is
my $r = $t->get('/map/gaps.txt', 'Accept-Encoding: zstd');
ok($r->header('Content-Encoding') eq 'zstd' && $r->complete
   && $r->body eq $coded{gaps}, 'frames: the file as it is');

# one buffer: several ranges
for my $dir (@dirs) {
    my $uri = "/$dir/small.txt";
    is(whole($t->get($uri), $few, 1), '', "$uri: the whole");
    $r = $t->get($uri, 'Range: bytes=4999-5000,20000-');
    my ($border) = ($r->header('Content-Type') // '') =~ /boundary=(\S+)/;
    my @parts = split /\r\n--\Q$border\E(?:--)?\r\n/, $r->body;
    is(join(' ', $r->status, $r->complete,
            map { s/.*?\r\n\r\n//sr } @parts[1 .. $#parts]),
       join(' ', 206, 1, substr($few, 4999, 2), substr $few, 20000),
       "$uri: several ranges");
}
$change = $status->change(sub { $t->get('/map/small.txt') });
is($change->{cached}, 1, 'one buffer: kept');

is($t->log_count($LIE), 0, 'no table lies so far');

# a lie that the walk finds: as if there were no table
for my $name (sort keys %lies) {
    my $uri = "/lies/$name.txt";
    is(whole($t->get($uri, 'Range: bytes=5-9'), $text, 0), '', "$uri: first");
    is(fault($t->get($uri, 'Range: bytes=150000-150099'), 150000, 150099), '',
       "$uri: a learnt length");
    is(lines($uri), 1, "$uri: logged once");
}

is(whole($t->get('/lies/other.txt'), $text, 0), '', 'not a table: first');
is(lines('/lies/other.txt'), 0, 'not a table: not logged');
is(fault($t->get('/lies/sized.txt', 'Range: bytes=25000-35000'), 25000,
         35000), '', 'sizes that are declared need no table');
is(lines('/lies/sized.txt'), 1, 'and it is logged');

# a lie that decoding finds: a cut reply, and then as if there were no table
for my $dir (@dirs) {
    for my $name (sort keys %late) {
        my $uri = "/$dir/late-$name.txt";
        my ($frame, $more) = @{$late{$name}};

        $r = $t->get($uri);
        is($r->header('Content-Length'), $size + $more, "$uri: a length");
        is(cut($r, 0, ($frame + 1) * $FRAME), '', "$uri: not all of it");
        is(whole($t->get($uri), $text, 0), '', "$uri: then all of it");
        is(whole($t->get($uri), $text, 1), '', "$uri: then its length");

        # the bytes of a range are those of its frame, and end with it

        next if $more == -$FRAME;

        $uri = "/$dir/range-$name.txt";
        my $first = $frame * $FRAME + 5_990;
        is(cut($t->get($uri, "Range: bytes=$first-"), $first, $FRAME - 5_990),
           '', "$uri: not all of it");
        is(whole($t->get($uri), $text, 0), '', "$uri: then all of it");
    }

    # in one buffer nothing was sent as yet
    for my $name (qw(short long short-wide long-wide)) {
        my $uri = "/$dir/small-$name.txt";
        is(whole($t->get($uri, 'Range: bytes=5-9'), $few, 0), '',
           "$uri: all of it");
        is(whole($t->get($uri), $few, 1), '', "$uri: then its length");
        is(lines($uri), 1, "$uri: logged once");
    }
}

is(lines("/map/late-$_.txt"), 1, "$_: logged once") for sort keys %late;
is($t->log_count(qr/is not usable/), 0, 'no file is a bad one');
$r = $t->get('/map/late-last-long.txt', 'Accept-Encoding: zstd');
ok($r->status == 200 && $r->header('Content-Encoding') eq 'zstd',
   'nor for those who get its frames');

# the header of a conditional request is sent before anything is decoded
my @other = ('If-None-Match: "other"');
ok(!$t->get('/lies/conditional.txt', @other)->complete, 'conditional: cut');
is(whole($t->get('/lies/conditional.txt', @other), $few, 0), '',
   'conditional: then all of it');
is($t->head('/lies/head.txt')->header('Content-Length'), length($few) + 1,
   'HEAD: what the table says');

# a version that is too young to be remembered is walked again on the way
put('fresh.txt', lying(\@small, 1, -1));
is(whole($t->get('/fresh.txt'), $few, 0), '', 'a young file: all of it');

# where all is decoded before the header, no reply is cut
is(whole($t->get('/checked/before.txt'), $text, 1), '',
   'verified before: all of it');
$r = $t->get('/checked/frames.txt', 'Accept-Encoding: zstd');
ok($r->status == 200 && $r->complete, 'verified for its frames');
is(whole($t->get('/checked/frames.txt'), $text, 1), '',
   'verified for its frames: its length');
is(lines("/checked/$_.txt"), 1, "verified, $_: logged once")
    for qw(before frames);

# what is wrong with a frame is not the table's fault
is($t->get('/lies/broken.txt')->status, 500, 'a wrong checksum: 500');
is(lines('/lies/broken.txt'), 0, 'its table is not blamed');
