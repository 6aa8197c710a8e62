#!/usr/bin/perl

# What a location does, for each directive set at http, server and location in
# all combinations.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $KB = 1024;
my $MB = 1024 * 1024;

my $t = Test::Zmap->new()->plan(11 * 3 + 3 + 9);

$t->zst('a.txt', 'one');
$t->zst('beside.txt', 'decoded');
$t->write('beside.txt', 'plain');
$t->zst('long.txt', $t->text(600 * $KB, 1), size => 0);
$t->raw_zst('tail.txt', $t->compress('tail') . 'rubbish');
for my $window (32 * $KB, $MB, 8 * $MB, 9 * $MB, 192 * $MB) {
    $t->raw_zst("w$window.txt", $t->frame(window => $window, fcs => 300,
                                          blocks => [[rle => 'w', 300]]));
}
$t->zst("s$_.txt", 's' x $_) for 10, 10_000, 200_000;

# what can be seen from outside: directive, its two values, function and what
# it returns by default, for the first and for the second value
my @rows = (
    ['zstd_mmap', 'on', 'off', sub { coding($_[0], 'a', 'zstd') },
     '404', 'zstd', '404'],
    ['zstd_mmap', 'always', 'decode',
     sub { coding($_[0], 'a', 'zstd') . ' ' . coding($_[0], 'a', 'gzip') },
     '404 404', 'zstd zstd', 'identity identity'],
    ['zstd_mmap_decode', 'off', 'missing', \&decode_seen,
     'identity decoded', '404 plain', 'identity plain', 'zstd_mmap on;'],
    ['zstd_mmap_decode', 'missing', 'on', \&decode_seen,
     'identity decoded', 'identity plain', 'identity decoded',
     'zstd_mmap on;'],
    ['zstd_mmap_chunk', '4k', '8k', \&first_chunk, 256 * $KB, 4 * $KB,
     8 * $KB, 'zstd_mmap on; zstd_mmap_cache off;'],
    ['zstd_mmap_verify', 'off', 'structure',
     sub { coding($_[0], 'tail', 'zstd') }, '500', 'zstd', '500',
     'zstd_mmap on; zstd_mmap_cache off;'],
    ['zstd_mmap_send_window', '64k', '32m',
     sub { join ' ', map { coding($_[0], "w$_", 'zstd') }
           32 * $KB, $MB, 8 * $MB, 9 * $MB },
     'zstd zstd zstd identity', 'zstd identity identity identity',
     'zstd zstd zstd zstd',
     'zstd_mmap on;'],
    ['zstd_mmap_decode_window', '64k', '256m',
     sub { join ' ', map { coding($_[0], "w$_", 'gzip') }
           32 * $KB, $MB, 192 * $MB },
     'identity identity 500', 'identity 500 500',
     'identity identity identity', 'zstd_mmap on;'],
    ['zstd_mmap_max_size', '1k', '100k',
     sub { join ' ', map { coding($_[0], "s$_", 'gzip') }
           10, 10_000, 200_000 },
     'identity identity identity', 'identity 500 500',
     'identity identity 500', 'zstd_mmap on;'],
    ['zstd_mmap_max_size', '1k', '0',
     sub { coding($_[0], 's200000', 'gzip') },
     'identity', '500', 'identity', 'zstd_mmap on;'],
    ['zstd_mmap_vary', 'off', 'on',
     sub { get($_[0], 'a', 'zstd')->header('Vary') // '-' },
     'Accept-Encoding', '-', 'Accept-Encoding', 'zstd_mmap on;'],
);


sub get {
    my ($place, $name, $coding) = @_;

    my ($host, $prefix) = @$place;

    return $t->get("/$prefix/$name.txt", "Host: $host",
                   "Accept-Encoding: $coding");
}


# the coding of a 200, else the status
sub coding {
    my $r = get(@_);

    return $r->status unless $r->status == 200 && $r->complete;
    return $r->header('Content-Encoding') // 'identity';
}


sub decode_seen {
    my ($place) = @_;

    return coding($place, 'a', 'gzip') . ' '
           . get($place, 'beside', 'gzip')->body;
}


# the piece in which a streamed body begins, as the client gets it
sub first_chunk {
    my ($place) = @_;

    my ($host, $prefix) = @$place;
    my $c = $t->connect();
    $c->send_request('GET', "/$prefix/long.txt",
                     headers => ["Host: $host", 'Connection: close']);
    my $head = $c->read_some(1024);
    $c->close();

    return $head =~ /\r\n\r\n([0-9a-f]+)\r\n/ ? hex $1 : $head;
}


# servers and locations without the directive, with one and the other value
sub matrix {
    my ($name, $http, $values, $fixed) = @_;

    my $set = sub { return defined $_[0] ? "$name $_[0];" : '' };
    my @servers;
    for my $s (0 .. 2) {
        my $text = $set->($values->[$s]);
        $text .= "location /l$_/ { alias %%DIR%%/; "
                 . $set->($values->[$_]) . ' }' for 0 .. 2;
        push @servers, "server { listen 127.0.0.1:%%PORT%%; "
                       . "server_name s$s; $text }";
    }

    return "%%GLOBALS%%\nevents { }\nhttp { %%HTTP%% root %%DIR%%; "
           . $set->($http) . ($fixed // '') . " @servers }\n";
}


my $runs = 0;

for my $row (@rows) {
    my ($name, $first, $second, $seen, @shown) = @$row;
    my $fixed = $shown[3];
    my @values = (undef, $first, $second);

    for my $h (0 .. 2) {
        my $conf = matrix($name, $values[$h], \@values, $fixed);
        $runs++ ? $t->reload(conf => $conf) : $t->run($conf);

        my (@got, @expected);
        for my $s (0 .. 2) {
            for my $l (0 .. 2) {
                my $cell = join '/', map { $values[$_] // 'unset' }
                                     $h, $s, $l;
                push @got, "$cell: " . $seen->(["s$s", "l$l"]);
                push @expected, "$cell: " . $shown[$l || $s || $h];
            }
        }
        is_deeply(\@got, \@expected,
                  "$name: http " . ($values[$h] // 'unset'));
    }
}

# the main context only: what the http block says

for my $row (['', 206], ['zstd_mmap_buffers 64k max=4k;', 200],
             ['zstd_mmap_buffers 1m;', 206])
{
    my ($text, $status) = @$row;
    $t->reload(conf => $t->conf('zstd_mmap on;', http => $text));
    is($t->get('/s10000.txt', 'Range: bytes=0-9,20-29')->status, $status,
       ($status == 200 ? 'streamed' : 'one buffer') . " with '$text'");
}

# a block in the middle that disables, and blocks inside a location

my $http = 'zstd_mmap on; zstd_mmap_max_size 1k; zstd_mmap_vary off;';

$t->reload(conf => $t->conf(<<'EOF', http => $http));
zstd_mmap off;
location / {
    location /on/ { alias %%DIR%%/; zstd_mmap on; }
    location /deeper/ {
        zstd_mmap on;
        zstd_mmap_vary on;
        location /deeper/off/ { alias %%DIR%%/; zstd_mmap off; }
        location /deeper/in/ { alias %%DIR%%/; zstd_mmap_max_size 100k; }
    }
}
location /if/ {
    alias %%DIR%%/;
    zstd_mmap on;
    zstd_mmap_send_window 64k;
    zstd_mmap_vary on;
    if ($args = off) { zstd_mmap off; }
    if ($args = always) { zstd_mmap always; }
    if ($args = none) { set $x 1; }
}
EOF


# what a zstd client gets: the coding of a 200, else the status
sub seen {
    my $r = $t->get($_[0], 'Accept-Encoding: zstd');

    return $r->status unless $r->status == 200;
    return $r->header('Content-Encoding') // 'identity';
}


is(seen('/a.txt'), 404, 'disabled in the middle');
is(seen('/on/a.txt'), 'zstd', 'and enabled again below');
is($t->get('/on/s10000.txt')->status, 500, 'with what was set above');
is($t->get('/on/a.txt')->header('Vary'), undef, 'all of it');
is(seen('/deeper/off/a.txt'), 404, 'off in a nested location');
is($t->get('/deeper/in/s10000.txt')->status
   . ' ' . $t->get('/deeper/in/a.txt')->header('Vary'),
   '200 Accept-Encoding', 'a nested location inherits the rest');
is(seen('/if/a.txt?off'), 404, 'off in an if');
is(join(' ', map { $t->get("/if/a.txt?$_")->header('Content-Encoding') // '-' }
        'always', 'none', 'other'), 'zstd - -', 'always in an if');
is(join(' ', map { seen("/if/w$MB.txt?$_") } 'always', 'none', 'other'),
   'identity identity identity', 'an if inherits from its location');
