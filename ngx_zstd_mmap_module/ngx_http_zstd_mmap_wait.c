
/*
 * Suspends requests until a job has ended, and continues them.
 */


#include "ngx_http_zstd_mmap_wait.h"


/* requests continued in one turn: each may send as much as its socket takes */
#define NGX_HTTP_ZSTD_MMAP_WAKE  16


static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_find_job(
    const zmap_version_t *version, const zmap_file_t *file,
    ngx_http_zstd_mmap_run_pt run);
static ngx_queue_t *ngx_http_zstd_mmap_get_shared(void);
static void ngx_http_zstd_mmap_end_shared(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_wait_handler(ngx_event_t *ev);
static void ngx_http_zstd_mmap_wake(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_wake_turn(ngx_event_t *ev);
static void ngx_http_zstd_mmap_wake_first(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_continue(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_is_suspended(
    ngx_http_zstd_mmap_ctx_t *ctx);


void
ngx_http_zstd_mmap_share_job(ngx_http_zstd_mmap_job_t *job)
{
    ngx_queue_t  *shared;

    shared = ngx_http_zstd_mmap_get_shared();

    ngx_queue_init(&job->waiters);
    ngx_queue_insert_tail(shared, &job->peers);
}


ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_find_file_job(const zmap_file_t *file,
    ngx_http_zstd_mmap_run_pt run)
{
    return ngx_http_zstd_mmap_find_job(&file->version, file, run);
}


ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_find_version_job(const zmap_version_t *version,
    ngx_http_zstd_mmap_run_pt run)
{
    return ngx_http_zstd_mmap_find_job(version, NULL, run);
}


static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_find_job(const zmap_version_t *version,
    const zmap_file_t *file, ngx_http_zstd_mmap_run_pt run)
{
    ngx_queue_t               *q, *shared;
    ngx_http_zstd_mmap_job_t  *job;

    shared = ngx_http_zstd_mmap_get_shared();

    for (q = ngx_queue_head(shared);
         q != ngx_queue_sentinel(shared);
         q = ngx_queue_next(q))
    {
        job = ngx_queue_data(q, ngx_http_zstd_mmap_job_t, peers);

        if (job->run == run
            && (file == NULL || job->input.file == file)
            && zmap_version_equal(&job->input.file->version, version))
        {
            return job;
        }
    }

    return NULL;
}


static ngx_queue_t *
ngx_http_zstd_mmap_get_shared(void)
{
    static ngx_queue_t  shared;

    if (shared.next == NULL) {
        ngx_queue_init(&shared);
    }

    return &shared;
}


static void
ngx_http_zstd_mmap_end_shared(ngx_http_zstd_mmap_job_t *job)
{
    ngx_queue_remove(&job->peers);

    job->end(job);

    ngx_http_zstd_mmap_wake(job);
}


ngx_uint_t
ngx_http_zstd_mmap_can_wait(ngx_http_request_t *r)
{
    return !r->filter_finalize;
}


ngx_int_t
ngx_http_zstd_mmap_wait(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t *job,
    ngx_int_t (*resume)(ngx_http_zstd_mmap_ctx_t *ctx))
{
    ngx_event_t         *ev;
    ngx_http_request_t  *r;

    r = ctx->request;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zstd mmap: \"%V\" waits for job %p", &r->uri, job);

    /* a phase handler that is not done would be run by any event */
    r->write_event_handler = ngx_http_request_empty_handler;

    /* of a part of a page, too: the connection's events are the part's */

    if (!r->main->discard_body) {
        r->read_event_handler = ngx_http_test_reading;
    }

    r->main->count++;

    ngx_queue_insert_tail(&job->waiters, &ctx->waiting);
    job->wanted++;

    if (job->ended == NULL) {
        /* not before: a worker that leaves gives up what nobody wants */
        ngx_http_zstd_mmap_start_job(job, ngx_http_zstd_mmap_end_shared);
    }

    ctx->job = job;
    ctx->resume = resume;
    ctx->expired = 0;

    ev = &ctx->event;

    ev->handler = ngx_http_zstd_mmap_wait_handler;
    ev->data = r->connection;
    ev->log = r->connection->log;

    ngx_add_timer(ev, NGX_HTTP_ZSTD_MMAP_WAIT);

    if (r == r->main && r->discard_body) {
        ngx_post_event(ev, &ngx_posted_next_events);
    }

    return NGX_DONE;
}


static void
ngx_http_zstd_mmap_wait_handler(ngx_event_t *ev)
{
    ngx_http_zstd_mmap_ctx_t  *ctx;

    ctx = (ngx_http_zstd_mmap_ctx_t *)
              ((u_char *) ev - offsetof(ngx_http_zstd_mmap_ctx_t, event));

    if (!ev->timedout) {
        ngx_http_zstd_mmap_keep_reading(ctx->request);
        return;
    }

    ev->timedout = 0;

    ngx_http_zstd_mmap_leave_job(ctx);

    ctx->expired = 1;

    ngx_http_zstd_mmap_continue(ctx);
}


void
ngx_http_zstd_mmap_keep_reading(ngx_http_request_t *r)
{
    ngx_event_t  *rev;

    if (r != r->main) {
        return;
    }

    r->lingering_time = 0;

    rev = r->connection->read;

    if (rev->timer_set) {
        ngx_del_timer(rev);
    }
}


static void
ngx_http_zstd_mmap_wake(ngx_http_zstd_mmap_job_t *job)
{
    ngx_uint_t  n;

    for (n = 0; n < NGX_HTTP_ZSTD_MMAP_WAKE; n++) {

        if (ngx_queue_empty(&job->waiters)) {
            ngx_http_zstd_mmap_destroy_job(job);
            return;
        }

        ngx_http_zstd_mmap_wake_first(job);
    }

    job->event.handler = ngx_http_zstd_mmap_wake_turn;

    ngx_post_event(&job->event, &ngx_posted_next_events);
}


static void
ngx_http_zstd_mmap_wake_turn(ngx_event_t *ev)
{
    ngx_http_zstd_mmap_wake(ev->data);
}


static void
ngx_http_zstd_mmap_wake_first(ngx_http_zstd_mmap_job_t *job)
{
    ngx_queue_t               *q;
    ngx_http_zstd_mmap_ctx_t  *ctx;

    q = ngx_queue_head(&job->waiters);
    ctx = ngx_queue_data(q, ngx_http_zstd_mmap_ctx_t, waiting);

    ngx_http_zstd_mmap_leave_job(ctx);

    ctx->outcome = job->rc;
    ctx->err = job->err;

    if (job->rc == ZMAP_OK && job->body) {
        ctx->body = zmap_bodies_hold(ctx->worker->bodies, job->body);
        ctx->filled = 1;
        ctx->shared = job->shared;
        job->shared = 1;
    }

    ngx_http_zstd_mmap_continue(ctx);
}


static void
ngx_http_zstd_mmap_continue(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    if (!ngx_http_zstd_mmap_is_suspended(ctx)) {
        return;
    }

    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "zstd mmap: continue \"%V\" rc:%d expired:%d",
                   &r->uri, ctx->outcome, ctx->expired);

    if (ctx->resume) {
        ngx_http_finalize_request(r, ctx->resume(ctx));

    } else {
        ctx->resumed = 1;

        r->write_event_handler = ngx_http_core_run_phases;
        ngx_http_core_run_phases(r);
    }

    ngx_http_run_posted_requests(c);
}


/* a client that leaves may have sent the request to a post_action */

static ngx_uint_t
ngx_http_zstd_mmap_is_suspended(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    return r->write_event_handler == ngx_http_request_empty_handler
           && ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module)
              == ctx->input.conf
           && ngx_http_zstd_mmap_find_ctx(r) == ctx;
}
