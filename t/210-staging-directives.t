#!/usr/bin/perl

# Values of zstd_mmap_zone, _stage, _send and _status under "nginx -t".

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $ZONE = 'zstd_mmap_zone z:1m;';

my %good = (
    zone   => ['z:1m', 'z:1024k', 'z:1048576', 'z:1024g hugepages=off',
               'a-b.c_9:2m', 'z:3m hugepages=auto', 'z:3m hugepages=off',
               'z:3m hugepages=on', '"a b:1m"'],
    stage  => ['z', 'off', 'z max=1', 'z max=1g', 'z min_uses=1',
               'z min_uses=1000000', 'z ~\.css$', 'z ~*\.css$', 'z ~a|b',
               'z max=1m min_uses=3 ~*^/a', 'z ~x min_uses=3 max=1m',
               '"z" "~a{2}"'],
    send   => [qw(auto memory sendfile)],
    status => ['json'],
);

# arguments, and what the message names when that is not all of them
my @sizes = qw(1023k 1048575 1025g 0 -1 abc 1mb 1.5m 9223372036854775808
               99999999999999999999g);
my %bad = (
    zone   => [map({ ["z:$_"] } '', @sizes), ['z'], ['1m'], [':1m'], [':'],
               ['z=1m'], ['z:1m:2m'], ['off:1m'],
               map({ ["z:1m $_", $_] } qw(hugepages= hugepages=yes
                   hugepages=onn hugepages max=1m auto off ""))],
    stage  => [map({ ["z $_", $_] } qw(max= max=0 max=-1 max=abc
                   max=9223372036854775808 min_uses= min_uses=0 min_uses=-1
                   min_uses=1k min_uses=99999999999999999999 other off z
                   MAX=1m maximum=1m \.css$ *.css)),
               ['z max=1 max=2', 'max=2'],
               ['z min_uses=1 min_uses=1', 'min_uses=1'],
               ['z ~a ~b', '~b'], ['z ~a ~*a', '~*a'],
               ['off max=1m', 'max=1m'], ['off ~a', '~a'],
               ['z ~(', '~('], ['z "~*[a"', '~*[a'], ['z ~a**', '~a**'],
               ['z ""', ''], ['""', '']],
    send   => [map { [$_] } qw(on off yes mem autos 1)],
    status => [map { [$_] } qw(xml jsonp JSON js on off), '""'],
);

my $t = Test::Zmap->new()->plan(25);


# what is wrong with a call, or an empty string; place => inner text
sub fault {
    my ($re, %place) = @_;

    my $conf = $t->conf(($place{server} // '') . ' location / { '
        . ($place{location} // '') . ' if ($args = a) { set $x 1; '
        . ($place{if} // '') . ' } }', http => $place{http} // '');
    my ($code, $output) = $t->test_config($conf);
    my $right = defined $re ? $code == 1 && $output =~ $re : $code == 0;

    return $right ? '' : join(' ', %place) . "\n  $code: $output";
}


# where a directive is put: zones are declared in the http block
sub place {
    my ($name, $args) = @_;

    my $text = "zstd_mmap_$name $args;";

    return $name eq 'zone' ? (http => $text)
        : (http => $ZONE, location => $text);
}


for my $name (sort keys %good) {
    is(join('', map { fault(undef, place($name, $_)) } @{$good{$name}}), '',
       "$name: listed values are taken");
    is(join('', map {
        my ($args, $value) = @$_;
        $value //= $args;
        $value = '' if $value eq '""';
        fault(qr/\[emerg\] .*"\Q$value\E".* "zstd_mmap_$name" directive/,
              place($name, $args));
    } @{$bad{$name}}), '', "$name: others are refused by name and value");
    is(join('', map { fault(qr/number of arguments in "zstd_mmap_$name" dir/,
                            place($name, $_)) }
            '', join(' ', ('z:1m') x 6)), '', "$name: number of arguments");
}

# places

for my $row (['zone', 'z2:1m', [qw(http)], [qw(server location if)]],
             ['stage', 'z', [qw(http server location)], ['if']],
             ['send', 'auto', [qw(http server location)], ['if']],
             ['status', 'json', ['location'], [qw(http server if)]])
{
    my ($name, $args, $taken, $refused) = @$row;
    my $text = "zstd_mmap_$name $args;";
    my $at = sub {
        return $_[0] eq 'http' ? (http => "$ZONE $text")
            : (http => $ZONE, $_[0] => $text);
    };
    is(join('', (map { fault(undef, $at->($_)) } @$taken),
            map { fault(qr/"zstd_mmap_$name" directive is not allowed here/,
                        $at->($_)) } @$refused), '', "$name: its places");
    next if $name eq 'zone';

    is(join('', map { my %place = $at->($_);
                      $place{$_} .= " $text";
                      fault(qr/"zstd_mmap_$name" directive is duplicate/,
                            %place) } @$taken), '', "$name: repeated");
}

# zones by their names

is(fault(qr/zone "none".*"zstd_mmap_stage" directive/,
         http => $ZONE, location => 'zstd_mmap_stage none;'), '',
   'an unknown zone');
is(fault(qr/zone "z".*"zstd_mmap_stage" directive/,
         http => 'zstd_mmap_stage z;'), '', 'no zone at all');
is(fault(qr/zone "Z".*"zstd_mmap_stage" directive/,
         http => $ZONE, location => 'zstd_mmap_stage Z;'), '',
   'case matters');
is(join('', map { fault(qr/duplicate zone "z" in "zstd_mmap_zone" directive/,
                        http => "$ZONE zstd_mmap_zone z:$_;") }
        '1m', '2m', '1m hugepages=off'), '', 'one zone twice');
is(fault(undef, http => "$ZONE zstd_mmap_zone z2:1m; zstd_mmap_zone zz:1m;",
         server => 'zstd_mmap_stage z2;', location => 'zstd_mmap_stage zz;'),
   '', 'several zones');

my $late = $t->conf('zstd_mmap_stage late;') =~ s/\}\s*\z/
    zstd_mmap_zone late:1m; }/r;
my ($code, $output) = $t->test_config($late);
is($code, 0, 'a zone that is declared below its use') or diag($output);
