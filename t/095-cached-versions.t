#!/usr/bin/perl

# The file table with open_file_cache: what nginx's cache says is enough for one
# second, and each thing that it knows is looked at.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;


my $t = Test::Zmap->new();
my $fault = Preload->new($t);

my $time = 1_700_000_000;
my $rounds = 5;


# frames of equal sizes where the bodies are
sub coded {
    my ($body) = @_;
    return $t->frame(fcs => length $body, checksum => 1,
                     blocks => [[raw => $body]]);
}


my $old = $t->random(20_000, 1);
my $new = $t->random(20_000, 2);
my $longer = $t->random(30_000, 3);
my $bad = "\0" x length coded($old);

# how a file becomes another within a second, and what it is before and after:
# the time of nginx's cache, the inode, and the other things stay as they are
my %swap = (
    'inode, good to bad' => [coded($old), $bad, sub { swapped($_[0]) }],
    'inode, bad to good' => [$bad, coded($old), sub { swapped($_[0]) }],
    'inode, good to good' => [coded($old), coded($new),
                              sub { swapped($_[0]) }],
    'size' => [coded($old), coded($longer),
               sub { $t->write($_[0], coded($longer));
                     $t->mtime($_[0], $time) }],
    'mtime' => [coded($old), coded($new),
                sub { $t->write($_[0], coded($new));
                      $t->mtime($_[0], $time + 5) }],
    'mtime, good to bad' => [coded($old), $bad,
                             sub { $t->write($_[0], $bad);
                                   $t->mtime($_[0], $time + 5) }],
);
my @kinds = sort keys %swap;
my @clients = qw(zstd identity);
my %decoded = (coded($old) => $old, coded($new) => $new,
               coded($longer) => $longer, $bad => undef);

$t->plan(2 * @kinds * @clients + 13);

my $file = sub { return "s$_[0]-$_[1]-$_[2].txt.zst" };
for my $k (0 .. $#kinds) {
    for my $name (map { my $c = $_; map { $file->($k, $c, $_) } 1 .. $rounds }
                  @clients)
    {
        $t->write($name, $swap{$kinds[$k]}[0]);
        $t->write("$name.other", $swap{$kinds[$k]}[1]);
        $t->mtime($_, $time) for $name, "$name.other";
    }
}

$t->zst('still.txt', $old);
$t->write("$_/here.txt.zst", coded($old)) for qw(on off);
$t->settle('off/here.txt.zst');

$fault->run($t->conf(<<'EOC'));
    zstd_mmap on;

    # asks the file system each time
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 0s;

    location /none/ { alias %%DIR%%/; open_file_cache off; }
    location /on/   { open_file_cache_valid 60s; open_file_cache_errors on; }
    location /off/  { open_file_cache_valid 60s; open_file_cache_errors off; }
EOC


sub swapped {
    my ($name) = @_;

    my $path = $t->path($name);
    rename "$path.other", $path or die "rename $path: $!";
}


sub is_of {
    my ($r, $bytes, $coding) = @_;

    my $body = $decoded{$bytes};
    return $r->status == 500 if !defined $body;
    return $r->status == 200 && $r->complete
           && $r->body eq ($coding eq 'zstd' ? $bytes : $body);
}


for my $k (0 .. $#kinds) {
    my ($before, $after, $change) = @{$swap{$kinds[$k]}};

    for my $coding (@clients) {
        my ($seconds, @wrong) = (0);

        for my $round (1 .. $rounds) {
            my $name = $file->($k, $coding, $round);
            my $uri = '/' . substr $name, 0, -4;
            my @headers = ("Accept-Encoding: $coding");

            my $first = $t->get($uri, @headers);
            $change->($name);
            my $second = $t->get($uri, @headers);

            push @wrong, "round $round, before" if !is_of($first, $before,
                                                          $coding);
            push @wrong, "round $round, after" if !is_of($second, $after,
                                                         $coding);
            $seconds++ if $first->header('Date') eq $second->header('Date');
        }

        is("@wrong", '', "$kinds[$k], $coding: seen at once");
        ok($seconds, "$kinds[$k], $coding: and that was within a second");
    }
}

# calls that look at the file

my $n = 40;


sub looks {
    my ($uri) = @_;

    $t->get($uri, 'Accept-Encoding: zstd');
    $fault->count('fstat');
    my $begin = int time();
    my $right = grep { $_->status == 200 }
        map { $t->get($uri, 'Accept-Encoding: zstd') } 1 .. $n;
    my $seconds = int(time()) - $begin + 1;
    my $count = $fault->counted();
    $fault->disarm();

    return ($count, $seconds, $right);
}


my ($count, $seconds, $right) = looks('/still.txt');
is($right, $n, 'cached: all are answered');
cmp_ok($count, '<=', $seconds, 'cached: one look a second');

($count, $seconds, $right) = looks('/none/still.txt');
is($right, $n, 'not cached: all are answered');
cmp_ok($count, '>=', $n, 'not cached: one look a request');

# open_file_cache_valid and _errors


for my $errors (qw(on off)) {
    my @zstd = ('Accept-Encoding: zstd');

    is($t->get("/$errors/here.txt", @zstd)->status, 200,
       "errors $errors: there");
    $t->unlink("$errors/here.txt.zst");
    is($t->get("/$errors/here.txt", @zstd)->status, 200,
       "errors $errors: deleted within the valid time, still there");

    $t->get("/$errors/missing.txt", @zstd) for 1, 2;
    is($t->get("/$errors/missing.txt", @zstd)->status, 404,
       "errors $errors: not there");
    $t->write("$errors/missing.txt.zst", coded($old));
    is($t->get("/$errors/missing.txt", @zstd)->status,
       $errors eq 'on' ? 404 : 200,
       "errors $errors: created within the valid time");
}

is($t->log_count(qr/\[(?:crit|alert)\]/), 0, 'nothing critical');
