#!/usr/bin/perl

# Binary upgrades while the old server has the pool: with "hugepages=on" the
# new one ends and the old one serves on; with "auto" it begins with an empty
# zone of plain pages, and the old one's pages are back when that has ended.

use strict;
use warnings;

use JSON::PP ();
use POSIX ();
use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Machine;

my $POOL = 20;

my $machine = Test::Zmap::Machine->new()->pool($POOL);
$machine->set('shmem_enabled', 'never');
my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(17);

$t->expect_alert(qr/\[emerg\].*zstd_mmap_zone "z" lacks 12 huge pages/);

# the masters are children of this process, however they were started
my %PRCTL = (x86_64 => 157, aarch64 => 167);
my $prctl = $PRCTL{(POSIX::uname())[4]} // die "no number of prctl()\n";
syscall($prctl, 36, 1, 0, 0, 0) == 0 or die "PR_SET_CHILD_SUBREAPER: $!";

my %zst = map { ("/f$_.bin" => $t->zst("f$_.bin", $t->random(90_000, $_),
                                       level => 1)) } 0 .. 5;
$t->settle('f5.bin.zst');


# nginx takes no USR2 from a process that is a child of what started it
sub write_conf {
    my ($mode) = @_;

    my $globals = $t->_globals() =~ s/daemon off/daemon on/r;
    $t->_write_conf($t->conf(<<'EOT', http => <<"EOH")
    zstd_mmap on;
    zstd_mmap_stage z;
    add_header X-Pid $pid;
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone z:32m hugepages=$mode;
zstd_mmap_buffers 1m hugepages=off;
EOH
        =~ s/%%GLOBALS%%/$globals/r);
}


sub zone { return JSON::PP::decode_json($t->get('/status')->body)->{zones}{z} }


sub master {
    my ($pid) = $t->_slurp('nginx.pid') =~ /^([1-9]\d*)\n/;

    return $pid // 0;
}


sub right {
    my ($times) = @_;

    return !grep {
        my $r = $t->get($_, 'Accept-Encoding: zstd');
        !$r->complete || $r->body ne $zst{$_};
    } (sort keys %zst) x $times;
}


# whatever happens no server stays, nor a worker without its master
my @masters;
END {
    kill 'KILL', map { ($_, Test::Zmap::_children($_)) }
                 grep { kill 0, $_ } @masters;
}

write_conf('on');
my ($code, $output) = $t->capture($t->_command());
die "nginx: $output" if $code;
$t->{pid} = $t->poll(\&master) or die "no master\n";
push @masters, my $old = $t->{pid};
$t->poll(sub { $t->worker_pids() == 2 }) or die "no workers\n";

ok(right(3), 'before: right');
is(zone()->{segments}, 6, 'before: staged');
is($machine->free(), $POOL - 16, 'before: 16 pages are taken');

# four pages are free
kill 'USR2', $old;
ok($t->wait_log(qr/new binary process \d+ exited with code 1/),
   'hugepages=on: the new one ends');
ok($t->poll(sub { master() == $old }), 'the pid file is that of the old one');
ok(right(2), 'it serves on: right');
is(zone()->{segments}, 6, 'from its zone');
is(zone()->{pages}, 'hugetlb', 'of huge pages');
is($machine->free(), $POOL - 16, 'no page was taken');

# the same zone but for the mode
write_conf('auto');
kill 'USR2', $old;
my $new = $t->poll(sub { my $pid = master(); $pid != $old && $pid })
    or die "no new master\n";
push @masters, $new;
ok($t->poll(sub { my @pids = Test::Zmap::_children($new); @pids >= 2 }),
   'hugepages=auto: the new one starts');
ok(right(4), 'both serve: right');
kill 'QUIT', $old;
ok($t->poll(sub { waitpid($old, POSIX::WNOHANG()) == $old }),
   'the old one ends');
shift @masters;
$t->{pid} = $new;
is($machine->free(), $POOL, 'its pages are back');
ok(right(3), 'the new one: right');
is(zone()->{segments}, 6, 'staged in its own zone');
is(zone()->{pages}, 'plain', 'of plain pages');

# they are taken by the next zone that is made
$t->stop();
shift @masters;
write_conf('on');
($code, $output) = $t->capture($t->_command());
$t->{pid} = $t->poll(\&master);
push @masters, $t->{pid};
ok($code == 0 && right(3) && zone()->{pages} eq 'hugetlb',
   'the pages can be had again');
$t->stop();
shift @masters;
