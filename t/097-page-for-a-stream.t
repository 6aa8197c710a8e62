#!/usr/bin/perl

# A body filter that answers with an error page in place of a stream without
# length: the page is not cut by the reset that the stream was ready for, and
# where the page is such a stream itself, its own cut end is one.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $filter = '/usr/lib/nginx/modules/ngx_http_xslt_filter_module.so';

my $t = Test::Zmap->new(log_level => 'info', timeout => 20);

# many turns of the event loop are left when the filter gives up
my $good = "<a>\n" . "<b>text</b>\n" x 500_000 . "</a>\n";
my $middle = $good;
substr($middle, 3_000_000, 4) = '<<<<';

my %bad = (
    begin  => '<<' . $good,
    middle => $middle,
    last   => substr($good, 0, -6),
);

# a socket of the loopback takes it at once, a reader with little room does not
my $page = $t->random(1_500_000, 1);
my $large = $t->text(100_000, 2) . $t->random(7_900_000, 2);
my $small = $t->text(300_000, 3);

$t->zst("$_.xml", $bad{$_}, size => 0) for keys %bad;
$t->write('page.txt', $page);
$t->zst('large.txt', $large, level => 1, size => 0);
$t->zst('small.txt', $small, size => 0);

$t->write('sheet.xslt', <<'EOX');
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/"><xsl:value-of select="count(//b)"/></xsl:template>
</xsl:stylesheet>
EOX

my @versions = ('1.0', '1.1');
my @keep = ([], ['Connection: keep-alive']);

$t->plan(3 * @versions * @keep * keys(%bad) + 2);

my $conf = $t->conf(<<'EOC');
    types { text/xml xml; text/plain txt; }
    zstd_mmap on;

    location = /status { zstd_mmap off; stub_status; }
    location = /page.txt { zstd_mmap off; }

    location /page/ {
        alias %%DIR%%/;
        xslt_stylesheet %%DIR%%/sheet.xslt;
        error_page 500 /page.txt;
    }

    location /small/ {
        alias %%DIR%%/;
        xslt_stylesheet %%DIR%%/sheet.xslt;
        error_page 500 /small.txt;
    }

    location /large/ {
        alias %%DIR%%/;
        xslt_stylesheet %%DIR%%/sheet.xslt;
        error_page 500 /large.txt;
    }
EOC

# Debian's package; "--with-compat" makes it fit the binary with sanitizers too
$conf =~ s/%%GLOBALS%%/%%GLOBALS%%\nload_module $filter;/;

# libxml2 never frees a lock of its own; where the library is unloaded with the
# filter, and the only pointer to the lock with it, a sanitizer sees a leak
{
    local $ENV{LD_PRELOAD} = 'libxml2.so.2';
    local $ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (),
        'verify_asan_link_order=0';
    $t->run($conf);
}


# the size of a file is learnt by its first stream: a new version each time
sub renew {
    $t->replace("$_.zst", $t->read("$_.zst")) for @_;
}


sub is_closed {
    return $t->poll(sub {
        return $t->get('/status')->body =~ /^Active connections: 1 $/m;
    });
}


# the rest of the reply is read when nginx is done with the connection: it lies
# in the socket then, unless a reset threw it away
sub late_reader {
    my ($uri, $version, $headers) = @_;

    my $c = $t->connect(rcvbuf => 4096);
    $c->send_request('GET', $uri, version => $version, headers => $headers);
    my $begin = $c->read_some(20);
    my $closed = is_closed();
    $c->{buffer} = $begin;
    my $r = $c->response('GET');
    $c->close();

    return ($r, $closed);
}


# what becomes of a bad file where this is the page
sub page {
    my ($where, $name, $version, $headers) = @_;

    renew("$name.xml", 'small.txt', 'large.txt');
    my ($r, $closed) = late_reader("/$where/$name.xml", $version, $headers);
    diag('status ' . $r->status . ', ' . length($r->body) . ' bytes, reset '
         . "$r->{reset}, closed $closed") if $r->status != 500 || !$closed;

    return $r->status == 500 && $closed && !$r->timed_out ? $r : undef;
}


for my $name (sort keys %bad) {
    for my $version (@versions) {
        for my $headers (@keep) {
            my @how = ($name, $version, $headers);
            my $how = join ', ', $name, $version, @$headers;

            my $r = page('page', @how);
            ok($r && $r->complete && $r->body eq $page, "$how: the whole page");

            $r = page('small', @how);
            ok($r && $r->complete && $r->body eq $small,
               "$how: the whole page, which is a stream");

            # nginx ends it when the socket is full, whoever serves it
            $r = page('large', @how);
            ok($r && !$r->complete, "$how: no cut page looks whole")
                or diag(length($r->body));
        }
    }
}

is($t->get('/small.txt')->body, $small, 'the worker serves on');
is($t->log_count(qr/is not usable/), 0, 'no file is blamed');
