#!/usr/bin/perl

# Plain files beside .zst files: who answers, by mode and zstd_mmap_decode.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my @modes = qw(on always decode);
my @decodes = qw(on off missing);

my $t = Test::Zmap->new()->plan(3 * 3 * 2 + 20);

my $coded = $t->zst('both.txt', 'from the .zst');
$t->write('both.txt', 'from the plain file');
my $only = $t->zst('only.txt', 'only a .zst');
$t->write('plain.txt', 'only a plain file');
$t->zst('named.dir', 'beside a directory');
mkdir $t->path('named.dir') or die "mkdir: $!";
$t->write('named.dir/index.html', 'in the directory');
$t->write('wrong.zstd', 'another suffix');
$t->write('other.txt.zstd', $t->compress('another suffix'));
$t->raw_zst('bad.txt', 'This is text with a wrong name.');
$t->write('bad.txt', 'sound');
$t->raw_zst('alone.txt', 'This is text with a wrong name.');
$t->raw_zst('badbesidedir', 'text');
mkdir $t->path('badbesidedir') or die "mkdir: $!";
$t->raw_zst('wide.txt', $t->frame(window => 16 << 20, fcs => 300,
                                  blocks => [[rle => 'w', 300]]));
$t->write('wide.txt', 'narrow');
$t->settle('bad.txt.zst', 'alone.txt.zst');

my $locations = '';
for my $mode (@modes) {
    $locations .= "location /$mode-$_/ { alias %%DIR%%/; zstd_mmap $mode; "
                  . "zstd_mmap_decode $_; }\n" for @decodes;
}

$t->run($t->conf($locations));


# [status, coding, body] as one line
sub said {
    my ($uri, $coding) = @_;

    my $r = $t->get($uri, "Accept-Encoding: $coding");
    return $r->status if $r->status != 200;

    return ($r->header('Content-Encoding') // 'identity') . ': ' . $r->body;
}


my %frames = (both => "zstd: $coded", only => "zstd: $only");
my %decoded = (both => 'identity: from the .zst',
               only => 'identity: only a .zst');
my %plain = (both => 'identity: from the plain file', only => 404);


sub expected {
    my ($mode, $decode, $coding, $name) = @_;

    return $frames{$name} if $mode eq 'always'
                             || $mode eq 'on' && $coding eq 'zstd';
    return $decoded{$name} if $decode eq 'on'
                              || $decode eq 'missing' && $name eq 'only';
    return $plain{$name};
}


for my $mode (@modes) {
    for my $decode (@decodes) {
        for my $coding (qw(zstd gzip)) {
            my @names = qw(both only);
            is(join(' | ', map { said("/$mode-$decode/$_.txt", $coding) }
                           @names),
               join(' | ', map { expected($mode, $decode, $coding, $_) }
                           @names),
               "zstd_mmap $mode, decode $decode, $coding client");
        }
    }
}

# no .zst at all

for my $coding (qw(zstd gzip)) {
    is(said('/on-on/plain.txt', $coding), 'identity: only a plain file',
       "a plain file alone, $coding client");
}
is(said('/on-on/absent.txt', 'zstd'), 404, 'neither of them');
is(said('/on-on/other.txt', 'zstd'), 404, '.zstd is not the suffix');
is(said('/on-on/wrong', 'zstd'), 404, 'nor for anybody');

# a directory beside: the file answers, as gzip_static does it

is(said('/on-on/named.dir', 'gzip'), 'identity: beside a directory',
   'a directory of that name');
is(said('/on-on/named.dir/', 'gzip'), 'identity: in the directory',
   'with a slash it is the directory');
is(said('/on-missing/named.dir', 'gzip'), 'identity: beside a directory',
   'decode missing: a directory is no plain file');
is(said('/on-off/named.dir', 'gzip'), 301, 'decode off: nginx redirects');

# a bad file

for my $coding (qw(zstd gzip)) {
    for my $mode (@modes) {
        is(said("/$mode-on/bad.txt", $coding), 'identity: sound',
           "text named .zst: the plain file, $mode, $coding client");
    }
}
is(said('/on-on/alone.txt', 'zstd'), 500, 'text named .zst alone');
is(said('/on-on/alone.txt', 'gzip'), 500, 'for everybody');
is($t->log_count(qr/\[error\].*alone\.txt\.zst" is not usable/), 1,
   'one line in the log for both');
is(said('/on-on/badbesidedir', 'gzip'), 500,
   'a directory does not stand in for a bad file');

# frames that are not for clients

is(said('/on-off/wide.txt', 'zstd'), 'identity: narrow',
   'decode off, a window too large to send: the plain file');
