#!/usr/bin/perl

# A large file that decodes to next to nothing does not hold the event loop.

use strict;
use warnings;

use IO::Select ();
use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info', timeout => 30);

# RFC 8878, 3.1.1.2: three zero bytes are a raw block of no bytes, not the last
my $empty = "\0\0\0" x 20_000_000;
my $text = $t->text(2000, 1);

# without a content size, and a compressed block that hides it
my $coded = $t->compress($text, size => 0, check => 0);
my ($header, $block) = (substr($coded, 0, 6), substr($coded, 6));
die "not one compressed block\n" unless (ord($block) & 7) == 5;

sub with_empty {
    my ($frame, $header_size) = @_;
    substr($frame, $header_size, 0) = $empty;
    return $frame;
}

my $sized = $t->frame(fcs => 3, blocks => [[raw => 'abc']]);
my %file = (
    sized   => [with_empty($sized, -6), 'abc'],
    unsized => [$header . $empty . $block, $text],
    frames  => [$t->skippable('') x 8_000_000 . $sized, 'abc'],
);
my @names = sort keys %file;
my @versions = ('1.1', '1.0');
my $rounds = 3;

$t->plan((2 + @versions) * @names + @versions * @names + 1);

$t->raw_zst("$_.txt", $file{$_}[0]) for @names;
$t->zst('small.txt', 'small');
$t->settle('small.txt.zst', map { "$_.txt.zst" } @names);

$t->run($t->conf('zstd_mmap on;'));


# the slowest small request while the file is decoded, and what that took
sub beside {
    my ($uri, $version) = @_;

    my $c = $t->connect();
    my $select = IO::Select->new($c->{socket});
    my $slowest = 0;
    my $began = time();

    $c->send_request('GET', $uri, version => $version,
                     headers => ['Connection: close']);

    while (!$c->{eof}) {
        my $begin = time();
        die "small.txt\n" unless $t->get('/small.txt')->body eq 'small';
        my $took = time() - $begin;
        $slowest = $took if $took > $slowest;
        $c->_fill(time() + 1) if $select->can_read(0);
    }

    return ($slowest, time() - $began, $c->response());
}


for my $name (@names) {
    my ($uri, $body) = ("/$name.txt", $file{$name}[1]);

    # the walk is one turn: it is not what is measured
    my $r = $t->head($uri);
    is($r->status, 200, "$name: a good file");
    is($r->header('Content-Length'), $name eq 'unsized' ? undef : length $body,
       "$name: its size");

    for my $version (@versions) {
        my (@share, $right);

        for (1 .. $rounds) {
            my ($slowest, $whole, $r) = beside($uri, $version);
            push @share, $slowest / $whole;
            $right++ if $r->complete && $r->body eq $body;
        }

        is($right, $rounds, "$name, $version: the right body");

        # the least: another process may take the processor meanwhile
        my ($least) = sort { $a <=> $b } @share;
        ok($least < 0.25, "$name, $version: small replies come in between")
            or diag("shares @share");
    }
}

is($t->log_count(qr/is not usable/), 0, 'no file is blamed');
