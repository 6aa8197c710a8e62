#!/usr/bin/perl

# Windows: up to 8 MiB a frame is sent, above it decoded, above that refused.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $mib = 1 << 20;

my %window = (
    '1k'       => 1024,
    '8m'       => 8 * $mib,
    '9m'       => 9 * $mib,             # the next one that can be written
    '16m'      => 16 * $mib,
    '32m'      => 32 * $mib,
    '128m'     => 128 * $mib,
    '144m'     => 144 * $mib,
    '1g'       => 1024 * $mib,
    'largest'  => (1 << 41) + 7 * (1 << 38),
);

for my $name (keys %window) {
    $t->raw_zst("$name.txt", $t->frame(window => $window{$name}, checksum => 1,
                                       blocks => [[raw => "is $name"]]));
    $t->raw_zst("beside/$name.txt", $t->read("$name.txt.zst"));
    $t->write("beside/$name.txt", 'plain');
}

# a single segment has the window of its content, down to the byte
for my $size (8 * $mib, 8 * $mib + 1) {
    my @blocks = map { [rle => 'x', 131072] } 1 .. 64;
    push @blocks, [raw => 'x'] if $size > 8 * $mib;
    $t->raw_zst("single-$size.txt", $t->frame(single => 1, fcs => $size,
                                              blocks => \@blocks));
}

# the largest window of the frames counts
$t->raw_zst('later.txt', $t->read('1k.txt.zst') . $t->read('9m.txt.zst'));
$t->raw_zst('first.txt', $t->read('9m.txt.zst') . $t->read('1k.txt.zst'));
$t->raw_zst('between.txt', $t->read('1k.txt.zst') . $t->read('9m.txt.zst')
                           . $t->read('1k.txt.zst'));

# what pipes through the tool declare, whatever they carry
my $ultra = piped('piped 22', '--ultra', '-22');
my $long = piped('piped long', '--long=27');

$t->raw_zst('ultra.txt', $ultra);
$t->raw_zst('long.txt', $long);
$t->raw_zst('beside/ultra.txt', $ultra);
$t->write('beside/ultra.txt', 'plain');
$t->settle('beside/ultra.txt');


sub piped {
    my ($bytes, @args) = @_;
    $t->write('piped.in', $bytes);
    my ($code, $out) = $t->capture('sh', '-c', 'cat "$0" | zstd -c "$@"',
                                   $t->path('piped.in'), @args);
    die "zstd: $out" if $code;
    return $out;
}


my $conf = $t->conf(<<'EOC');
    zstd_mmap on;

    location /small/ { alias %%DIR%%/; zstd_mmap_send_window 1k; }
    location /large/ { alias %%DIR%%/; zstd_mmap_send_window 128m; }
    location /tight/ { alias %%DIR%%/; zstd_mmap_decode_window 8m; }
    location /wide/  { alias %%DIR%%/; zstd_mmap_decode_window 2g; }
    location /always/ { alias %%DIR%%/; zstd_mmap always; }
    location /never/ { alias %%DIR%%/; zstd_mmap_verify off; }
EOC

# location and file, what a zstd client gets, what any other gets
my @table = (
    ['/1k.txt',              'frames',  'decoded'],
    ['/8m.txt',              'frames',  'decoded'],
    ['/9m.txt',              'decoded', 'decoded'],
    ['/16m.txt',             'decoded', 'decoded'],
    ['/32m.txt',             'decoded', 'decoded'],
    ['/128m.txt',            'decoded', 'decoded'],
    ['/144m.txt',            '500',     '500'],
    ['/1g.txt',              '500',     '500'],
    ['/largest.txt',         '500',     '500'],
    ['/beside/128m.txt',     'decoded', 'decoded'],
    ['/beside/144m.txt',     'plain',   'plain'],
    ['/beside/largest.txt',  'plain',   'plain'],
    ['/ultra.txt',           'decoded', 'decoded'],
    ['/long.txt',            'decoded', 'decoded'],
    ['/later.txt',           'decoded', 'decoded'],
    ['/first.txt',           'decoded', 'decoded'],
    ['/between.txt',         'decoded', 'decoded'],
    ['/tight/later.txt',     '500',     '500'],
    ['/tight/first.txt',     '500',     '500'],
    ['/tight/between.txt',   '500',     '500'],
    ['/single-8388608.txt',  'frames',  'decoded'],
    ['/single-8388609.txt',  'decoded', 'decoded'],
    ['/small/1k.txt',        'frames',  'decoded'],
    ['/small/8m.txt',        'decoded', 'decoded'],
    ['/large/9m.txt',        'frames',  'decoded'],
    ['/large/128m.txt',      'frames',  'decoded'],
    ['/large/144m.txt',      '500',     '500'],
    ['/tight/8m.txt',        'frames',  'decoded'],
    ['/tight/9m.txt',        '500',     '500'],
    ['/tight/ultra.txt',     '500',     '500'],
    ['/tight/single-8388609.txt', '500', '500'],
    ['/tight/beside/ultra.txt', 'plain', 'plain'],
    ['/wide/144m.txt',       'decoded', 'decoded'],
    ['/wide/1g.txt',         'decoded', 'decoded'],
    ['/wide/largest.txt',    '500',     '500'],
    ['/always/8m.txt',       'frames',  'frames'],
    ['/always/9m.txt',       'decoded', 'decoded'],
    ['/always/144m.txt',     '500',     '500'],
    ['/never/8m.txt',        'frames',  'decoded'],
    ['/never/9m.txt',        'decoded', 'decoded'],
);

my %decoded = (
    (map { $_ => "is $_" } keys %window),
    ultra => 'piped 22', long => 'piped long', later => 'is 1kis 9m',
    first => 'is 9mis 1k', between => 'is 1kis 9mis 1k',
    'single-8388608' => 'x' x (8 * $mib),
    'single-8388609' => 'x' x (8 * $mib + 1),
);

$t->plan(2 * @table + 5);

# FHD 0x04 and a window of 128 MiB: log 27
is(unpack('H12', $ultra), '28b52ffd0488', 'the tool declares 128 MiB');
ok(unpack('H12', $long) eq '28b52ffd0488', 'the tool declares 128 MiB, long');

$t->run($conf);


sub what {
    my ($uri, @headers) = @_;

    my ($name) = $uri =~ m{([^/]*)\.txt$};
    my $r = $t->get($uri, @headers);

    return $r->status . ($r->complete ? '' : ' incomplete')
        unless $r->status == 200 && $r->complete;
    return 'plain' if $r->body eq 'plain';
    return 'decoded' if $r->body eq $decoded{$name}
                        && !defined $r->header('Content-Encoding');
    return 'frames' if $r->body eq $t->read("$name.txt.zst")
                       && $r->header('Content-Encoding') eq 'zstd';
    return 'something else';
}


for my $row (@table) {
    my ($uri, $zstd, $other) = @$row;

    is(what($uri, 'Accept-Encoding: zstd'), $zstd, "$uri, zstd: $zstd");
    is(what($uri), $other, "$uri, identity: $other");
}

is($t->get('/9m.txt', 'Accept-Encoding: zstd, identity;q=0')->status, 406,
   'a window too large to send, identity excluded: 406');

is($t->get('/9m.txt', 'Accept-Encoding: zstd')->header('Vary'),
   'Accept-Encoding', 'a window too large to send: Vary');

is($t->log_count(qr/\[error\].*"[^"]*html\/1g\.txt\.zst" is not usable/), 1,
   'a window too large to decode: one line');
