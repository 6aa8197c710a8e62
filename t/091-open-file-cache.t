#!/usr/bin/perl

# With open_file_cache a change is seen after one second or its valid time.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

my $time = 1_700_000_000;
my $old = $t->random(50_000, 1);
my $new = $t->random(50_000, 2);
my $more = $t->random(9000, 3);

sub coded {
    my ($body) = @_;
    return $t->frame(fcs => length $body, checksum => 1, blocks =>
        [map { [raw => $_] } unpack '(a40000)*', $body]);
}

# how each file changes; nginx's cache sees neither ctime nor nanoseconds
my %change = (
    rename  => [sub { $t->replace($_[0], coded($new)) }, $new],
    inplace => [sub { $t->write($_[0], coded($new)) }, $new],
    append  => [sub { $t->write($_[0], coded($old) . coded($more)) },
                $old . $more],
    sametime => [sub { $t->write($_[0], coded($new));
                       $t->mtime($_[0], $time) }, $new],
    renamesame => [sub { $t->replace($_[0], coded($new));
                         $t->mtime($_[0], $time) }, $new],
);

my @names = sort keys %change;
my @where = ('', 'directio/');

$t->plan((4 * @names + 2) * @where + 16);

for my $where (@where) {
    for my $name (@names) {
        $t->write("$where$name.txt.zst", coded($old));
        $t->mtime("$where$name.txt.zst", $time);
    }
}
$t->write("$_/gone.txt.zst", coded($old)) for qw(on off);
$t->settle('off/gone.txt.zst');

$t->run($t->conf(<<'EOC'));
    zstd_mmap on;
    open_file_cache max=100 inactive=20s;
    open_file_cache_valid 1s;

    location /on/ { open_file_cache_errors on; }
    location /off/ { open_file_cache_errors off; }
    location /directio/ { directio 4k; }
EOC

# all are cached, then all change
for my $uri (map { my $w = $_; map { "/$w$_.txt" } @names } @where) {
    $t->get($uri) for 1, 2;
    is($t->get($uri, 'Accept-Encoding: zstd')->body, coded($old),
       "$uri: cached");
}

my $changed = time();
for my $where (@where) {
    $change{$_}[0]->("$where$_.txt.zst") for @names;
}

for my $where (@where) {
    for my $name (@names) {
        my ($uri, $body) = ("/$where$name.txt", $change{$name}[1]);

        # 1 s for the valid time, 1 s for ours, whole seconds both
        my $left = $changed + 4 * ($ENV{TEST_SCALE} || 1) - time();
        my %status;
        ok($t->poll(sub { my $r = $t->get($uri);
                          $status{$r->status}++;
                          return $r->body eq $body }, $left),
           "$uri: the new version is seen in time");

        is(join(' ', grep { $_ != 200 } sort keys %status), '',
           "$uri: no error in between") if $name =~ /^rename/;

        my $r = $t->get($uri);
        ok($r->complete && $r->body eq $body, "$uri: and stays");

        $r = $t->get($uri, 'Accept-Encoding: zstd');
        ok($r->complete && $r->body eq $t->read("$where$name.txt.zst"),
           "$uri: frames of the new version");
    }
}

for my $errors (qw(on off)) {
    my $uri = "/$errors/gone.txt";
    my $file = "$errors/gone.txt.zst";

    is($t->get($uri)->body, $old, "errors $errors: there");
    $t->unlink($file);

    my %status;
    my $gone = $t->poll(sub { my $r = $t->get($uri);
                              $status{$r->status}++;
                              return $r->status == 404; });
    ok($gone, "errors $errors: deleted while cached, 404 in time");
    is(join(' ', grep { !/^(?:200|404)$/ } keys %status), '',
       "errors $errors: nothing else in between");
    is($t->get($uri)->status, 404, "errors $errors: and again");

    $t->write($file, coded($new));
    ok($t->poll(sub { $t->get($uri)->body eq $new }),
       "errors $errors: comes back");

    # also a bad one comes and goes
    $t->replace($file, 'bad');
    ok($t->poll(sub { $t->get($uri)->status == 500 }),
       "errors $errors: becomes bad");
    $t->write(substr($file, 0, -4), 'plain');
    ok($t->poll(sub { $t->get($uri)->body eq 'plain' }),
       "errors $errors: the plain file is found");
    $t->replace($file, coded($old));
    ok($t->poll(sub { $t->get($uri)->body eq $old }),
       "errors $errors: is repaired");
}
