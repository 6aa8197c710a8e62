#!/usr/bin/perl

# A file is truncated right after each of the calls that look at it, so that
# every walk and every decode once meets a mapping that lost pages (SIGBUS),
# and once one whose last page reads as zeros without any signal.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

my $t = Test::Zmap->new(log_level => 'info')->plan(31);
my $fault = Preload->new($t);

my ($cert, $key) = $t->certificate();

# nginx's own, about frames that it cannot read any more
$t->expect_alert(qr/\[alert\].*(?:sendfile\(\) reported|pread\(\) read only)/);

# Compressed blocks, so that the size of the unsized one is not known, then raw
# ones, in which zeros are as good as anything; and no checksum to tell.
my $long = $t->text(200_000, 1) . $t->random(200_000, 1);
my $short = $t->random(60_000, 2);
my %zst = (
    oneshot => $t->compress($short, check => 0),
    sized   => $t->compress($long, check => 0),
    unsized => $t->compress($long, check => 0, size => 0),
);
my %body = (oneshot => $short, sized => $long, unsized => $long);

$t->zst('other.txt', 'another file');
$t->replace("$_.txt.zst", $zst{$_}) for keys %zst;

$fault->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 4m max=64k;'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    zstd_mmap_chunk 64k;
    sendfile on;

    location /read/ {
        alias %%DIR%%/;
        sendfile off;
    }
EOF

my ($worker) = $t->worker_pids();
my $tls = 'https://127.0.0.1:' . $t->port(2);


sub plain {
    my ($uri, %opt) = @_;

    return sub { $t->request('GET', $uri, %opt) };
}


sub curl {
    my ($uri, @args) = @_;

    return sub { $t->curl(@args, "$tls$uri") };
}


my @zstd = ('Accept-Encoding: zstd');

# what is asked for, how, what must come, and how it ends at its worst
my @table = (
    ['frames', 'sized', plain('/sized.txt', headers => \@zstd), 'zst'],
    ['frames by read', 'sized',
     plain('/read/sized.txt', headers => \@zstd), 'zst'],
    ['frames over tls', 'sized',
     curl('/sized.txt', '--http1.1', '-H', @zstd), 'zst'],
    ['decoded before the header', 'oneshot', plain('/oneshot.txt'), 'body'],
    ['conditional, decoded after the header', 'oneshot',
     plain('/oneshot.txt', headers => ['If-None-Match: "x"']), 'body'],
    ['stream with a length', 'sized', plain('/sized.txt'), 'body'],
    ['stream in chunks', 'unsized', plain('/unsized.txt'), 'body'],
    ['stream until the close, http/1.0', 'unsized',
     plain('/unsized.txt', version => '1.0'), 'body'],
    ['stream with a length over tls', 'sized',
     curl('/sized.txt', '--http1.1'), 'body'],
    ['stream in chunks over tls', 'unsized',
     curl('/unsized.txt', '--http1.1'), 'body'],
    ['stream until the close over tls', 'unsized',
     curl('/unsized.txt', '--http1.0'), 'body'],
    ['stream over http/2', 'unsized', curl('/unsized.txt', '--http2'), 'body'],
);


# 28: curl gave up waiting
sub stuck {
    my ($r) = @_;

    return $r->timed_out || ($r->exit // 0) == 28;
}


# counts of refused, aborted and right replies; and the wrong ones
sub truncate_at_each_call {
    my ($file, $ask, $want, $size) = @_;

    my %seen = (refused => 0, aborted => 0, right => 0);
    my @wrong;

    for my $n (1 .. 100) {
        $t->replace("$file.txt.zst", $zst{$file});
        $fault->arm('fstat|mmap', $n,
                    truncate => [$t->path("$file.txt.zst"), $size]);
        my $r = $ask->();
        my $fired = $fault->fired();
        $fault->disarm();

        my $right = $r->status == 200 && $r->complete && $r->body eq $want;
        my $kind = $right ? 'right'
            : $r->status == 500 ? 'refused'
            : !$r->complete && !stuck($r) ? 'aborted' : undef;

        push @wrong, "call $n: status " . $r->status . ', '
            . length($r->body) . " bytes\n" if !defined $kind;
        $seen{$kind}++ if defined $kind;

        last if !$fired;
        push @wrong, "worker is gone\n" if ($t->worker_pids())[0] != $worker;
        last if @wrong;
    }

    return (\%seen, @wrong);
}


for my $row (@table) {
    my ($name, $file, $ask, $kind) = @$row;

    my $bytes = length $zst{$file};
    my $want = $kind eq 'zst' ? $zst{$file} : $body{$file};
    my (%total, @wrong);

    for my $size (0, 4096, 8192, $bytes - 3) {
        my ($seen, @faults) = truncate_at_each_call($file, $ask, $want, $size);
        $total{$_} += $seen->{$_} for keys %$seen;
        push @wrong, map { "to $size of $bytes: $_" } @faults;
    }

    is(scalar @wrong, 0, "$name: never a wrong body") or diag(@wrong);

    my @expected = $kind eq 'zst' || $name =~ /stream|conditional/
        ? qw(right refused aborted) : qw(right refused);
    my @missing = grep { !$total{$_} } @expected;
    is("@missing", '', "$name: right, refused, cut short")
        or diag(join ', ', map { "$total{$_} $_" } sort keys %total);
}

is($t->get('/other.txt')->body, 'another file', 'another file is served');
is(($t->worker_pids())[0], $worker, 'by the same worker');

$t->replace('sized.txt.zst', $zst{sized});
ok($t->get('/sized.txt')->body eq $body{sized}, 'a restored file is decoded');
ok($t->get('/sized.txt', @zstd)->body eq $zst{sized}, 'and sent');
$t->log_like(qr/\[error\].*is not usable: file changed while in use/,
             'the log tells what happened');
is($t->log_count(qr/\[(?:warn|crit)\].*is not usable: file changed/), 0,
   'at that level only');

# a request tries once more, and gives up when the file changes again
my $twice;
for my $n (3 .. 12) {
    $t->replace('oneshot.txt.zst', $zst{oneshot});
    my $path = $t->path('oneshot.txt.zst');
    my $before = $t->log_count(qr/\[error\].*oneshot.*: file changed/);
    $fault->arm('fstat', 2, truncate => [$path, 50_000]);
    $fault->arm('fstat', $n, truncate => [$path, 40_000], order => 1);
    my $r = $t->get('/oneshot.txt');
    my $fired = $fault->fired(1);
    $fault->disarm();
    last if !$fired;
    $twice++ if $r->status == 500
        && $t->log_count(qr/\[error\].*oneshot.*: file changed/) > $before;
}
ok($twice, 'a file that changes twice: 500 and an error');
