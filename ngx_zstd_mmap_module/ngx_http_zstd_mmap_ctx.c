
/*
 * The state of one request and its end.
 */


#include "ngx_http_zstd_mmap_ctx.h"


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
    ngx_pool_cleanup_t        *cln;
    ngx_http_zstd_mmap_ctx_t  *ctx;

    /* subrequests share the pool of the main request */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler != ngx_http_zstd_mmap_cleanup_ctx) {
            continue;
        }

        ctx = cln->data;

        if (ctx->request == r) {
            return ctx;
        }
    }

    return NULL;
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


/* a thread may be at it: then what the job has ends with it */

static void
ngx_http_zstd_mmap_leave_steps(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_job_t  *job;

    job = ctx->steps;

    if (job == NULL) {
        return;
    }

    ctx->steps = NULL;

    if (!ctx->pending) {
        ngx_http_zstd_mmap_destroy_job(job);
        return;
    }

    job->owner = NULL;
    job->wanted = 0;

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
ngx_http_zstd_mmap_reset_ctx(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_close_input(&ctx->input);

    ngx_http_zstd_mmap_leave_steps(ctx);

    if (ctx->pieces) {
        ctx->worker->streaming -= ctx->pieces->size;
        zmap_bodies_release(ctx->worker->bodies, ctx->pieces);
        ctx->pieces = NULL;
    }

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
