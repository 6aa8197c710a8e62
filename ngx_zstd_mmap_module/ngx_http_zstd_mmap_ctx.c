
/*
 * The state of one request and its end.
 */


#include "ngx_http_zstd_mmap_ctx.h"


static ngx_pool_cleanup_t *ngx_http_zstd_mmap_next_ctx(ngx_http_request_t *r,
    ngx_pool_cleanup_t *cln);
static void ngx_http_zstd_mmap_leave_steps(ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_cleanup_ctx(void *data);


ngx_http_zstd_mmap_ctx_t *
ngx_http_zstd_mmap_create_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_zstd_mmap_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_zstd_mmap_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_zstd_mmap_ctx_t));

    ctx->request = r;
    ctx->size = -1;

    cln->handler = ngx_http_zstd_mmap_cleanup_ctx;

    return ctx;
}


ngx_http_zstd_mmap_ctx_t *
ngx_http_zstd_mmap_find_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_http_zstd_mmap_next_ctx(r, r->pool->cleanup);

    return cln ? cln->data : NULL;
}


ngx_uint_t
ngx_http_zstd_mmap_was_limited(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_zstd_mmap_ctx_t  *ctx;

    for (cln = ngx_http_zstd_mmap_next_ctx(r, r->pool->cleanup);
         cln;
         cln = ngx_http_zstd_mmap_next_ctx(r, cln->next))
    {
        ctx = cln->data;

        if (ctx->limited) {
            return 1;
        }
    }

    return 0;
}


/* subrequests share the pool of the main request */

static ngx_pool_cleanup_t *
ngx_http_zstd_mmap_next_ctx(ngx_http_request_t *r, ngx_pool_cleanup_t *cln)
{
    ngx_http_zstd_mmap_ctx_t  *ctx;

    for ( /* void */ ; cln; cln = cln->next) {

        if (cln->handler != ngx_http_zstd_mmap_cleanup_ctx) {
            continue;
        }

        ctx = cln->data;

        if (ctx->request == r) {
            return cln;
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_zstd_mmap_charge_stream(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t window, uint64_t room, uint64_t limit)
{
    uint64_t  used;

    used = ctx->worker->streams;

    if (used > limit || room > limit - used || window > limit - used - room) {
        return NGX_BUSY;
    }

    ctx->window = window;
    ctx->room = room;
    ctx->worker->streams += window + room;

    return NGX_OK;
}


void
ngx_http_zstd_mmap_leave_job(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->job == NULL) {
        return;
    }

    ngx_queue_remove(&ctx->waiting);
    ctx->job->wanted--;
    ctx->job = NULL;

    if (ctx->event.timer_set) {
        ngx_del_timer(&ctx->event);
    }

    if (ctx->event.posted) {
        ngx_delete_posted_event(&ctx->event);
    }
}


/*
 * A thread may be at it: then what the job has ends with it, and so does what
 * is charged.  A client that asks and leaves must not have more of it than one
 * that stays.
 */

static void
ngx_http_zstd_mmap_leave_steps(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_job_t  *job;

    job = ctx->steps;

    if (job == NULL) {
        return;
    }

    ctx->steps = NULL;
    ctx->source = NULL;

    if (!ctx->pending) {
        ngx_http_zstd_mmap_destroy_job(job);
        return;
    }

    job->owner = NULL;
    job->wanted = 0;
    job->charged = ctx->window + ctx->room;

    ctx->window = 0;
    ctx->room = 0;
    ctx->pending = 0;
}


zmap_rc_e
ngx_http_zstd_mmap_take_outcome(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e  rc;

    rc = ctx->outcome;
    ctx->outcome = ZMAP_OK;

    if (rc != ZMAP_OK) {
        ngx_set_errno(ctx->err);
    }

    return rc;
}


void
ngx_http_zstd_mmap_put_stream_decoder(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->source && ctx->source->decoder) {
        ngx_http_zstd_mmap_leave_pages(ctx->source);
        ngx_http_zstd_mmap_put_decoder(ctx->source);
    }

    if (ctx->window) {
        ctx->worker->streams -= ctx->window;
        ctx->window = 0;
    }
}


void
ngx_http_zstd_mmap_put_stream(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_leave_steps(ctx);
    ngx_http_zstd_mmap_put_stream_decoder(ctx);

    if (ctx->pieces) {
        ctx->worker->streaming -= ctx->pieces->size;
        zmap_bodies_release(ctx->worker->bodies, ctx->pieces);
        ctx->pieces = NULL;
    }

    if (ctx->room) {
        ctx->worker->streams -= ctx->room;
        ctx->room = 0;
    }
}


void
ngx_http_zstd_mmap_reset_ctx(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_put_stream(ctx);
    ngx_http_zstd_mmap_close_input(&ctx->input);

    if (ctx->body) {
        zmap_bodies_release(ctx->worker->bodies, ctx->body);
        ctx->body = NULL;
    }

    if (ctx->file) {
        zmap_file_unref(ctx->file);
        ctx->file = NULL;
    }

    ctx->size = -1;
    ctx->input.dropped = 0;
    ctx->outcome = ZMAP_OK;
    ctx->filled = 0;
    ctx->shared = 0;
}


static void
ngx_http_zstd_mmap_cleanup_ctx(void *data)
{
    ngx_http_zstd_mmap_ctx_t *ctx = data;

    ngx_http_zstd_mmap_leave_job(ctx);
    ngx_http_zstd_mmap_reset_ctx(ctx);

    if (ctx->worker) {
        ngx_http_zstd_mmap_show_worker(ctx->worker);
    }
}
