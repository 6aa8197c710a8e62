#!/usr/bin/perl

# URIs of 2 to 4096 bytes, by root, alias and alias with a regex.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my @lengths = (2 .. 40, 60 .. 66, 124 .. 130, 250 .. 260, 508 .. 516,
               1016 .. 1028, 2040 .. 2056);
for (my $n = 41; $n < 4060; $n += 61) { push @lengths, $n }
push @lengths, 4060 .. 4096;


# a path of exactly that length, of components that a file system takes
sub uri {
    my ($length) = @_;

    my $uri = '';
    while (length $uri < $length) {
        my $left = $length - length $uri;
        $uri .= '/' . 'a' x (($left > 102 ? 100 : $left) - 1);
    }

    return $uri;
}


# PATH_MAX counts the NUL; nginx maps the path first, with ".zst" behind
sub fits { return length($t->dir()) + $_[0] + 4 < 4096 }


my %prefix = ('' => 0, '/alias' => 6, '/regex' => 6);

# files end in a letter, directories do not: no name is both
my %coded;
for my $length (@lengths) {
    next unless fits($length);
    (my $rel = uri($length)) =~ s/a$/f/;
    $t->raw_zst(substr($rel, 1), $coded{$length} =
        $t->frame(blocks => [[raw => "length $length"]]));
}

$t->plan(2 * 3 * @lengths + 3);

$t->run($t->conf(<<'EOC'));
    large_client_header_buffers 4 16k;
    zstd_mmap on;

    location /alias/ { alias %%DIR%%/; }
    location ~ ^/regex/(.*)$ { alias %%DIR%%/$1; }
EOC

my $found = 0;

for my $prefix (sort keys %prefix) {
    for my $length (@lengths) {
        (my $uri = uri($length)) =~ s/a$/f/;

        my $r = $t->get("$prefix$uri");
        my $zstd = $t->get("$prefix$uri", 'Accept-Encoding: zstd');

        if ($coded{$length}) {
            $found++;
            is($r->body, "length $length", "'$prefix' and $length: decoded");
            is($zstd->body, $coded{$length}, "'$prefix' and $length: frames");
        } else {
            isnt($r->status, 200, "'$prefix' and $length: not there");
            isnt($zstd->status, 0, "'$prefix' and $length: answered");
        }
    }
}

cmp_ok($found, '>', 3 * 150, 'most were found');
is($t->get('/')->status, 403, 'the root is a directory');
is($t->get('//f')->body, 'length 2', 'slashes are merged');
