#!/usr/bin/perl

# A kept body belongs to one version of its file.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $MTIME = 1600000000;

my $t = Test::Zmap->new()->plan(29);
my $s = Test::Zmap::Status->new($t);

# of one length, decoded and coded: raw blocks
my @body = map { $t->random(100_000, $_) } 1 .. 8;
my @coded = map { $t->frame(fcs => 100_000, blocks => [[raw => $_]]) } @body;

my $conf = $t->conf('zstd_mmap on;' . $s->location
                    . 'location /cached/ { alias %%DIR%%/;'
                    . ' open_file_cache max=100; open_file_cache_valid 1s; }',
                    http => 'zstd_mmap_buffers 4m;');
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;
$t->run($conf);


# right when that body came and so many decodes were run
sub seen {
    my ($uri, $i, $decodes, $name) = @_;

    my $r;
    my $change = $s->change(sub { $r = $t->get($uri) });
    ok($r->status == 200 && $r->complete && $r->body eq $body[$i],
       "$name: these bytes");
    is($change->{decodes} // 0, $decodes,
       $decodes ? "$name: decoded" : "$name: not decoded");
}


my $setup = sub {
    $t->raw_zst('a.txt', $coded[0]);
    $t->mtime('a.txt.zst', $MTIME);
    $t->settle('a.txt.zst');
};
$setup->();
seen('/a.txt', 0, 1, 'first');
seen('/a.txt', 0, 0, 'again');

# each way to a new version, with size and mtime of the old one

$t->replace('a.txt.zst', $coded[1]);
$t->mtime('a.txt.zst', $MTIME);
$t->settle('a.txt.zst');
seen('/a.txt', 1, 1, 'renamed over');
seen('/a.txt', 1, 0, 'renamed over, again');

$t->raw_zst('a.txt', $coded[2]);
$t->mtime('a.txt.zst', $MTIME);
$t->settle('a.txt.zst');
seen('/a.txt', 2, 1, 'overwritten in place');
seen('/a.txt', 2, 0, 'overwritten in place, again');

# the same file by another name, and another file of the same content

link $t->path('a.txt.zst'), $t->path('b.txt.zst') or die "link: $!";
$t->settle('a.txt.zst');                   # linking changes the ctime
$t->get('/a.txt');
seen('/b.txt', 2, 0, 'a second name of the file');

$t->raw_zst('c.txt', $coded[2]);
$t->mtime('c.txt.zst', $MTIME);
$t->settle('c.txt.zst');
seen('/c.txt', 2, 1, 'a second file of that content');

# behind open_file_cache

$t->replace('d.txt.zst', $coded[3]);
$t->mtime('d.txt.zst', $MTIME);
$t->settle('d.txt.zst');
seen('/cached/d.txt', 3, 1, 'open_file_cache');
$t->replace('d.txt.zst', $coded[4]);
$t->mtime('d.txt.zst', $MTIME);
ok($t->poll(sub { $t->get('/cached/d.txt')->body eq $body[4] }),
   'open_file_cache: the new version comes');
$t->settle('d.txt.zst');
$t->get('/cached/d.txt');
seen('/cached/d.txt', 4, 0, 'open_file_cache, again');

# a reader of the old version, while the new one is served

$setup->();
my $c = $t->connect(rcvbuf => 4096);
$c->send_request('GET', '/a.txt');
my $head = $c->read_some(500);
$t->replace('a.txt.zst', $coded[5]);
$t->settle('a.txt.zst');
seen('/a.txt', 5, 1, 'beside a slow reader of the old version');
my $all = $head . $c->read_some(length($body[0]) - 500
                                + index($head, "\r\n\r\n") + 4);
ok(substr($all, -length $body[0]) eq $body[0],
   'the slow reader has the old bytes');
$c->close();

# A file this young may change again without a sign.  The reply has to come
# within 100 ms of the change for this to be seen.

my ($young, $change, $old) = (0);
for (1 .. 50) {
    $t->replace('e.txt.zst', $coded[6]);
    my $ctime = (Time::HiRes::stat($t->path('e.txt.zst')))[10];
    $t->get('/e.txt');
    $young = Time::HiRes::time() - $ctime < 0.09;
    last if $young;
}
ok($young, 'a reply comes in time');
$t->settle('e.txt.zst');
seen('/e.txt', 6, 1, 'of a young file nothing was kept');
seen('/e.txt', 6, 0, 'of an old one it is');
