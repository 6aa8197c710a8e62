#!/usr/bin/perl

# zstd_mmap_advise: each value serves the same bytes, and what is mapped of a
# large file stays small while it is read once from end to end.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Status;


my @values = qw(auto off sequential willneed hugepage);

my $t = Test::Zmap->new(log_level => 'info')->plan(3 * @values + 4);
my $status = Test::Zmap::Status->new($t);

my $size = 48 << 20;
my $body = $t->random($size, 1);
my $zst = $t->frame(single => 1, fcs => $size, fcs_bytes => 4, blocks =>
    [map { [raw => substr $body, $_ << 17, 1 << 17] } 0 .. ($size >> 17) - 1]);

for my $value (@values) {
    $t->raw_zst("$value/large", $zst);
    $t->raw_zst("$value/small", $t->compress("small $value"));
}
$t->settle('hugepage/small.zst');

$t->run($t->conf("zstd_mmap on;\n" . $status->location . "\n"
    . join("\n", map { "location /$_/ { zstd_mmap_advise $_; }" } @values)));

my ($worker) = $t->worker_pids();


# what the process has mapped of that file, in bytes: all, and by huge pages
sub mapped {
    my ($name) = @_;

    open(my $fh, '<', "/proc/$worker/smaps") or die "smaps: $!";
    my ($inside, %sum);
    while (my $line = <$fh>) {
        $inside = $line =~ m{/\Q$name\E$} if $line =~ /^[0-9a-f]+-[0-9a-f]+ /;
        $sum{$1} += $2 << 10 if $inside && $line =~ /^(\w+): +(\d+) kB/;
    }

    return @sum{qw(Rss FilePmdMapped)};
}


for my $value (@values) {
    my $r = $t->get("/$value/large");
    ok($r->complete && $r->body eq $body, "$value: the bytes");
    is($t->get("/$value/small")->body, "small $value", "$value: a small file");

    my ($rss) = mapped("$value/large.zst");
    cmp_ok($rss, '<=', 8 << 20, "$value: not much of it stays mapped");
}

# half way through, with a reader that waits
my $c = $t->connect(rcvbuf => 8192);
$c->send_request('GET', '/auto/large');
$c->read_some(30 << 20);
my ($rss) = mapped('auto/large.zst');
cmp_ok($rss, '>', 0, 'under way: some of it is mapped');
cmp_ok($rss, '<=', 12 << 20, 'but not all');
$c->close();

# a file that has to come from the disk: the kernel may read it in huge pages
$t->raw_zst('hugepage/cold', $zst);
my $path = $t->path('hugepage/cold.zst');
$t->capture('dd', 'if=/dev/null', "of=$path", 'oflag=nocache', 'count=0',
            'conv=notrunc,fdatasync');
$c = $t->connect(rcvbuf => 8192);
$c->send_request('GET', '/hugepage/cold');
$c->read_some(6 << 20);
my ($all, $huge) = mapped('hugepage/cold.zst');
my $seen = $status->get->{bytes}{mapped_huge};
cmp_ok($all, '>', 0, 'cold: some of it is mapped');
diag($huge ? "$huge of $all bytes are mapped by huge pages, $seen were"
     : 'this kernel or file system gives no huge pages for files');
is($seen > 0 ? 1 : 0, $huge > 0 ? 1 : 0, 'and the status tells by what pages');
