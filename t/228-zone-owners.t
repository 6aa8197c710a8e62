#!/usr/bin/perl

# More workers than the zone has entries for owners: those without one serve
# the file itself, with the right bytes, and take over what others leave.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;

my $OWNERS = 256;
my $WORKERS = 280;

my $t = Test::Zmap->new(workers => $WORKERS, timeout => 30,
    log_level => 'debug_http')->plan(11);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

my $zst = $t->zst('f.bin', $t->random(40_000, 1), level => 1);
$t->settle('f.bin.zst');

# the kernel spreads connections over sockets, one for each worker
my $conf = $t->conf(<<'EOT', http => 'zstd_mmap_zone z:2m hugepages=off;');
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1;
    add_header X-Pid $pid;
EOT
$conf =~ s/(%%PORT%%);/$1 reuseport;/;
$t->run($conf);


# asks so often; how many replies are right
sub ask {
    my ($times) = @_;

    return scalar grep {
        my $r = $t->get('/f.bin', 'Accept-Encoding: zstd');
        $r->status == 200 && $r->complete && $r->body eq $zst;
    } 1 .. $times;
}


# pid => 1 of workers that were given the segment, and of those that never were
sub groups {
    my (%given, %asked);

    for my $line ($t->log_lines(qr/find in zone "z"/)) {
        my ($pid, $rc) = $line =~ / (\d+)#.*: (-?\d+)$/ or next;
        $asked{$pid} = 1;
        $given{$pid} = 1 if $rc == 0;
    }
    delete @asked{keys %given};

    return (\%given, \%asked);
}


my ($given, $refused);
my ($asked, $right) = (0, 0);
$t->poll(sub {
    $asked += 500;
    $right += ask(500);
    ($given, $refused) = groups();
    return keys(%$given) >= $OWNERS && keys %$refused;
}, 6 * $t->timeout());

is($right, $asked, "$asked replies are right");
is(keys %$given, $OWNERS, "$OWNERS workers have an entry");
cmp_ok(scalar keys %$refused, '>', 0, 'and some have none');

is(ask(1000), 1000, 'again');
($given, $refused) = groups();
is(keys %$given, $OWNERS, 'no more have one');
cmp_ok(scalar keys %$refused, '<=', $WORKERS - $OWNERS, 'all others have');

# ten of them go
my @gone = (sort { $a <=> $b } keys %$given)[0 .. 9];
$t->kill('KILL', @gone);
ok($t->wait_log(qr/exited on signal 9/, scalar @gone)
   && $t->poll(sub { $t->worker_pids() == $WORKERS }),
   'ten are killed, and there are ten new');

my %waiting = %$refused;
($asked, $right) = (0, 0);
$t->poll(sub {
    $asked += 500;
    $right += ask(500);
    ($given, $refused) = groups();
    return keys %$given >= $OWNERS + @gone;
}, 6 * $t->timeout());

is($right, $asked, "$asked more replies are right");
is(keys %$given, $OWNERS + @gone, 'ten others have the entries');
cmp_ok(scalar(grep { $waiting{$_} } keys %$given), '>', 0,
       'workers that had none before among them');
is($t->log_count(qr/\[(?:warn|error|crit)\]/), 0, 'nothing in the log');
