#!/usr/bin/perl

# Thirty slow streams of thirty files over one HTTP/2 connection: no stream
# gets the bytes of another.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $STREAMS = 30;

my $t = Test::Zmap->new(log_level => 'info')->plan(8);

my ($cert, $key) = $t->certificate();
my $run = $t->run_dir();

my (@body, @zst);
for my $n (0 .. $STREAMS - 1) {
    $body[$n] = $t->text(100_000, $n) . $t->random(400_000 + 7001 * $n, $n);
    $zst[$n] = $t->zst("$n.bin", $body[$n], level => 1, size => $n % 2);
}

$t->run($t->conf(<<"EOF", http => <<'EOF'));
    listen 127.0.0.1:%%PORT2%% ssl http2;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    access_log $run/access.log streams;
    http2_max_concurrent_streams 64;
    limit_rate 1m;
    zstd_mmap on;
    zstd_mmap_chunk 16k;
EOF
    zstd_mmap_buffers 2m max=64k;
    log_format streams '$connection $server_protocol $status';
EOF


sub slurp {
    my ($path) = @_;

    open(my $fh, '<:raw', $path) or return '';
    local $/;

    return <$fh> // '';
}


# the files that came otherwise than they are
sub differing {
    my ($coding, $want) = @_;

    my $base = 'https://127.0.0.1:' . $t->port(2);
    my @urls = map { ('-o', "$run/$_.got", "$base/$_.bin") }
        0 .. $STREAMS - 1;
    my ($code, $output) = $t->capture('curl', '-q', '-sS', '-k', '--parallel',
        '--http2', '--noproxy', '*', '--max-time', 2 * $t->timeout(), '-H',
        "Accept-Encoding: $coding", @urls);

    my @wrong = grep { slurp("$run/$_.got") ne $want->[$_] }
        0 .. $STREAMS - 1;
    unlink map { "$run/$_.got" } 0 .. $STREAMS - 1;

    return ($code, $output, @wrong);
}


for my $row (['identity', \@body], ['zstd', \@zst]) {
    my ($coding, $want) = @$row;

    unlink "$run/access.log";
    $t->kill('USR1', $t->master_pid());
    $t->poll(sub { -e "$run/access.log" });

    my ($code, $output, @wrong) = differing($coding, $want);
    is($code, 0, "$coding: all transfers end well") or diag($output);
    is("@wrong", '', "$coding: each stream has its own bytes");

    my %seen;
    $t->poll(sub { %seen = map { (split)[0] => 1 }
                   split /\n/, slurp("$run/access.log");
                   return slurp("$run/access.log") =~ tr/\n// >= $STREAMS });
    is(scalar keys %seen, 1, "$coding: over one connection");
    unlike(slurp("$run/access.log"), qr{^(?!\d+ HTTP/2\.0 200$)}m,
           "$coding: all by http/2, all 200");
}
