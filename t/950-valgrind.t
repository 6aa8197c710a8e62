#!/usr/bin/perl

# A worker that serves the demo site under memcheck, to clients with zstd and
# without: no error, nothing lost, and after the third pass over the site no
# more heap in use than after the second, but for what the bodies in the buffers
# take: how many fit depends on which were asked for last.  A block for each
# file would show, the smallest one has 16 bytes.
#
# ZMAP_VALGRIND=1: every file of the site; otherwise a sample of them.
#
# Excluded: the region of zmap_pool is mapped, not allocated, so that memcheck
# knows nothing of buffers in it that are lost or used after their end;
# t/131-memory.t watches their number from outside.  SIGBUS is not excluded: a
# truncated mapping is decoded here, too.
# What nginx itself leaves at its exit is suppressed below.
# An nginx with ASan cannot run under valgrind: ASan then looks for errors and
# leaks, and the bytes in use are the anonymous ones of /proc.

use strict;
use warnings;

use Cwd ();
use File::Find ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $PASSES = 3;
my $SAMPLE = 80;

my $binary = $ENV{TEST_NGINX_BINARY} || '/usr/sbin/nginx';
my $asan = slurp($binary) =~ /__asan_init/;
my $demo = Cwd::abs_path('build/demo') or die "build/demo: $!";

# a sanitizer keeps what was freed
$ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
    'quarantine_size_mb=1', 'thread_local_quarantine_size_kb=64';

my @arguments = ('--leak-check=full', '--errors-for-leak-kinds=definite',
                 '--show-leak-kinds=definite', '--num-callers=30');
my $t = Test::Zmap->new(log_level => 'info', timeout => 60,
    valgrind => !$asan, valgrind_args => \@arguments)->plan(2 * $PASSES + 7);

push @arguments, '--suppressions=' . $t->write('own.supp', <<'EOF');
{
   the string of the TZ variable, which a process without a master never frees
   Memcheck:Leak
   fun:malloc
   fun:ngx_alloc
   fun:ngx_set_environment
}
{
   connections and events, which ngx_event_process_init() allocates
   Memcheck:Leak
   fun:malloc
   fun:ngx_alloc
   obj:*/nginx
   fun:ngx_single_process_cycle
}
EOF


sub slurp {
    my ($path) = @_;

    open(my $fh, '<:raw', $path) or die "$path: $!";
    local $/;

    return <$fh> // '';
}


sub uri {
    return '/' . $_[0] =~ s{([^A-Za-z0-9/._-])}{sprintf '%%%02X', ord $1}ger;
}


sub site_files {
    my @all;

    File::Find::find(sub {
        push @all, $File::Find::name =~ s{^\Q$demo/original/\E}{}r if -f;
    }, "$demo/original");
    @all = sort @all;
    return @all if $ENV{ZMAP_VALGRIND};

    # every n-th, and the largest one
    my ($largest) = sort { -s "$demo/original/$b" <=> -s "$demo/original/$a" }
        @all;
    my $step = int(@all / $SAMPLE) || 1;

    return ($largest, @all[grep { $_ % $step == 0 } 0 .. $#all]);
}


# the files that did not come as they are on disk
sub differing {
    my ($coding, $dir, $suffix, @files) = @_;

    my ($c, @bad);

    for my $file (@files) {
        $c //= $t->connect();
        my $r = $c->get(uri($file), "Accept-Encoding: $coding");
        push @bad, "$file: status " . $r->status . "\n"
            unless $r->status == 200 && $r->complete
                   && $r->body eq slurp("$demo/$dir/$file$suffix");
        $c->close(), undef $c
            if !$r->complete || ($r->header('Connection') // '') eq 'close';
    }
    $c->close() if $c;

    return @bad;
}


my $pid;


sub descriptors {
    my @fds = glob("/proc/$pid/fd/*");

    return scalar @fds;
}


# (bytes of the heap in use, bytes that nothing points to)
sub heap {
    return (anonymous(), 0) if $asan;

    my ($code, $output) = $t->capture('vgdb', "--pid=$pid", '--wait=10',
        'leak_check', 'summary', 'reachable', 'any');
    my %bytes = map { $_->[0] => $_->[1] =~ s/,//gr } pairs($output);
    die "vgdb: $output" if $code || !keys %bytes;

    my $all = 0;
    $all += $_ for values %bytes;

    return ($all, $bytes{'definitely lost'} + $bytes{'indirectly lost'});
}


sub pairs {
    my ($output) = @_;

    # "All heap blocks were freed" would be the other answer
    my @lines = $output =~ /^.*(?:lost|reachable): .*$/mg;

    return map { /(\w+ (?:lost|reachable)): ([\d,]+)/ ? [$1, $2] : () } @lines;
}


sub anonymous {
    my ($kib) = slurp("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;

    return 1024 * $kib;
}


my @files = site_files();

$t->zst('cut.txt', $t->text(200_000, 1));
$t->zst('other.txt', 'another file');
$t->settle('cut.txt.zst', 'other.txt.zst');
$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 8m max=512k;'));
    root $demo/site;
    zstd_mmap on;
    location /test/ {
        error_log %%RUN%%/test.log debug;
        alias %%DIR%%/;
        open_file_cache max=10 inactive=600;
        open_file_cache_valid 600;
    }
EOF
($pid) = $t->worker_pids();

# until it answers, it may not have begun to listen
$t->poll(sub { $t->get('/test/other.txt')->status == 200 });
my $idle = descriptors();
my (@heap, $lost);

for my $pass (1 .. $PASSES) {
    my @bad = differing('zstd', 'site', '.zst', @files);
    is(scalar @bad, 0, "pass $pass: frames") or diag(@bad[0 .. 9]);

    @bad = differing('identity', 'original', '', @files);
    is(scalar @bad, 0, "pass $pass: decoded bytes") or diag(@bad[0 .. 9]);

    $t->poll(sub { descriptors() <= $idle });
    ($heap[$pass], $lost) = heap();
}

cmp_ok($heap[3], '<', $heap[2] + ($asan ? 1 << 20 : 16 * @files),
       'no growth from the second pass to the third');
is($lost, 0, 'nothing is lost');
diag(scalar(@files) . " files, bytes in use after each pass: @heap[1 .. 3]");


# Within the second for which open_file_cache is trusted, the mapping is read
# without a look at the file: truncated, it faults.
sub faulted {
    my $zst = $t->compress($t->text(200_000, 1));

    $t->replace('cut.txt.zst', $zst);
    $t->settle('cut.txt.zst');
    return 0 if $t->head('/test/cut.txt')->status != 200;
    truncate($t->path('cut.txt.zst'), 0) or die "truncate: $!";

    return $t->get('/test/cut.txt')->status == 500
           && retries();
}


# with an unchanged file there would be none: it was found by its fault
sub retries {
    open(my $log, '<', $t->run_dir() . '/test.log') or return 0;
    return scalar(grep { /the file changed, retry/ } <$log>);
}


ok($t->poll(\&faulted), 'a truncated mapping is refused');
is(($t->worker_pids())[0], $pid, 'the worker lives');
is($t->get('/test/other.txt')->body, 'another file', 'and serves another file');

my ($heap, $still_lost) = heap();
is($still_lost, 0, 'nothing is lost by the jump');
$t->stop();
ok($asan || (() = glob($t->run_dir() . '/valgrind.*')) > 0,
   'valgrind has written its log');
