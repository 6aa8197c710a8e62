#!/usr/bin/perl

# zstd_mmap_cache: its bound, its time, off, and files that are too young.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;


my $t = Test::Zmap->new();
my $fault = Preload->new($t);

my $files = 50;
my %body = map { ("f$_" => "file $_ " . $t->text(3000, $_)) } 1 .. $files;

$t->zst("$_.txt", $body{$_}) for keys %body;
$t->raw_zst('bad.txt', 'no frame');
$t->settle(map { "$_.txt.zst" } keys %body, 'bad');

$t->plan(24);

$fault->run(conf('zstd_mmap_cache max=2;'));


sub conf {
    my ($http) = @_;
    return $t->conf('location / { zstd_mmap on; }'
        . 'location /cached/ { zstd_mmap on; open_file_cache max=10;'
        . '                    alias %%DIR%%/; }', http => $http);
}


# names of the files that the worker has mapped
sub mapped {
    my ($pid) = $t->worker_pids();
    open(my $fh, '<', "/proc/$pid/maps") or die "maps of $pid: $!";
    my @names = sort map { m{/([^/]+)\.txt\.zst} ? $1 : () } <$fh>;
    return @names;
}


sub all_right {
    my ($prefix) = @_;

    my @wrong;
    for my $name (sort keys %body) {
        my $r = $t->get("$prefix/$name.txt");
        push @wrong, $name unless $r->complete && $r->body eq $body{$name};
        $r = $t->get("$prefix/$name.txt", 'Accept-Encoding: zstd');
        push @wrong, $name unless $r->body eq $t->read("$name.txt.zst");
    }

    return "@wrong" eq '';
}


ok(all_right(''), 'more files than max: all right');
ok(all_right('/cached'), 'more files than open_file_cache has');
ok($t->poll(sub { mapped() == 2 }), 'max=2: two mappings remain');

$t->get('/f1.txt');
$t->get('/f2.txt');
$t->get('/f1.txt');
$t->get('/f3.txt');
ok($t->poll(sub { join(' ', mapped()) eq 'f1 f3' }),
   'the one that was used last stays') or diag(mapped());

$t->get('/bad.txt') for 1 .. 3;
is($t->log_count(qr/bad\.txt\.zst" is not usable/), 1,
   'one line about a bad file');

# off: each request for itself

$t->reload(conf => conf('zstd_mmap_cache off;'));
ok(all_right(''), 'off: all right');
ok($t->poll(sub { mapped() == 0 }), 'off: no mapping remains');
$t->get('/bad.txt') for 1 .. 3;
is($t->log_count(qr/bad\.txt\.zst" is not usable/), 4,
   'off: a line with each request');

$t->zst('unsized.txt', $body{f1}, size => 0);
my @length = map { $t->get('/unsized.txt')->header('Content-Length') } 1, 2;
is_deeply(\@length, [undef, undef], 'off: no size is learnt');

# inactive

$t->reload(conf => conf('zstd_mmap_cache max=100 inactive=1s;'));
ok(all_right(''), 'inactive: all right');
is(scalar(mapped()), $files, 'inactive: all are kept at first');
ok($t->poll(sub { $t->get('/f1.txt'); mapped() <= 1; }),
   'inactive: others are dropped while requests come') or diag(mapped());
ok((grep { $_ eq 'f1' } mapped()), 'inactive: the one in use stays');

# the default has room

$t->reload(conf => conf(''));
ok(all_right(''), 'default: all right');
is(scalar(mapped()), $files, 'default: all are kept');

$fault->advance(55);
$t->get('/f1.txt') for 1 .. $files;
is(scalar(mapped()), $files, 'default: all are kept for 55 seconds');
$fault->advance(10);
$t->get('/f1.txt') for 1 .. $files;
is(join(' ', mapped()), 'f1', 'default: none is kept for 65 but the used one');

ok(all_right(''), 'default: all right again');

# a new version replaces the mapping of the old one

$t->replace('f1.txt.zst', $t->compress($body{f2}));
$t->settle('f1.txt.zst');
is($t->get('/f1.txt')->body, $body{f2}, 'a new version');
ok($t->poll(sub { (grep { $_ eq 'f1' } mapped()) == 1
                  && mapped() == $files }), 'one mapping of it, the new one');

# younger than 100 ms by its ctime: served, not kept

my $young;
for (1 .. 20) {
    my $before = $t->log_count(qr/is too young to keep/);
    $t->replace('young.txt.zst', $t->compress('young'));
    is($t->get('/young.txt')->body, 'young', 'a young file is served')
        if $_ == 1;
    $t->get('/young.txt');
    $young = $t->log_count(qr/is too young to keep/) > $before
        && $t->poll(sub { !grep { $_ eq 'young' } mapped() }, 0.05);
    last if $young;
}
ok($young, 'a young file is not kept');

$t->settle('young.txt.zst');
is($t->get('/young.txt')->body, 'young', 'served when it is older');
ok((grep { $_ eq 'young' } mapped()), 'and kept');
