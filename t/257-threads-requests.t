#!/usr/bin/perl

# Requests of every kind that wait for threads: parts of pages, streams of
# HTTP/2, pipelined ones, those with a body that is late, TLS.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Gate;

my $t = Test::Zmap->new();
my $s = Test::Zmap::Status->new($t);
my $gate = Gate->new($t);

my %part = (
    one    => $t->text(200_000, 1),
    two    => $t->text(300_000, 2),
    three  => $t->text(30_000, 3),
    stream => $t->random(2_000_000, 4),
    unsized => $t->text(1_500_000, 5),
    empty  => '',
    small  => 'small',
);
my @parts = sort keys %part;

sub page {
    my (@names) = @_;

    return join '|', '<p>', (map { qq{<!--#include virtual="$_.txt" -->} }
                             @names), '</p>';
}

my %page = (
    all      => page(@parts),
    reversed => page(reverse @parts),
    twice    => page(@parts, @parts),
    nested   => '<!--#include virtual="all.shtml" -->'
        . page('two') . '<!--#include virtual="reversed.shtml" -->',
    set      => '<!--#include virtual="one.txt" set="v" -->'
        . '[<!--#echo var="v" encoding="none" -->]' . page('two'),
);


sub expand {
    my ($text) = @_;

    $text =~ s{<!--#include virtual="one.txt" set="v" -->}{};
    $text =~ s{<!--#echo.*?-->}{$part{one}}g;
    1 while $text =~ s{<!--#include virtual="(\w+)\.(txt|shtml)" -->}
                      {$2 eq 'txt' ? $part{$1} : $page{$1}}eg;

    return $text;
}

# each of these has files of its own, that no worker knows
my @ways = qw(cold h2 held);
my @uses = (@ways, qw(off once tls body late pipe kept old mirror));

$t->plan(@ways * 2 * keys(%page) + 33);

for my $use (@uses) {
    for my $name (@parts) {
        $t->zst("$use/$name.txt", $part{$name}, size => $name ne 'unsized');
    }
    $t->zst("$use/$_.shtml", $page{$_}) for keys %page;
}
$t->settle('mirror/one.txt.zst', 'mirror/set.shtml.zst');

my ($cert, $key) = $t->certificate();

$gate->run($t->conf(<<"EOC", http => 'zstd_mmap_buffers 8m max=1m;'));
    listen 127.0.0.1:%%PORT2%% http2;
    listen 127.0.0.1:%%PORT3%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_threads default min=1;
    subrequest_output_buffer_size 1m;
    lingering_timeout 1s;
    lingering_time 2s;
    location ~ \\.shtml\$ { ssi on; ssi_types *; zstd_mmap decode; }
    location /mirror/ { mirror /held/one.txt; }
    location /auth/ { alias %%DIR%%/off/; auth_request /once/one.txt; }
    @{[$s->location]}
EOC

my $h2 = 'http://127.0.0.1:' . $t->port(2);
my $tls = 'https://127.0.0.1:' . $t->port(3);
my ($worker) = $t->worker_pids();


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


sub slurp {
    my ($path) = @_;

    open(my $fh, '<:raw', $path) or return '';
    local $/;

    return <$fh> // '';
}


# pages and their parts
for my $way (@ways) {
    for my $name (sort keys %page) {
        my $want = expand($page{$name});
        my $uri = "/$way/$name.shtml";

        for my $again (0, 1) {
            my $r;
            if ($way eq 'held' && !$again) {
                $gate->shut();
                my $c = ask($uri);
                $gate->held() or die "not held\n";
                $gate->open();
                $r = $c->response('GET');
            } elsif ($way eq 'h2') {
                $r = $t->curl('--http2-prior-knowledge', $h2 . $uri);
            } else {
                $r = $t->get($uri);
            }
            ok($r->complete && $r->body eq $want,
               "$way: $name" . ($again ? ', again' : ''))
                or diag(length($r->body) . ' of ' . length $want);
        }
    }
}

# who asked for a page leaves while its parts are waited for
$t->replace("held/$_.txt.zst", $t->compress($part{$_})) for @parts;
$t->settle("held/$_.txt.zst") for @parts;
$gate->shut();
my @c = map { ask('/held/twice.shtml') } 1 .. 3;
ok($gate->held(5), 'parts are held');
$_->abort() for @c[0, 1];
is($t->get('/held/small.shtml')->status, 404, 'two leave, others are served');
$gate->open();
ok($c[2]->response('GET')->body eq expand($page{twice}), 'the third stays');


# many streams of one connection
sub many {
    my ($base, $place, @coding) = @_;

    my $run = $t->run_dir();
    my ($code, $output) = $t->capture('curl', '-q', '-sS', '-k', '--parallel',
        '--http2', '--noproxy', '*', '--max-time', 2 * $t->timeout(),
        @coding, map { ('-o', "$run/$_.got", "$base/$place/$_.txt") } @parts);
    diag($output) if $code;

    my @wrong = grep {
        my $want = @coding ? $t->read("$place/$_.txt.zst") : $part{$_};
        slurp("$run/$_.got") ne $want;
    } @parts;
    unlink map { "$run/$_.got" } @parts;

    return "$code @wrong";
}

is(many($tls, 'tls'), '0 ', 'http/2 over TLS: decoded');
is(many($tls, 'tls', '-H', 'Accept-Encoding: zstd'), '0 ',
   'http/2 over TLS: frames');
is(many($tls, 'once'), '0 ', 'and other files');
my $r = $t->curl('--http1.1', "$tls/off/unsized.txt");
ok($r->complete && $r->body eq $part{unsized}, 'http/1.1 over TLS');

# HTTP/1.0
for my $name (qw(one unsized)) {
    $r = $t->request('GET', "/old/$name.txt", version => '1.0');
    ok($r->status == 200 && !$r->reset && $r->body eq $part{$name},
       "http/1.0: $name");
}

# one after another
my $c = $t->connect();
my @right = grep {
    my $r = $c->get("/kept/$_.txt");
    $r->complete && $r->body eq $part{$_};
} @parts, @parts;
is(scalar @right, 2 * @parts, 'one connection');
$c->close();

# all at once, the answers in order, also while the first one is held
for my $held (0, 1) {
    $t->replace('pipe/one.txt.zst', $t->compress($part{one}));
    $t->settle('pipe/one.txt.zst');
    $gate->shut() if $held;
    $c = $t->connect();
    $c->send(join '', map { "GET /pipe/$_.txt HTTP/1.1\r\nHost: a\r\n\r\n" }
             'one', @parts);
    if ($held) {
        ok($gate->held(), 'the first one is held');
        $gate->open();
    }
    @right = grep {
        my $r = $c->response('GET');
        $r->complete && $r->body eq $part{$_};
    } 'one', @parts;
    is(scalar @right, 1 + @parts, 'pipelined' . ($held ? ', held' : ''));
    $c->close();
}

# a request body that is late: before the walk, before the decode
for my $name (qw(one stream)) {
    for my $walked (0, 1) {
        my $uri = $walked ? "/body/$name.txt" : "/late/$name.txt";
        $t->head($uri) if $walked;
        $gate->shut();
        $c = $t->connect();
        $c->send("GET $uri HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
        ok($gate->held(), "$uri: held");
        $c->send('1234567890GET /kept/small.txt HTTP/1.1' . "\r\nHost: a"
                 . "\r\n\r\n");
        $gate->open();
        $r = $c->response('GET');
        ok($r->complete && $r->body eq $part{$name}, "$uri: whole");
        is($c->response('GET')->body, 'small', "$uri: and the next one");
        $c->close();
    }
}

# a subrequest that nobody sees, and one that lets in
ok($t->get('/mirror/one.txt')->body eq $part{one}, 'mirrored');
ok($t->get('/auth/two.txt')->body eq $part{two}, 'let in');
is(($t->worker_pids())[0], $worker, 'one worker all the while');
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'no buffer is lost');

# no table of files: each request walks, one decodes
$t->reload(conf => $t->conf(<<"EOC", http => <<'EOH')) or die "no reload\n";
    zstd_mmap on;
    zstd_mmap_threads default min=1;
    @{[$s->location]}
EOC
    zstd_mmap_buffers 8m max=1m;
    zstd_mmap_cache off;
EOH
$gate->shut();
my $change = $s->change(sub {
    @c = map { ask('/off/one.txt') } 1 .. 5;
    ok($gate->held(5), 'no table: five walks');
    $gate->open();
    is(scalar(grep { $_->response('GET')->body eq $part{one} } @c), 5,
       'no table: all get it');
});
is($change->{decodes}, 1, 'no table: one decode');
$r = $t->get('/off/stream.txt');
ok($r->complete && $r->body eq $part{stream}, 'no table: a stream');
