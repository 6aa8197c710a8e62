
/*
 * Replies in one buffer: frames by their descriptor, decoded bytes by memory.
 */


#include "ngx_http_zstd_mmap_send.h"
#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_header.h"


static ngx_int_t ngx_http_zstd_mmap_reserve_body(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_is_conditional(ngx_http_request_t *r);
static ngx_int_t ngx_http_zstd_mmap_send_buf(ngx_http_request_t *r,
    ngx_buf_t *b);


ngx_int_t
ngx_http_zstd_mmap_send_frames(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_buf_t           *b;
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    /* all is allocated before the header is sent */

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->file = ngx_pcalloc(r->pool, sizeof(ngx_file_t));
    if (b->file == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zstd_mmap_send_coded_header(ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b->file_pos = 0;
    b->file_last = ctx->file->version.size;
    b->in_file = 1;

    b->file->fd = ctx->of.fd;
    b->file->name = ctx->path;
    b->file->log = r->connection->log;
    b->file->directio = ctx->of.is_directio;

    return ngx_http_zstd_mmap_send_buf(r, b);
}


ngx_int_t
ngx_http_zstd_mmap_send_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_buf_t           *b;
    ngx_int_t            rc;
    zmap_rc_e            zrc;
    ngx_uint_t           later;
    ngx_http_request_t  *r;

    r = ctx->request;

    later = ngx_http_zstd_mmap_is_conditional(r);

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        return ngx_http_zstd_mmap_send_decoded_header(ctx, 1);
    }

    rc = ngx_http_zstd_mmap_reserve_body(ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!later) {
        zrc = ngx_http_zstd_mmap_decode_body(ctx);
        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_refuse(ctx, zrc);
        }
    }

    rc = ngx_http_zstd_mmap_send_decoded_header(ctx, 1);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (ctx->size == 0 && r != r->main) {
        /* any buffer would make it a part of the page that is not empty */
        return rc;
    }

    if (later) {
        zrc = ngx_http_zstd_mmap_decode_body(ctx);
        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_abort(ctx, zrc);
        }
    }

    if (ctx->size) {
        b->memory = 1;
        b->start = ctx->body;
        b->pos = ctx->body;
        b->last = ctx->body + ctx->size;
        b->end = b->last;
    }

    return ngx_http_zstd_mmap_send_buf(r, b);
}


static ngx_int_t
ngx_http_zstd_mmap_reserve_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->size == 0) {
        return NGX_OK;
    }

    if (ctx->worker->buffers == NULL) {
        return NGX_BUSY;
    }

    ctx->body = zmap_pool_alloc(ctx->worker->buffers, ctx->size);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: buffer %p, used %uz of %uz", ctx->body,
                   zmap_pool_used(ctx->worker->buffers),
                   zmap_pool_size(ctx->worker->buffers));

    return ctx->body ? NGX_OK : NGX_BUSY;
}


/* the answer may be a 304 or a 412, which is decided by a header filter */

static ngx_uint_t
ngx_http_zstd_mmap_is_conditional(ngx_http_request_t *r)
{
    return r == r->main
           && (r->headers_in.if_none_match
               || r->headers_in.if_modified_since
               || r->headers_in.if_match
               || r->headers_in.if_unmodified_since);
}


static ngx_int_t
ngx_http_zstd_mmap_send_buf(ngx_http_request_t *r, ngx_buf_t *b)
{
    ngx_chain_t  out;

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
