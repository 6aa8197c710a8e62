#!/usr/bin/perl

# A thousand slow readers of one decoded body hold one buffer.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;

my $READERS = 1000;

my $t = Test::Zmap->new(log_level => 'info', timeout => 20)->plan(9);
my $s = Test::Zmap::Status->new($t);

my $text = $t->text(1_000_000, 1);
$t->zst('a.txt', $text);
$t->settle('a.txt.zst');

my ($code, $output) = $t->capture('prlimit', '--pid', $$,
                                  '--nofile=4096:4096');
die "prlimit: $output" if $code;

my $conf = $t->conf("zstd_mmap on; send_timeout 300s; " . $s->location,
                    http => 'zstd_mmap_buffers 8m;');
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& sndbuf=8k/;
$conf =~ s/events \{/worker_rlimit_nofile 4096;\n$&\nworker_connections 2048;/;
$t->run($conf);


sub rss {
    my ($pid) = $t->worker_pids();
    open(my $fh, '<', "/proc/$pid/status") or die "status of $pid: $!";
    my ($kb) = join('', <$fh>) =~ /^VmRSS:\s+(\d+) kB/m;
    return $kb * 1024;
}


$s->get;                                    # pages of the first request
my $before = rss();

my (@slow, @begun);
my $change = $s->change(sub {
    @slow = map { $t->connect(rcvbuf => 4096) } 1 .. $READERS;
    $_->send_request('GET', '/a.txt', headers => ['Connection: close'])
        for @slow;
    @begun = map { $_->read_some(600) } @slow;
});

is(scalar(grep { /^HTTP\/1\.1 200/ } @begun), $READERS, 'all have begun');
is_deeply([@$change{qw(requests decoded cached decodes streamed limited)}],
          [$READERS, $READERS, $READERS - 1, 1, undef, undef],
          'one decode for all');

# a sanitizer puts red zones around each allocation of each request
my $growth = rss() - $before;
my $bound = $t->sanitized() ? 25_000_000 : 20_000_000;
cmp_ok($growth, '<', $bound, "the worker grows by less than $bound bytes");
cmp_ok($growth, '>', 1_000_000, 'and by a body, at least');

# the end of one of them shows what the others hold
(shift @slow)->abort();
shift @begun;
ok($s->poll(sub { $_[0]{buffers}{used} == 245 * 4096 }),
   'they hold one buffer of a million bytes')
    or diag(explain($s->worker));

my @right = grep {
    my $all = $begun[$_] . $slow[$_]->read_some(2_000_000);
    ($all =~ /\r\n\r\n(.*)/s)[0] eq $text;
} map { $_ * 50 } 0 .. 9;
is(@right, 10, 'ten of them read on to the end');

$_->abort() for @slow;
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'all go: only the kept body is left');
is_deeply([@{$s->change(sub { $t->get('/a.txt') })}{qw(cached decodes)}],
          [1, undef], 'which answers the next one');
is($t->log_count(qr/\[(?:warn|error|crit)\]/), 0, 'nothing in the log');
