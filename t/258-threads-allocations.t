#!/usr/bin/perl

# The n-th allocation of a request fails, for each n, where threads walk and
# decode: the reply is right, refused or cut short; the worker lives, and the
# next reply is right.

use strict;
use warnings;

use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Test::Zmap::Status;
use Preload;

my $t = Test::Zmap->new(log_level => 'info')->plan(12);
my $s = Test::Zmap::Status->new($t);
my $fault = Preload->new($t);

$t->expect_alert(qr/\[(?:emerg|alert)\].*(?:malloc|posix_memalign|memalign)\(/);

my $text = $t->text(300_000, 1);
my $small = $t->text(40_000, 2);
my %body = (oneshot => $small, sized => $text, unsized => $text);
my %zst = (
    oneshot => $t->compress($small),
    sized   => $t->compress($text),
    unsized => $t->compress($text, size => 0),
);

$fault->run($t->conf(<<"EOC", http => 'zstd_mmap_buffers 4m max=64k;'));
    zstd_mmap on;
    zstd_mmap_chunk 64k;
    zstd_mmap_threads default min=1;
    location /checked/ { alias %%DIR%%/; zstd_mmap_verify checksum; }
    location /read/ { alias %%DIR%%/; zstd_mmap_input read; }
    @{[$s->location]}
EOC

# what, the place, the file, the headers
my @rows = (
    ['decoded', '', 'oneshot'],
    ['after the header', '', 'oneshot', 'If-None-Match: "x"'],
    ['stream', '/read', 'sized'],
    ['stream of unknown size', '', 'unsized'],
    ['verified frames', '/checked', 'sized', 'Accept-Encoding: zstd'],
);


sub ask {
    my ($place, $kind, @headers) = @_;

    my $coded = grep { /zstd/ } @headers;
    my $want = $coded ? $zst{$kind} : $body{$kind};
    my $r = $t->get("$place/$kind.txt", @headers);

    return 'right' if $r->status == 200 && $r->complete && $r->body eq $want;
    return 'refused' if $r->status == 500;
    return 'cut short' if !$r->complete && !$r->timed_out;
    return 'wrong: status ' . $r->status;
}


sub fail_each {
    my ($row, %opt) = @_;

    my ($what, @ask) = @$row;
    my ($failed, @wrong) = (0);
    my ($worker) = $t->worker_pids();

    for my $n (1 .. 2000) {
        # one that is known of no request
        $t->replace("$ask[1].txt.zst", $zst{$ask[1]});
        $fault->arm('alloc', $n, %opt);
        my $got = ask(@ask);
        my $fired = $fault->fired();
        $fault->disarm();
        last if !$fired;

        $failed++;
        push @wrong, "allocation $n: $got\n" if $got =~ /wrong/;
        push @wrong, "allocation $n: the worker is gone\n"
            if ($t->worker_pids())[0] != $worker;
        push @wrong, "allocation $n: the next reply is not right\n"
            if ask(@ask) ne 'right';
        last if @wrong;
    }

    return ($failed, @wrong);
}


for my $row (@rows) {
    for my $any (0, 1) {
        my ($failed, @wrong) = fail_each($row, any => $any);
        my $what = $row->[0] . ($any ? ', all calls of nginx' : '');
        ok(!@wrong && $failed > ($any ? 8 : 0), "$what: $failed failed")
            or diag(@wrong);
    }
}

$t->log_like(qr/\[crit\].*no memory for a zstd_mmap job/, 'jobs are told of');
ok($s->poll(sub { $_[0]{buffers}{used} == $_[0]{buffers}{kept} }),
   'no buffer is lost');
