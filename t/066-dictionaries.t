#!/usr/bin/perl

# Frames that need a dictionary: never sent, never decoded.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(35);

my $base = $t->text(200_000, 1);
my $text = substr($base, 1000, 100_000) . 'a change';

# a dictionary as the tool trains it, from many small samples
mkdir $t->path('samples') or die "mkdir: $!";
$t->write(sprintf('samples/%03d', $_), $t->text(800, 1) . $t->text(200, $_))
    for 1 .. 200;
my ($code, $out) = $t->capture('zstd', '-q', '--train', '-r',
    $t->path('samples'), '--maxdict=4096', '-o', $t->path('trained.dict'));
is($code, 0, 'a dictionary is trained') or diag($out);

my ($magic, $id) = unpack 'VV', $t->read('trained.dict');
is($magic, 0xec30a437, 'it is one');

$t->write('base.txt', $base);

my $dict_args = ['-D', $t->path('trained.dict')];
my $plain = $t->text(800, 1) . 'end';

my %coded = (
    trained => $t->compress($plain, args => $dict_args),
    hand    => $t->frame(dict => 7, dict_bytes => 1, blocks => [[raw => 'x']]),
    second  => $t->compress('first') . $t->compress($plain,
                                                    args => $dict_args),
);

isnt(unpack('C', substr $coded{trained}, 4) & 3, 0,
     'the frame has a Dictionary_ID');

# both name no dictionary: the header does not tell that one is needed
my %silent = (
    raw   => $t->compress($text, args => ['-D', $t->path('base.txt')]),
    patch => $t->compress($text, args => ['--patch-from='
                                          . $t->path('base.txt')]),
);

for my $name (keys %silent) {
    ok(!(unpack('C', substr $silent{$name}, 4) & 3), "$name: no Dictionary_ID");
}

for my $name (keys %coded, keys %silent) {
    my $bytes = $coded{$name} // $silent{$name};
    $t->raw_zst("alone/$name.txt", $bytes);
    $t->raw_zst("beside/$name.txt", $bytes);
    $t->write("beside/$name.txt", "plain $name");
}

$t->settle(map { ("alone/$_.txt.zst", "beside/$_.txt") }
           keys %coded, keys %silent);

$t->run($t->conf(<<'EOC'));
    location / { zstd_mmap on; }

    location /always/ { zstd_mmap always; alias %%DIR%%/alone/; }
    location /off/ { zstd_mmap on; zstd_mmap_verify off;
                     alias %%DIR%%/alone/; }
EOC

for my $name (sort keys %coded) {
    for my $accept ('zstd', 'identity') {
        is($t->get("/alone/$name.txt", "Accept-Encoding: $accept")->status,
           500, "$name, $accept: 500");
        is($t->get("/beside/$name.txt", "Accept-Encoding: $accept")->body,
           "plain $name", "$name, $accept: the plain file");
    }

    is($t->get("/always/$name.txt")->status, 500, "$name, always: not sent");

    is($t->log_count(qr/\[error\].*"[^"]*beside\/$name\.txt\.zst"/), 1,
       "$name: one line");
}

is($t->get('/off/trained.txt', 'Accept-Encoding: zstd')->status, 500,
   'verify off: not sent');

for my $name (sort keys %silent) {
    my $r = $t->get("/alone/$name.txt");
    is($r->status, 500, "$name: 500 before the header");
    is($t->get("/beside/$name.txt")->body, "plain $name",
       "$name: the plain file");
    is($t->get("/alone/$name.txt", 'Accept-Encoding: zstd')->status, 500,
       "$name: not sent once it is known");
    is($t->log_count(qr/\[error\].*"[^"]*alone\/$name\.txt\.zst"/), 1,
       "$name: one line");
}

# the worker lives on and its decoders are clean
$t->raw_zst('good.txt', $t->compress($text));
is($t->get('/good.txt')->body, $text, 'a good file after them');

is($t->get('/beside/trained.txt', 'Accept-Encoding: zstd')
     ->header('Content-Encoding'), undef, 'the plain file has no coding');

is($t->get('/alone/hand.txt', 'Accept-Encoding: zstd;q=0, *;q=0')->status,
   406, 'neither zstd nor identity: 406');
