#!/usr/bin/perl

# zstd_mmap_verify off: the header of the first frame, found quickly, and the
# same one with every request.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 20)->plan(13);

my @zstd = ('Accept-Encoding: zstd');

# 16 MiB in the last of six frames; the table of files may keep it
my $part = $t->text(3000, 1);
my $small = $t->frame(window => 1 << 20, checksum => 1,
                      blocks => [[raw => $part]]);
my $large = $t->frame(window => 16 << 20, checksum => 1,
                      blocks => [[raw => $part]]);

$t->raw_zst('second.txt', $small . $large);
$t->raw_zst('sixth.txt', $small x 5 . $large);
$t->raw_zst('first.txt', $large . $small);
$t->raw_zst("many$_.txt", $t->skippable('') x 1_000_000 . $small) for 1 .. 6;
$t->settle('second.txt.zst', 'sixth.txt.zst', 'first.txt.zst',
           map { "many$_.txt.zst" } 1 .. 6);

$t->run($t->conf(<<'EOC'));
    zstd_mmap on;
    zstd_mmap_verify off;

    location /walked/ { alias %%DIR%%/; zstd_mmap_verify structure; }
EOC


# "coding status ...", each once
sub answers {
    my ($uri) = @_;

    my %seen;
    for (1 .. 10) {
        my $r = $t->get($uri, @zstd);
        my $right = $r->complete && $r->body eq
            ($r->header('Content-Encoding') ? $t->read("$uri.zst")
                                            : $part x ($uri =~ /six/ ? 6 : 2));
        $seen{join ' ', $r->status, $r->header('Content-Encoding') // 'none',
              $right ? 'right' : 'wrong'}++;
    }

    return join ', ', sort keys %seen;
}


is(answers('/second.txt'), '200 zstd right', 'a window behind: frames always');
is(answers('/sixth.txt'), '200 zstd right', 'far behind: frames always');
is(answers('/first.txt'), '200 none right', 'in front: decoded always');
is($t->get('/walked/second.txt', @zstd)->header('Content-Encoding'), undef,
   'where the file is walked: decoded');


# seconds and the answer of a first request
sub timed {
    my ($uri) = @_;

    my $began = time();
    my $r = $t->head($uri, @zstd);

    return (time() - $began, $r);
}


# the least of three is what it takes on a machine that others use too
my (@walk, @peek);

for my $i (1 .. 3) {
    my ($took, $r) = timed("/walked/many$i.txt");
    is($r->header('Content-Encoding'), 'zstd', "walk $i: frames");
    push @walk, $took;

    ($took, $r) = timed('/many' . ($i + 3) . '.txt');
    is($r->header('Content-Encoding'), 'zstd', "peek $i: frames");
    push @peek, $took;
}

my ($walk) = sort { $a <=> $b } @walk;
my ($peek) = sort { $a <=> $b } @peek;
ok($peek < 4 * $walk + 0.02, 'a million skippable frames: as fast as a walk')
    or diag("walk $walk s, peek $peek s");

ok($t->get('/many4.txt')->body eq $part, 'the worker serves on');
is($t->log_count(qr/is not usable/), 0, 'no file is blamed');
