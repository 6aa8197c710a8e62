#!/usr/bin/perl

# Readers that share one scratch do not read a file again and again, and what
# was read of a file that is too young to keep is read anew.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

my $SIZE = 24 << 20;

my $t = Test::Zmap->new();
my $fault = Preload->new($t);


sub raw {
    my ($body) = @_;

    return $t->frame(single => 1, fcs => length $body, fcs_bytes => 4,
        blocks => [map { [raw => $_] } unpack '(a131072)*', $body]);
}


my %body = map { $_ => $t->random($SIZE, ord) } qw(a b);
my %small = map { $_ => $t->random(7 << 20, ord) } qw(c d);

$t->plan(13);

$t->raw_zst($_, raw($body{$_})) for sort keys %body;
$t->raw_zst($_, raw($small{$_})) for sort keys %small;
$t->settle('d.zst');

$fault->run($t->conf(<<'EOC', http => 'zstd_mmap_buffers 8m max=1m;'));
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    zstd_mmap on;
    zstd_mmap_input scratch;
    location /read/ { alias %%DIR%%/; zstd_mmap_input read; }
EOC


# bytes that the windows were filled with, as the debug log has it
sub filled {
    my ($sum, $last) = (0, '');

    for my $line ($t->log_lines(qr/zstd mmap: window rc:0/)) {
        my ($size, $from) = $line =~ /: (\d+) bytes from (\d+)/ or next;
        $sum += $size if "$size $from" ne $last;
        $last = "$size $from";
    }

    return $sum;
}


for my $row (['one file, one behind the other', 'a', 'a', 10 << 20],
             ['two files', 'a', 'b', 0],
             ['two files that fit into it', 'c', 'd', 0])
{
    my ($name, $first, $second, $ahead) = @$row;

    my $before = filled();
    my @body = map { $body{$_} // $small{$_} } $first, $second;
    my @c = map { $t->connect(port => $t->port(2), rcvbuf => 8192) } 0, 1;
    my @got = ('', '');
    $c[0]->send_request('GET', "/$first");
    $got[0] = $c[0]->read_some($ahead) if $ahead;
    $c[1]->send_request('GET', "/$second");

    for (1 .. 60) {
        $got[$_] .= $c[$_]->read_some(100_000) for 0, 1;
    }
    for my $n (0, 1) {
        $c[$n]{buffer} = $got[$n] . $c[$n]{buffer};
        my $r = $c[$n]->response('GET');
        ok($r->complete && $r->body eq $body[$n], "$name: the bytes, $n");
    }

    # a step takes 256 KiB of what was read for it, 1 MiB
    cmp_ok(filled() - $before, '<', 3 * (length($body[0]) + length $body[1]),
           "$name: not much is read twice");
}

# two versions of a file may look alike as long as it is young
my $text = $t->text(30_000, 5);
$t->zst('young', $text);
is($t->get('/read/young')->body, $text, 'a young file');
ok($t->log_count(qr/is too young to keep/), 'it was too young to keep');
$t->settle('young.zst');
$fault->count('pread');
is($t->get('/read/young')->body, $text, 'a moment later');
cmp_ok($fault->counted(), '>', 0, 'what was read before is not taken');
