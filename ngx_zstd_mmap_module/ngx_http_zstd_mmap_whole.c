
/*
 * Bodies in one buffer of the worker: found, or filled and kept.
 */


#include "ngx_http_zstd_mmap_whole.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_wait.h"


static ngx_uint_t ngx_http_zstd_mmap_find_body(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_body_e kind, off_t size);
static ngx_uint_t ngx_http_zstd_mmap_compare_body(
    ngx_http_zstd_mmap_ctx_t *ctx, off_t size);
static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_find_filler(
    ngx_http_zstd_mmap_ctx_t *ctx, const ngx_http_zstd_mmap_whole_t *whole,
    off_t size);
static ngx_int_t ngx_http_zstd_mmap_reserve_body(
    ngx_http_zstd_mmap_ctx_t *ctx, off_t size);
static zmap_rc_e ngx_http_zstd_mmap_fill_body(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, ngx_uint_t keep,
    ngx_http_zstd_mmap_job_t **job);
static ngx_int_t ngx_http_zstd_mmap_send_body(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size);
static ngx_uint_t ngx_http_zstd_mmap_is_conditional(ngx_http_request_t *r);


ngx_int_t
ngx_http_zstd_mmap_send_whole(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size, ngx_uint_t keep)
{
    ngx_int_t                  rc;
    zmap_rc_e                  zrc;
    ngx_http_request_t        *r;
    ngx_http_zstd_mmap_job_t  *job;

    r = ctx->request;

    job = NULL;

    if (!ngx_http_zstd_mmap_find_body(ctx, whole->kind, size)) {

        job = ngx_http_zstd_mmap_find_filler(ctx, whole, size);

        if (job == NULL && ngx_http_zstd_mmap_reserve_body(ctx, size) != NGX_OK)
        {
            return NGX_BUSY;
        }
    }

    ctx->out = ngx_calloc_buf(r->pool);
    if (ctx->out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!ctx->filled && !ngx_http_zstd_mmap_is_conditional(r)) {
        zrc = ngx_http_zstd_mmap_fill_body(ctx, whole, keep, &job);

        if (zrc == ZMAP_AGAIN) {
            return ngx_http_zstd_mmap_wait(ctx, job, NULL);
        }

        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_refuse(ctx, zrc);
        }
    }

    rc = whole->send_header(ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (size == 0 && r != r->main) {
        /* any buffer would make it a part of the page that is not empty */
        return rc;
    }

    if (!ctx->filled) {
        zrc = ngx_http_zstd_mmap_fill_body(ctx, whole, keep, &job);

        if (zrc == ZMAP_AGAIN) {
            return ngx_http_zstd_mmap_wait(ctx, job, whole->resume);
        }

        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_abort(ctx, zrc);
        }
    }

    return ngx_http_zstd_mmap_send_body(ctx, whole, size);
}


ngx_int_t
ngx_http_zstd_mmap_send_rest(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size)
{
    zmap_rc_e  zrc;

    zrc = ctx->expired ? ZMAP_AGAIN : ngx_http_zstd_mmap_take_outcome(ctx);

    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_abort(ctx, zrc);
    }

    return ngx_http_zstd_mmap_send_body(ctx, whole, size);
}


/*
 * The size of a body belongs to the object of the file, its bytes to the
 * version: one object may have learnt what another believes of a seek table.
 * Where they differ, decoding finds out who is right.
 */

static ngx_uint_t
ngx_http_zstd_mmap_find_body(ngx_http_zstd_mmap_ctx_t *ctx, zmap_body_e kind,
    off_t size)
{
    if (ctx->worker->bodies == NULL) {
        return ctx->filled;
    }

    if (ctx->filled) {
        return ngx_http_zstd_mmap_compare_body(ctx, size);
    }

    ctx->body = zmap_bodies_find(ctx->worker->bodies, &ctx->file->version,
                                 kind);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: kept body %p, kind:%d", ctx->body, kind);

    ctx->filled = ctx->body ? 1 : 0;
    ctx->shared = ctx->filled;

    return ngx_http_zstd_mmap_compare_body(ctx, size);
}


static ngx_uint_t
ngx_http_zstd_mmap_compare_body(ngx_http_zstd_mmap_ctx_t *ctx, off_t size)
{
    if (ctx->body && (off_t) ctx->body->size != size) {
        zmap_bodies_release(ctx->worker->bodies, ctx->body);

        ctx->body = NULL;
        ctx->filled = 0;
    }

    return ctx->filled;
}


/* one decode, many readers */

static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_find_filler(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size)
{
    ngx_http_zstd_mmap_job_t  *job;

    if (whole->run == NULL || !ngx_http_zstd_mmap_can_wait(ctx->request)) {
        return NULL;
    }

    job = ngx_http_zstd_mmap_find_version_job(&ctx->file->version, whole->run);

    return (job && (off_t) job->body->size == size) ? job : NULL;
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


/* ZMAP_AGAIN: *job does it */

static zmap_rc_e
ngx_http_zstd_mmap_fill_body(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, ngx_uint_t keep,
    ngx_http_zstd_mmap_job_t **job)
{
    zmap_rc_e  rc;

    if (*job == NULL && whole->start) {
        *job = whole->start(ctx);
    }

    if (*job) {
        return ZMAP_AGAIN;
    }

    rc = whole->fill(ctx);

    if (rc != ZMAP_OK) {
        return rc;
    }

    ctx->filled = 1;

    if (ctx->body && keep) {
        ngx_http_zstd_mmap_keep_body(&ctx->input, ctx->body, whole->kind);
    }

    return ZMAP_OK;
}


/* the clock may have gone on since: how old the file seems now tells nothing */

void
ngx_http_zstd_mmap_keep_body(ngx_http_zstd_mmap_input_t *input,
    zmap_body_t *body, zmap_body_e kind)
{
    if (!input->young) {
        zmap_bodies_keep(input->worker->bodies, body, &input->file->version,
                         kind);
    }
}


static ngx_int_t
ngx_http_zstd_mmap_send_body(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size)
{
    whole->count(ngx_http_zstd_mmap_body_length(ctx->request, size),
                 ctx->shared);

    if (size) {
        ngx_http_zstd_mmap_set_memory(ctx->out, ctx->body->data, size);
    }

    return ngx_http_zstd_mmap_send_buf(ctx->request, ctx->out);
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
