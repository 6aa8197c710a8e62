#!/usr/bin/perl

# Vary: Accept-Encoding once where Accept-Encoding selected the reply, and not
# at all elsewhere: modes, zstd_mmap_vary, gzip_vary, clients, kinds of reply.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $MTIME = 1600000000;
my $DATE = 'Sun, 13 Sep 2020 12:26:40 GMT';

my @modes = qw(on always decode);
my @clients = ([zstd => 'br, zstd'], [identity => 'br']);

# kind of reply => [method, headers, statuses of the mode "on" and others]
my %kinds = (
    200    => ['GET', [], 200, 200],
    HEAD   => ['HEAD', [], 200, 200],
    206    => ['GET', ['Range: bytes=1-5'], 206, 206],
    304    => ['GET', ["If-Modified-Since: $DATE"], 304, 304],
    '304h' => ['HEAD', ["If-Modified-Since: $DATE"], 304, 304],
    406    => ['GET', ['Accept-Encoding: identity;q=0, zstd;q=0'], 406, 200],
    '406h' => ['HEAD', ['Accept-Encoding: identity;q=0, zstd;q=0'], 406, 200],
);

my @gzip = ('gzip off', 'gzip on; gzip_types *; gzip_min_length 0');
my $t = Test::Zmap->new()->plan(2 * 3 * 2 * 2 + 16);

$t->zst('a.txt', $t->text(3000, 1), mtime => $MTIME);
$t->zst('beside.txt', 'beside', mtime => $MTIME);
$t->write('beside.txt', 'plain');
$t->zst('missing.html', 'the page of a missing file');
$t->zst('stream.txt', $t->text(3000, 2), size => 0);
$t->write('part.txt', "text\n");

my @places;
for my $gzip (0, 1) {
    for my $mode (@modes) {
        for my $vary (qw(on off)) {
            for my $gzip_vary (qw(on off)) {
                push @places, [$gzip, $mode, $vary, $gzip_vary];
            }
        }
    }
}

my $locations = join '', map {
    my ($gzip, $mode, $vary, $gzip_vary) = @{$places[$_]};
    "location /p$_/ { alias %%DIR%%/; zstd_mmap $mode; $gzip[$gzip]; "
    . "zstd_mmap_vary $vary; gzip_vary $gzip_vary; }\n";
} 0 .. $#places;

$t->run($t->conf($locations . <<'EOF'));
location /off/ { alias %%DIR%%/; zstd_mmap on; zstd_mmap_decode off;
                 error_page 404 /page/missing.html; }
location /missing/ { alias %%DIR%%/; zstd_mmap on;
                     zstd_mmap_decode missing; }
location /page/ { alias %%DIR%%/; zstd_mmap on; }
location /added/ { alias %%DIR%%/; zstd_mmap on;
                   add_header Vary Origin; }
location /none/ { alias %%DIR%%/; gzip_vary on; }
EOF


# how often the token stands in all lines of Vary
sub tokens {
    my ($r) = @_;

    return scalar grep { lc eq 'accept-encoding' }
        map { split /\s*,\s*/ } $r->header_lines('Vary');
}


sub expected {
    my ($place, $r) = @_;

    my ($gzip, $mode, $vary, $gzip_vary) = @$place;

    return 1 if $mode eq 'on' && $vary eq 'on';

    # nginx itself adds it to a body that it would code for a gzip client
    return $gzip && $gzip_vary eq 'on' && $r->status =~ /^20[06]$/
           && !$r->header_lines('Content-Encoding') ? 1 : 0;
}


for my $i (0 .. $#places) {
    my $place = $places[$i];
    my ($gzip, $mode, $vary, $gzip_vary) = @$place;
    my @wrong;

    for my $client (@clients) {
        for my $kind (sort keys %kinds) {
            my ($method, $headers, $on, $other) = @{$kinds{$kind}};
            my @headers = @$headers;
            push @headers, "Accept-Encoding: $client->[1]"
                unless grep { /^Accept-Encoding/ } @headers;

            my $r = $t->request($method, "/p$i/a.txt",
                                headers => \@headers);
            my $status = $mode eq 'on' ? $on : $other;
            my $times = expected($place, $r);
            push @wrong, "$client->[0] $kind: " . $r->status . ', '
                         . tokens($r) . " times, not $status, $times\n"
                if $r->status != $status || tokens($r) != $times;
        }
    }

    is(join('', @wrong), '', "$mode, zstd_mmap_vary $vary, "
       . "gzip_vary $gzip_vary, $gzip[$gzip]");
}

# replies of others that Accept-Encoding led to

is(tokens($t->get('/off/beside.txt')), 1, 'decode off, the plain file');
is(tokens($t->get('/off/beside.txt', 'Accept-Encoding: zstd')), 1,
   'and the frames');
is(tokens($t->head('/off/beside.txt')), 1, 'and HEAD');
is(tokens($t->get('/missing/beside.txt')), 1, 'decode missing, plain file');
is(tokens($t->get('/missing/a.txt')), 1, 'decode missing, no plain file');

my $r = $t->get('/off/a.txt');
is($r->status, 404, 'decode off, no plain file');
is($r->body, 'the page of a missing file', 'an error page of ours');
is(tokens($r), 1, 'with the token once');

# no selection, no token

is(tokens($t->get('/page/absent.txt')), 0, 'a file that is not there');
is(tokens($t->get('/page/part.txt')), 0, 'a plain file without .zst');
is(tokens($t->get('/none/part.txt')), 0, 'another location');
is(tokens($t->get('/none/a.txt.zst')), 0, 'the .zst itself');
is(tokens($t->post('/page/a.txt', 'x')), 0, 'POST');

# other fields

$r = $t->get('/added/a.txt');
is(join(' + ', sort $r->header_lines('Vary')), 'Accept-Encoding + Origin',
   'add_header Vary is a line of its own');
is(tokens($t->get('/page/stream.txt', 'Accept-Encoding: zstd')), 1,
   'a file of unknown size, as frames');
is(tokens($t->get('/page/stream.txt')), 1, 'and streamed');
