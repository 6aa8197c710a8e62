#!/usr/bin/perl

# Files are truncated at random moments to random sizes and put back, by rename
# and in place, while clients read them over plaintext and TLS: no worker dies,
# and what looks complete is a version of the file in full.
#
# ZMAP_SOAK: seconds (8).  SEED: of the random moments (printed).
#
# What leaves by sendfile() is the exception: the larger files of /sendfile/ are
# cut at borders of 2 MiB, mostly to nothing.  The pages that sendfile() has put
# into a socket are the file's own, and a truncation inside one of them, or of
# the large folio that it is part of, clears the rest of it there, too: no
# server can take that back.

use strict;
use warnings;

use Digest::MD5 qw(md5);
use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use Test::Zmap;

my $SECONDS = $ENV{ZMAP_SOAK} || 8;
my $SCALE = $ENV{TEST_SCALE} || 1;
my $SEED = $ENV{SEED} || time() % 1_000_000 | 0;
my @KINDS = qw(requests complete aborted refused wrong);

my $t = Test::Zmap->new(workers => 2, log_level => 'info')->plan(14);

$t->expect_alert(
    qr/\[alert\].*(?:sendfile\(\) reported that|pread\(\) read only)/);

my ($cert, $key) = $t->certificate();

# name => [decoded bytes, options]: in one buffer, streamed, of unknown size;
# no checksum that would tell of zeros
my %FILES = (
    small   => [20_000, {check => 0}],
    oneshot => [700_000, {check => 0}],
    sized   => [5_000_000, {check => 0, level => 1}],
    unsized => [3_000_000, {check => 0, level => 1, size => 0}],
);

# {"dir/name"} = [the coded versions]; {digest of a body} = 1
my (%coded, %valid);


sub make_files {
    for my $dir (qw(memory read sendfile)) {
        for my $name (sort keys %FILES) {
            my ($size, $opt) = @{$FILES{$name}};
            for my $n (1, 2) {
                my $body = $t->text($size / 2, $n) . $t->random($size / 2, $n);
                my $zst = $t->compress($body, %$opt);
                push @{$coded{"$dir/$name"}}, $zst;
                $valid{"$name identity"}{md5($body)} = 1;
                $valid{"$name zstd"}{md5($zst)} = 1;
            }
            $t->write("$dir/$name.zst", $coded{"$dir/$name"}[0]);
        }
    }
}


sub restore_in_place {
    my ($path, $bytes) = @_;

    open(my $fh, '+<:raw', $path) or die "$path: $!";
    print $fh $bytes;
    close($fh) or die "$path: $!";
}


sub truncate_files {
    my ($end) = @_;

    my @files = sort keys %coded;
    my %now;

    while (time() < $end) {
        my $file = $files[rand @files];
        my $version = $now{$file} // 0;
        my $path = $t->path("$file.zst");
        my $all = length $coded{$file}[$version];
        my $size = rand() < 0.3 ? $all - 1 - int rand 100 : int rand $all;
        $size &= ~((2 << 20) - 1) if $file =~ m{^sendfile/(?!small)};

        sleep(rand 0.02);
        truncate($path, $size) or die "truncate: $!";
        sleep(rand 0.01);

        if (rand() < 0.5) {
            restore_in_place($path, $coded{$file}[$version]);
        } else {
            $now{$file} = $version = int rand 2;
            $t->replace("$file.zst", $coded{$file}[$version]);
        }
    }

    return {};
}


sub judge {
    my ($count, $file, $coding, $status, $complete, $body) = @_;

    my ($name) = $file =~ m{/(.*)};

    $count->{requests}++;

    my $kind = $status == 500 ? 'refused'
        : !$complete ? 'aborted'
        : $status == 200 && $valid{"$name $coding"}{md5($body)} ? 'complete'
        : 'wrong';
    $count->{$kind}++;

    diag("$file, $coding: status $status, " . length($body) . ' bytes'
         . ($coding eq 'zstd' ? difference($file, $body) : ''))
        if $kind eq 'wrong';
}


# where the frames leave each of the versions
sub difference {
    my ($file, $body) = @_;

    my $text = '';
    for my $coded (@{$coded{$file}}) {
        my ($same) = ($body ^ $coded) =~ /^(\0*)/;
        my $at = length $same;
        my ($zeros) = substr($body, $at) =~ /^(\0*)/;
        $text .= ", one of " . length($coded)
            . " differs at $at, " . length($zeros) . ' zeros there';
    }

    return $text;
}


# one connection for as long as it lives
sub plain_client {
    my ($end, $coding, $version) = @_;

    my (%count, $c);
    my @files = sort keys %coded;

    while (time() < $end) {
        my $file = $files[rand @files];

        $c = $t->connect() if !$c;
        my $r = $c->request('GET', "/$file", version => $version,
                            headers => ["Accept-Encoding: $coding"]);

        # no head at all is a reply cut short: a kept connection has no other
        # reason to end, as no worker does
        if ($r->timed_out) {
            $count{wrong}++;
            diag("$file: no answer in time");
        }

        judge(\%count, $file, $coding, $r->status, $r->complete, $r->body);
        $c->close(), undef $c
            if !$r->complete || $version eq '1.0'
               || ($r->header('Connection') // '') eq 'close';
    }

    return \%count;
}


# 12 files by one curl, over one connection while it lives
sub tls_client {
    my ($end, $coding, $number, @args) = @_;

    my %count;
    my @files = sort keys %coded;
    my $base = 'https://127.0.0.1:' . $t->port(2);
    my $prefix = $t->run_dir() . "/tls-$number";

    while (time() < $end) {
        my @urls;
        for my $n (1 .. 12) {
            push @urls, '-o', "$prefix-$n", "$base/$files[rand @files]";
        }
        my ($code, $output) = $t->capture('curl', '-q', '-s', '-k', @args,
            '--noproxy', '*', '--max-time', $t->timeout(),
            '-H', "Accept-Encoding: $coding", '-w',
            '%{exitcode} %{http_code} %{filename_effective} %{url}\n', @urls);

        while ($output =~ m{^(\d+) (\d+) (\S*) https://[^/]*/(\S+)$}mg) {
            my ($exit, $status, $path, $file) = ($1, $2, $3, $4);
            my $body = slurp($path);
            $count{wrong}++, diag("$file: curl got no answer in time")
                if $exit == 28;
            judge(\%count, $file, $coding, $status, !$exit, $body);
            unlink $path;
        }
    }

    return \%count;
}


sub slurp {
    my ($path) = @_;

    open(my $fh, '<:raw', $path) or return '';
    local $/;

    return <$fh> // '';
}


# a process whose end is the counts that it prints
sub start {
    my ($n, $work) = @_;

    my $pid = open(my $out, '-|') // die "fork: $!";
    return $out if $pid;

    srand($SEED + $n);
    my $count = eval { $work->() };
    print STDERR "# client $n: $@" if !$count;
    print join(' ', map { $count->{$_} // 0 } @KINDS), "\n" if $count;
    close(STDOUT);
    POSIX::_exit(0);
}


make_files();

$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 8m max=1m;'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    sendfile on;
    location /memory/ { zstd_mmap_send memory; }
    location /read/ { sendfile off; }
EOF

my @workers = sort $t->worker_pids();
my $end = time() + $SECONDS;

my @table = (
    ['truncation', sub { truncate_files($end) }],
    ['plain zstd', sub { plain_client($end, 'zstd', '1.1') }],
    ['plain identity', sub { plain_client($end, 'identity', '1.1') }],
    ['http/1.0 identity', sub { plain_client($end, 'identity', '1.0') }],
    ['tls zstd', sub { tls_client($end, 'zstd', 1, '--http1.1') }],
    ['tls identity', sub { tls_client($end, 'identity', 2, '--http1.1') }],
    ['tls http/1.0', sub { tls_client($end, 'identity', 3, '--http1.0') }],
    ['http/2 identity', sub { tls_client($end, 'identity', 4, '--http2') }],
);

my @running = map { start($_, $table[$_][1]) } 0 .. $#table;
my %total;

for my $n (0 .. $#table) {
    my $line = readline($running[$n]) // '';
    my %count;
    @count{@KINDS} = split ' ', $line;
    $total{$_} += $count{$_} // 0 for @KINDS;
    next if !$n;

    my $name = $table[$n][0];
    ok(($count{complete} // 0) >= $SECONDS / $SCALE && !$count{wrong},
       "$name: many replies, none wrong");
    diag("$name: ", join ', ', map { ($count{$_} // '?') . " $_" } @KINDS);
}

my $sum = join ', ', map { "$total{$_} $_" } @KINDS;
diag("$SECONDS s, SEED=$SEED: $sum");

cmp_ok($total{complete}, '>=', 30 * $SECONDS / $SCALE,
       'many complete replies');
cmp_ok($total{aborted}, '>', 0, 'some were cut short');
cmp_ok($total{refused}, '>', 0, 'some were refused');
is($total{wrong}, 0, 'none looks complete and is wrong');
is(join(' ', sort $t->worker_pids()), "@workers", 'all workers live');

my @bad;
for my $file (sort keys %coded) {
    my ($name) = $file =~ m{/(.*)};
    $t->replace("$file.zst", $coded{$file}[1]);
    for my $coding (qw(zstd identity)) {
        my $r = $t->get("/$file", "Accept-Encoding: $coding");
        push @bad, "$file $coding" unless $r->complete && $r->status == 200
            && $valid{"$name $coding"}{md5($r->body)};
    }
}
is("@bad", '', 'all files are served again');

$t->log_like(qr/is not usable: file changed while in use/,
             'the log tells of changes');
