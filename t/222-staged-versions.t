#!/usr/bin/perl

# A file that changes after it was staged, or while it is: the staged copy of
# the old version is never served for the new one.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Hold;

my $t = Test::Zmap->new(workers => 2, log_level => 'info')->plan(28);
my $hold = Hold->new($t);

my @text = map { $t->random(200_000, $_) } 1 .. 2;
my @zst = map { $t->compress($_, level => 1) } @text;

# the same size, so that nothing but time and inode tells them apart
my @frames = map { $t->frame(single => 1, fcs => 90_000,
                             blocks => [[raw => $_ x 90_000]]) } 'a', 'b';

$hold->run($t->conf(<<'EOT', http => <<'EOH'));
    zstd_mmap on;
    zstd_mmap_stage z min_uses=1;
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone z:8m hugepages=off;
zstd_mmap_buffers 4m hugepages=off;
EOH


sub status { return JSON::PP::decode_json($t->get('/status')->body) }
sub staged { return status()->{counters}{staged} }


sub answers {
    my ($uri, $coding, $body) = @_;

    return scalar grep {
        my $r = $t->get($uri, "Accept-Encoding: $coding");
        $r->status == 200 && $r->complete && $r->body eq $body;
    } 1 .. 6;
}


sub in_place {
    my ($rel, $bytes) = @_;

    open(my $fh, '+<:raw', $t->path($rel)) or die "$rel: $!";
    print $fh $bytes;
    truncate($fh, length $bytes) or die "$rel: $!";
    close($fh) or die "$rel: $!";
}


# name, how the file becomes another, before and after
my @table = (
    ['replaced by rename', \&rename_over, @zst],
    ['replaced by one of the same size', \&rename_over, @frames],
    ['overwritten in place', \&in_place, @frames],
    ['written in place and longer', \&in_place, $zst[0], $zst[0] . $frames[0]],
);


sub rename_over { $t->replace(@_) }


my %content = ($zst[0] => $text[0], $zst[1] => $text[1],
               $frames[0] => 'a' x 90_000, $frames[1] => 'b' x 90_000,
               "$zst[0]$frames[0]" => $text[0] . 'a' x 90_000);

for my $n (0 .. $#table) {
    my ($name, $change, $old, $new) = @{$table[$n]};
    my $rel = "$n.bin.zst";

    $t->replace($rel, $old);
    $t->settle($rel);
    my $before = staged();
    is(answers("/$n.bin", 'zstd', $old), 6, "$name: the old one before");
    is(staged() - $before, 1, "$name: staged");

    $change->($rel, $new);
    my $young = answers("/$n.bin", 'zstd', $new);
    is($young, 6, "$name: the new one at once");

    $t->settle($rel);
    is(answers("/$n.bin", 'zstd', $new)
       + answers("/$n.bin", 'identity', $content{$new}), 12,
       "$name: the new one, as frames and decoded");
    is(staged() - $before, 2, "$name: staged again");
}

# cut to half: a segment of the whole file exists, and must not be sent
$t->replace('cut.bin.zst', $zst[0]);
$t->settle('cut.bin.zst');
is(answers('/cut.bin', 'zstd', $zst[0]), 6, 'truncated: the file before');
truncate($t->path('cut.bin.zst'), length($zst[0]) / 2) or die "truncate: $!";
for my $coding ('zstd', 'identity') {
    my @wrong = grep { $t->get('/cut.bin', "Accept-Encoding: $coding")->status
                       == 200 } 1 .. 4;
    is(@wrong, 0, "truncated: no reply from the old copy, $coding");
}

# changed by somebody while a worker stands in the middle of its copy
for my $row (['overwritten', sub { in_place('held.bin.zst', $frames[1]) }],
             ['renamed over', sub { $t->replace('held.bin.zst', $frames[1]) }])
{
    my ($name, $change) = @$row;

    $t->replace('held.bin.zst', $frames[0]);
    $t->settle('held.bin.zst');
    my $before = staged();
    $hold->order('read', 'stop');
    my $c = $t->connect();
    $c->send_request('GET', '/held.bin', headers => ['Accept-Encoding: zstd']);
    my $pid = $hold->stopped() or die "no worker stopped\n";
    $change->();
    $t->kill('CONT', $pid);
    my $r = $c->response('GET');
    is(staged() - $before, 0, "$name while it is copied: thrown away")
        if $name eq 'overwritten';
    $t->settle('held.bin.zst');
    is(answers('/held.bin', 'zstd', $frames[1]), 6,
       "$name while it is copied: the new one");
    ok(!$r->complete || $r->status >= 500
       || $r->body eq $frames[0] || $r->body eq $frames[1],
       "$name while it is copied: the reply is one of them or none");
}
