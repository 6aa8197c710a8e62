#!/usr/bin/perl

# A turn of a stream ends by the coded bytes that it took, too: a file that
# decodes to next to nothing, asked first, keeps a small request waiting for one
# turn only, whatever zstd_mmap_chunk says.  Turns are counted, not timed.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(timeout => 20);

# bytes of a step and of a turn
my $step = 1 << 20;
my $turn = 1 << 20;

# RFC 8878, 3.1.1.2: three zero bytes are a raw block of no bytes, not the last
my $empty = "\0\0\0" x (24 * $step / 3);
my $text = $t->text(2000, 1);

# without a content size, and a compressed block that hides it
my $coded = $t->compress($text, size => 0, check => 0);
my ($header, $block) = (substr($coded, 0, 6), substr($coded, 6));
die "not one compressed block\n" unless (ord($block) & 7) == 5;

my $sized = $t->frame(fcs => 3, blocks => [[raw => 'abc']]);

my %file = (
    sized   => [substr($sized, 0, -6) . $empty . substr($sized, -6), 'abc'],
    unsized => [$header . $empty . $block, $text],
    frames  => [$t->skippable('') x (24 * $step / 8) . $sized, 'abc'],
);
my @names = sort keys %file;
my @versions = ('1.1', '1.0');
my @chunks = qw(4k 64k 2m);

$t->plan(5 * @names * @versions * @chunks);

$t->raw_zst("$_.txt", $file{$_}[0]) for @names;
$t->zst('small.txt', 'small');
$t->settle('small.txt.zst', map { "$_.txt.zst" } @names);

my $locations = join "\n", map { "location /$_/ { alias %%DIR%%/;"
                                 . " zstd_mmap_chunk $_; }" } @chunks;
$t->run($t->conf("zstd_mmap on; keepalive_requests 1000; $locations"));

my ($worker) = $t->worker_pids();


sub is_stopped {
    open(my $fh, '<', "/proc/$worker/stat") or die "/proc/$worker/stat: $!";

    return <$fh> =~ /\) T /;
}


# Both requests are there when the worker looks, and the stream is the first:
# epoll tells of sockets in the order in which they became ready.
sub together {
    my ($uri, $version) = @_;

    my ($stream, $small) = map { $t->connect() } 1, 2;

    # the walk is one turn of its own: it is not what is counted
    $_->[0]->head($_->[1])->status == 200 or die "$_->[1]\n"
        for [$stream, $uri], [$small, '/small.txt'];
    my $before = length $t->log();

    $t->kill('STOP', $worker);
    $t->poll(\&is_stopped) or die "the worker does not stop\n";
    $stream->send_request('GET', $uri, version => $version);
    $small->send_request('GET', '/small.txt');
    $t->kill('CONT', $worker);

    my @r = ($stream->response(), $small->response());
    $_->close() for $stream, $small;

    return (@r, substr $t->log(), $before);
}


# what the log has of it: coded bytes of the stream when the small request was
# read, of its largest turn, and at its end
sub turns {
    my ($log) = @_;

    my ($largest, $began, $taken, $beside) = (0, 0, 0);

    while ($log =~ /step\ rc:\d+\ produced:\d+\ in:(?<in>\d+)
                   |(?<turn>zstd\ mmap\ stream\ handler:)
                   |(?<small>http\ request\ line:\ "GET\ \/small)/xg)
    {
        $taken = $+{in} if defined $+{in};
        $began = $taken if defined $+{turn};
        $beside //= $taken if defined $+{small};
        $largest = $taken - $began if $taken - $began > $largest;
    }

    return ($beside // 0, $largest, $taken);
}


for my $name (@names) {
    for my $version (@versions) {
        for my $chunk (@chunks) {
            my $how = "$name, $version, chunks of $chunk";
            my ($stream, $small, $log) = together("/$chunk/$name.txt",
                                                  $version);
            my ($beside, $largest, $taken) = turns($log);

            ok($stream->complete && $stream->body eq $file{$name}[1],
               "$how: right");
            is($small->body, 'small', "$how: the small reply, too");
            is($taken, length $file{$name}[0], "$how: all was seen");

            # the step that reaches the budget may exceed it
            ok($beside > 0 && $beside < $turn + $step,
               "$how: the small one waits for one turn") or diag($beside);
            cmp_ok($largest, '<', $turn + $step, "$how: no turn is longer");
        }
    }
}
