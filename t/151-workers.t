#!/usr/bin/perl

# Two workers, each with its own file table and buffers; and no master at all.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


# nginx without a master is its own worker
package SingleProcess {
    our @ISA = qw(Test::Zmap);

    sub worker_pids { return $_[0]{pid} // () }
}


my $t = Test::Zmap->new(workers => 2, log_level => 'info')->plan(14);

my $text = $t->text(300_000, 1);
my $other = $t->text(200_000, 2);
my $coded = $t->zst('a.txt', $text);
$t->zst('b.txt', $other, size => 0);

$t->run($t->conf(<<'EOF', http => 'zstd_mmap_buffers 1m max=256k;'));
    listen 127.0.0.1:%%PORT2%% reuseport;
    zstd_mmap on;
    add_header X-Worker $pid always;
EOF


# by two listeners of its own, each worker is met soon
sub ask_both {
    my (%seen, $wrong);

    $t->poll(sub {
        my $c = $t->connect(port => $t->port(2));
        my $r = $c->get('/a.txt', 'Accept-Encoding: zstd');
        my $next = $c->get('/a.txt');
        my $last = $c->get('/b.txt');
        $wrong++ if $r->body ne $coded || $next->body ne $text
            || $last->body ne $other;
        $seen{$r->header('X-Worker')}++;
        return keys %seen == 2;
    });

    return (join(' ', sort keys %seen), $wrong // 0);
}


my ($seen, $wrong) = ask_both();
is($seen, join(' ', sort $t->worker_pids()), 'two workers');
is($wrong, 0, 'both serve it right');

$text = $t->text(310_000, 3);
$coded = $t->compress($text);
$t->replace('a.txt.zst', $coded);
($seen, $wrong) = ask_both();
is($wrong, 0, 'a new version is seen by both');

ok($t->reload(), 'reload');
($seen, $wrong) = ask_both();
is($seen, join(' ', sort $t->worker_pids()), 'two new workers');
is($wrong, 0, 'both serve it right again');
$t->stop();


my $one = SingleProcess->new(log_level => 'info');
$one->{planned} = 1;
$one->zst('a.txt', $text);

$one->run("master_process off;\n" . $one->conf('zstd_mmap on;'));
my $pid = $one->master_pid();

ok($one->get('/a.txt')->body eq $text, 'no master: decoded');
ok($one->get('/a.txt', 'Accept-Encoding: zstd')->body eq $coded,
   'no master: frames');

truncate($one->path('a.txt.zst'), 0) or die "truncate: $!";
is($one->get('/a.txt')->status, 500, 'no master: a truncated file is refused');
$one->replace('a.txt.zst', $coded);
ok($one->get('/a.txt')->body eq $text, 'no master: a restored one is decoded');
is($one->master_pid(), $pid, 'no master: still the same process');
$one->stop();
ok(!$one->master_pid(), 'no master: it ends at QUIT');
ok(!$one->{late}, 'in time');
is(scalar $one->_unexpected(qr/\[(?:alert|emerg)\]/), 0, 'without an alert');
delete $one->{planned};
