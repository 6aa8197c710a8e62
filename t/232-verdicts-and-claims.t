#!/usr/bin/perl

# What the zone keeps of verdicts, and who verifies: merged, claimed, given
# back; with a verifier that dies, a table that is busy, a death inside the
# lock, and more versions than slots.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;
use Verdict;

my ($OK, $BUSY, $DECLINED) = (0, -3, -5);      # of nginx
my ($CHECKSUM, $CORRUPT) = (15, 18);           # ZMAP_ codes

my $SLOTS = 1024;                              # of a small zone

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(63);
my $hold = Hold->new($t);
my $verdict = Verdict->new($t);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);

my @names = qw(any merge bad first claim put other died heir busy lost
               staged emptied);
$t->zst("$_.bin", $t->random(5000, length $_)) for @names;
$t->raw_zst("many/$_.bin", $t->frame(single => 1, fcs => 4,
    blocks => [[raw => sprintf '%04d', $_]])) for 1 .. $SLOTS;
$t->settle("many/$SLOTS.bin.zst", map { "$_.bin.zst" } @names);

my $conf = $t->conf(<<'EOT', http => <<'EOH');
    zstd_mmap on;
    zstd_mmap_verify off;
    zstd_mmap_stage z min_uses=1000000;
    add_header X-Pid $pid;
    keepalive_requests 100000;

    location = /staged.bin { zstd_mmap_stage z min_uses=1; }
EOT
    zstd_mmap_zone z:1m hugepages=off;
    zstd_mmap_cache max=4096 inactive=1h;
EOH
$conf =~ s/listen 127\.0\.0\.1:%%PORT%%/$& reuseport/;

$ENV{LD_PRELOAD} = $verdict->library;
$ENV{ZMAP_VERDICT} = $verdict->path;
$hold->run("env ZMAP_VERDICT;\n$conf");
delete @ENV{qw(LD_PRELOAD ZMAP_VERDICT)};


# a connection to each worker, by pid
sub connect_all {
    my %to;

    $t->poll(sub {
        my $c = $t->connect();
        my $pid = $c->get('/any.bin')->header('X-Pid');
        $to{$pid} //= $c;
        return keys %to == 2;
    }) or die "one worker takes all connections\n";

    return \%to;
}


my $to = connect_all();
my ($one, $two) = keys %$to;

# a walk would tell the other worker; a first look at the frames does not
for my $name (grep { $_ ne 'staged' } @names) {
    $_->get("/$name.bin", 'Accept-Encoding: zstd') for values %$to;
}


sub ask { return $verdict->ask($to->{$_[0]}, "/$_[1].bin", $_[2]) }


sub kill_worker {
    my ($pid) = @_;

    my $count = $t->log_count(qr/exited on signal 9/);
    $t->kill('KILL', $pid);
    $t->wait_log(qr/exited on signal 9/, $count + 1)
        && $t->poll(sub { $t->worker_pids() == 2 }) or die "no new worker\n";
    delete($to->{$pid})->close();
}


# the pid of the one that took the place of the other
sub replaced {
    my ($left) = @_;

    $_->close() for values %$to;
    $to = connect_all();

    return (grep { $_ != $left } keys %$to)[0];
}


# merging

is(ask($one, 'merge', 'get'), $DECLINED, 'nothing is known');
is(ask($one, 'merge', 'put 0 0 3 100 2048'), 'put', 'a walk');
is(ask($two, 'merge', 'get'), '0 0 0 3 100 2048 -', 'the other has it');
ask($two, 'merge', 'put 0 1 3 100 2048');
is(ask($one, 'merge', 'get'), '0 0 1 3 100 2048 -', 'verified by the other');
ask($one, 'merge', 'put 0 0 3 100 2048');
is(ask($two, 'merge', 'get'), '0 0 1 3 100 2048 -', 'and still verified');
ask($one, 'merge', "put $CHECKSUM 0 0 0 0");
like(ask($two, 'merge', 'get'), qr/^0 $CHECKSUM 1 /, 'found bad after all');
ask($two, 'merge', 'put 0 1 3 100 2048');
like(ask($one, 'merge', 'get'), qr/^0 $CHECKSUM 1 /, 'bad for ever');
ask($two, 'merge', "put $CORRUPT 0 0 0 0");
like(ask($one, 'merge', 'get'), qr/^0 $CHECKSUM 1 /, 'the first error stays');

ask($one, 'bad', "put $CORRUPT 0 0 0 0");
like(ask($two, 'bad', 'get'), qr/^0 $CORRUPT 0 /, 'bad from the beginning');
is(ask($one, 'first', 'get'), $DECLINED, 'another file');

# a version that is staged

is(ask($one, 'staged', 'get'), $DECLINED, 'staged: nothing is known');
$to->{$two}->get('/staged.bin', 'Accept-Encoding: zstd');
ask($two, 'staged', 'put 0 1 1 5000 1024');
is(ask($one, 'staged', 'get'), '0 0 1 1 5000 1024 -', 'staged: put and got');
is(ask($one, 'staged', 'claim'), $BUSY, 'staged: nothing is left to do');

# claims

is(ask($one, 'claim', 'claim'), $OK, 'claimed');
is(ask($one, 'claim', 'claim'), $BUSY, 'once');
is(ask($two, 'claim', 'claim'), $BUSY, 'by one worker');
is(ask($two, 'claim', 'get'), $DECLINED, 'which knows nothing yet');
ask($two, 'claim', 'release');
is(ask($two, 'claim', 'claim'), $BUSY, 'another one cannot give it back');
ask($one, 'claim', 'release');
is(ask($two, 'claim', 'claim'), $OK, 'given back');
ask($one, 'claim', 'release');
is(ask($one, 'claim', 'claim'), $BUSY, 'by the one that had it');
ask($two, 'claim', 'put 0 1 1 5000 1024');
is(ask($one, 'claim', 'claim'), $BUSY, 'verified');
is(ask($one, 'claim', 'get'), '0 0 1 1 5000 1024 -', 'as was to be said');

is(ask($one, 'put', 'claim'), $OK, 'claimed');
ask($two, 'put', 'put 0 0 1 5000 1024');
is(ask($two, 'put', 'claim'), $BUSY, 'a walk of another ends no claim');
ask($one, 'put', 'put 0 0 1 5000 1024');
is(ask($two, 'put', 'claim'), $OK, 'that of the verifier does');
ask($two, 'put', "put $CHECKSUM 0 0 0 0");
is(ask($one, 'put', 'claim'), $BUSY, 'found bad');

is(ask($one, 'other', 'claim'), $OK, 'claims on two files');
is(ask($two, 'first', 'claim'), $OK, 'of two workers');
is(ask($one, 'first', 'claim'), $BUSY, 'the one');
is(ask($two, 'other', 'claim'), $BUSY, 'the other');

# the verifier dies

is(ask($one, 'died', 'claim'), $OK, 'a verifier');
is(ask($one, 'heir', 'claim'), $OK, 'of two files');
kill_worker($one);
my $last;
ok($t->poll(sub { ($last = ask($two, 'died', 'claim')) == $OK }),
   'it dies: another takes over');
$one = replaced($two);
isnt($one, $two, 'and there is a new worker');
is(ask($one, 'died', 'claim'), $BUSY, 'for which it is taken');
ok($t->poll(sub { ask($one, 'heir', 'claim') == $OK }),
   'the other file is free');
is(ask($two, 'heir', 'claim'), $BUSY, 'once');
is(ask($two, 'first', 'claim'), $BUSY, 'the claim of the living stays');
is(ask($one, 'first', 'claim'), $BUSY, 'for both');

# a new process in the place of a dead one has not its claims

kill_worker($one);
$one = replaced($two);
ok($t->poll(sub { ask($one, 'heir', 'claim') == $OK }),
   'a new process claims what the dead one had');

# the table is busy: the other stands still inside the lock

is(ask($two, 'busy', 'claim'), $OK, 'a verifier');
$hold->order('locked', 'stop');
$to->{$one}->send_request('GET', '/any.bin',
                        headers => ['Accept-Encoding: zstd']);
is($hold->stopped(), $one, 'the other stands still inside the lock');
is(ask($two, 'merge', 'get'), $DECLINED, 'nothing is known now');
is(ask($two, 'emptied', 'claim'), $DECLINED, 'everybody for himself');
is(ask($two, 'busy', 'release'), 'released', 'it gives up meanwhile');
$t->kill('CONT', $one);
is($to->{$one}->response('GET')->status, 200, 'the other goes on');
is(ask($one, 'busy', 'claim'), $OK, 'and is not barred');
is(ask($one, 'first', 'claim'), $OK, 'as it would be by what else was claimed');
is(ask($two, 'busy', 'claim'), $BUSY, 'the first now has to wait');
like(ask($two, 'merge', 'get'), qr/^0 $CHECKSUM 1 /,
     'verdicts are still there');

# more versions than slots

is(ask($one, 'lost', 'claim'), $OK, 'a claim');
my $known = grep { ask($two, "many/$_", "put $CORRUPT 0 0 0 0") eq 'put' }
    1 .. $SLOTS;
is($known, $SLOTS, 'as many verdicts as slots');
is(ask($two, 'lost', 'claim'), $OK, 'a claim is lost with its slot');
like(ask($two, "many/$SLOTS", 'get'), qr/^0 $CORRUPT /, 'the last is known');
is(ask($one, 'many/1', 'get'), $DECLINED, 'the first no more');

# a death inside the lock

is(ask($two, 'emptied', 'claim'), $OK, 'a claim');
$hold->order('locked', 'kill');
is(ask($one, 'emptied', "put $CORRUPT 0 0 0 0"), undef,
   'killed while it puts a verdict');
$t->wait_log(qr/exited on signal 9/, 3)
    && $t->poll(sub { $t->worker_pids() == 2 }) or die "no new worker\n";
$one = replaced($two);
ok($t->poll(sub { ask($two, 'emptied', 'claim') == $OK }),
   'the table is made anew');
is(ask($one, "many/$SLOTS", 'get'), $DECLINED, 'and knows nothing');
is(ask($one, 'emptied', 'claim'), $BUSY, 'a new claim');
is($t->log_count(qr/was emptied/), 1, 'the log tells');

# too young: the clock decides which tries count

my $seen;
$t->poll(sub {
    $t->replace('young.bin.zst', $t->compress('young'));
    my $ctime = (Time::HiRes::stat($t->path('young.bin.zst')))[10];
    $seen = join ' ', map { ask($two, 'young', $_) } 'put 0 1 1 5 1024', 'get',
        'claim';
    return Time::HiRes::time() < $ctime + 0.09;
});
is($seen, "put $DECLINED $DECLINED", 'too young: not kept');
$t->settle('young.bin.zst');
is(ask($two, 'young', 'get'), $DECLINED, 'nor remembered later');
