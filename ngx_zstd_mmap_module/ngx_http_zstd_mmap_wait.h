
/*
 * Requests that wait for a job.
 *
 * A timer that is not cancelable runs for each of them, so that a worker that
 * shuts down waits as well, and nobody waits for ever.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_WAIT_H
#define NGX_HTTP_ZSTD_MMAP_WAIT_H


#include "ngx_http_zstd_mmap_ctx.h"


/* msec that a request waits for a job at most */
#define NGX_HTTP_ZSTD_MMAP_WAIT  60000


/*
 * Makes a job one that requests may wait for: it is found by the version of its
 * file and by what it runs, until it ends.  The first one starts it, so the
 * caller has to be that, in the same turn.  end() is called first, then those
 * who wait are continued, a few of them in each turn of the event loop, and the
 * job is destroyed.
 */
void ngx_http_zstd_mmap_share_job(ngx_http_zstd_mmap_job_t *job);

/*
 * A job that was shared and has not ended, or NULL: for that object, or for any
 * of its version, of which there may be several
 */
ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_find_file_job(
    const zmap_file_t *file, ngx_http_zstd_mmap_run_pt run);
ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_find_version_job(
    const zmap_version_t *version, ngx_http_zstd_mmap_run_pt run);

/*
 * Zero: the request is an error page in place of a reply that a filter gave up
 * (ngx_http_filter_finalize_request()), which nginx ends when it returns.
 */
ngx_uint_t ngx_http_zstd_mmap_can_wait(ngx_http_request_t *r);

/*
 * Suspends the request, which can wait, until a shared job has ended.  Then, or
 * after a minute with ctx->expired set, resume() continues the request: what it
 * returns is given to ngx_http_finalize_request().  With resume NULL, before
 * the header, the phases run on: the handler is called again with ctx->resumed
 * set.  ctx->outcome is the result of the job then; with ZMAP_OK, ctx->body is
 * its body, if it has one.  Returns NGX_DONE, which the content handler
 * returns.
 */
ngx_int_t ngx_http_zstd_mmap_wait(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t *job,
    ngx_int_t (*resume)(ngx_http_zstd_mmap_ctx_t *ctx));

/*
 * Ends the time of a lingering close that returning NGX_DONE has begun while a
 * request body was being discarded: it would cut the reply or, when the body
 * has arrived since, the next request.  The close lingers when the reply is
 * done.  Call it in a later turn.
 */
void ngx_http_zstd_mmap_keep_reading(ngx_http_request_t *r);


#endif /* NGX_HTTP_ZSTD_MMAP_WAIT_H */
