
/*
 * Bodies in one buffer of the worker: found, or filled and kept.
 */


#include "ngx_http_zstd_mmap_whole.h"
#include "ngx_http_zstd_mmap_error.h"


static ngx_uint_t ngx_http_zstd_mmap_find_body(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_body_e kind);
static ngx_int_t ngx_http_zstd_mmap_reserve_body(
    ngx_http_zstd_mmap_ctx_t *ctx, off_t size);
static zmap_rc_e ngx_http_zstd_mmap_fill_body(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, ngx_uint_t keep);
static ngx_uint_t ngx_http_zstd_mmap_is_conditional(ngx_http_request_t *r);


ngx_int_t
ngx_http_zstd_mmap_send_whole(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size, ngx_uint_t keep)
{
    ngx_buf_t           *b;
    ngx_int_t            rc;
    zmap_rc_e            zrc;
    ngx_uint_t           kept, ready;
    ngx_http_request_t  *r;

    r = ctx->request;

    kept = ngx_http_zstd_mmap_find_body(ctx, whole->kind);
    ready = kept;

    if (!ready && ngx_http_zstd_mmap_reserve_body(ctx, size) != NGX_OK) {
        return NGX_BUSY;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!ready && !ngx_http_zstd_mmap_is_conditional(r)) {
        zrc = ngx_http_zstd_mmap_fill_body(ctx, whole, keep);
        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_refuse(ctx, zrc);
        }

        ready = 1;
    }

    rc = whole->send_header(ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (size == 0 && r != r->main) {
        /* any buffer would make it a part of the page that is not empty */
        return rc;
    }

    if (!ready) {
        zrc = ngx_http_zstd_mmap_fill_body(ctx, whole, keep);
        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_abort(ctx, zrc);
        }
    }

    whole->count(ngx_http_zstd_mmap_body_length(r, size), kept);

    if (size) {
        ngx_http_zstd_mmap_set_memory(b, ctx->body->data, size);
    }

    return ngx_http_zstd_mmap_send_buf(r, b);
}


static ngx_uint_t
ngx_http_zstd_mmap_find_body(ngx_http_zstd_mmap_ctx_t *ctx, zmap_body_e kind)
{
    if (ctx->worker->bodies == NULL) {
        return 0;
    }

    ctx->body = zmap_bodies_find(ctx->worker->bodies, &ctx->file->version,
                                 kind);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: kept body %p, kind:%d", ctx->body, kind);

    return ctx->body ? 1 : 0;
}


static ngx_int_t
ngx_http_zstd_mmap_reserve_body(ngx_http_zstd_mmap_ctx_t *ctx, off_t size)
{
    if (size == 0) {
        return NGX_OK;
    }

    if (ctx->worker->bodies == NULL) {
        return NGX_BUSY;
    }

    ctx->body = zmap_bodies_alloc(ctx->worker->bodies, size);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: buffer %p, used %uz of %uz", ctx->body,
                   zmap_pool_used(ctx->worker->buffers),
                   zmap_pool_size(ctx->worker->buffers));

    return ctx->body ? NGX_OK : NGX_BUSY;
}


static zmap_rc_e
ngx_http_zstd_mmap_fill_body(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, ngx_uint_t keep)
{
    zmap_rc_e  rc;

    rc = whole->fill(ctx);

    if (rc != ZMAP_OK || ctx->body == NULL || !keep) {
        return rc;
    }

    if (!ngx_http_zstd_mmap_is_racy(&ctx->file->version)) {
        zmap_bodies_keep(ctx->worker->bodies, ctx->body, &ctx->file->version,
                         whole->kind);
    }

    return ZMAP_OK;
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


off_t
ngx_http_zstd_mmap_body_length(ngx_http_request_t *r, off_t size)
{
    off_t  n;

    n = r->headers_out.content_length_n;

    return (n == -1) ? size : n;
}


ngx_int_t
ngx_http_zstd_mmap_send_buf(ngx_http_request_t *r, ngx_buf_t *b)
{
    ngx_chain_t  out;

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


void
ngx_http_zstd_mmap_set_memory(ngx_buf_t *b, u_char *data, size_t size)
{
    b->memory = 1;
    b->start = data;
    b->pos = data;
    b->last = data + size;
    b->end = b->last;
}
