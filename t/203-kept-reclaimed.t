#!/usr/bin/perl

# Room in the buffers: the least recently used bodies go first, those that are
# being sent never.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

# 50 pages each: five fit into 256 pages, and six pages are left
my $SIZE = 50 * 4096;

my $t = Test::Zmap->new(timeout => 15)->plan(26);
my $s = Test::Zmap::Status->new($t);

my %body;
for my $name ('a' .. 'h') {
    $body{$name} = $t->random($SIZE, ord $name);
    $t->zst("$name.txt", $body{$name});
}
$body{small} = $t->random(5 * 4096, 1);
$t->zst('small.txt', $body{small});
$body{stream} = $t->random(700_000, 2);
$t->zst('stream.txt', $body{stream});
$t->settle(map { "$_.txt.zst" } keys %body);

my $conf = $t->conf('zstd_mmap on; zstd_mmap_chunk 64k;' . $s->location,
                    http => 'zstd_mmap_buffers 1m max=256k;');
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;
$t->run($conf);


# the names whose request ran a decode; a wrong reply is marked
sub decoded {
    my $seen = '';
    for my $name (@_) {
        my $r;
        my $change = $s->change(sub { $r = $t->get("/$name.txt") });
        $seen .= $name if $change->{decodes};
        $seen .= '!' unless $r->complete && $r->body eq $body{$name};
    }
    return $seen;
}


sub used_bytes {
    my ($used, $kept) = @_;

    return $s->poll(sub { $_[0]{buffers}{used} == $used
                          && $_[0]{buffers}{kept} == $kept })
           || diag(explain($s->worker)) && 0;
}


is(decoded('a' .. 'e'), 'abcde', 'five bodies are decoded');
is(decoded('a' .. 'e'), '', 'and kept');
ok(used_bytes(5 * $SIZE, 5 * $SIZE), 'all of them');

is(decoded('small'), 'small', 'a small one takes the rest');
is(decoded('b' .. 'e', 'small'), '', 'no other has gone for it');

is(decoded('f'), 'f', 'one more');
is(decoded('small', 'e', 'd', 'c', 'b', 'f'), '',
   'took the place of the least recently used one');
is(decoded('a'), 'a', 'which is gone');
is(decoded('f', 'b', 'c', 'd', 'a'), '', 'and took that of the next one');
is(decoded('e'), 'e', 'gone, too');

# the chunks of a stream need 32 pages

is(decoded('stream'), 'stream', 'a stream');
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'takes room and gives it back');
my $again = decoded('e', 'a', 'd', 'c', 'b');
is(length $again, 1, 'one body was reclaimed for it') or diag($again);

# readers that hold everything

my @slow;
for my $name ('a' .. 'e') {
    my $c = $t->connect(rcvbuf => 4096);
    $c->send_request('GET', "/$name.txt", headers => ['Connection: close']);
    push @slow, [$name, $c, $c->read_some(500)];
}
is(scalar(grep { $_->[2] =~ /^HTTP\/1\.1 200/ } @slow), 5,
   'five slow readers begin');

my $r;
my $change = $s->change(sub { $r = $t->get('/f.txt') });
ok($r->complete && $r->body eq $body{f}, 'no room: the body is right');
is($r->header('Content-Length'), $SIZE, 'no room: it has its length');
is_deeply([@$change{qw(requests decoded decodes streamed limited cached
                       errors)}], [1, 1, 1, 1, 1, undef, undef],
          'no room: streamed and limited are counted');

is_deeply([@{$s->change(sub { $t->get('/f.txt') for 1 .. 3 })}
            {qw(streamed limited)}], [3, 3], 'each time');
is(decoded('a' .. 'e'), '', 'what is held is served to others');

is($s->change(sub { $t->head('/f.txt') })->{limited}, undef,
   'HEAD needs no room');
is($s->change(sub { $r = $t->get('/stream.txt') })->{limited}, undef,
   'a body above max is not limited');
ok($r->complete && $r->body eq $body{stream}, 'and is right');

my @wrong = grep {
    my ($name, $c, $begin) = @$_;
    (($begin . $c->read_some(1 << 20)) =~ /\r\n\r\n(.*)/s)[0] ne $body{$name};
} @slow;
is(@wrong, 0, 'the slow readers have their bytes');

is(decoded('f'), 'f', 'there is room again');
is(decoded('f'), '', 'to keep it');
is($t->log_count(qr/\[(?:warn|error|crit)\]/), 0, 'nothing in the log');
