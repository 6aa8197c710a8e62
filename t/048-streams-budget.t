#!/usr/bin/perl

# zstd_mmap_streams: slow streams fill it, the next one is answered with 503
# and "Retry-After", or by the plain file; whatever ends a stream gives back
# what it took.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $KB = 1024;
my $CHUNKS = 2 * 64 * $KB;
my $SIZE = 2_000_000;
my $GZIP = 'Accept-Encoding: gzip';
my $ZSTD = 'Accept-Encoding: zstd';
my $DATE = 'Sun, 13 Sep 2020 12:26:40 GMT';

my $t = Test::Zmap->new(log_level => 'info')->plan(75);
my $s = Test::Zmap::Status->new($t);

my $body = $t->random($SIZE, 1);


sub wide {
    my ($name, $window, $bytes) = @_;

    $t->raw_zst($name, $t->frame(window => $window, fcs => length $bytes,
        checksum => 1, blocks => [map { [raw => $_] }
                                  unpack "(a50000)*", $bytes]));
    $t->mtime("$name.zst", 1600000000);
}


wide("w$_.txt", $_ * $KB, $body) for 64, 128, 256, 896, 1024;
wide('short.txt', 128 * $KB, substr $body, 0, 100_000);
wide('capped.txt', 8 << 20, substr $body, 0, 300_000);
wide($_, 128 * $KB, $body) for 'beside.txt', 'toowide.txt';
wide('both.txt', 1024 * $KB, $body);
wide('sums.txt', 128 * $KB, $body);
$t->write("$_.txt", "plain $_") for qw(beside both);
my $text = $t->text(900_000, 2);
$t->zst('unknown.txt', $text, size => 0, args => ['--zstd=wlog=17'],
        mtime => 1600000000);
$t->zst('small.txt', 'small');
$t->write('page.shtml', '<p><!--#include virtual="w128.txt" --></p>'
    . '<!--#include virtual="small.txt" -->');
$t->write('busy.html', 'come back');
$t->settle(map { s{.*/}{}r } glob $t->path('*.zst'));

my $conf = $t->conf($s->location . <<'EOT', http => <<'EOH');
    listen 127.0.0.1:%%PORT2%% sndbuf=8k;
    zstd_mmap on;
    zstd_mmap_chunk 64k;

    location = /page.shtml { ssi on; ssi_types *; zstd_mmap off; }
    location /page/ { alias %%DIR%%/; error_page 503 /busy.html; }
    location /sums/ { alias %%DIR%%/; zstd_mmap_verify checksum; }
    location /narrow/ { alias %%DIR%%/; zstd_mmap_verify checksum;
                        zstd_mmap_decode_window 64k; }
    location /other/ { alias %%DIR%%/; error_page 503 =200 /busy.html; }
    location = /busy.html { zstd_mmap off; }
EOT
    zstd_mmap_buffers 64k max=4k;
    zstd_mmap_streams 1m;
EOH
$t->run($conf);

# a client that has begun to read
sub begin {
    my ($uri, @headers) = @_;

    my $c = $t->connect(port => $t->port(2), rcvbuf => 4096);
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);
    $c->{buffer} = $c->read_some(200) . $c->{buffer};
    die "$uri: $c->{buffer}\n" unless $c->{buffer} =~ /\AHTTP\S+ 20[06] /;

    return $c;
}


sub charged { return $s->worker->{streams} }


sub comes_to {
    my ($bytes, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ok($s->poll(sub { $_[0]{streams} == $bytes }), "$name: $bytes are charged")
        or diag(charged());
}


sub leave {
    $_->abort() for @_;
}


# four of these fill it

my @c = map { begin('/w128.txt') } 1 .. 4;
is(charged(), 1 << 20, 'four streams: their windows and chunks');

my $r;
my $change = $s->change(sub { $r = $t->get('/w128.txt', $GZIP) });
is($r->status, 503, 'the fifth: 503');
is($r->header('Retry-After'), '1', 'the fifth: Retry-After');
is($r->header($_), undef, "the fifth: no $_") for qw(ETag Last-Modified);
delete $change->{requests};
is_deeply($change, { limited => 1, 'reasons.limit' => 1 },
          'the fifth: counted') or diag(explain($change));
is($t->get('/w64.txt')->status, 503, 'one that needs less: 503');
is($t->request('GET', '/w128.txt', version => '1.0')->header('Retry-After'),
   '1', 'HTTP/1.0: Retry-After');
is($t->get('/w128.txt', 'Range: bytes=5-9')->status, 503, 'a range: 503');

my $begin = time;
$t->get('/w128.txt') for 1 .. 50;
my $lines = $t->log_count(qr/\[warn\].*"[^"]*w128\.txt\.zst" is not decoded/);
cmp_ok($lines, '>', 0, 'the log says so');
cmp_ok($lines, '<=', time - $begin + 3, 'at most once a second');

# a decode for its checksums needs its window

is($t->get('/sums/sums.txt', $ZSTD)->status, 503, 'frames to be verified: 503');
ok($t->poll(sub {
    $t->get('/sums/sums.txt', $ZSTD);
    return $t->log_count(qr/"[^"]*sums\.txt\.zst" is not decoded: there is no/);
}), 'frames to be verified: the log says so');
is($t->log_count(qr/is not decoded: there is no time/), 0,
   'frames to be verified: and says that it is the room');

# what takes nothing of it

is($t->head('/w128.txt')->status, 200, 'HEAD');
is($t->head('/w128.txt')->header('Content-Length'), $SIZE, 'HEAD: its length');
is($t->get('/w128.txt', $ZSTD)->status, 200, 'frames');
is($t->get('/small.txt')->body, 'small', 'a body in one buffer');

for my $name (qw(w128 unknown)) {
    my $tag = $t->head("/$name.txt")->header('ETag');
    for my $row (["If-None-Match: $tag", 304], ["If-None-Match: W/$tag", 304],
                 ["If-Modified-Since: $DATE", 304],
                 ["If-None-Match: $tag", "If-Modified-Since: $DATE", 304],
                 ['If-None-Match: "x"', 503],
                 ["If-None-Match: \"x\", $tag", 503],
                 ['If-None-Match: "x"', "If-Modified-Since: $DATE", 503],
                 ["If-Match: $tag", 503]) {
        my $status = pop @$row;
        $r = $t->get("/$name.txt", @$row);
        is($r->status, $status, "$name, @$row: $status");
    }
}
is(charged(), 1 << 20, 'and nothing was charged');

# what answers instead

$change = $s->change(sub { $r = $t->get('/beside.txt', $GZIP) });
is($r->body, 'plain beside', 'a plain file beside');
is($r->header('Vary'), 'Accept-Encoding', 'a plain file beside: Vary');
is($r->header('Retry-After'), undef, 'a plain file beside: no Retry-After');
delete $change->{requests};
is_deeply($change, { limited => 1, declined => 1, 'reasons.limit' => 1 },
          'a plain file beside: counted') or diag(explain($change));

$r = $t->get('/page.shtml');
like($r->body, qr{^<p>.*503 Service.*</p>small$}s, 'a part of a page');
is($r->status, 200, 'a part of a page: which is sent');
is($r->header('Retry-After'), undef, 'a part of a page: without Retry-After');

$r = $t->get('/page/w128.txt');
is(join(' ', $r->status, $r->header('Retry-After'), $r->body),
   '503 1 come back', 'error_page');
$r = $t->get('/other/w128.txt');
is(join(' ', $r->status, $r->header('Retry-After') // '-', $r->body),
   '200 - come back', 'error_page with another status');

# one leaves

leave(shift @c);
comes_to(3 * 256 * $KB, 'one has left');
ok($t->get('/w128.txt')->body eq $body, 'there is room for another');
comes_to(3 * 256 * $KB, 'which is given back');
push @c, begin('/w128.txt', 'Range: bytes=100-1900000');
is(charged(), 1 << 20, 'a range fills it');
is($t->get('/w128.txt')->status, 503, 'a range fills it: 503');
leave(splice @c);
comes_to(0, 'all have left');
ok($t->get('/page.shtml')->body eq "<p>$body</p>small", 'the page is whole');
comes_to(0, 'the page');

# windows of several sizes

@c = (begin('/w256.txt'), begin('/w64.txt'));
is(charged(), 2 * $CHUNKS + 320 * $KB, 'windows differ');
is($t->get('/w896.txt')->status, 503, 'a large one');
push @c, begin('/unknown.txt');
is(charged(), 3 * $CHUNKS + 448 * $KB, 'size unknown: its window');
is($t->get('/w256.txt')->status, 503, 'no room for a large window');
push @c, begin('/w64.txt');
is(charged(), 1 << 20, 'for a small one there is');
leave(splice @c);
comes_to(0, 'all have left');

push @c, begin('/w896.txt');
is(charged(), 1 << 20, 'one stream alone fills it');
leave(splice @c);

# never more than a body decodes to; a decoder goes before its pieces do

ok($t->get('/capped.txt')->body eq substr($body, 0, 300_000),
   'a window larger than its body');
comes_to(0, 'a window larger than its body');
push @c, begin('/short.txt');
$c[0]{buffer} .= $c[0]->read_some(45_000);
comes_to($CHUNKS, 'decoded to its end, not yet taken');
$r = $c[0]->response('GET');
ok($r->body eq substr($body, 0, 100_000), 'and then taken');
comes_to(0, 'taken');
@c = ();

# what could never be served

$change = $s->change(sub { $r = $t->get('/w1024.txt') });
is($r->status, 500, 'a window that never fits');
delete $change->{requests};
is_deeply($change, { errors => 1, 'reasons.window' => 1 },
          'a window that never fits: counted') or diag(explain($change));
is($t->head('/w1024.txt')->status, 500, 'a window that never fits: HEAD');
is($t->get('/both.txt')->body, 'plain both',
   'a window that never fits, a plain file');
is($t->get('/w1024.txt', $ZSTD)->status, 200,
   'a window that never fits: frames');

is($t->get('/narrow/w128.txt', $ZSTD)->status, 500,
   'frames that cannot be verified');
is($t->head('/narrow/w128.txt', $ZSTD)->status, 500,
   'frames that cannot be verified: HEAD');

# nothing drifts

my $wrong = 0;
for my $n (1 .. 60) {
    my $c = begin($n % 3 ? '/w128.txt' : '/unknown.txt',
                  $n % 4 ? () : 'Range: bytes=1000000-');
    $n % 2 ? $c->abort() : $c->close();
    $wrong++ if $t->get('/w64.txt', 'Range: bytes=9999999-')->status != 416;
    my $tag = $n % 5 ? '*' : '"x"';
    $t->get('/w64.txt', "If-None-Match: $tag");
}
is($wrong, 0, 'a range that cannot be: 416');
comes_to(0, 'after many that left');
my $used = $s->worker->{buffers};
is($used->{used}, $used->{kept}, 'and no buffer is held');

ok($t->get('/w64.txt')->body eq $body, 'and all is served');
