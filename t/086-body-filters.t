#!/usr/bin/perl

# addition and sub_filter over decoded replies: as over plain files.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my %body = (
    small   => 'ba small, ce',
    shot    => $t->text(50_000, 1),
    stream  => $t->text(300_000, 2),
    unknown => $t->text(200_000, 3),
    empty   => '',
);

for my $name (keys %body) {
    $t->write("plain/$name.txt", $body{$name});
    $t->zst("zst/$name.txt", $body{$name}, size => $name eq 'unknown' ? 0 : 1);
}

my @names = sort keys %body;

# Debian's nginx has both modules; the binary that lacks one does not start
my @filters = (
    'add_before_body PARTS/small.txt',
    'add_after_body PARTS/small.txt',
    'add_before_body PARTS/stream.txt; add_after_body PARTS/unknown.txt',
    'add_before_body PARTS/empty.txt; add_after_body PARTS/empty.txt',
    'add_before_body PARTS/missing.txt',
    "sub_filter 'ba' '[BA]'; sub_filter_once off",
    "sub_filter 'ba' ''; sub_filter_once off; sub_filter 'ce' 'longer than'",
    "sub_filter 'no such text' 'x'",
    "sub_filter 'ba' 'x'; add_after_body PARTS/stream.txt",
);

$t->plan(@filters * @names * 4 + 3);

my $locations = '';

for my $i (0 .. $#filters) {
    for my $kind (qw(plain zst)) {
        my $on = $kind eq 'zst' ? 'zstd_mmap decode; zstd_mmap_chunk 8k;' : '';
        my $filter = $filters[$i] =~ s{PARTS}{/$kind}gr;
        $locations .= "location /$i/$kind/ { alias %%DIR%%/$kind/; $on"
            . " addition_types *; sub_filter_types *; $filter; }\n";
    }
}

$t->run($t->conf(<<"EOC", http => 'zstd_mmap_buffers 1m max=64k;'));
    listen 127.0.0.1:%%PORT2%% http2;

    location /zst/ { zstd_mmap on; zstd_mmap_chunk 8k; }

    $locations
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);

for my $i (0 .. $#filters) {
    for my $name (@names) {
        my $expected = $t->get("/$i/plain/$name.txt")->body;
        my $uri = "/$i/zst/$name.txt";
        my %r = (
            '1.1'  => $t->get($uri),
            'zstd' => $t->get($uri, 'Accept-Encoding: zstd'),
            '1.0'  => $t->request('GET', $uri, version => '1.0'),
            'h2'   => $t->curl('--http2-prior-knowledge', $h2 . $uri),
        );

        for my $how (sort keys %r) {
            ok($r{$how}->status == 200 && $r{$how}->complete
               && $r{$how}->body eq $expected, "$filters[$i]; $name, $how")
                or diag(length($r{$how}->body) . ' of ' . length $expected);
        }
    }
}

# the comparison is with something
is($t->get('/0/plain/small.txt')->body, $body{small} x 2, 'addition works');
is($t->get('/5/plain/small.txt')->body, '[BA] small, ce', 'sub_filter works');
is($t->log_count(qr/zero size buf/), 0, 'no zero size buf');
