#!/usr/bin/perl

# A decoded body stays in its buffer: the next requests of that version of the
# file run no decode.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $MTIME = 1600000000;

my $t = Test::Zmap->new()->plan(27);
my $s = Test::Zmap::Status->new($t);

my $text = $t->text(1_000_000, 1);
my $tag = sprintf '"%x-%x"', $MTIME, length $text;

$t->zst("$_.txt", $text, mtime => $MTIME) for qw(a b c d);
$t->zst('other.txt', $t->text(300_000, 2));
$t->zst('stream.txt', $t->text(3_000_000, 3));
$t->settle(map { "$_.txt.zst" } qw(a b c d other stream));

$t->run($t->conf('zstd_mmap on;' . $s->location,
                 http => 'zstd_mmap_buffers 16m max=2m;'));

my %cached = (requests => 1, decoded => 1, cached => 1);


# what a request changes, without the bytes
sub change {
    my ($fn) = @_;

    my $change = $s->change($fn);
    delete @$change{grep { /^bytes/ } keys %$change};

    return $change;
}


# thirty connections that are open at the same time

my @right;
my $change = change(sub {
    my @open = map { $t->connect() } 1 .. 30;
    $_->send_request('GET', '/a.txt') for @open;
    @right = grep { my $r = $_->response();
                    $r->status == 200 && $r->complete && $r->body eq $text }
             @open;
});
is(@right, 30, 'thirty replies are right');
is_deeply($change, { requests => 30, decoded => 30, cached => 29,
                     decodes => 1 }, 'thirty requests run one decode');

ok($s->poll(sub { $_[0]{buffers}{kept} >= length $text
                  && $_[0]{buffers}{kept} < length($text) + 4096 }),
   'the body is kept, in whole pages');
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'and nothing else is in use');

# what a kept body answers

for my $row (['bytes=0-9', 206, substr($text, 0, 10)],
             ['bytes=500000-', 206, substr($text, 500_000)],
             ['bytes=-7', 206, substr($text, -7)])
{
    my ($range, $status, $body) = @$row;
    my $r;
    is_deeply(change(sub { $r = $t->get('/a.txt', "Range: $range") }),
              \%cached, "$range: no decode");
    ok($r->status == $status && $r->body eq $body, "$range: right");
}

my $r;
is_deeply(change(sub {
    $r = $t->get('/a.txt', 'Range: bytes=0-4,999990-');
}), \%cached, 'two ranges: no decode');
like($r->body, qr/\r\n\r\n\Q${\substr $text, 0, 5}\E\r\n.*
                  \r\n\r\n\Q${\substr $text, 999_990}\E\r\n/sx,
     'two ranges: right');

is_deeply(change(sub {
    $r = $t->get('/a.txt', 'Range: bytes=0-9', 'If-Range: "x"');
}), \%cached, 'a failed If-Range: no decode');
ok($r->status == 200 && $r->body eq $text, 'a failed If-Range: all of it');

is(change(sub {
    $r = $t->get('/a.txt', "If-None-Match: $tag");
})->{decodes}, undef, 'a 304: no decode');
ok($r->status == 304 && $r->body eq '', 'a 304 is one');

is_deeply(change(sub {
    $r = $t->get('/a.txt', 'If-None-Match: "x"');
}), \%cached, 'a tag that does not match: no decode');
ok($r->status == 200 && $r->body eq $text, 'a tag that does not match: right');

is(change(sub {
    $r = $t->get('/a.txt', 'If-Match: "x"');
})->{decodes}, undef, 'a 412: no decode');
is($r->status, 412, 'a 412 is one');

is(change(sub { $r = $t->head('/a.txt') })->{decodes}, undef,
   'HEAD: no decode');
my $full = $t->get('/a.txt');
is_deeply([map { $r->header($_) } qw(Content-Length ETag Last-Modified
                                     Accept-Ranges Vary Content-Type)],
          [map { $full->header($_) } qw(Content-Length ETag Last-Modified
                                        Accept-Ranges Vary Content-Type)],
          'HEAD: the headers of GET');

# what leaves a kept body behind

for my $row (['b', 'a range', 'Range: bytes=5-9'],
             ['c', 'a condition', 'If-None-Match: "x"'])
{
    my ($name, $how, @headers) = @$row;
    my $change = change(sub { $t->get("/$name.txt", @headers) for 1 .. 2;
                              $t->get("/$name.txt") });
    is_deeply($change, { requests => 3, decoded => 3, cached => 2,
                         decodes => 1 }, "$how leaves the whole body");
}

is(change(sub { $t->head('/d.txt');
                $t->get('/d.txt', "If-None-Match: $tag") })->{decodes}, undef,
   'HEAD and 304 of a body that is not kept run no decode');

# other traffic, with room for all

$t->get('/stream.txt') for 1 .. 5;
$t->get('/other.txt', "Accept-Encoding: $_") for (qw(zstd gzip)) x 20;
$t->get('/missing.txt') for 1 .. 20;
is_deeply(change(sub { $r = $t->get('/a.txt') }), \%cached,
          'it survives other traffic');
ok($r->body eq $text, 'and is right');
