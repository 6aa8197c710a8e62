#!/usr/bin/perl

# A changed file without open_file_cache: the next request sees it.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $time = 1_700_000_000;

# raw blocks: equal lengths of content are equal lengths of files
sub version {
    my ($seed, $size) = @_;
    my $body = $t->random($size // 50_000, $seed);
    my $coded = $t->frame(fcs => length $body, checksum => 1, blocks =>
        [map { [raw => $_] } unpack '(a40000)*', $body]);
    return [$coded, $body];
}


my ($v1, $v2, $longer, $shorter, $big, $tail) = (version(1), version(2),
    version(3, 70_000), version(4, 1000), version(5, 400_000), version(6));
my $unknown = [$t->compress($v2->[1], size => 0), $v2->[1]];
my $both = [$v1->[0] . $tail->[0], $v1->[1] . $tail->[1]];

my %put = (
    'rename' => sub { $t->replace($_[0], $_[1]) },
    'overwrite in place' => sub { $t->write($_[0], $_[1]) },
    'the same mtime' => sub {
        $t->replace($_[0], $_[1]);
        $t->mtime($_[0], $time);
    },
    'the same inode and mtime' => sub {
        $t->write($_[0], $_[1]);
        $t->mtime($_[0], $time);
    },
    'the same mtime, kept again' => sub {
        $t->replace($_[0], $_[1]);
        $t->mtime($_[0], $time);
        $t->settle($_[0]);
    },
);

my %to = (
    'the same size' => $v2,
    'longer'        => $longer,
    'shorter'       => $shorter,
    'streamed'      => $big,
    'unknown size'  => $unknown,
    'appended'      => $both,
);

$t->plan(4 * keys(%put) * keys(%to) + 17);

$t->run($t->conf('zstd_mmap on;', http => 'zstd_mmap_buffers 1m max=128k;'));


sub is_version {
    my ($uri, $version, $name) = @_;

    my $r = $t->get($uri);
    ok($r->status == 200 && $r->complete && $r->body eq $version->[1],
       "$name: decoded");
    $r = $t->get($uri, 'Accept-Encoding: zstd');
    ok($r->status == 200 && $r->complete && $r->body eq $version->[0],
       "$name: frames");
}


for my $how (sort keys %put) {
    for my $what (sort keys %to) {
        my $rel = "$how $what.txt.zst" =~ tr/ ,/__/r;
        my $uri = '/' . $rel =~ s/\.zst$//r;

        $t->write($rel, $v1->[0]);
        $t->mtime($rel, $time);
        $t->settle($rel);
        my $first = $t->get($uri)->header('ETag');
        $t->get($uri, 'Accept-Encoding: zstd');

        $put{$how}->($rel, $to{$what}[0]);
        is_version($uri, $to{$what}, "$how, $what");

        # and back, at once
        $put{$how}->($rel, $v1->[0]);
        is_version($uri, $v1, "$how, $what, and back");
    }
}

# appended by a writer that keeps the file open
$t->write('log.txt.zst', $v1->[0]);
$t->settle('log.txt.zst');
is_version('/log.txt', $v1, 'before an append');
open(my $fh, '>>:raw', $t->path('log.txt.zst')) or die "log: $!";
print $fh $tail->[0];
close($fh);
is_version('/log.txt', $both, 'after an append');

# learnt sizes belong to a version; random bytes would be raw blocks, whose
# size is known
my ($first, $second) = ($t->text(50_000, 1), $t->text(400_000, 2));
$t->write('learnt.txt.zst', $t->compress($first, size => 0));
$t->settle('learnt.txt.zst');
$t->get('/learnt.txt');
is($t->get('/learnt.txt')->header('Content-Length'), 50_000, 'a learnt size');
$t->replace('learnt.txt.zst', $t->compress($second, size => 0));
my $r = $t->get('/learnt.txt');
is($r->header('Content-Length'), undef, 'forgotten with its version');
ok($r->complete && $r->body eq $second, 'the new body');

# goes, and comes again
$t->unlink('learnt.txt.zst');
is($t->get('/learnt.txt')->status, 404, 'deleted');
$t->write('learnt.txt.zst', $v1->[0]);
is($t->get('/learnt.txt')->body, $v1->[1], 'there again');

# good, bad, good
$t->replace('learnt.txt.zst', substr $v1->[0], 0, -1);
is($t->get('/learnt.txt')->status, 500, 'a bad version');
$t->replace('learnt.txt.zst', $v1->[0]);
is($t->get('/learnt.txt')->body, $v1->[1], 'a good one after it');

# nothing but the ctime tells these versions apart: a verdict is of one of them
my $bad = $v1->[0] ^ "\1";
my $n = 0;

for my $pair ([$bad, $v1->[0]], [$v1->[0], $bad], [$bad, $v2->[0]]) {
    my $uri = '/verdict' . $n++ . '.txt';

    for my $bytes (@$pair) {
        $t->write(substr("$uri.zst", 1), $bytes);
        $t->mtime(substr("$uri.zst", 1), $time);
        $t->settle(substr("$uri.zst", 1));
        $t->get($uri, 'Accept-Encoding: zstd') for 1, 2;
        is($t->get($uri, 'Accept-Encoding: zstd')->status,
           $bytes eq $bad ? 500 : 200, "$uri, same inode, size and mtime: "
           . ($bytes eq $bad ? 'bad' : 'good'));
    }
}
