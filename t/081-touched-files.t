#!/usr/bin/perl

# What changes the ctime of a file and none of its bytes; and what changes its
# bytes and puts the mtime back.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

require 'syscall.ph';


my $t = Test::Zmap->new(log_level => 'info', timeout => 20);

my $body = $t->random(60_000, 1);
my $size = 8 << 20;
my $large = $t->random(1 << 20, 2) x 8;
my $time = 1_700_000_000;


# user.* is not for every file system, trusted.* is for root
sub attribute {
    my ($path) = @_;

    my $value = 'x';
    for my $name ('user.zmap', 'trusted.zmap') {
        my $copy = $name;
        return if syscall(SYS_setxattr(), $path, $copy, $value, 1, 0) == 0;
    }
    die "setxattr $path: $!\n";
}


my %touch = (
    chmod  => sub { chmod 0644, $_[0] or die "chmod: $!" },
    chown  => sub { chown $>, -1, $_[0] or die "chown: $!" },
    link   => sub { link $_[0], "$_[0].l" or die "link: $!";
                    unlink "$_[0].l" or die "unlink: $!" },
    xattr  => \&attribute,
    rename => sub { rename $_[0], "$_[0].r" or die "rename: $!";
                    rename "$_[0].r", $_[0] or die "rename: $!" },
);

# what explains the ctime is no reason to end anything
my %explained = (
    mode     => sub { chmod 0640, $_[0] or die "chmod: $!" },
    'a link' => sub { link $_[0], "$_[0].l" or die "link: $!" },
    deleted  => sub { unlink $_[0] or die "unlink: $!" },
);

my @touch = sort keys %touch;
my @explained = sort keys %explained;
my @cached = ('', 'cached/');
my @kinds = qw(checked bare unsized large);

$t->plan(@cached * @kinds * @touch * 2 + 3 * @touch + 2 * @explained + 8);


# raw blocks, so that other bytes are other content
sub coded {
    my ($content, %opt) = @_;
    return $t->frame(window => 1 << 20, %opt, blocks =>
        [map { [raw => $_] } unpack '(a65536)*', $content]);
}


my $random = $t->random($size, 3);
my %coded = (
    checked => $t->compress($body),
    bare    => $t->compress($body, check => 0),
    unsized => $t->compress($body, check => 0, size => 0),
    large   => $t->compress($large),
);
my %content = (checked => $body, bare => $body, unsized => $body,
               large => $large);
my %stream = (
    checked => $t->compress($random),
    bare    => coded($random, fcs => $size),
);

sub path { return $t->path("$_[0].zst") }

for my $touch (@touch) {
    $t->raw_zst("$touch-$_.txt", $coded{$_}) for @kinds;
}

$t->run($t->conf(<<'EOC'));
    zstd_mmap on;

    location /cached/ {
        alias %%DIR%%/;
        open_file_cache max=100 inactive=60s;
        open_file_cache_valid 60s;
    }
EOC


# (a) between requests

for my $cached (@cached) {
    for my $touch (@touch) {
        $t->settle(map { "$touch-$_.txt.zst" } @kinds);

        for my $kind (@kinds) {
            my $uri = "/$cached$touch-$kind.txt";

            # a frame request walks, a decoded one reads all
            $t->head($uri);
            $touch{$touch}->(path("$touch-$kind.txt"));

            my @r = map { $t->get($uri) } 1 .. 3;
            is(join(' ', map { $_->status } @r), '200 200 200',
               "$uri: served after $touch");
            is(scalar(grep { $_->complete && $_->body eq $content{$kind} }
                      @r), 3, "$uri: whole");
        }
    }
}

is($t->log_count(qr/is not usable/), 0, 'no file is blamed');


# (b), (c) under a stream: begins one and touches the file

sub touched {
    my ($name, $touch, $coded) = @_;

    $t->raw_zst("$name.txt", $coded);
    $t->mtime("$name.txt.zst", $time);

    my $c = $t->connect(rcvbuf => 4096);
    $c->send_request('GET', "/$name.txt", headers => ['Connection: close']);
    $c->{buffer} = $c->read_some(10_000);
    $touch->(path("$name.txt"));

    my $r = $c->response();
    die "$name: the client hangs\n" if $r->timed_out;

    return $r;
}


for my $touch (@touch) {
    my $r = touched("s-$touch", $touch{$touch}, $stream{checked});
    ok($r->complete && $r->body eq $random,
       "$touch under a stream with a checksum: complete");

    $r = touched("n-$touch", $touch{$touch}, $stream{bare});
    ok($r->status == 200 && !$r->complete,
       "$touch under a stream without: aborted");
    ok(length $r->body < $size
       && $r->body eq substr($random, 0, length $r->body),
       "$touch under a stream without: what came is right");
}

for my $name (@explained) {
    for my $kind (sort keys %stream) {
        my $r = touched("e-$kind-$name" =~ s/ /-/r, $explained{$name},
                        $stream{$kind});
        ok($r->complete && $r->body eq $random,
           "$name under a stream, $kind: complete");
    }
}


# (d) another byte, and the mtime as it was

sub rewrite {
    my ($at) = @_;

    return sub {
        my ($path) = @_;
        open(my $fh, '+<:raw', $path) or die "$path: $!";
        seek($fh, $at, 0) or die "seek: $!";
        read($fh, my $byte, 1) == 1 or die "read: $!";
        seek($fh, $at, 0) or die "seek: $!";
        print $fh $byte ^ "\1";
        close($fh) or die "$path: $!";
        utime $time, $time, $path or die "utime: $!";
    };
}


for my $kind (sort keys %stream) {
    my $r = touched("w-$kind", rewrite($size - 1000), $stream{$kind});
    ok($r->status == 200 && !$r->complete,
       "rewritten under a stream, $kind: not complete");

    # what was sent before is not looked at again
    $r = touched("o-$kind", rewrite(100), $stream{$kind});
    ok(!$r->complete || $r->body eq $random,
       "rewritten behind a stream, $kind: right or not complete");
}

# each frame has a checksum and is right, and they are of two versions

my $first = $t->compress($t->random(2 * $size, 5));
my ($second, $other) = map { $t->compress($t->random($size / 4, $_)) } 6, 7;
die "other frame is of another size\n" if length $second != length $other;

my $mixed = touched('w-frames', sub {
    open(my $fh, '+<:raw', $_[0]) or die "$_[0]: $!";
    seek($fh, length $first, 0) or die "seek: $!";
    print $fh $other;
    close($fh) or die "$_[0]: $!";
    utime $time, $time, $_[0] or die "utime: $!";
}, $first . $second);
ok($mixed->status == 200 && !$mixed->complete,
   'another frame put in under a stream: not complete');

$t->zst('good.txt', $body);
my $r = $t->get('/good.txt');
ok($r->complete && $r->body eq $body, 'the worker serves on');
is($t->log_count(qr/\[crit\]/), 0, 'nothing critical');
