#!/usr/bin/perl

# Paths of every length, by root, alias and an alias with captures: the suffix
# has room, and no request is answered with another file.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $PATH_MAX = 4096;
my $NAME_MAX = 255;

my $t = Test::Zmap->new(log_level => 'crit', timeout => 20)->plan(10);

# a tree as deep as a path can be, with a file in some of its directories
my $step = 'd' x 99;
my @deep;
for (my $dir = ''; length($t->path('')) + length($dir) + 120 < $PATH_MAX;
     $dir .= "$step/")
{
    push @deep, "${dir}f";
}

for my $name (@deep) {
    $t->raw_zst($name, $t->frame(fcs => length $name,
                                 blocks => [[raw => $name]]));
}
for my $n (1 .. $NAME_MAX - 4) {
    $t->raw_zst('n' x $n, $t->frame(fcs => $n, blocks => [[rle => 'n', $n]]));
}

$t->run($t->conf(<<'EOF', http => 'large_client_header_buffers 4 16k;'));
zstd_mmap on;
location /alias/ { alias %%DIR%%/; }
location ~ ^/captured/(.*)$ { alias %%DIR%%/$1; }
EOF

my $c;


sub get {
    my ($uri) = @_;

    $c //= $t->connect();
    my $r = $c->get($uri);
    undef $c if !$r->complete || ($r->header('Connection') // '') eq 'close';

    return $r;
}


for my $where ('', '/alias', '/captured') {
    my @wrong = grep {
        my $r = get("$where/" . 'n' x $_);
        $r->status != 200 || $r->body ne 'n' x $_;
    } 1 .. $NAME_MAX - 4;
    is("@wrong", '', "names of all lengths, $where/");

    @wrong = grep {
        my $r = get("$where/$_");
        $r->status != 200 || $r->body ne $_;
    } @deep;
    is(scalar(@wrong), 0, "paths of all depths, $where/");

    # nothing lies there, whatever the length
    @wrong = grep {
        my $name = substr(('m' x 100 . '/') x 50, 0, $_) =~ s{/$}{m}r;
        get("$where/$name")->status != 404;
    } 1 .. $PATH_MAX + 100;
    is("@wrong", '', "missing files at all lengths, $where/");
}

cmp_ok(scalar(@deep), '>', 30, 'the tree is deep');
