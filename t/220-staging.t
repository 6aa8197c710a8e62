#!/usr/bin/perl

# Which files are staged, and when: uses counted over both workers, max=, the
# regex, several zones; what is staged has the bytes of the file.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $t = Test::Zmap->new(workers => 2)->plan(32);

my %text = map { $_ => $t->text(30_000 + 1000 * $_, $_) } 1 .. 9;
my %zst = map { $_ => $t->compress($text{$_}) } keys %text;

for my $dir (qw(two three one max upper lower off other)) {
    $t->replace("$dir/$_.txt.zst", $zst{$_}) for 1 .. 3;
}
my $max = length $zst{2};
$t->settle('other/3.txt.zst');

$t->run($t->conf(<<"EOT", http => <<'EOH'));
    zstd_mmap on;
    sendfile on;
    zstd_mmap_stage z;
    add_header X-Pid \$pid;

    location /three/ { zstd_mmap_stage z min_uses=3; }
    location /one/ { zstd_mmap_stage z min_uses=1; }
    location /max/ { zstd_mmap_stage z min_uses=1 max=$max; }
    location /lower/ { zstd_mmap_stage z min_uses=1 ~^/lower/[A1]; }
    location /upper/ { zstd_mmap_stage z min_uses=1 ~*^/UPPER/[12].TXT\$; }
    location /off/ { zstd_mmap_stage off; zstd_mmap_send sendfile; }
    location /other/ { zstd_mmap_stage y min_uses=1; }
    location = /status { zstd_mmap_status json; }
EOT
zstd_mmap_zone z:4m hugepages=off;
zstd_mmap_zone y:1m hugepages=off;
EOH


sub status { return JSON::PP::decode_json($t->get('/status')->body) }
sub staged { return status()->{counters}{staged} }
sub segments { return status()->{zones}{$_[0] // 'z'}{segments} }


# one connection to each of the two workers
sub connections {
    my %c;

    for (1 .. 500) {
        my $c = $t->connect();
        my $r = $c->get('/off/3.txt', 'Accept-Encoding: zstd');
        $c{$r->header('X-Pid')} //= $c;
        last if keys %c == 2;
    }

    keys %c == 2 or die "all connections went to one worker\n";

    return values %c;
}


# whether the reply is right
sub right {
    my ($c, $uri) = @_;

    my ($n) = $uri =~ m{/(\d)\.txt$};
    my $r = $c->get($uri, 'Accept-Encoding: zstd');

    return $r->status == 200 && $r->complete && $r->body eq $zst{$n};
}


my ($a, $b) = connections();

# by the default the second use stages
my @uses = ([$a, 0], [$b, 1], [$a, 1], [$b, 1]);
for my $i (0 .. $#uses) {
    my ($c, $expected) = @{$uses[$i]};
    ok(right($c, '/two/1.txt'), "use $i of 2: the bytes of the file");
    is(staged(), $expected, "use $i of 2: staged $expected");
}

for my $row ([$b, 1], [$a, 1], [$b, 2], [$a, 2]) {
    my ($c, $expected) = @$row;
    right($c, '/three/1.txt') or die "wrong reply\n";
    is(staged(), $expected, "min_uses=3: staged $expected");
}

ok(right($a, '/one/1.txt'), 'min_uses=1: the first reply');
is(staged(), 3, 'min_uses=1: staged at once');

for my $row ([1, 1, 'below'], [2, 1, 'equal to'], [3, 0, 'above']) {
    my ($n, $expected, $what) = @$row;
    my $before = staged();
    my $right = grep { right($_, "/max/$n.txt") } $a, $b, $a;
    is($right, 3, "$what max: the bytes of the file");
    is(staged() - $before, $expected, "$what max: staged $expected");
}

for my $row (['lower', 1, 1], ['lower', 2, 0], ['upper', 1, 1],
             ['upper', 2, 1], ['upper', 3, 0], ['off', 1, 0])
{
    my ($dir, $n, $expected) = @$row;
    my $before = staged();
    right($_, "/$dir/$n.txt") || die "wrong reply\n" for $a, $b, $a;
    is(staged() - $before, $expected, "/$dir/$n.txt: staged $expected");
}

my $z = segments('z');
ok(right($a, '/other/1.txt'), 'another zone: the bytes of the file');
is(segments('y'), 1, 'another zone: the segment is there');
is(segments('z'), $z, 'and not in the first');

# HEAD asks for no byte, and a file that is too young is not kept
my $before = staged();
$t->head('/one/2.txt', 'Accept-Encoding: zstd') for 1 .. 4;
is(staged(), $before, 'HEAD stages nothing');

# both staged replies, by both workers, left without sendfile
my $sent = $t->log_count(qr/sendfile: @/);
right($_, '/two/1.txt') || die "wrong reply\n" for $a, $b;
is($t->log_count(qr/sendfile: @/), $sent, 'both workers send from the zone');
right($_, '/off/1.txt') || die "wrong reply\n" for $a, $b;
is($t->log_count(qr/sendfile: @/), $sent + 2, 'sendfile where that is set');
