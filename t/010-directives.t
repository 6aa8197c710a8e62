#!/usr/bin/perl

# Values of the directives under "nginx -t": what is taken, and what a refusal
# says.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $TOO_MUCH = '9223372036854775808';       # 2^63

# every value that is taken, at both ends of its bounds
my %good = (
    zstd_mmap               => [qw(on off always decode)],
    zstd_mmap_decode        => [qw(on off missing)],
    zstd_mmap_buffers       => ['64k', '65536', '1024g', '1m', '64K max=4k',
                                '32m max=32m', '8m max=4096',
                                '32m hugepages=auto', '32m hugepages=on',
                                '32m max=4m hugepages=off',
                                '32m hugepages=off max=4m'],
    zstd_mmap_chunk         => [qw(4k 4096 16m 16384k 16777216)],
    zstd_mmap_cache         => ['off', 'max=1', 'max=32768',
                                'max=7 inactive=1s', 'inactive=2h max=7'],
    zstd_mmap_streams       => [qw(1m 1024k 256m 1024g)],
    zstd_mmap_verify        => [qw(structure off)],
    zstd_mmap_send_window   => [qw(1k 1024 8m 2g 2147483648)],
    zstd_mmap_decode_window => [qw(1k 1024 128m 2g 2147483648)],
    zstd_mmap_max_size      => [qw(0 1 10m 9223372036854775807)],
    zstd_mmap_vary          => [qw(on off)],
    zstd_mmap_input         => [qw(map read scratch scratch=1m scratch=1g
                                   scratch=8192k SCRATCH)],
    zstd_mmap_advise        => [qw(auto off sequential willneed hugepage)],
);

# [arguments, the one that the message names]; without the second the same
my @no_size = map { [$_] }
    qw(0 -1 abc 4kb 1.5m k 4k; 1t), '99999999999999999999', $TOO_MUCH,
    '9223372036854775807k', '9007199254740993g';
my %bad = (
    zstd_mmap               => [map { [$_] } qw(yes o onn of alwaysx decode1
                                                structure 1)],
    zstd_mmap_decode        => [map { [$_] } qw(always missin missings yes)],
    zstd_mmap_buffers       => [@no_size, map({ [$_] } qw(off 65535 63k
        1025g 1099511627777)), ['max=1m'], ['32m max=4095', 'max=4095'],
        ['32m max=33m', 'max=33m'], ['2m max=2097153', 'max=2097153'],
        ['32m max=', 'max='], ['32m max=-1', 'max=-1'], ['32m 4m', '4m'],
        ['32m MAXIMUM=4m', 'MAXIMUM=4m'], ['32m hugepages=no',
        'hugepages=no'], ['32m hugepages=', 'hugepages='],
        ['32m max=4m max=4m', 'max=4m'],
        ['32m hugepages=on hugepages=on', 'hugepages=on'],
        ["32m max=$TOO_MUCH", "max=$TOO_MUCH"]],
    zstd_mmap_chunk         => [@no_size, map { [$_] } qw(4095 3k 16777217
                                                           17m 1g)],
    zstd_mmap_cache         => [map({ [$_] } qw(on 5 size=5 max=0 max=-1
        max= max=1k max=32769 max=99999999999999999999)),
        ['max=5 max=6', 'max=6'], ['max=5 inactive=', 'inactive='],
        ['max=5 inactive=abc', 'inactive=abc'],
        ['max=5 inactive=-1', 'inactive=-1'],
        ["max=5 inactive=$TOO_MUCH", "inactive=$TOO_MUCH"],
        ['inactive=5s inactive=6s', 'inactive=6s'],
        ['off inactive=5s', 'off'], ['max=5 off', 'off'],
        ['max=5 min=1', 'min=1']],
    zstd_mmap_streams       => [@no_size, map { [$_] } qw(off 1023k 1048575
                                                           1025g)],
    zstd_mmap_verify        => [map { [$_] } qw(on yes struct structures)],
    zstd_mmap_send_window   => [@no_size, map { [$_] } qw(1023 2147483649
                                                           3g)],
    zstd_mmap_decode_window => [@no_size, map { [$_] } qw(1023 2147483649
                                                           3g)],
    zstd_mmap_max_size      => [map { [$_] } qw(-1 abc 1x 1.5 k), $TOO_MUCH,
                                '9223372036854775807k'],
    zstd_mmap_vary          => [map { [$_] } qw(yes 1 always)],
    zstd_mmap_input         => [map { [$_] } qw(on off mmap reads scratch=
        scratch=1023k scratch=1025m scratch=-1 scratch=x read=64k scratch:8m),
        "scratch=$TOO_MUCH"],
    zstd_mmap_advise        => [map { [$_] } qw(on random willnee hugepages)],
);

my %http_only = map { $_ => 1 }
    qw(zstd_mmap_buffers zstd_mmap_cache zstd_mmap_streams);
my @names = sort keys %good;

my $t = Test::Zmap->new()->plan(7 * @names + 2);


# the block of a level holds the text; "nginx -t"
sub check {
    my ($level, $text) = @_;

    my $location = $level eq 'location' ? $text : '';
    my $if = $level eq 'if' ? $text : '';
    my $upstream = $level eq 'upstream' ? $text : '';
    my $server = $level eq 'server' ? $text : '';

    my $conf = $t->conf("$server location / { $location"
        . " if (\$args = a) { set \$x 1; $if } }",
        http => ($level eq 'http' ? $text : '')
                . " upstream u { server 127.0.0.1:1; $upstream }");
    $conf =~ s/(%%GLOBALS%%)/$1\n$text/ if $level eq 'main';

    return $t->test_config($conf);
}


# one line for each call that did not end as the message says
sub wrong {
    my ($level, $message, @lines) = @_;

    my @wrong;
    for my $line (@lines) {
        my ($text, $re) = ref $line ? @$line : ($line, $message);
        my ($code, $output) = check($level, $text);
        my $right = defined $re ? $code == 1 && $output =~ $re : $code == 0;
        push @wrong, "$level: $text\n  $code: $output" unless $right;
    }

    return join '', @wrong;
}


sub quoted { return $_[0] =~ /[;]/ ? "\"$_[0]\"" : $_[0] }


# the innermost level that takes it
sub inner { return $http_only{$_[0]} ? 'http' : 'location' }


for my $name (@names) {
    my @levels = $http_only{$name} ? 'http' : qw(http server location);
    push @levels, 'if' if $name eq 'zstd_mmap';

    my @taken = map { "$name $_;" } @{$good{$name}};
    is(join('', map { wrong($_, undef, @taken) } @levels), '',
       "$name: listed values are taken");

    is(wrong(inner($name), undef, map {
        my ($args, $value) = @$_;
        $value //= $args;
        ["$name " . quoted($args) . ';',
         qr/\[emerg\] .*invalid value "\Q$value\E" in "$name" directive/];
    } @{$bad{$name}}), '', "$name: others are refused by name and value");

    my $empty = $good{$name}[0] =~ /=/ ? 'max=' : '';
    is(wrong(inner($name), qr/invalid value "\Q$empty\E" in "$name" dir/,
             "$name \"$empty\";"), '', "$name: empty value is refused");

    is(wrong(inner($name), qr/invalid number of arguments in "$name" dir/,
             "$name;", "$name " . 'max=5 ' x 4 . ';'), '',
       "$name: number of arguments");

    my $twice = "$name $good{$name}[0]; $name $good{$name}[-1];";
    is(join('', map { wrong($_, qr/"$name" directive is duplicate/, $twice) }
            @levels), '', "$name: repeated");

    my %taken_at = map { $_ => 1 } @levels;
    my @elsewhere = grep { !$taken_at{$_} }
        qw(main http upstream server location if);
    is(join('', map {
        wrong($_, qr/"$name" directive is not allowed here/, $taken[0])
    } @elsewhere), '', "$name: wrong context");

    my ($code, $output) = check('http', "$name $good{$name}[0];");
    unlike($output, qr/zstd/, "$name: says nothing about a good value");
}

# two chunks need room

my $no_room = qr/"zstd_mmap_streams" of 2097152 bytes has no room for two/
    . ' pieces of "zstd_mmap_chunk", 1048577 bytes each';
is(wrong('http', undef, 'zstd_mmap_streams 2m; zstd_mmap_chunk 1m;',
         'zstd_mmap_chunk 1048576; zstd_mmap_streams 2m;'), '',
   'chunks of half of zstd_mmap_streams');
is(wrong('http', qr/$no_room/,
         'zstd_mmap_streams 2m; zstd_mmap_chunk 1048577;',
         'zstd_mmap_chunk 1048577; zstd_mmap_streams 2m;',
         'zstd_mmap_streams 2m; server { location /a/ {'
         . ' zstd_mmap_chunk 1048577; } }'), '',
   'larger chunks: refused, wherever they stand');
