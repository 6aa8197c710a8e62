#!/usr/bin/perl

# Files that the walk refuses: no client gets a byte of them.

use strict;
use warnings;

use Compress::Zlib ();
use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $text = $t->text(300_000, 1);
my $good = $t->compress($text);
my $small = $t->frame(fcs => 10, single => 1, checksum => 1,
    blocks => [[raw => '0123456789']]);


# the good frame, with another Frame_Content_Size (4 bytes, after the header)
sub claims {
    my ($size) = @_;
    return substr($good, 0, 5) . pack('V', $size) . substr($good, 9);
}


my %bad = (
    'empty file'           => '',
    'text renamed'         => $text,
    'gzip renamed'         => Compress::Zlib::memGzip($text),
    'legacy magic 1'       => "\x1e\xb5\x2f\xfd" . substr($good, 4),
    'legacy magic 5'       => "\x25\xb5\x2f\xfd" . substr($good, 4),
    'legacy magic 6'       => "\x26\xb5\x2f\xfd" . substr($good, 4),
    'legacy magic 7'       => "\x27\xb5\x2f\xfd" . substr($good, 4),
    'skippable only'       => pack('H*', '5e2a4d180500000068656c6c6f'),
    'zeros'                => "\0" x 4096,

    (map { ("cut to $_ bytes" => substr $good, 0, $_) }
         1, 3, 4, 5, 6, 9, 10, 11, 12, 13, 1000, 65536),
    (map { ("cut by $_ bytes" => substr $good, 0, -$_) } 1 .. 4, 5, 1000),
    'cut after a frame'    => $good . substr($small, 0, 4),
    'cut in skippable'     => $small . substr($t->skippable('hello'), 0, -1),
    'cut skippable header' => $small . substr($t->skippable('hello'), 0, 7),
    'no last block'        => $t->frame(last => 0, blocks => [[raw => 'ab']]),
    'no block'             => $t->frame(),

    'junk of 1 byte'       => "$good\0",
    'junk of 4 bytes'      => "$good\xde\xad\xbe\xef",
    'junk of gzip'         => $good . "\x1f\x8b\x08\0\0\0\0\0",
    'newline at the end'   => "$small\n",
    'junk before'          => "\n$small",

    'reserved bit'         => $t->frame(reserved => 1,
                                        blocks => [[raw => 'ab']]),
    'reserved block type'  => $t->frame(blocks => [[reserved => 2, 'ab']]),
    'RLE block above 128k' => pack('H*', '28b52ffd00380b001041'),
    'RLE block of 2 MB'    => $t->frame(blocks => [[rle => 'A', 2097151]]),
    'raw block above 128k' => $t->frame(blocks => [[raw => 'x' x 131073]]),
    'coded block above 128k' => $t->frame(blocks => [[compressed =>
                                                      'x' x 131073]]),
    'RLE above the window' => $t->frame(window => 1024,
                                        blocks => [[rle => 'A', 1025]]),
    'raw above the content' => $t->frame(single => 1, fcs => 4,
                                         blocks => [[raw => '01234']]),

    'content size plus 1'  => $t->frame(fcs => 301,
                                        blocks => [[raw => 'x' x 300]]),
    'content size minus 1' => $t->frame(fcs => 299,
                                        blocks => [[raw => 'x' x 300]]),
    'content size of 0'    => $t->frame(fcs => 0, fcs_bytes => 4,
                                        blocks => [[raw => 'x']]),
    'content without block' => $t->frame(single => 1, fcs => 5,
                                         blocks => [[raw => '']]),
    'a 1 TiB bomb'         => pack('H*', '28b52ffde0000000000001' . '0000'
                                         . '2b000042'),
    'content of 2^64 - 1'  => $t->frame(fcs => ~0,
                                        blocks => [[raw => 'x' x 300]]),
    'content of 2^63'      => $t->frame(fcs => 1 << 63,
                                        blocks => [[raw => 'x' x 300]]),
    'sizes above 2^64'     => $t->frame(fcs => ~0 - 15,
                                        blocks => [[raw => 'x' x 300]]) x 2,
    'content above blocks' => claims(4 * 131072),
);

my @names = sort keys %bad;

# what the header of the first frame shows
my @at_once = ('empty file', 'text renamed', 'gzip renamed', 'legacy magic 7',
               'skippable only', 'zeros', 'cut to 1 bytes', 'cut to 5 bytes',
               'junk before', 'reserved bit');

$t->plan(5 * @names + 4 * @at_once);

my (%file, $last);

for my $i (0 .. $#names) {
    $file{$names[$i]} = $last = "f$i.txt";
    $t->raw_zst("alone/f$i.txt", $bad{$names[$i]});
    $t->raw_zst("beside/f$i.txt", $bad{$names[$i]});
    $t->write("beside/f$i.txt", "plain $i");
}

for my $name (@at_once) {
    $t->raw_zst("off/$file{$name}", $bad{$name});
    $t->raw_zst("off/beside/$file{$name}", $bad{$name});
    $t->write("off/beside/$file{$name}", "plain of $name");
}

$t->settle("alone/$last.zst", "beside/$last.zst");

$t->run($t->conf(<<'EOC'));
    location / { zstd_mmap on; }
    location /off/ { zstd_mmap on; zstd_mmap_verify off; }
EOC

my $zstd = ['Accept-Encoding: zstd'];

# The walk alone finds what is wrong where the zstd client comes first;
# otherwise a decode might, and its verdict would hide what the walk missed.
my @zstd_first = ($zstd, [], ['Accept-Encoding: identity']);
my @zstd_later = ([], $zstd, ['Accept-Encoding: identity']);


# what the clients get, one after another
sub answers {
    my ($uri, @clients) = @_;

    return join ', ', map {
        my $r = $t->get($uri, @$_);
        my $coding = $r->header('Content-Encoding') // '-';
        $r->status . ($r->status == 200 ? " $coding " . $r->body : '');
    } @clients;
}


for my $name (@names) {
    my ($i) = $file{$name} =~ /(\d+)/;

    is(answers("/alone/$file{$name}", @zstd_first), '500, 500, 500',
       "$name: 500");
    is(answers("/beside/$file{$name}", @zstd_later),
       join(', ', ("200 - plain $i") x 3), "$name: the plain file beside");
}

my %lines;
for my $line ($t->log_lines(qr{\[error\].*is not usable})) {
    $lines{$1}++ if $line =~ m{/(\w+/f\d+\.txt)\.zst"};
}

for my $name (@names) {
    is($lines{"alone/$file{$name}"}, 1, "$name: one line, none beside");
    is($lines{"beside/$file{$name}"}, 1, "$name: one line, plain beside");
}

for my $name (@names) {
    $t->replace("alone/$file{$name}.zst", $small);
    is(answers("/alone/$file{$name}", @zstd_later),
       "200 - 0123456789, 200 zstd $small, 200 - 0123456789",
       "$name: served after the repair");
}

# without the walk

for my $name (@at_once) {
    is(answers("/off/$file{$name}", $zstd), '500', "$name: 500 unverified");
    is(answers("/off/$file{$name}", []), '500', "$name: 500 also decoded");
    is(answers("/off/beside/$file{$name}", $zstd), "200 - plain of $name",
       "$name: the plain file, unverified");
    is(answers("/off/beside/$file{$name}", []), "200 - plain of $name",
       "$name: the plain file, also decoded");
}
