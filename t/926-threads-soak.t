#!/usr/bin/perl

# Walks, decodes and verification in threads, in slices and at once, while
# clients leave at any point, files are replaced, rewritten and truncated, and
# workers are reloaded, told to end and killed.  What looks complete is a
# version that its file had meanwhile; nobody hangs; nothing is left behind.
#
# ZMAP_SOAK: seconds (6).  SEED: of the random moments (printed).

use strict;
use warnings;

use Digest::MD5 qw(md5);
use JSON::PP ();
use List::Util qw(min);
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use Test::Zmap;
use Test::Zmap::Http2;

my $SECONDS = $ENV{ZMAP_SOAK} || 6;
my $SCALE = $ENV{TEST_SCALE} || 1;
my $SEED = $ENV{SEED} || time() % 1_000_000 | 0;
my @NAMES = qw(complete left ended refused cut lost late wrong still);
my @CLIENTS = qw(fresh kept slow leaver leaver http2);
my $FAULTS = 5;

my $t = Test::Zmap->new(workers => 2, log_level => 'notice')->plan(17);

$t->expect_alert(qr/\[alert\].*worker process \d+ exited on signal 9/);
diag("$SECONDS s, SEED=$SEED");

# What happens to the files of a group.  Bytes that change in place may be read
# half and half: only the checksum of a single frame tells, so these are asked
# for decoded, and no range of them.
my %GROUPS = (
    still   => { versions => 1, shapes => [qw(small oneshot sized unsized
                                              frames blocks bytes)] },
    renamed => { versions => 3, shapes => [qw(small oneshot sized unsized
                                              frames blocks bytes)] },
    cut     => { versions => 2, shapes => [qw(oneshot sized frames)] },
    inplace => { versions => 3, shapes => [qw(small oneshot sized unsized)],
                 decoded => 1 },
    shrunk  => { versions => 2, shapes => [qw(oneshot unsized)] },
);

# decoded bytes; a buffer has up to 384k, and there is room for few of those
my %SIZES = (small => 20_000, oneshot => 300_000, sized => 1_500_000,
             unsized => 700_000, frames => 900_000, blocks => 201_000,
             bytes => 1_000_000);

my @LOCATIONS = qw(loop default min0 read scratch sum slices tiny staged
                   header);

# name => [versions], each {identity, zstd}; name => {coding}{digest} = version
my (%files, %digests);


# differs from other versions everywhere
sub body {
    my ($shape, $n) = @_;

    my $size = $SIZES{$shape} + 7001 * $n;
    our $text //= $t->text(1 << 19, $SEED);
    our $random //= $t->random(1 << 20, $SEED);
    my $from = 40_009 * $n;
    my $first = min(length($text) - $from, $size / 2);
    my $body = substr($text, $from, $first) . substr($random, $from);
    $body .= $body while length $body < $size;

    # coded as a block for each byte
    return substr($body, 0, 1000) . 'x' x ($size - 1000) if $shape eq 'bytes';

    return substr $body, 0, $size;
}


sub code {
    my ($shape, $body) = @_;

    return $t->compress($body, level => 1, size => $shape ne 'unsized')
        if $shape !~ /^(?:frames|blocks|bytes)$/;

    return join '', map { $t->frame(single => 1, fcs => length $_,
                                    blocks => [[raw => $_]]) }
        $body =~ /(.{1,50000})/sg if $shape eq 'frames';

    # walk and decode take long
    my ($head, $rest) = (substr($body, 0, 1000), substr $body, 1000);
    my @blocks = $shape eq 'bytes' ? "\x0a\0\0x" x length $rest
        : map { "\x0a\0\0$_" } split //, $rest;

    return $t->frame(window => 1 << 17, fcs => length $body, last => 0,
                     blocks => [[raw => $head]])
        . join('', @blocks) . "\1\0\0";
}


sub make_files {
    for my $group (sort keys %GROUPS) {
        for my $shape (@{$GROUPS{$group}{shapes}}) {
            my $name = "$group-$shape";
            for my $n (0 .. $GROUPS{$group}{versions} - 1) {
                my $body = body($shape, $n);
                my %version = (identity => $body, zstd => code($shape, $body));
                push @{$files{$name}}, \%version;
                $digests{$name}{$_}{md5($version{$_})} = $n
                    for keys %version;
            }
            $t->write("$name.zst", $files{$name}[0]{zstd});
        }
    }
}


# The journal: "+ name version time" before a version comes into being, and
# "- name version time" after it has gone.

my $journal = $t->run_dir() . '/journal';


sub record {
    my ($sign, $name, $n) = @_;

    open(my $out, '>>', $journal) or die "$journal: $!";
    syswrite($out, sprintf "%s %s %d %.6f\n", $sign, $name, $n, time());
    close($out);
}


# the versions that a file had within that time
{
    my ($in, %seen);
    my $part = '';

    sub versions {
        my ($name, $from, $to) = @_;

        $in // open($in, '<', $journal) || die "$journal: $!";
        while (sysread($in, $part, 65536, length $part)) { }

        while ($part =~ s/^(\S) (\S+) (\d+) (\S+)\n//) {
            my ($sign, $file, $n, $time) = ($1, $2, $3, $4);
            if ($sign eq '+') {
                push @{$seen{$file}}, [$n, $time, 1e12];
                next;
            }
            my ($open) = grep { $_->[0] == $n && $_->[2] == 1e12 }
                @{$seen{$file}};
            $open->[2] = $time;
        }

        my %had = map { $_->[0] => 1 }
            grep { $_->[1] <= $to && $_->[2] >= $from } @{$seen{$name}};

        return sort keys %had;
    }
}


# in place, from the first byte on or from an empty file
sub rewrite {
    my ($path, $bytes, $over) = @_;

    open(my $fh, $over ? '+<:raw' : '>:raw', $path) or die "$path: $!";
    print $fh $bytes;
    $fh->flush();
    truncate($fh, length $bytes) or die "$path: $!";
    close($fh) or die "$path: $!";
}


sub change_file {
    my ($name, $now) = @_;

    my ($group) = $name =~ /^(\w+)-/;
    my $path = $t->path("$name.zst");
    my $all = length $files{$name}[$now]{zstd};
    my $next = $group eq 'shrunk' ? $now : int rand @{$files{$name}};
    my $bytes = $files{$name}[$next]{zstd};
    my $truncated = $group =~ /^(?:cut|shrunk)$/;

    if ($truncated) {
        truncate($path, int rand $all) or die "$path: $!";
        record('-', $name, $now);
        sleep(rand 0.01);
    }

    record('+', $name, $next);
    $group =~ /^(?:cut|renamed)$/ ? $t->replace("$name.zst", $bytes)
        : rewrite($path, $bytes, $truncated || int rand 2);
    record('-', $name, $now) if !$truncated;

    return $next;
}


sub change_files {
    my ($end) = @_;

    my @names = grep { !/^still/ } sort keys %files;
    my %now;

    while (time() < $end) {
        my $name = $names[rand @names];
        $now{$name} = change_file($name, $now{$name} // 0);
        sleep(rand 0.025);
    }

    for my $name (@names) {
        $t->replace("$name.zst", $files{$name}[0]{zstd});
    }

    return {};
}


# what makes a request special: [share of all, what it adds]
my @KINDS = (
    [0.15, sub {
        my ($q, $size) = @_;
        my $from = int rand $size;
        my $last = $from + int rand($size - $from);
        my $range = rand() < 0.2 ? '-' . (1 + int rand $size)
            : "$from-" . (rand() < 0.2 ? '' : $last);
        push @{$q->{headers}}, "Range: bytes=$range";
        $q->{expect} = '200 206';
    }],
    [0.07, sub { $_[0]{method} = 'HEAD' }],
    [0.03, sub { push @{$_[0]{headers}}, 'If-None-Match: *';
                 $_[0]{expect} = '304' }],
    [0.03, sub { push @{$_[0]{headers}}, 'If-Match: "none"';
                 $_[0]{expect} = '412' }],
    [0.06, sub { push @{$_[0]{headers}}, 'If-None-Match: "none"' }],
    [0.04, sub { $_[0]{version} = '1.0' }],
);


# {name, uri, coding, method, version, headers, expect}
sub make_request {
    my (%fixed) = @_;

    my @names = sort keys %files;
    my $name = $names[rand @names];
    my ($group) = $name =~ /^(\w+)-/;
    my $coding = !$GROUPS{$group}{decoded} && rand() < 0.25
        ? 'zstd' : 'identity';
    my $size = min(map { length $_->{$coding} } @{$files{$name}});
    my $location = $LOCATIONS[rand @LOCATIONS];

    # without the walk nothing tells that a file ends early
    $location = 'loop' if $location eq 'header' && $group =~ /^(?:cut|shrunk)$/;

    my %q = (name => $name, coding => $coding, method => 'GET',
             uri => "/$location/$name", version => '1.1',
             headers => ["Accept-Encoding: $coding"], expect => '200');
    return \%q if $fixed{plain};

    my $at = rand;
    for my $kind (@KINDS[($GROUPS{$group}{decoded} ? 1 : 0) .. $#KINDS]) {
        my ($share, $add) = @$kind;
        $at -= $share;
        next if $at >= 0;
        $add->(\%q, $size);
        last;
    }

    return \%q;
}


sub is_right {
    my ($q, $r, $from, $to) = @_;

    my $status = $r->status;
    return 0 if $q->{expect} !~ /\b$status\b/;
    return 1 if $status == 304 || $status == 412;

    my ($name, $coding) = @$q{qw(name coding)};
    my @had = versions($name, $from, $to);

    if ($q->{method} eq 'HEAD') {
        my $length = $r->header('Content-Length') // return 1;
        return grep { $length == length $files{$name}[$_]{$coding} } @had;
    }

    return is_range($r, map { $files{$name}[$_]{$coding} } @had)
        if $status == 206;

    my $n = $digests{$name}{$coding}{md5($r->body)} // return 0;

    return grep { $n == $_ } @had;
}


sub is_range {
    my ($r, @bodies) = @_;

    my ($first, $last, $all) = ($r->header('Content-Range') // '')
        =~ m{^bytes (\d+)-(\d+)/(\d+)$} or return 0;

    return grep { $all == length
                  && $r->body eq substr $_, $first, $last - $first + 1
                } @bodies;
}


sub judge {
    my ($q, $r, $kept, $from, $to) = @_;

    return 'late' if $r->timed_out;
    return $kept ? 'ended' : 'lost' if !length $r->head;
    return 'refused' if $r->status == 500;
    return 'cut' if $r->status =~ /^20/ && !$r->complete;

    return is_right($q, $r, $from, $to) ? 'complete' : 'wrong';
}


# counts the result, and tells of what must not be
sub count {
    my ($count, $q, $r, $kept, $from, $to) = @_;

    my $result = judge($q, $r, $kept, $from, $to);
    $count->{$result}++;

    our $stir;
    my $still = $q->{name} =~ /^still/ && $to < $stir
        && $result =~ /^(?:cut|refused|lost)$/;
    $count->{still}++ if $still;

    return if !$still && $result !~ /^(?:late|wrong)$/;
    return if ($count->{faults}++ // 0) >= $FAULTS;

    my ($name, $coding, $body) = (@$q{qw(name coding)}, $r->body);
    my @like = map { my ($same) = ($body ^ $_->{$coding}) =~ /^(\0*)/;
                     length $same } @{$files{$name}};
    printf STDERR "# %s: %s %s %s, status %d, %d bytes, as version %s; like "
        . "the versions up to %s; had %s; %.6f to %.6f\n", $result,
        $q->{method}, $q->{uri}, "@{$q->{headers}}", $r->status, length $body,
        $digests{$name}{$coding}{md5($body)} // '?', "@like",
        join(' ', versions($name, $from, $to)), $from, $to;
}


sub read_slowly {
    my ($c, $method) = @_;

    my $got = '';
    for (1 .. 1 + rand 8) {
        my $size = 1 + int rand 60_000;
        my $some = $c->read_some($size);
        $got .= $some;
        last if length $some < $size;
        sleep(rand 0.03);
    }
    $c->{buffer} = $got . $c->{buffer};

    return $c->response($method);
}


# whole replies: over a kept connection, fresh ones, or slowly
sub reader {
    my ($count, $kind, $state) = @_;

    my $q = make_request();
    my $kept = delete $state->{connection};
    my $from = time();
    my $c = $kept // $t->connect($kind eq 'slow'
        ? (rcvbuf => 4096, port => $t->port(2)) : ());
    push @{$q->{headers}}, 'Connection: close' if $kind ne 'kept';

    $c->send_request($q->{method}, $q->{uri}, version => $q->{version},
                     headers => $q->{headers});
    my $r = $kind eq 'slow' ? read_slowly($c, $q->{method})
        : $c->response($q->{method});

    count($count, $q, $r, $kept, $from, time());

    if ($kind eq 'kept' && $r->complete && $q->{version} eq '1.1'
        && ($r->header('Connection') // '') ne 'close')
    {
        $state->{connection} = $c;
        return;
    }

    $c->close();
}


# goes at a random point, by FIN or RST
sub leaver {
    my ($count) = @_;

    my $q = make_request();
    my $c = $t->connect(rand() < 0.5 ? (rcvbuf => 4096, port => $t->port(2))
                        : ());
    my $text = join("\r\n", "$q->{method} $q->{uri} HTTP/1.1",
                    'Host: localhost', @{$q->{headers}}) . "\r\n\r\n";
    my $point = rand;

    if ($point < 0.1) {
        $c->send(substr $text, 0, rand length $text);

    } else {
        $c->send($point < 0.2 ? $text x 2 : $text);
        sleep($point < 0.5 ? rand 0.002 : rand 0.02) if $point > 0.3;
        $c->read_some($point < 0.8 ? 1 + int rand 300 : int rand 200_000)
            if $point > 0.6;
    }

    $count->{left}++;
    rand() < 0.5 ? $c->close() : $c->abort();
}


# some streams of one connection, of which some are reset, or all left
sub multiplexer {
    my ($count) = @_;

    my $c = Test::Zmap::Http2->new($t->port(3), timeout => $t->timeout(),
                                   window => 1 << 12 + rand 10);
    my $from = time();
    my $gone = $from + (rand() < 0.2 ? rand 0.03 : $t->timeout());
    my %open;

    for (1 .. 1 + rand 6) {
        my $q = make_request(plain => 1);
        my $id = $c->open($q->{uri}, 'accept-encoding' => $q->{coding});
        $q->{reset} = $from + rand 0.03 if rand() < 0.4;
        $open{$id} = $q;
    }

    my $ended = 0;
    while (%open && !$ended && time() < $gone) {
        $ended = !$c->read(0.005);
        look_at_streams($count, $c, \%open, $from, $ended);
    }

    if ($gone < $from + $t->timeout()) {
        $count->{left} += keys %open;
        rand() < 0.5 ? $c->close() : $c->abort();
        return;
    }

    end_stream($count, $open{$_}, undef, $from) for sort keys %open;
    $c->close();
}


sub look_at_streams {
    my ($count, $c, $open, $from, $ended) = @_;

    for my $id (sort keys %$open) {
        my ($q, $s) = ($open->{$id}, $c->stream($id));

        if ($s->{done} || $s->{reset} || $ended) {
            end_stream($count, $q, $s, $from);
            delete $open->{$id};

        } elsif ($q->{reset} && time() > $q->{reset}) {
            $c->reset($id);
            $count->{left}++;
            delete $open->{$id};
        }
    }
}


# no status: a reload may find the connection before its first stream
sub end_stream {
    my ($count, $q, $s, $from) = @_;

    my $r = Test::Zmap::Response->new();
    $r->{timed_out} = !$s;
    @$r{qw(status body complete head)}
        = (@$s{qw(status body done)}, $s->{status} || '') if $s;

    count($count, $q, $r, 1, $from, time());
}


# connect() fails for none but those whom a worker that is killed leaves
sub client {
    my ($end, $kind) = @_;

    our $stir;
    my (%count, %state);

    while (time() < $end) {
        next if eval {
            $kind eq 'leaver' ? leaver(\%count)
                : $kind eq 'http2' ? multiplexer(\%count)
                : reader(\%count, $kind, \%state);
            1;
        };
        die $@ if time() < $stir || $@ !~ /^connect/;
        $count{lost}++;
    }

    return \%count;
}


# a process whose end is the counts that it prints
sub start {
    my ($n, $work) = @_;

    my $pid = open(my $out, '-|') // die "fork: $!";
    return $out if $pid;

    srand($SEED + $n);
    my $count = eval { $work->() };
    print STDERR "# client $n: $@" if !$count;
    print join(' ', map { $count->{$_} // 0 } @NAMES), "\n" if $count;
    close(STDOUT);
    POSIX::_exit(0);
}


sub finish {
    my @running = @_;

    my %total = map { $_ => 0 } 'dead', @NAMES;
    for my $out (@running) {
        my @counts = split ' ', readline($out) // '';
        $total{dead}++ if @counts != @NAMES;
        $total{$NAMES[$_]} += $counts[$_] for 0 .. $#counts;
        local $?;
        close($out);
    }

    return \%total;
}


# nginx calls it an alert when one is told to end at once
sub is_leaving {
    my ($pid) = @_;

    open(my $fh, '<', "/proc/$pid/cmdline") or return 1;

    return (<$fh> // '') =~ /shutting down/;
}


# reloads, and from $stir on ends of workers, one at least; how many of either
sub send_signals {
    my ($begin, $stir, $end) = @_;

    srand($SEED);
    my ($reloads, $ends) = (0, 0);
    my $next = $begin + ($stir - $begin) / 2;

    while (time() < $end || !$ends) {
        sleep(0.02);
        my @pids = grep { !is_leaving($_) } $t->worker_pids();
        next if time() < $next || !@pids;

        if (time() < $stir) {
            $next = time() + 0.5 + rand;
            $reloads++ if $t->reload(old => 'stay');

        } else {
            $next = time() + 0.1 + rand 0.4;
            my $signal = rand() < 0.5 ? 'KILL' : 'TERM';
            $ends += eval { $t->kill($signal, $pids[rand @pids]) } // 0;
        }
    }

    return ($reloads, $ends);
}


sub status { return JSON::PP::decode_json($t->get('/status')->body) }


# workers that do not look as one does that rests
sub busy_workers {
    return grep { $_->{buffers}{used} != $_->{buffers}{kept}
                  || $_->{streams} } @{status()->{workers}};
}


# what workers have of our files and of connections
sub left_open {
    my %connected;
    open(my $tcp, '<', '/proc/net/tcp') or die "/proc/net/tcp: $!";
    while (<$tcp>) {
        my @field = split;
        $connected{"socket:[$field[9]]"} = 1 if $field[3] ne '0A';
    }

    my $dir = $t->dir();

    return grep { /^\Q$dir\E/ || $connected{$_} } map { readlink($_) // () }
        map { glob("/proc/$_/fd/*") } $t->worker_pids();
}


# requests that the server is answering
sub writing { return $t->get('/basic')->body =~ /Writing: (\d+)/ ? $1 : 0 }


make_files();
record('+', $_, 0) for sort keys %files;

my $root = $t->dir() . '/';
my $locations = join '', map { my ($name, $text) = /^(\w+) (.*)/;
    "location /$name/ { alias $root; $text }\n" } split /\n/, <<'EOF';
loop zstd_mmap_input map;
default zstd_mmap_threads pool;
min0 zstd_mmap_threads pool min=0; zstd_mmap_chunk 16k;
read zstd_mmap_threads pool min=0; zstd_mmap_input read;
scratch zstd_mmap_threads pool; zstd_mmap_input scratch=1m;
sum zstd_mmap_threads pool min=0; zstd_mmap_verify checksum;
slices zstd_mmap_verify checksum; zstd_mmap_chunk 16k;
tiny zstd_mmap_threads tiny min=0; zstd_mmap_chunk 64k;
staged zstd_mmap_threads pool min=0; zstd_mmap_stage z min_uses=1;
header zstd_mmap_threads pool min=0; zstd_mmap_verify off;
EOF

$t->run("thread_pool pool threads=3;\n"
        . "thread_pool tiny threads=1 max_queue=2;\n"
        . $t->conf(<<"EOT", http => <<'EOH'));
    listen 127.0.0.1:%%PORT2%% sndbuf=16k;
    listen 127.0.0.1:%%PORT3%% http2;
    zstd_mmap on;
    zstd_mmap_send memory;
    location = /status { zstd_mmap_status json; }
    location = /basic { stub_status; }
    $locations
EOT
zstd_mmap_buffers 3m max=384k hugepages=off;
zstd_mmap_zone z:4m hugepages=off;
EOH

my $master = $t->master_pid();
my $begin = time();
my $end = $begin + $SECONDS;
our $stir = $begin + $SECONDS * 0.7;

my $changes = start(1, sub { change_files($end) });
my @running = map { my ($n, $kind) = ($_ + 2, $CLIENTS[$_]);
                    start($n, sub { client($end, $kind) }) } 0 .. $#CLIENTS;
my ($reloads, $ends) = send_signals($begin, $stir, $end);
my $total = finish(@running);
finish($changes);

diag(join(', ', map { "$total->{$_} $_" } @NAMES),
     ", $reloads reloads, $ends workers ended");

cmp_ok($reloads, '>', 0, 'there were reloads');
cmp_ok($ends, '>', 0, 'and workers that were ended');
is($total->{dead}, 0, 'every client came to its end');
cmp_ok($total->{complete}, '>', 10 * $SECONDS / $SCALE, 'complete replies');
cmp_ok($total->{left}, '>', 10 * $SECONDS / $SCALE, 'clients that left');
is($total->{wrong}, 0, 'none looks complete and is wrong');
is($total->{late}, 0, 'none waits for ever');
is($total->{still}, 0, 'files that rest are neither refused nor cut');

ok($t->poll(sub { $t->worker_pids() == 2 }), 'two workers');
ok(!$t->_reap() && $t->master_pid() == $master, 'the master stays');
ok($t->poll(sub { !left_open() }), 'no descriptor is left open')
    or diag(join "\n", left_open());
ok($t->poll(sub { !busy_workers() }), 'no buffer and no stream is left')
    or diag(JSON::PP->new->canonical->encode(status()));

$t->settle("$_.zst") for sort keys %files;
my @bad;
for my $name (sort keys %files) {
    for my $location (@LOCATIONS) {
        my $r = $t->get("/$location/$name");
        push @bad, "$location/$name"
            if !$r->complete || $r->body ne $files{$name}[0]{identity};
    }
}
is("@bad", '', 'all files are served');

my $counters = status()->{counters};
cmp_ok($counters->{cached}, '>', 0, 'bodies were found again');
cmp_ok($total->{refused} + $total->{cut}, '>', 0, 'some met a change');
diag("$counters->{bus_errors} bus errors, $counters->{cached} found again");

# QUIT while requests wait for jobs of new workers
ok($t->reload(), 'a last reload');

my $before = writing();
my @waiting = map {
    my ($location, $shape) = @$_;
    my $c = $t->connect(port => $t->port(2), rcvbuf => 32768);
    $c->send_request('GET', "/$location/still-$shape");
    [$c, $files{"still-$shape"}[0]{identity}];
} map { my $location = $_; map { [$location, $_] } qw(sized blocks unsized) }
    qw(min0 default sum tiny slices);
$t->poll(sub { writing() >= $before + @waiting });
$t->kill('QUIT', $master);
my $right = grep { my $r = $_->[0]->response('GET');
                   $r->complete && $r->body eq $_->[1] } @waiting;
is($right, @waiting, 'QUIT: replies under way are completed');
