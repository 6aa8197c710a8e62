#!/usr/bin/perl

# Damage that only decoding finds: an error before the header, and a verdict.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $text = $t->text(300_000, 1);
my $good = $t->compress($text);
my $random = $t->compress($t->random(300_000, 2));


sub flip {
    my ($bytes, $at, $bit) = @_;
    substr($bytes, $at, 1) ^= chr(1 << ($bit // 0));
    return $bytes;
}


# the good frame, with another Frame_Content_Size (4 bytes, after the header)
sub claims {
    my ($size) = @_;
    return substr($good, 0, 5) . pack('V', $size) . substr($good, 9);
}


my %damaged = (
    'bit in a raw block'       => flip($random, 200_000, 3),
    'bit in coded data'        => flip($good, int(length($good) / 2)),
    'bit in the checksum'      => flip($good, -1, 7),
    'content size one too big' => claims(300_001),
    'content size too small'   => claims(299_999),
    'first of two frames'      => flip($random, 100_000) . $good,
    'second of two frames'     => $good . flip($random, 100_000),
    'wrong checksum of nothing' => $t->frame(single => 1, fcs => 0,
        checksum => 5, blocks => [[raw => '']]),
    'garbage for a coded block' => $t->frame(blocks => [[raw => 'abc'],
        [compressed => $t->random(1000, 3)]], fcs => 2000),
);

my @names = sort keys %damaged;

$t->plan(6 * @names + 7);

for my $i (0 .. $#names) {
    $t->raw_zst("alone/f$i.txt", $damaged{$names[$i]});
    $t->raw_zst("beside/f$i.txt", $damaged{$names[$i]});
    $t->write("beside/f$i.txt", "plain $i");
}

my $literal = $t->frame(fcs => 300_000,
    blocks => [map { [raw => $_] } unpack '(a100000)*', $text]);
$t->raw_zst('unnoticed.txt', flip($literal, 1000));

$t->raw_zst('conditional.txt', flip($random, 200_000));
$t->settle('conditional.txt.zst');

$t->run($t->conf('location / { zstd_mmap on; }'));


sub status {
    my ($uri, @headers) = @_;
    my $r = $t->get($uri, @headers);
    return $r->status . ($r->complete ? '' : ' incomplete');
}


for my $i (0 .. $#names) {
    my $name = $names[$i];

    my $r = $t->get("/alone/f$i.txt");
    is($r->status, 500, "$name: 500 before the header");
    is_deeply([map { $r->header($_) } 'Vary', 'ETag', 'Content-Encoding'],
              [undef, undef, undef], "$name: none of our headers");
    is(status("/alone/f$i.txt"), 500, "$name: 500 again");
    is(status("/alone/f$i.txt", 'Accept-Encoding: zstd'), 500,
       "$name: then refused to a zstd client too");
    is($t->get("/beside/f$i.txt")->body, "plain $i", "$name: plain file");
    is($t->log_count(qr/\[error\].*"[^"]*alone\/f$i\.txt\.zst"/), 1,
       "$name: one line");
}

# nothing in the file tells; the bytes of it are what a client gets
my $r = $t->get('/unnoticed.txt');
is($r->status, 200, 'a flip in a raw block without checksum is not seen');
is(length $r->body, 300_000, 'length of it');

# the header comes first here, since it may be a 304
$r = $t->get('/conditional.txt', 'If-None-Match: "other"');
ok(!$r->complete, 'conditional request: never complete');
is(status('/conditional.txt', 'If-None-Match: "other"'), 500,
   'conditional request: 500 once it is known');

$t->replace('conditional.txt.zst', $good);
$r = $t->get('/conditional.txt', 'If-None-Match: "other"');
is($r->body, $text, 'conditional request: served after the repair');

$t->replace('alone/f0.txt.zst', $good);
is($t->get('/alone/f0.txt')->body, $text, 'decoded after the repair');
is($t->get('/alone/f0.txt', 'Accept-Encoding: zstd')->body, $good,
   'frames after the repair');
