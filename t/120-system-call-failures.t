#!/usr/bin/perl

# Each system call of the module fails once, wherever it is made: the reply is
# right, refused or cut short, the worker lives, and the next reply is right.

use strict;
use warnings;

use Errno qw(EIO EAGAIN EINVAL ENODEV EACCES ENOMEM EINTR);
use Test::More;

use lib 't/lib', 't/preload';
use Test::Zmap;
use Preload;

my $t = Test::Zmap->new(log_level => 'info')->plan(49);
my $fault = Preload->new($t);

my $text = $t->text(300_000, 1);
my $small = $t->text(40_000, 2);
my %body = (oneshot => $small, sized => $text, unsized => $text, nul => '');
my %zst = (
    oneshot => $t->compress($small),
    sized   => $t->compress($text),
    unsized => $t->compress($text, size => 0),
    nul     => $t->compress(''),
);

$t->replace("$_.txt.zst", $zst{$_}) for keys %zst;
$t->raw_zst('zero.txt', '');

# 65 MiB that take no room on the disk: a skippable frame, then content
my $hole = 65 << 20;
my $large = $t->raw_zst('large.txt', pack('VV', 0x184d2a50, $hole));
truncate($large, 8 + $hole) or die "truncate: $!";
open(my $fh, '>>:raw', $large) or die "$large: $!";
print $fh $zst{oneshot};
close($fh) or die "$large: $!";

my $conf = $t->conf('zstd_mmap on; zstd_mmap_chunk 64k;'
                    . 'location /directio/ { alias %%DIR%%/; directio 4k; }',
                    http => 'zstd_mmap_buffers 4m max=64k;');
$fault->run($conf);

my @zstd = ('Accept-Encoding: zstd');

# what is asked for: the file, the headers, the version
my %ask = (
    'frames'             => ['sized', [@zstd], '1.1'],
    'decoded'            => ['oneshot', [], '1.1'],
    'conditional'        => ['oneshot', ['If-Match: *'], '1.1'],
    'stream'             => ['sized', [], '1.1'],
    'stream in chunks'   => ['unsized', [], '1.1'],
    'stream to http/1.0' => ['unsized', [], '1.0'],
);


sub ask {
    my ($name) = @_;

    my ($file, $headers, $version) = @{$ask{$name}};

    return $t->request('GET', "/$file.txt", headers => $headers,
                       version => $version);
}


sub is_right {
    my ($name, $r) = @_;

    my ($file, $headers) = @{$ask{$name}};
    my $want = @$headers && $headers->[0] eq $zstd[0]
        ? $zst{$file} : $body{$file};

    return $r->status == 200 && $r->complete && $r->body eq $want;
}


# the wrong outcomes when the n-th call fails, for each n; and how many fail
sub fail_each {
    my ($name, $calls, $errno) = @_;

    my ($worker) = $t->worker_pids();
    my ($file) = @{$ask{$name}};
    my ($failed, @wrong) = (0);

    for my $n (1 .. 200) {
        $t->replace("$file.txt.zst", $zst{$file});
        $fault->arm($calls, $n, errno => $errno);
        my $r = ask($name);
        my $fired = $fault->fired();
        $fault->disarm();
        last if !$fired;

        $failed++;
        push @wrong, "call $n: status " . $r->status . "\n"
            unless is_right($name, $r) || $r->status == 500
                   || !$r->complete && !$r->timed_out;
        push @wrong, "call $n: the worker is gone\n"
            if ($t->worker_pids())[0] != $worker;
        push @wrong, "call $n: the next reply is wrong\n"
            if !is_right($name, ask($name));
        last if @wrong;
    }

    return ($failed, @wrong);
}


ask('decoded');

for my $name (sort keys %ask) {
    my ($failed, @wrong) = fail_each($name, 'fstat', EIO);
    is(scalar @wrong, 0, "$name: fstat fails") or diag(@wrong);
    cmp_ok($failed, '>=', $name =~ /stream/ ? 5 : 2, "$name: all of them");

    ($failed, @wrong) = fail_each($name, 'mmap', EAGAIN);
    is(scalar @wrong, 0, "$name: mmap fails") or diag(@wrong);
    is($failed, 1, "$name: the only one");
}

$t->log_like(qr/\[crit\].*fstat\(\) .* failed \(5: /, 'fstat is in the log');
$t->log_like(qr/\[crit\].*system call failed.*\(11: |\(11: .*system call/,
             'mmap is in the log');


# names of the requests that went wrong while no file can be mapped
sub without_mmap {
    my ($errno) = @_;

    my @wrong;

    for my $name (sort keys %ask) {
        my ($file) = @{$ask{$name}};
        $t->replace("$file.txt.zst", $zst{$file});
        $fault->arm('mmap', 1, errno => $errno, always => 1);
        push @wrong, $name if !is_right($name, ask($name));
        push @wrong, "$name mapped" if !$fault->fired();
    }

    my $r = $t->get('/oneshot.txt', 'Range: bytes=100-299');
    push @wrong, 'range'
        if $r->status != 206 || $r->body ne substr $small, 100, 200;

    $r = $t->head('/sized.txt');
    push @wrong, 'head'
        if $r->status != 200 || $r->header('Content-Length') != length $text;

    $r = $t->get('/nul.txt');
    push @wrong, 'empty' if $r->status != 200 || !$r->complete;
    $fault->disarm();

    return "@wrong";
}


my $logged = $t->log_count(qr/\[(?:warn|error|crit|alert|emerg)\]/);
for my $errno (ENODEV, EINVAL, EACCES, ENOMEM) {
    local $! = $errno;
    is(without_mmap($errno), '', "no mmap, all is served: $!");
}
is($t->log_count(qr/\[(?:warn|error|crit|alert|emerg)\]/), $logged,
   'quietly');

ok($t->get('/large.txt')->body eq $small, 'a large file is mapped');
$t->mtime('large.txt.zst', 1_600_000_000);
$fault->arm('mmap', 1, errno => ENODEV, always => 1);
is($t->get('/large.txt')->status, 500, 'and refused without mmap');
$fault->disarm();

$fault->arm('mmap', 1, errno => ENODEV);
is($t->get('/zero.txt')->status, 500, 'a file of no bytes is refused');
is($fault->fired(), 0, 'and never mapped');

# a descriptor with O_DIRECT takes whole blocks and aligned memory only
for my $row (['oneshot', 'identity', $small], ['sized', 'identity', $text],
             ['unsized', 'identity', $text], ['sized', 'zstd', $zst{sized}])
{
    my ($file, $coding, $want) = @$row;

    $t->replace("$file.txt.zst", $zst{$file});
    $fault->arm('mmap', 1, errno => ENODEV, always => 1);
    my $r = $t->get("/directio/$file.txt", "Accept-Encoding: $coding");
    ok($r->status == 200 && $r->complete && $r->body eq $want
       && $fault->fired(), "$file, $coding: copied with directio")
        or diag('status ' . $r->status);
    $fault->disarm();
}

# copying has faults of its own
for my $row ([[short => 1], 200, 'a short pread'],
             [[errno => EINTR], 200, 'an interrupted pread'],
             [[errno => EIO], 500, 'a failing pread'],
             [[truncate => [$t->path('oneshot.txt.zst'), 0]], 500,
              'a file cut while it is copied'])
{
    my ($how, $status, $name) = @$row;

    $t->replace('oneshot.txt.zst', $zst{oneshot});
    $fault->arm('mmap', 1, errno => ENODEV, always => 1);
    $fault->arm('pread', 1, @$how, order => 1);
    my $r = ask('decoded');
    my $ok = $fault->fired(1) && $r->status == $status
             && ($status == 500 || is_right('decoded', $r));
    $fault->disarm();
    ok($ok, $name) or diag('status ' . $r->status);
}


# the first request of a new worker, with its first call failing
sub first_request {
    my ($calls, $n, $errno) = @_;

    $t->reload();
    $t->replace('oneshot.txt.zst', $zst{oneshot});
    $fault->arm($calls, $n, errno => $errno);
    my $r = ask('decoded');
    my $fired = $fault->fired();
    $fault->disarm();

    my $next = is_right('decoded', ask('decoded')) ? 'right' : 'wrong';
    my $this = is_right('decoded', $r) ? 'right' : $r->status;

    return $fired ? "$this, then $next" : 'not called';
}


is(first_request('sigaction', 1, EINVAL), '500, then right',
   'sigaction: reading the old action fails');
is(first_request('sigaction', 2, EINVAL), '500, then right',
   'sigaction: setting the new one fails');
is(first_request('mmap', 1, ENOMEM), 'right, then right',
   'no memory for the buffers: the body is streamed');
is(first_request('madvise', 1, EINVAL), 'right, then right',
   'no huge pages');
is(first_request('getrandom', 1, EAGAIN), 'right, then right',
   'no random numbers');

$t->log_like(qr/\[crit\].*no memory for zstd_mmap_buffers/,
             'missing buffers are in the log');
