#!/usr/bin/perl

# A slow reader's file is truncated from outside, between two chunks, at a page
# border and inside the last page: the reply ends short, the worker lives.

use strict;
use warnings;

use IPC::Open3 ();
use Test::More;

use lib 't/lib';
use Test::Zmap;

my $SIZE = 12_000_000;
my $READ = 300_000;

my $t = Test::Zmap->new(log_level => 'info')->plan(32);

open($t->{tls_errors}, '>', $t->run_dir() . '/s_client') or die $!;

my ($cert, $key) = $t->certificate();

# Compressed blocks, so that the size of the unsized one is not known, then raw
# ones, in which zeros are as good as anything; and no checksum to tell.
my $content = $t->text(500_000, 1) . $t->random($SIZE - 500_000, 1);
my %zst = (
    sized   => $t->compress($content, level => 1, check => 0),
    unsized => $t->compress($content, level => 1, check => 0, size => 0),
);

$t->zst('other.txt', 'another file');

# a small socket buffer keeps the decoder near the reader
$t->run($t->conf(<<"EOF", http => 'zstd_mmap_buffers 4m max=64k;'));
    listen 127.0.0.1:%%PORT2%% ssl;
    listen 127.0.0.1:%%PORT3%% sndbuf=32k;
    ssl_certificate $cert;
    ssl_certificate_key $key;

    zstd_mmap on;
    zstd_mmap_chunk 64k;
EOF

my ($worker) = $t->worker_pids();


package TlsReader {

    sub new {
        my ($class, $t, $uri, $version) = @_;

        my $pid = IPC::Open3::open3(my $in, my $out,
            '>&' . fileno($t->{tls_errors}), 'openssl', 's_client', '-quiet',
            '-no_ign_eof', '-connect', '127.0.0.1:' . $t->port(2));
        binmode $out;
        syswrite($in, "GET $uri HTTP/$version\r\nHost: localhost\r\n\r\n");

        return bless { t => $t, pid => $pid, in => $in, out => $out,
                       buffer => '' }, $class;
    }


    # false at the end
    sub fill {
        my ($self, $size) = @_;

        my $late = !IO::Select->new($self->{out})
                    ->can_read($self->{t}->timeout());
        die "no bytes over tls\n" if $late;

        return sysread($self->{out}, $self->{buffer}, $size,
                       length $self->{buffer});
    }


    sub read_some {
        my ($self, $size) = @_;

        while (length $self->{buffer} < $size) {
            last unless $self->fill($size - length $self->{buffer});
        }
    }


    # all bytes to the end of the stream: nothing of TLS's own end is seen,
    # so that only a length or a last chunk makes a reply whole
    sub response {
        my ($self) = @_;

        while ($self->fill(262144)) { }
        close($self->{in});
        waitpid($self->{pid}, 0);
        my $c = bless { buffer => $self->{buffer}, eof => 1, reset => 1,
                        late => 0, timeout => 1 }, 'Test::Zmap::Client';

        return $c->response('GET');
    }
}


sub reader {
    my ($how, $uri) = @_;

    return TlsReader->new($t, $uri, '1.1') if $how eq 'tls';

    my $c = $t->connect(port => $t->port(3), rcvbuf => 16384);
    $c->send_request('GET', $uri,
                     version => $how eq 'http/1.0' ? '1.0' : '1.1');

    return $c;
}


# what a client that has read a little gets in all
sub cut_while_reading {
    my ($how, $file, $size) = @_;

    $t->replace("$file.txt.zst", $zst{$file});

    my $c = reader($how, "/$file.txt");
    $c->read_some($READ) if $how eq 'tls';
    my $head = $how eq 'tls' ? '' : $c->read_some($READ);

    truncate($t->path("$file.txt.zst"), $size) or die "truncate: $!";

    $c->{buffer} = $head . $c->{buffer};

    return $c->response('GET');
}


sub check {
    my ($how, $file, $where, $size) = @_;

    my $name = "$how, $file, cut $where";
    my $r = cut_while_reading($how, $file, $size);

    ok($r->status == 200 && !$r->complete && !$r->timed_out,
       "$name: not complete")
        or diag('status ' . $r->status . ', ' . length($r->body) . ' bytes');

    my $n = length $r->body;
    ok($n > 0 && $n < $SIZE && $r->body eq substr($content, 0, $n),
       "$name: what came was right");
}


my $all = length $zst{sized};

check('http/1.1', 'sized', 'to nothing', 0);
check('http/1.1', 'sized', 'at a page border', 8192 * 1000);
check('http/1.1', 'sized', 'inside a page', 8192 * 1000 + 1234);
check('http/1.1', 'sized', 'inside the last page', $all - 10);
check('http/1.1', 'unsized', 'to nothing', 0);
check('http/1.1', 'unsized', 'inside the last page',
      length($zst{unsized}) - 10);
check('http/1.0', 'sized', 'to nothing', 0);
check('http/1.0', 'unsized', 'at a page border', 8192 * 1000);
check('http/1.0', 'unsized', 'inside the last page',
      length($zst{unsized}) - 10);
check('tls', 'sized', 'to nothing', 0);
check('tls', 'unsized', 'at a page border', 8192 * 1000);
check('tls', 'unsized', 'inside the last page',
      length($zst{unsized}) - 10);

is(($t->worker_pids())[0], $worker, 'the worker lives');
is($t->get('/other.txt')->body, 'another file', 'and serves another file');

# replaced by rename, the old file stays whole for who has it open
$t->replace('sized.txt.zst', $zst{sized});
my $c = reader('http/1.1', '/sized.txt');
my $head = $c->read_some($READ);
$t->replace('sized.txt.zst', $t->compress('a new version'));
$c->{buffer} = $head . $c->{buffer};
my $r = $c->response('GET');
ok($r->complete && $r->body eq $content, 'a replaced file ends as it began');
is($t->get('/sized.txt')->body, 'a new version',
   'and the next request has the new one');

# deleted: as good as replaced
$t->replace('sized.txt.zst', $zst{sized});
$c = reader('http/1.1', '/sized.txt');
$head = $c->read_some($READ);
$t->unlink('sized.txt.zst');
$c->{buffer} = $head . $c->{buffer};
$r = $c->response('GET');
ok($r->complete && $r->body eq $content, 'a deleted file ends as it began');
is($t->get('/sized.txt')->status, 404, 'and is gone for the next request');

# written over in place: same inode, same size, other bytes
$t->replace('sized.txt.zst', $zst{sized});
$c = reader('http/1.1', '/sized.txt');
$head = $c->read_some($READ);
$t->write('sized.txt.zst',
          $t->compress($t->random($SIZE, 2), level => 1));
$c->{buffer} = $head . $c->{buffer};
$r = $c->response('GET');
ok(!$r->complete, 'a file written over in place ends the reply');

$t->log_like(qr/is not usable: file changed while in use/, 'the log says why');
