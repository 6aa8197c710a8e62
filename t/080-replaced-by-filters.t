#!/usr/bin/perl

# A body filter that answers with an error page in the middle of a stream.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use Test::Zmap;


my $filter = '/usr/lib/nginx/modules/ngx_http_xslt_filter_module.so';

my $t = Test::Zmap->new(log_level => 'info', timeout => 20);

# 6 MB: many turns of the event loop are left when the filter gives up
my $good = "<a>\n" . "<b>text</b>\n" x 500_000 . "</a>\n";
my $middle = $good;
substr($middle, 3_000_000, 4) = '<<<<';

my %bad = (
    begin  => '<<' . $good,
    middle => $middle,
    last   => substr($good, 0, -6),
    unsized => $middle,
);

my @where = ('', 'rate/', 'page/', 'streamed-page/');

$t->plan(2 * @where * keys(%bad) + 8);

$t->zst("$_.xml", $bad{$_}, size => $_ eq 'unsized' ? 0 : 1) for keys %bad;
$t->zst('good.xml', $good);
$t->zst('page.txt', 'a page');

my $page = $t->text(5_000_000, 1);
$t->zst('streamed-page.txt', $page);

$t->write('sheet.xslt', <<'EOF');
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/"><xsl:value-of select="count(//b)"/></xsl:template>
</xsl:stylesheet>
EOF

my $conf = $t->conf(<<'EOC');
    listen 127.0.0.1:%%PORT2%% http2;

    types { text/xml xml; text/plain txt; }
    zstd_mmap on;

    location = /status { zstd_mmap off; stub_status; }
    location / { xslt_stylesheet %%DIR%%/sheet.xslt; }

    # the page does not leave at once
    location /rate/ {
        alias %%DIR%%/;
        xslt_stylesheet %%DIR%%/sheet.xslt;
        limit_rate 200;
    }

    location /page/ {
        alias %%DIR%%/;
        xslt_stylesheet %%DIR%%/sheet.xslt;
        error_page 500 /page.txt;
    }

    # the page is a stream of the same request
    location /streamed-page/ {
        alias %%DIR%%/;
        xslt_stylesheet %%DIR%%/sheet.xslt;
        error_page 500 /streamed-page.txt;
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

my $short = qr/500 Internal Server Error/;
my %expected = ('' => $short, 'rate/' => $short, 'page/' => qr/\Aa page\z/);


# nginx ends a request whose filter was answered by a page that takes more than
# one event, whoever serves it
sub is_page {
    my ($where, $r) = @_;

    return $r->complete && $r->body =~ $expected{$where}
        if $expected{$where};

    return $r->body eq $page if $r->complete;
    return $r->body eq substr $page, 0, length $r->body;
}


my $h2 = 'http://127.0.0.1:' . $t->port(2);
my ($worker) = $t->worker_pids();

for my $where (@where) {
    for my $name (sort keys %bad) {
        my $uri = "/$where$name.xml";
        my %r = (1.1 => $t->get($uri),
                 h2  => $t->curl('--http2-prior-knowledge', $h2 . $uri));

        for my $how (sort keys %r) {
            my $r = $r{$how};
            ok($r->status == 500 && !$r->timed_out && is_page($where, $r),
               "$uri, $how: the error page")
                or diag('status ' . $r->status);
        }
    }
}

my $r = $t->get('/good.xml');
is($r->status, 200, 'a good one: served');
is($r->body, '500000', 'and what the filter made of it');

# a client that leaves while its page is on the way
my $c = $t->connect();
$c->send_request('GET', '/rate/middle.xml');
like($c->read_some(20), qr/ 500 /, 'the page has begun');
$c->abort();

$r = $t->get('/good.xml', 'Accept-Encoding: zstd');
is($r->header('Content-Encoding'), undef, 'in front of a filter: decoded');
is($t->get('/streamed-page.txt')->body, $page, 'the worker serves on');
is(join(' ', $t->worker_pids()), $worker, 'it is the same one');
is($t->log_count(qr/is not usable/), 0, 'no file is blamed');
ok($t->poll(sub { $t->get('/status')->body =~ /^Active connections: 1 $/m }),
   'no connection is left over');
