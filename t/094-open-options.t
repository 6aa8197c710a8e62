#!/usr/bin/perl

# directio, read_ahead, disable_symlinks; what is no regular file; permissions.

use strict;
use warnings;

use POSIX ();
use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(36);

my %body = (
    tiny => 'tiny',
    page => $t->random(4096, 1),
    odd  => $t->random(300_001, 2),
    big  => $t->random(1_000_000, 3),
);

$t->zst("$_.txt", $body{$_}) for keys %body;
$t->settle('big.txt.zst');

symlink 'tiny.txt.zst', $t->path('link.txt.zst') or die "symlink: $!";
symlink 'nowhere', $t->path('dangling.txt.zst') or die "symlink: $!";
symlink 'loop.txt.zst', $t->path('loop.txt.zst') or die "symlink: $!";
mkdir $t->path('dir.txt.zst') or die "mkdir: $!";
POSIX::mkfifo($t->path('fifo.txt.zst'), 0644) or die "mkfifo: $!";
$t->write('dir.txt', 'plain');

# files of another owner: disable_symlinks if_not_owner compares them
if ($> == 0) {
    symlink 'tiny.txt.zst', $t->path('foreign.txt.zst') or die "symlink: $!";
    system('chown', '-h', 'nobody', $t->path('foreign.txt.zst')) == 0
        or die 'chown';
}

$t->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 2m max=512k;'));
    zstd_mmap on;

    location /directio/ { directio 4k; alias %%DIR%%/; }
    location /direct512/ { directio 512; directio_alignment 4k; sendfile on;
                           alias %%DIR%%/; }
    location /ahead/ { read_ahead 64k; alias %%DIR%%/; }
    location /links/ { disable_symlinks on from=%%DIR%%; alias %%DIR%%/; }
    location /owner/ { disable_symlinks if_not_owner from=%%DIR%%;
                       alias %%DIR%%/; }
EOC

for my $where (qw(directio direct512 ahead)) {
    for my $name (sort keys %body) {
        my $r = $t->get("/$where/$name.txt");
        ok($r->complete && $r->body eq $body{$name},
           "$where, $name: decoded");
        $r = $t->get("/$where/$name.txt", 'Accept-Encoding: zstd');
        ok($r->complete && $r->body eq $t->read("$name.txt.zst"),
           "$where, $name: frames");
    }
}

is($t->get('/link.txt')->body, 'tiny', 'a link is followed');
is($t->get('/links/tiny.txt')->body, 'tiny', 'disable_symlinks: no link');
is($t->get('/links/link.txt')->status, 404, 'disable_symlinks: a link');
ok($t->wait_log(qr/\[error\].*link\.txt\.zst/),
   'disable_symlinks: told in the log');
is($t->get('/owner/link.txt')->body, 'tiny', 'if_not_owner: own link');
is($t->get('/owner/foreign.txt')->status, 404,
   'if_not_owner: of somebody else');

is($t->get('/dangling.txt')->status, 404, 'a link to nowhere');
is($t->get('/loop.txt')->status, 404, 'a link to itself');
is($t->get('/dir.txt')->body, 'plain', 'a directory by that name: plain file');
is($t->get('/fifo.txt')->status, 404, 'a fifo is not read');
is($t->get('/tiny.txt/x')->status, 404, 'a file is no directory');
is($t->get('/tiny.txt')->body, 'tiny', 'the worker serves on');
