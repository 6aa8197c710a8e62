#!/usr/bin/perl

# A body filter that leaves its marks in the buffers that it was given: the
# next use of such a buffer must not carry them, for one of them ends the reply.
# And one that refuses the last of them, by an error or a status that comes too
# late to be sent: no such reply looks whole.

use strict;
use warnings;

use Compress::Zlib ();
use File::Basename ();
use Test::More;

use lib 't/lib';
use Test::Zmap;


my $t = Test::Zmap->new(log_level => 'info');

# nginx tells of a status after the header
$t->expect_alert(qr/\[alert\].*header already sent/);

my $text = $t->text(400_000, 1);
my %file = (known => 1, unknown => 0);
$t->zst("$_.txt", $text, size => $file{$_}) for keys %file;

my @how = (['1.1'], ['1.0'], ['1.1', 'Accept-Encoding: gzip']);

my @refused = map { my $how = $_; map { [$how, @$_] }
                    ['1.0'], ['1.0', 'Connection: keep-alive'], ['1.1'] }
    qw(error status);

$t->plan(2 * @how + 3 * @refused + 2);

# the headers of nginx, and those that its configure has made
my $source = '/usr/share/nginx/src/src';
my ($auto) = grep { -e "$_/ngx_auto_config.h" }
    map { File::Basename::dirname($_) }
    $ENV{TEST_NGINX_BINARY} // (), $t->{module}, 'build/nginx/module';
die "no ngx_auto_config.h\n" unless defined $auto;

$t->write('mark.c', <<'EOF');
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

static ngx_int_t ngx_mark_init(ngx_conf_t *cf);

static ngx_http_module_t  ngx_mark_module_ctx = {
    NULL, ngx_mark_init, NULL, NULL, NULL, NULL, NULL, NULL
};

ngx_module_t  ngx_mark_module = {
    NGX_MODULE_V1, &ngx_mark_module_ctx, NULL, NGX_HTTP_MODULE,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NGX_MODULE_V1_PADDING
};

ngx_module_t  *ngx_modules[] = { &ngx_mark_module, NULL };
char          *ngx_module_names[] = { "ngx_mark_module", NULL };
char          *ngx_module_order[] = { "ngx_mark_module",
                                      "ngx_http_copy_filter_module", NULL };

static ngx_http_output_body_filter_pt  ngx_mark_next;


static ngx_int_t
ngx_mark_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, *copy, *out, **last;

    out = NULL;
    last = &out;

    for (cl = in; cl; cl = cl->next) {
        if (cl->buf->last_buf && r->args.len) {
            ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "refused");
            return r->args.data[0] == 'e' ? NGX_ERROR
                                          : NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        copy = ngx_alloc_chain_link(r->pool);
        b = ngx_alloc_buf(r->pool);
        if (copy == NULL || b == NULL) {
            return NGX_ERROR;
        }

        *b = *cl->buf;

        if (ngx_buf_in_memory(b)) {
            b->pos = ngx_pnalloc(r->pool, b->last - b->pos + 1);
            if (b->pos == NULL) {
                return NGX_ERROR;
            }

            b->last = ngx_cpymem(b->pos, cl->buf->pos,
                                 cl->buf->last - cl->buf->pos);
            b->start = b->pos;
            b->end = b->last;
        }

        b->recycled = 0;
        copy->buf = b;
        copy->next = NULL;
        *last = copy;
        last = &copy->next;

        cl->buf->pos = cl->buf->last;
        cl->buf->last_buf = 1;
        cl->buf->last_in_chain = 1;
        cl->buf->flush = 1;
        cl->buf->sync = 1;
        cl->buf->mmap = 1;
        cl->buf->temporary = 1;
    }

    rc = ngx_mark_next(r, out);

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "marked %d",
                  in != NULL);

    return rc;
}


static ngx_int_t
ngx_mark_init(ngx_conf_t *cf)
{
    ngx_mark_next = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_mark_body_filter;

    return NGX_OK;
}
EOF

my ($code, $output) = $t->capture('gcc', '-O1', '-shared', '-fPIC', '-o',
    $t->path('mark.so'), $t->path('mark.c'),
    (map { "-I$source/$_" } qw(core event event/modules os/unix http
                               http/modules http/v2)), "-I$auto");
die $output if $code;

my $mark = $t->path('mark.so');
my $conf = $t->conf(<<'EOC', http => 'zstd_mmap_buffers 1m max=4k;');
    zstd_mmap on;
    zstd_mmap_chunk 8k;
    gzip on;
    gzip_types text/plain;
    gzip_http_version 1.0;
EOC
$conf =~ s/%%GLOBALS%%/$&\nload_module $mark;/;
$t->run($conf);

for my $name (sort keys %file) {
    for my $how (@how) {
        my ($version, @headers) = @$how;

        # a new version, so that no size is learnt
        $t->replace("$name.txt.zst", $t->read("$name.txt.zst"));
        my $r = $t->request('GET', "/$name.txt", version => $version,
                            headers => \@headers);
        my $body = @headers ? Compress::Zlib::memGunzip($r->body) // ''
                            : $r->body;
        ok($r->status == 200 && $r->complete && $body eq $text,
           "$name, $version @headers: whole")
            or diag($r->status . ', ' . length $body);
    }
}

for my $how (@refused) {
    my ($by, $version, @headers) = @$how;

    $t->replace('unknown.txt.zst', $t->read('unknown.txt.zst'));
    my $before = $t->log_count(qr/refused/);
    my $r = $t->request('GET', "/unknown.txt?$by", version => $version,
                        headers => \@headers);
    my $name = join ', ', "refused by $by", $version, @headers;
    is($t->log_count(qr/refused/), $before + 1, $name);
    ok($r->status == 200 && !defined $r->header('Content-Length'),
       "$name: after the header, without length");
    ok(!$r->complete && !$r->timed_out, "$name: does not look whole")
        or diag(length($r->body) . ' bytes');
}

cmp_ok($t->log_count(qr/marked 1/), '>', 6 * 10, 'the filter marks buffers');
is($t->get('/known.txt', 'Accept-Encoding: zstd')->body,
   $t->read('known.txt.zst'), 'frames pass too');
