#!/usr/bin/perl

# Everything that is not served as asked has one reason, and every byte that
# leaves is counted.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $GZIP = 'Accept-Encoding: gzip';
my $ZSTD = 'Accept-Encoding: zstd';

my $t = Test::Zmap->new(log_level => 'info')->plan(23);
my $s = Test::Zmap::Status->new($t);

my $text = $t->text(100_000, 1);
my $long = $t->random(600_000, 2);
my $coded = $t->zst('a.txt', $text);
$t->zst('stream.txt', $long);
$t->zst('both.txt', 'coded');
$t->write('both.txt', 'plain');
$t->raw_zst('rubbish.txt', 'no frame at all');
$t->raw_zst('wide.txt', $t->frame(window => 9 << 20, fcs => 300,
                                  blocks => [[rle => 'w', 300]]));
$t->raw_zst('dictionary.txt', $t->frame(dict => 7, fcs => 300,
                                        blocks => [[rle => 'w', 300]]));
$t->write('dictionary.txt', 'plain');
$t->settle(map { "$_.txt.zst" }
           qw(a stream both rubbish wide dictionary));

my $conf = $t->conf('zstd_mmap on; zstd_mmap_chunk 64k;' . $s->location
    . <<'EOC', http => 'zstd_mmap_buffers 4m max=256k;');
    location /missing/ { alias %%DIR%%/; zstd_mmap_decode missing; }
    location /frames/ { alias %%DIR%%/; zstd_mmap_decode off; }
EOC
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;
$t->run($conf);


# what a request changes, of the names that match
sub change {
    my ($re, $method, @request) = @_;

    my $change = $s->change(sub {
        $t->request($method, shift @request, headers => [@request]);
    });

    return { map { ($_ => $change->{$_}) } grep { $_ =~ $re } keys %$change };
}


# reasons

for my $row (
    ['no file', '/none.txt', $ZSTD, { 'reasons.not_found' => 1 }],
    ['a plain file that has precedence', '/missing/both.txt', $GZIP,
     { declined => 1, 'reasons.plain' => 1 }],
    ['frames that the client does not take', '/frames/both.txt', $GZIP,
     { declined => 1, 'reasons.not_accepted' => 1 }],
    ['a window too large to send', '/wide.txt', $ZSTD,
     { 'reasons.window' => 1 }],
    ['a dictionary, a plain file', '/dictionary.txt', $ZSTD,
     { declined => 1, 'reasons.dictionary' => 1 }],
) {
    my ($name, $uri, $header, $expected) = @$row;
    my $change = change(qr/^reasons|^declined|^errors/, 'GET', $uri, $header);
    is_deeply($change, $expected, "$name: the reason")
        or diag(explain($change));
}

# root reads whatever the mode of a file says, but no loop of links

symlink 'loop.txt.zst', $t->path('loop.txt.zst') or die "symlink: $!";
is_deeply(change(qr/^reasons/, 'GET', '/loop.txt', $ZSTD),
          { 'reasons.denied' => 1 }, 'a loop of links: the reason');

is_deeply(change(qr/^verify/, 'GET', '/rubbish.txt', $ZSTD),
          { verify_failures => 1 }, 'a file that is no frame');
is_deeply(change(qr/^verify/, 'GET', '/a.txt', $ZSTD), {}, 'a good file');

# bytes

my $size = length $text;

for my $row (
    ['frames', 'GET', '/a.txt', [$ZSTD], { frames_sent => length $coded }],
    ['HEAD of frames', 'HEAD', '/a.txt', [$ZSTD], {}],
    ['HEAD', 'HEAD', '/a.txt', [$GZIP], {}],
    ['a decoded body', 'GET', '/a.txt', [$GZIP],
     { decoded_sent => $size, decoded_produced => $size }],
    ['a kept one', 'GET', '/a.txt', [$GZIP], { decoded_sent => $size }],
    ['a stream', 'GET', '/stream.txt', [$GZIP],
     { decoded_sent => length $long, decoded_produced => length $long }],
) {
    my ($name, $method, $uri, $headers, $expected) = @$row;
    is_deeply(change(qr/^bytes/, $method, $uri, @$headers),
              { map { ("bytes.$_" => $expected->{$_}) } keys %$expected },
              "$name: bytes");
}

# HEAD and 304 are answered alike by a kept body

my $tag = $t->get('/a.txt')->header('ETag');
my $head = change(qr/^[a-z]+$/, 'HEAD', '/a.txt', $GZIP);
my $not_modified = change(qr/^[a-z]+$/, 'GET', '/a.txt', $GZIP,
                          "If-None-Match: $tag");
is_deeply($not_modified, $head, 'a kept body: 304 and HEAD count alike')
    or diag(explain($head, $not_modified));

# what a worker holds shows while it is held

$t->reload();
my $c = $t->connect(rcvbuf => 4096);
$c->send_request('GET', '/a.txt', headers => ['Connection: close']);
my $begin = $c->read_some(500);
my $worker = $s->worker;
cmp_ok($worker->{buffers}{size}, '==', 4 << 20,
       'a slow reader: the size shows');
cmp_ok($worker->{buffers}{used}, '>=', $size, 'a slow reader: the body shows');
is($worker->{files}, 1, 'a slow reader: the file shows');
ok(($begin . $c->read_some($size * 2)) =~ /\r\n\r\n\Q$text\E\z/,
   'a slow reader: is right');
$c->close();

$c = $t->connect(rcvbuf => 4096);
$c->send_request('GET', '/stream.txt', headers => ['Connection: close']);
$begin = $c->read_some(500);
$worker = $s->worker;
cmp_ok($worker->{streams}, '>=', 2 * 65536, 'a slow stream: its chunks show');
cmp_ok($worker->{buffers}{used} - $worker->{buffers}{kept}, '>=', 2 * 65536,
       'a slow stream: in the buffers, too');
ok(($begin . $c->read_some(2_000_000)) =~ /\r\n\r\n\Q$long\E\z/s,
   'a slow stream: is right');
$c->close();
ok($s->poll(sub { $_[0]{streams} == 0 }), 'its end shows');
