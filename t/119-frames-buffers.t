#!/usr/bin/perl

# Frames and the worker's memory: copies lie beside decoded bodies, where there
# is no room they leave in pieces all the same, and nothing is left behind.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $SCALE = $ENV{TEST_SCALE} || 1;
my $PAGE = 4096;

# a sanitizer keeps what was freed
$ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
    'quarantine_size_mb=1', 'thread_local_quarantine_size_kb=64';

my $t = Test::Zmap->new(timeout => 20)->plan(32);
my $s = Test::Zmap::Status->new($t);

my $both = $t->text(60_000, 1);
my $small = $t->random(20_000, 2);
my $page = $t->text(90_000, 3);
my %zst = (both => $t->zst('both.txt', $both),
           small => $t->zst('small.txt', $small),
           tiny => $t->zst('tiny.txt', 'tiny'),
           page => $t->zst('page.html', $page));
my $large = $t->frame(window => 8 << 20,
    blocks => [map { [raw => $t->random(131072, $_)] } 1 .. 35]);
$t->raw_zst('large.txt', $large);
my @pin = map { "pin$_.txt" } 1 .. 4;
$t->zst($pin[$_], $t->random(256 << 10, 10 + $_)) for 0 .. 3;
$t->settle(map { "$_.zst" } qw(both.txt small.txt tiny.txt page.html
                               large.txt), @pin);

$t->run($t->conf(<<'EOF' . $s->location, http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% sndbuf=8k;
    zstd_mmap on;
    sendfile on;
    location /off/ { alias %%DIR%%/; sendfile off; }
    location /memory/ { alias %%DIR%%/; zstd_mmap_send memory; }
    location /filter/ {
        alias %%DIR%%/;
        sub_filter nothing something;
        location /filter/sendfile/ {
            alias %%DIR%%/;
            zstd_mmap_send sendfile;
        }
        location /filter/large/ {
            alias %%DIR%%/;
            sub_filter_types *;
        }
    }
    location /always/ {
        alias %%DIR%%/;
        zstd_mmap always;
        location /always/page/ {
            alias %%DIR%%/;
            add_before_body /always/tiny.txt;
        }
    }
EOF
zstd_mmap_buffers 1m max=256k hugepages=off;
keepalive_requests 10000;
EOH

my ($worker) = $t->worker_pids();
my @zstd = ('Accept-Encoding: zstd');


sub right {
    my ($r, $body) = @_;

    return $r->status == 200 && $r->complete && $r->body eq $body;
}


sub pages { return $PAGE * int(($_[0] + $PAGE - 1) / $PAGE) }


# slow readers have all the buffers, none of which was used before

my @slow = map { $t->connect(port => $t->port(2), rcvbuf => 4096) } @pin;
$slow[$_]->send_request('GET', "/$pin[$_]") for 0 .. $#pin;
my @begin = map { $_->read_some(17) } @slow;
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{size} }),
   'slow readers have all the buffers');

my $before = length $t->log();
ok(right($t->get('/small.txt', @zstd), $zst{small}), 'no room: small frames');
my $new = substr $t->log(), $before;
my $size = length $zst{small};
like($new, qr/copy of $size bytes at 0 rc:0/, 'no room: copied in pieces');
my ($taken) = $new =~ /no buffers left for pieces, malloc (\d+)/;
cmp_ok($taken // 1e9, '<=', 2 * pages($size),
       'no room: no more memory than it has bytes');
for my $dir (qw(off memory)) {
    ok(right($t->get("/$dir/large.txt", @zstd), $large),
       "no room, /$dir: large frames");
}
ok(right($t->get('/large.txt', @zstd), $large), 'no room: by descriptor');
is($t->get('/small.txt', @zstd, 'Range: bytes=5000-5009')->body,
   substr($zst{small}, 5000, 10), 'no room: a range');
my $change = $s->change(sub { $t->get('/small.txt', @zstd) });
is_deeply($change, { requests => 1, sent => 1,
                     'bytes.frames_sent' => $size }, 'no room: counted once');

$_->abort() for @slow;
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'when they are gone: only what is kept');


# both representations of one version, in the place of one of those bodies

my $kept = 3 * (256 << 10);
my $coded = pages(length $zst{both});
my $decoded = pages(length $both);

ok(right($t->get('/both.txt', @zstd), $zst{both}), 'frames');
ok($s->poll(sub { $_[0]{buffers}{kept} == $kept + $coded }),
   'a copy of them is kept');
ok(right($t->get('/both.txt'), $both), 'decoded');
ok($s->poll(sub { $_[0]{buffers}{kept} == $kept + $coded + $decoded }),
   'and kept beside it');

my $copies = $t->log_count(qr/zstd mmap: copy of/);
$change = $s->change(sub {
    ok(right($t->get('/both.txt', @zstd), $zst{both}), 'frames again');
    ok(right($t->get('/both.txt'), $both), 'decoded again');
});
is_deeply($change, { requests => 2, sent => 1, decoded => 1, cached => 1,
                     'bytes.frames_sent' => length $zst{both},
                     'bytes.decoded_sent' => length $both },
          'what was decoded is cached, the frames are sent');
is($t->log_count(qr/zstd mmap: copy of/), $copies, 'nothing is copied again');

# what filters make of it is counted as what was sent

for my $where (['', 'page.html', $zst{page}],
               ['sendfile/', 'page.html', $zst{page}],
               ['large/', 'large.txt', $large])
{
    my ($dir, $name, $body) = @$where;
    my $r;
    $change = $s->change(sub { $r = $t->get("/filter/$dir$name", @zstd) });
    ok(right($r, $body) && !defined $r->header('Content-Length'),
       "/filter/$dir: whole, its length is not said");
    is($change->{'bytes.frames_sent'}, length $body, "/filter/$dir: counted");
}

# a part of a page is decoded, whatever the page is
my $r = $t->get('/always/page/page.html');
ok(right($r, "tiny$zst{page}"), 'a subrequest is decoded');

# bytes that are the worker's own
sub anonymous {
    open(my $fh, '<', "/proc/$worker/status") or die "status: $!";
    local $/;
    my ($kib) = <$fh> =~ /^RssAnon:\s+(\d+) kB/m or die "no RssAnon\n";

    return 1024 * $kib;
}


my @turn = (
    ['/small.txt', $zst{small}], ['/small.txt', ''],
    ['/off/pin1.txt', $t->read('pin1.txt.zst')],
    ['/memory/both.txt', $zst{both}], ['/off/small.txt', $zst{small}],
);


# requests on one connection that were not answered as they should be
sub wrong {
    my ($count, $large_each) = @_;

    my $wrong = 0;
    my $c = $t->connect();

    for my $i (1 .. $count) {
        my ($uri, $body) = @{$turn[$i % @turn]};
        ($uri, $body) = (('/off', '', '/memory')[$i % 3] . '/large.txt',
                         $large) if $i % $large_each == 0;
        my $reply = $body eq '' ? $c->head($uri, @zstd) : $c->get($uri, @zstd);
        $wrong++ unless right($reply, $body);
    }
    $c->close();

    return $wrong;
}


is(wrong(300, 10), 0, 'requests to warm up');
my $warm = anonymous();
is(wrong(2000, 40), 0, '2000 requests on one connection');
cmp_ok(anonymous() - $warm, '<=', 256 * 1024 * $SCALE,
       'the worker does not grow');

# a reply of many pieces, to a connection that goes on
my $c = $t->connect();
ok(right($c->get('/off/large.txt', @zstd), $large)
   && right($c->get('/tiny.txt', @zstd), $zst{tiny}), 'one after the other');

ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'every piece came back');
is(($t->worker_pids())[0], $worker, 'the worker lives');
is($t->log_count(qr/is not usable|\[crit\]/), 0, 'no complaint');
