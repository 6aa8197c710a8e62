#!/usr/bin/perl

# The status page: its format, its headers, its methods.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my %names = (
    counters => [qw(requests sent decoded cached decodes streamed declined
                    errors staged evicted verify_failures bus_errors
                    limited)],
    reasons  => [qw(not_found denied not_accepted plain window dictionary
                    stale corrupt too_large changed fault io memory limit)],
    bytes    => [qw(frames_sent decoded_sent decoded_produced mapped_huge)],
);

my $t = Test::Zmap->new(log_level => 'info')->plan(35);
my $s = Test::Zmap::Status->new($t);

$t->zst('a.txt', 'some text');
$t->settle('a.txt.zst');

# a quote, a backslash, two bytes of UTF-8, one byte of no character
my $odd = "q\"b\\\xc3\xa9\xff";
(my $quoted = $odd) =~ s/(["\\])/\\$1/g;

$t->run($t->conf('zstd_mmap on; ' . $s->location . <<'EOC',
    location = /expires { zstd_mmap_status json; expires 1d; }
    location = /gzip {
        zstd_mmap_status json; gzip on; gzip_types *; gzip_min_length 1;
    }
    location = /denied { zstd_mmap_status json; deny all; }
    location /prefix/ { zstd_mmap_status json; }
    location = /ssi.html { ssi on; zstd_mmap off; }
EOC
    http => 'zstd_mmap_zone one:4m hugepages=off; '
            . "zstd_mmap_zone \"$quoted:1m\" hugepages=off; "
            . 'zstd_mmap_buffers 2m;'));

$t->write('ssi.html', '<!--#include virtual="' . $s->uri . '" -->');

my $r = $t->get($s->uri);
is($r->status, 200, 'status');
is($r->header('Content-Type'), 'application/json', 'its type');
is($r->header('Cache-Control'), 'no-store', 'is not to be stored');
is($r->header('Content-Length'), length $r->body, 'has its length');
is($r->header('Content-Encoding'), undef, 'has no coding');
is($r->header('Vary'), undef, 'does not vary');

my $json = eval { JSON::PP->new->utf8->decode($r->body) };
ok($json, 'is JSON') or diag($@, $r->body);
is_deeply([sort keys %$json], [qw(bytes counters reasons workers zones)],
          'its parts');

for my $group (sort keys %names) {
    is_deeply([sort keys %{$json->{$group}}], [sort @{$names{$group}}],
              "$group: their names");
    is_deeply([grep { $_ ne 0 } values %{$json->{$group}}], [],
              "$group: all zero");
}

is_deeply($json->{zones}{one},
          { size => 4 << 20, used => 0, segments => 0, pages => 'plain' },
          'a zone');
is_deeply([sort keys %{$json->{zones}}],
          [sort 'one', "q\"b\\\x{e9}\x{ff}"], 'names are escaped');
is($json->{zones}{"q\"b\\\x{e9}\x{ff}"}{size}, 1 << 20,
   'a zone with an odd name');

my ($pid) = $t->worker_pids();
my $worker = $json->{workers}[0];
is(scalar @{$json->{workers}}, 1, 'one worker');
is_deeply([sort keys %$worker], [qw(buffers files pid streams)],
          'a worker: its parts');
is_deeply([sort keys %{$worker->{buffers}}], [qw(kept pages size used)],
          'buffers: their parts');
is($worker->{pid}, $pid, 'its pid');

$t->get('/a.txt');
ok($s->poll(sub {
    $_[0]{files} == 1 && $_[0]{buffers}{size} == 2 << 20
        && $_[0]{buffers}{used} == 4096 && $_[0]{buffers}{kept} == 4096
        && $_[0]{streams} == 0
}), 'what a worker holds') or diag(explain($s->worker));

# every number is one: not a string, not a fraction
my @values = grep { !/^"(?:plain|thp|hugetlb)"$/ }
    $t->get($s->uri)->body =~ /:("?[^"{\[,}\]]+"?)/g;
is_deeply([grep { !/^\d+$/ } @values], [], 'numbers are numbers');
cmp_ok(scalar @values, '>', 30, 'many of them');

# methods

my $head = $t->head($s->uri);
is($head->status, 200, 'HEAD: status');
cmp_ok($head->header('Content-Length'), '>', 100, 'HEAD: the length');
is($t->post($s->uri, 'x=1')->status, 405, 'POST: 405');
is($t->request('DELETE', $s->uri)->status, 405, 'DELETE: 405');
is($t->get($s->uri, 'Range: bytes=0-1', 'If-Modified-Since: '
           . 'Sun, 13 Sep 2030 12:26:40 GMT')->status, 200,
   'no part of it, and always new');
my $c = $t->connect();
$c->get($s->uri, 'Content-Length: 0') for 1 .. 2;
is($c->get($s->uri)->status, 200, 'keep-alive');

# in other surroundings

is($t->get('/expires')->header('Cache-Control') =~ /no-store/, 1,
   'expires does not take it away');
is($t->get('/gzip', 'Accept-Encoding: gzip')->header('Content-Encoding'),
   'gzip', 'may be compressed by nginx');
is($t->get('/denied')->status, 403, 'access rules hold');
is($t->get('/prefix/a.txt')->status, 200, 'any URI of its location');
like($t->get('/ssi.html')->body, qr/^\{"counters":.*\}\s*$/s,
     'as part of a page');
