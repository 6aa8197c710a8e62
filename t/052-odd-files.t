#!/usr/bin/perl

# What is named .zst and is no readable regular file is left to nginx, soon
# and with the log level of gzip_static.

use strict;
use warnings;

use POSIX ();
use Socket ();
use Test::More;
use Time::HiRes ();

use lib 't/lib';
use Test::Zmap;

my @odd = qw(fifo directory loop dangling unreadable socket);

my $t = Test::Zmap->new()->plan(3 * @odd + 12);

for my $name (@odd, 'outside', 'link') {
    $t->write("$name.txt", "plain $name");
}
POSIX::mkfifo($t->path('fifo.txt.zst'), 0644) or die "mkfifo: $!";
mkdir $t->path('directory.txt.zst') or die "mkdir: $!";
symlink 'loop.txt.zst', $t->path('loop.txt.zst') or die "symlink: $!";
symlink 'nowhere', $t->path('dangling.txt.zst') or die "symlink: $!";
$t->zst('unreadable.txt', 'secret');
chmod 0, $t->path('unreadable.txt.zst') or die "chmod: $!";
socket(my $socket, Socket::PF_UNIX(), Socket::SOCK_STREAM(), 0) or die;
bind($socket, Socket::pack_sockaddr_un($t->path('socket.txt.zst')))
    or die "bind: $!";

$t->zst('real.txt', 'real');
symlink 'real.txt.zst', $t->path('link.txt.zst') or die "symlink: $!";
$t->zst('long' . 'x' x 240, 'a long name');
$t->write('y' x 254, 'no room for a suffix');
$t->write('file', 'a file');

# root may read everything: workers of another user
my $conf = $t->conf(<<'EOF');
zstd_mmap on;
location /nolinks/ { alias %%DIR%%/; disable_symlinks on; }
location /cached/ {
    alias %%DIR%%/;
    open_file_cache max=100;
    open_file_cache_errors on;
}
EOF
my $globals = $t->_globals() =~ s/^user root;$/user www-data;/mr;
$conf =~ s/%%GLOBALS%%/$globals/;
$t->run($conf);


sub get { return $t->get($_[0], 'Accept-Encoding: zstd') }

my $began = Time::HiRes::time();

for my $name (@odd) {
    is(get("/$name.txt")->body, "plain $name", "$name: the plain file");
    $t->unlink("$name.txt");
    is(get("/$name.txt")->status, 404, "$name: no plain file");
    is(get("/cached/$name.txt")->status, 404, "$name: open_file_cache");
}

cmp_ok(Time::HiRes::time() - $began, '<', 3 * $t->timeout() / 10,
       'nothing waited');

my $line = qr/open\(\) "\S+unreadable\.txt\.zst" failed \(13:/;
is($t->log_count(qr/\[error\].*$line/), 3, 'permissions are an error');
is(scalar(grep { !/socket\.txt/ } $t->log_lines(qr/\[crit\]/)), 0,
   'and nothing that is common is critical');
is($t->log_count(qr/\[error\].*dangling\.txt\.zst/), 0,
   'a link to nowhere is a missing file');

# links that lead somewhere

is(get('/link.txt')->body, $t->read('real.txt.zst'), 'a link is followed');
is(get('/nolinks/link.txt')->body, 'plain link',
   'not with disable_symlinks');
is($t->log_count(qr/\[error\].*link\.txt\.zst" failed/), 1,
   'which says so once');
is(get('/nolinks/real.txt')->status, 200, 'others are served with it');

# names

is($t->get('/long' . 'x' x 240)->body, 'a long name', 'a long name');
is(get('/' . 'y' x 254)->body, 'no room for a suffix',
   'a name that is too long with its suffix');
is(get('/file/below')->status, 404, 'a file in place of a directory');
is($t->log_count(qr/\[alert\]/), 0, 'no alert');
