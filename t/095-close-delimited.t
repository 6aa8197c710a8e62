#!/usr/bin/perl

# A body of unknown size to HTTP/1.0, which only the end of the connection
# ends: whole when all goes well, never when the worker goes before its end.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info')->plan(20);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

# not of raw blocks alone, which tell their size
my $body = $t->text(100_000, 1) . $t->random(2_900_000, 1);
my $small = $t->text(100_000, 2);
$t->zst('large.txt', $body, level => 1, size => 0);
$t->zst('small.txt', $small, size => 0);

$t->certificate();
my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;');
    listen 127.0.0.1:%%PORT2%% ssl sndbuf=32k;
    ssl_certificate     localhost.crt;
    ssl_certificate_key localhost.key;

    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOC
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;
$conf =~ s/^events/worker_shutdown_timeout 1s;\nevents/m;

$t->run($conf);

my $tls = 'https://127.0.0.1:' . $t->port(2);
my @keep = ([], ['Connection: keep-alive']);


# nothing happens

sub is_whole {
    my ($r, $want, $name) = @_;

    ok($r->status == 200 && $r->complete && $r->body eq $want
       && !defined $r->header('Content-Length'), $name)
        or diag('status ' . $r->status . ', ' . length($r->body) . ' bytes');
}


# the size of a file is learnt by its first stream: a new version each time
sub renew {
    $t->replace('large.txt.zst', $t->read('large.txt.zst'));
    $t->replace('small.txt.zst', $t->read('small.txt.zst'));
}


sub slow {
    my ($uri, $size, @headers) = @_;

    my $c = $t->connect(rcvbuf => 4096);
    $c->send_request('GET', $uri, version => '1.0', headers => [@headers]);
    my $got = '';
    while (length(my $piece = $c->read_some($size))) {
        $got .= $piece;
        select undef, undef, undef, 0.001;
    }
    $c->{buffer} = $got;
    my $r = $c->response('GET');
    $c->close();

    return $r;
}


for my $headers (@keep) {
    renew();
    is_whole($t->request('GET', '/small.txt', version => '1.0',
                         headers => $headers), $small, "small, @$headers");
    renew();
    is_whole($t->request('GET', '/large.txt', version => '1.0',
                         headers => $headers), $body, "large, @$headers");
    renew();
    is_whole(slow('/large.txt', 10_000, @$headers), $body,
             "a slow reader, @$headers");
}

for my $file (['small', $small], ['large', $body]) {
    renew();
    is_whole($t->curl('--http1.0', "$tls/$file->[0].txt"), $file->[1],
             "$file->[0] over tls");
    renew();
    is_whole($t->curl('--http1.0', '--limit-rate', '3M',
                      "$tls/$file->[0].txt"), $file->[1],
             "$file->[0] over tls, slowly");
}


# the worker goes while the client has some of it

sub cut {
    my ($name, $what) = @_;

    renew();
    my @readers = map { $t->connect(rcvbuf => 4096) } @keep;
    for my $n (0 .. $#keep) {
        $readers[$n]->send_request('GET', '/large.txt', version => '1.0',
                                   headers => $keep[$n]);
        my $got = $readers[$n]->read_some(50_000);
        $readers[$n]{buffer} = $got;
    }

    my ($old) = $t->worker_pids();
    $what->($old);
    $t->poll(sub { !grep { $_ == $old } $t->worker_pids() });

    for my $c (@readers) {
        my $r = $c->response('GET');
        ok($r->status == 200 && !$r->complete && !$r->timed_out,
           "$name: not complete") or diag(length $r->body);
        $c->close();
    }
}


cut('KILL of the worker', sub { $t->kill('KILL', $_[0]) });
$t->poll(sub { $t->get('/small.txt')->status == 200 });

cut('TERM of the worker', sub { $t->kill('TERM', $_[0]) });
$t->poll(sub { $t->get('/small.txt')->status == 200 });

cut('QUIT and worker_shutdown_timeout',
    sub { $t->kill('QUIT', $t->master_pid()) });
$t->stop();
$t->run($conf);

cut('TERM of nginx', sub { $t->kill('TERM', $t->master_pid()) });
$t->stop();

# TLS: neither an orderly close nor close_notify
$t->run($conf);
renew();
my ($worker) = $t->worker_pids();
my $out = $t->run_dir() . '/cut.body';
my $pid = fork() // die "fork: $!";
if (!$pid) {
    open(STDERR, '>', '/dev/null');
    exec 'curl', '-q', '-s', '-k', '--http1.0', '--noproxy', '*',
        '--limit-rate', '200k', '--max-time', 10, '-o', $out,
        "$tls/large.txt";
}

$t->poll(sub { (-s $out || 0) > 50_000 });
$t->kill('TERM', $worker);
waitpid $pid, 0;
my $exit = $? >> 8;
cmp_ok(-s $out, '<', length $body, 'TERM, tls: short');
ok($exit != 0 && $exit != 28, 'TERM, tls: and the client knows')
    or diag("exit $exit");
