#!/usr/bin/perl

# Requests that wait for a job in a thread, which is held: one job for all, who
# leaves, who waits for too long.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Gate;

my $WAITERS = 100;

my $t = Test::Zmap->new()->plan(44);
my $s = Test::Zmap::Status->new($t);
my $gate = Gate->new($t);

my $text = $t->text(1_000_000, 1);
my $other = $t->text(1_000_000, 2);
my $zst = $t->compress($text);
my @zstd = ('Accept-Encoding: zstd');

my @names = qw(many reset h2 gone late beside header walk off new post);
$t->raw_zst("$_.txt", $zst) for @names;
$t->write('beside.txt', 'plain');
$t->zst('small.txt', 'small');
$t->settle('small.txt.zst');

$gate->run($t->conf(<<"EOC"));
    listen 127.0.0.1:%%PORT2%% http2;
    zstd_mmap on;
    zstd_mmap_threads default min=1k;
    location = /off.txt { zstd_mmap_verify off; }
    location = /post.txt { post_action /done; }
    location = /done { proxy_pass http://127.0.0.1:%%PORT3%%; }
    @{[$s->location]}
EOC


# walks a file; what is held then is a decode
sub walk { $t->head("/$_.txt") for @_ }


sub ask {
    my ($uri, @headers) = @_;

    my $c = $t->connect();
    $c->send_request('GET', $uri, headers => [@headers, 'Connection: close']);

    return $c;
}


# asks, and returns when all wait for one job that is held
sub wait_all {
    my ($uri, $count, @headers) = @_;

    my $waits = qr/zstd mmap: "\Q$uri\E" waits for job/;
    my $before = $t->log_count($waits);
    my @clients = map { ask($uri, @headers) } 1 .. $count;
    $t->wait_log($waits, $before + $count) or die "not all wait\n";
    $gate->held() or die "nothing is held\n";

    return @clients;
}


sub is_small { return $t->get('/small.txt')->body eq 'small' }


# those that have the whole body
sub whole {
    my ($body, @clients) = @_;

    return scalar grep {
        my $r = $_->response('GET');
        $r->status == 200 && $r->complete && $r->body eq $body;
    } @clients;
}


sub left { return $t->log_count(qr/client prematurely closed/) }


sub go {
    my ($how, @clients) = @_;

    my $before = left();
    $_->$how() for @clients;

    return $t->poll(sub { left() == $before + @clients });
}


# one decode, many readers
walk('many');
$gate->shut();
my @clients;
my $change = $s->change(sub {
    @clients = wait_all('/many.txt', $WAITERS);
    ok(is_small(), 'another reply is sent while they wait');
    is($gate->held_now(), 1, 'one job for all');
    $gate->open();
    is(whole($text, @clients), $WAITERS, 'all get the body');
});
is_deeply([@$change{qw(requests decodes cached decoded)}],
          [$WAITERS + 1, 2, $WAITERS - 1, $WAITERS + 1], 'counted');

my ($most, $n) = (0, 0);
for my $line ($t->log_lines(qr/worker cycle|continue "\/many/)) {
    $n = $line =~ /worker cycle/ ? 0 : $n + 1;
    $most = $n if $n > $most;
}
is($most, 16, 'at most 16 are woken in a turn');

# one walk, for both representations and for who needs no walk
$gate->shut();
@clients = wait_all('/walk.txt', 10);
my @frames = wait_all('/walk.txt', 10, @zstd);
ok(is_small(), 'walk: another reply');
is($t->log_count(qr/walk at 0 of @{[length $zst]}/), 2, 'walk: one');
$gate->open();
is(whole($text, @clients), 10, 'walk: decoded');
is(whole($zst, @frames), 10, 'walk: frames');

$gate->shut();
@clients = wait_all('/off.txt', 1);
@frames = wait_all('/off.txt', 2, @zstd);
$gate->open();
is(whole($text, @clients) + whole($zst, @frames), 3,
   'a walk is waited for where none is asked for');

# some leave
walk('reset');
$gate->shut();
my @fin = wait_all('/reset.txt', 2);
my @rst = wait_all('/reset.txt', 2);
@clients = wait_all('/reset.txt', 2);
ok(go('close', @fin), 'two close');
ok(go('abort', @rst), 'two reset');
$gate->open();
is(whole($text, @clients), 2, 'the others get the body');


# HTTP/2 by hand: two streams, and the first one is reset
sub h2 {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags,
                                                       $stream) . $payload;
}

sub h2_get {
    my ($stream, $uri) = @_;

    # RFC 7541: GET, http, :path and :authority without indexing
    return h2(1, 5, $stream, "\x82\x86" . pack('C C/a* C C/a*', 4, $uri, 1,
                                               'localhost'));
}

walk('h2');
$gate->shut();
my $c = $t->connect(port => $t->port(2));
# RFC 9113: SETTINGS_INITIAL_WINDOW_SIZE, and the window of the connection
$c->send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
         . h2(4, 0, 0, pack('nN', 4, 1 << 24)) . h2(8, 0, 0, pack('N', 1 << 24))
         . h2_get(1, '/h2.txt') . h2_get(3, '/h2.txt'));
$t->wait_log(qr/"\/h2.txt" waits for job/, 2);
ok($gate->held(), 'h2: held');
my $gone = left();
$c->send(h2(3, 0, 1, pack('N', 8)));
ok($t->poll(sub { left() == $gone + 1 }), 'h2: a stream is reset');
$gate->open();
my ($body, $end) = ('', 0);
while (!$end) {
    my $head = $c->read_some(9);
    last if length $head < 9;
    my ($high, $low, $type, $flags, $stream) = unpack 'nCCCN', $head;
    my $payload = $c->read_some($high << 8 | $low);
    $body .= $payload if $type == 0 && $stream == 3;
    $end = $stream == 3 && $flags & 1;
}
ok($end && $body eq $text, 'h2: the other gets the body');
$c->close();

# all leave
walk('gone');
$gate->shut();
@clients = wait_all('/gone.txt', 3);
my $ended = $t->log_count(qr/end of job/);
my $kept = $s->worker->{buffers}{kept};
ok(go('abort', @clients), 'all leave');
$gate->open();
ok($s->poll(sub { my $b = $_[0]{buffers};
                  $b->{kept} > $kept && $b->{used} == $b->{kept} }),
   'the body is kept, and the status tells') or diag(explain($s->worker));
is_deeply([@{$s->change(sub { $t->get('/gone.txt') })}{qw(decodes cached)}],
          [undef, 1], 'for the next one');

# 60 seconds
walk('late', 'beside');
$gate->shut();
$change = $s->change(sub {
    @clients = wait_all('/late.txt', 2);
    push @clients, wait_all('/beside.txt', 1);
    $gate->advance(59);
    ok(is_small() && !$t->log_count(qr/expired:1/), 'not after 59 seconds');
    $gate->advance(2);
    ok(is_small(), 'a minute');
    for my $n (0, 1) {
        my $r = $clients[$n]->response('GET');
        is($r->status, 503, 'waited for too long');
        is($r->header('ETag') // $r->header('Vary'), undef, 'an error page');
    }
    is($clients[2]->response('GET')->body, 'plain', 'a plain file instead');
});
is_deeply([@$change{qw(errors limited declined reasons.limit decodes)}],
          [undef, 3, 1, 3, 2], 'counted');
is($t->log_count(qr/\[warn\].*\.zst" is not decoded: there is no time/), 1,
   'logged once');
$gate->open();
ok($t->poll(sub { $s->worker->{buffers}{used}
                  == $s->worker->{buffers}{kept} }), 'the jobs end');
is_deeply([@{$s->change(sub {
               is($t->get('/late.txt')->body, $text, 'what they made');
           })}{qw(decodes cached)}], [undef, 1], 'serves later requests');

# after the header: a reply that is cut
walk('header');
$gate->shut();
@clients = wait_all('/header.txt', 2, 'If-None-Match: "x"');
push @clients, my $old = $t->connect();
$old->send_request('GET', '/header.txt', version => '1.0',
                   headers => ['If-None-Match: "x"']);
$t->wait_log(qr/"\/header.txt" waits for job/, 3);
$change = $s->change(sub {
    $gate->advance(61);
    is_small();
    for my $n (0 .. 2) {
        my $r = $clients[$n]->response('GET');
        ok(!$r->complete && $r->body eq '' && !$r->timed_out,
           'after the header: cut') or diag($r->head);
    }
});
is_deeply([@$change{qw(errors reasons.limit)}], [3, 3], 'counted');
$gate->open();
is($t->get('/header.txt', 'If-None-Match: "x"')->body, $text, 'and the next');

# another version while one is decoded
walk('new');
$gate->shut();
my @first = wait_all('/new.txt', 2);
$t->replace('new.txt.zst', $t->compress($other));
$t->settle('new.txt.zst');
my @second = map { ask('/new.txt') } 1, 2;
ok($gate->held(2), 'a new version has a job of its own');
$gate->open();
is(whole($text, @first), 2, 'who came before gets the old one');
is(whole($other, @second), 2, 'who came later the new one');

# a client that leaves sends its request elsewhere: nothing continues it there
my $backend = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
    LocalPort => $t->port(3), Proto => 'tcp', Listen => 5, ReuseAddr => 1)
    or die "listen: $!";
walk('post');
$backend->accept();
$gate->shut();
@clients = wait_all('/post.txt', 1);
$_->abort() for @clients;
my $upstream = $backend->accept();
$ended = $t->log_count(qr/end of job/);
$gate->open();
ok($t->poll(sub { $t->log_count(qr/end of job/) > $ended }), 'post: done');
is($t->log_count(qr/continue "\/done"/), 0, 'post: not continued');
print $upstream "HTTP/1.0 200 OK\r\n\r\n";
close $upstream;
is($t->get('/post.txt')->body, $text, 'post: the next one');

is($gate->held_now(), 0, 'nobody is held');
is(left(), 9, 'who left');
