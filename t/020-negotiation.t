#!/usr/bin/perl

# One table of Accept-Encoding headers against every way to answer, on
# HTTP/1.1 and HTTP/2.  RFC 9110, 12.5.3 and 12.4.2.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

# header lines, each on its own, and what they select: zstd, identity or none
my @rows = (
    # the commonest of production: browsers, crawlers, CDNs, tools
    [zstd     => 'gzip, deflate, br, zstd'],
    [identity => 'br, gzip'],
    [identity => 'gzip, deflate, br'],
    [identity => 'gzip'],
    [identity => 'gzip, deflate'],
    [identity => 'gzip,deflate'],
    [zstd     => 'zstd, br, gzip, deflate'],
    [zstd     => 'deflate, gzip, br, zstd'],
    [identity => 'identity'],
    [identity => 'identity;q=1, *;q=0'],
    ['identity'],

    # one coding in every position, with and without spaces
    (map { [zstd => $_] } 'zstd', 'zstd, gzip, br', 'gzip, zstd, br',
     'gzip, br, zstd', 'zstd,gzip,br', 'gzip,zstd,br', 'gzip,br,zstd',
     'gzip , zstd , br', ',zstd', 'zstd,', ', ,zstd, ,', "gzip,\tzstd\t,br",
     "\tzstd"),

    # whole tokens, of any case
    (map { [zstd => $_] } 'ZSTD', 'ZStd, gzip', 'notzstd, zstd',
     'zstd2, zstd', 'x-zstd, zstd;q=0.1'),
    (map { [identity => $_] } 'x-zstd', 'zstd2', 'dcz', 'dcb, dcz', 'notzstd',
     'zst', 'zstdd', 'zstd-x', 'z std', '"zstd"', 'zstd/1'),
    [identity => ''],
    [identity => ','],
    [identity => ' , '],

    # weights
    (map { [zstd => "zstd;q=$_"] } qw(1 1. 1.0 1.00 1.000 0.001 0.5 0.999)),
    (map { [zstd => $_] } 'ZSTD ; Q=1.000', 'zstd; q=0.5', 'zstd ;q=0.5',
     "zstd\t;\tq=0.5", 'gzip;q=1.0, zstd;q=0.2', 'zstd;q=0.2, br'),
    (map { [identity => "zstd;q=$_"] } qw(0 0. 0.0 0.00 0.000)),

    # weights that break the grammar give no coding
    (map { [identity => "zstd;q=$_"] } '', '0,5', qw(2 999 05 00 01 .5 -1 +1
     1.001 1.1 0.0001 1.0000 0.5x 1x x 0x1 1e0 1;q=0 0;q=1 "1" 1;x=1)),
    (map { [identity => $_] } 'zstd;', 'zstd;q', 'zstd; ', 'zstd;q =1',
     'zstd;q= 1', 'zstd;level=3', 'zstd;q=1 x', 'zstd=1', 'zstd;;q=1',
     'zstd;w=1;q=1', 'zstd q=1'),

    # identity against zstd
    [identity => 'zstd;q=0.5, identity'],
    [identity => 'identity;q=0.501, zstd;q=0.5'],
    [zstd     => 'identity;q=0.5, zstd;q=0.501'],
    [zstd     => 'identity;q=0.5, zstd;q=0.5'],
    [zstd     => 'identity, zstd'],
    [zstd     => 'identity;q=0, zstd;q=0.001'],

    # "*" is for what is not listed; alone it asks for nothing
    [identity => '*'],
    [identity => '*;q=0.5'],
    [identity => 'gzip, *'],
    [identity => '*, zstd;q=0'],
    [identity => 'zstd;q=0, *'],
    [identity => '*;q=0, identity'],
    [identity => 'identity;q=0.1, *;q=0, zstd;q=0'],
    [zstd     => '*;q=0, zstd'],
    [zstd     => 'zstd, *;q=0'],
    [zstd     => 'zstd;q=0.5, *;q=0.1'],
    [zstd     => 'identity;q=0, *'],
    [zstd     => '*;q=0.1, identity;q=0'],

    # nothing that exists is acceptable
    [none     => '*;q=0'],
    [none     => 'identity;q=0'],
    [none     => 'identity;q=0, br'],
    [none     => 'gzip, identity;q=0'],
    [none     => 'identity;q=0, zstd;q=0'],
    [none     => 'identity;q=0, zstd;q=0, *'],
    [none     => 'identity;q=0, zstd;q=2'],
    [none     => 'zstd;q=0, *;q=0'],
    [none     => 'IDENTITY;Q=0.000'],

    # a coding that is listed twice has its lower weight
    [identity => 'zstd, zstd;q=0'],
    [identity => 'zstd;q=0, zstd'],
    [identity => 'zstd;q=1, identity;q=0.5, zstd;q=0.4'],

    # several lines are one list
    [zstd     => 'gzip', 'zstd'],
    [zstd     => 'zstd', 'gzip'],
    [zstd     => 'gzip', 'br', 'zstd;q=0.3'],
    [zstd     => '*;q=0', 'zstd'],
    [zstd     => '', 'zstd'],
    [zstd     => 'zstd', ''],
    [zstd     => 'zstd, identity;q=0', '', ',', 'br'],
    [identity => 'zstd', 'zstd;q=0'],
    [identity => 'zstd;q=0', 'zstd'],
    [identity => 'zstd;q=0.5', 'identity'],
    [identity => '', ''],
    [identity => 'zst', 'd'],
    [none     => 'br', 'identity;q=0'],
    [none     => 'identity;q=0', 'zstd;q=0', '*'],
);

my $t = Test::Zmap->new()->plan(12);

my $text = $t->text(3000, 1);
my $coded = $t->zst('a.txt', $text);
my $long = $t->text(100_000, 2);
my $long_coded = $t->zst('long.txt', $long, size => 0);

my %body = (a    => { identity => $text, zstd => $coded },
            long => { identity => $long, zstd => $long_coded });

# a young file is not kept, so that its size is never learnt
$t->run($t->conf(<<'EOF', http => 'zstd_mmap_cache off;'));
listen 127.0.0.1:%%PORT2%% http2;
zstd_mmap on;
zstd_mmap_chunk 16k;
location /always/ { alias %%DIR%%/; zstd_mmap always; }
location /decode/ { alias %%DIR%%/; zstd_mmap decode; }
location /off/ { alias %%DIR%%/; zstd_mmap_decode off; }
location /unsent/ { alias %%DIR%%/; zstd_mmap_send_window 1k; }
EOF

my $h2 = 'http://127.0.0.1:' . $t->port(2);


# what was selected, or a word on what is wrong with the reply
sub selected {
    my ($r, $name, $method) = @_;

    return 'none' if $r->status == 406 && !$r->header_lines('ETag')
                     && !$r->header_lines('Content-Encoding');
    return 'status ' . $r->status if $r->status != 200;
    return 'incomplete' unless $r->complete;

    my @codings = $r->header_lines('Content-Encoding');
    my $coding = @codings ? join '+', @codings : 'identity';
    my $body = $method eq 'HEAD' ? '' : $body{$name}{$coding} // '';
    return "$coding, another body" if $r->body ne $body;

    return $coding;
}


# the rows that a server does not answer as they say; expected($row) tells
# what they say for this path
sub wrong {
    my ($send, $path, $name, $method, $expected) = @_;

    my @wrong;
    for my $row (@rows) {
        my (undef, @lines) = @$row;
        my $r = $send->($method, "$path/$name.txt", @lines);
        my $got = selected($r, $name, $method);
        my $want = $expected ? $expected->($row->[0]) : $row->[0];
        push @wrong, '[' . join('] [', @lines) . "]: $got, not $want\n"
            if $got ne $want;
    }

    return join '', @wrong;
}


my $c;


sub h1 {
    my ($method, $uri, @lines) = @_;

    $c //= $t->connect();
    my $r = $c->request($method, $uri,
                        headers => [map { "Accept-Encoding: $_" } @lines]);
    undef $c if !$r->complete || ($r->header('Connection') // '') eq 'close';

    return $r;
}


sub h2 {
    my ($method, $uri, @lines) = @_;

    my $r = $t->curl('--http2-prior-knowledge', $method eq 'HEAD' ? '-I' : (),
        map({ ('-H', length $_ ? "Accept-Encoding: $_" : 'Accept-Encoding;') }
            @lines), "$h2$uri");

    # curl writes the header in place of the body
    $r->{body} = '' if $method eq 'HEAD' && $r->body eq $r->head;

    return $r;
}


sub always { return 'zstd' }
sub decoded { return 'identity' }
sub no_decode { return $_[0] eq 'zstd' ? 'zstd' : 'status 404' }

is(wrong(\&h1, '', 'a', 'GET'), '', 'frames and decoded');
is(wrong(\&h1, '', 'a', 'HEAD'), '', 'HEAD');
is(wrong(\&h1, '', 'long', 'GET'), '', 'frames and streamed');
is(wrong(\&h1, '', 'long', 'HEAD'), '', 'HEAD of what would be streamed');
is(wrong(\&h1, '/always', 'a', 'GET', \&always), '', 'always');
is(wrong(\&h1, '/decode', 'a', 'GET', \&decoded), '', 'decode');
is(wrong(\&h1, '/off', 'a', 'GET', \&no_decode), '', 'decode off');
is(wrong(\&h2, '', 'a', 'GET'), '', 'HTTP/2: frames and decoded');
is(wrong(\&h2, '', 'long', 'GET'), '', 'HTTP/2: frames and streamed');
is(wrong(\&h2, '', 'a', 'HEAD'), '', 'HTTP/2: HEAD');

# frames that are for no client are decoded, unless that is excluded

@rows = grep { $_->[0] eq 'none'
               || "@$_" !~ /(?:identity|\*);q=0(?![.\d])/ } @rows;
push @rows, [none => 'zstd, identity;q=0'], [none => '*;q=0, zstd'],
    [none => 'identity;q=0, *'], [identity => 'identity;q=1, *;q=0'];
is(wrong(\&h1, '/unsent', 'a', 'GET',
         sub { $_[0] eq 'none' ? 'none' : 'identity' }), '',
   'a window too large to send');

my $r = h2('GET', '/a.txt', 'zstd');
is($r->version, '2', 'that was HTTP/2');
