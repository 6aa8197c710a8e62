
/*
 * Refusals before the header and aborts after it, with their log lines.
 */


#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_file.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_stats.h"


static ngx_uint_t ngx_http_zstd_mmap_leave_to_plain(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_report(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_rc_e rc);
static void ngx_http_zstd_mmap_report_limit(ngx_http_zstd_mmap_ctx_t *ctx,
    char *why);
static void ngx_http_zstd_mmap_distrust_table(ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_set_linger(ngx_connection_t *c,
    ngx_uint_t reset);
static ngx_http_zstd_mmap_reason_e ngx_http_zstd_mmap_reason(zmap_rc_e rc);


ngx_int_t
ngx_http_zstd_mmap_refuse(ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc)
{
    if (rc == ZMAP_CHANGED) {
        ngx_http_zstd_mmap_forget_file(ctx);
    }

    if (rc == ZMAP_CHANGED && !ctx->retried) {
        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                       "zstd mmap: the file changed, retry");
        ctx->retried = 1;
        return NGX_HTTP_ZSTD_MMAP_RETRY;
    }

    if (rc == ZMAP_AGAIN) {
        return ngx_http_zstd_mmap_refuse_limit(ctx, "there is no time for it");
    }

    if (rc == ZMAP_SEEK_TABLE) {
        ngx_http_zstd_mmap_distrust_table(ctx);
        ctx->untabled = 1;
        return NGX_HTTP_ZSTD_MMAP_RETRY;
    }

    ngx_http_zstd_mmap_report(ctx, rc);

    if (ngx_http_zstd_mmap_leave_to_plain(ctx)) {
        return NGX_DECLINED;
    }

    ngx_http_zstd_mmap_count(errors);

    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}


ngx_int_t
ngx_http_zstd_mmap_refuse_limit(ngx_http_zstd_mmap_ctx_t *ctx, char *why)
{
    ngx_http_zstd_mmap_report_limit(ctx, why);

    if (ngx_http_zstd_mmap_leave_to_plain(ctx)) {
        return NGX_DECLINED;
    }

    ctx->limited = 1;

    return NGX_HTTP_SERVICE_UNAVAILABLE;
}


static ngx_uint_t
ngx_http_zstd_mmap_leave_to_plain(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t  found;

    found = ngx_http_zstd_mmap_find_plain(ctx);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: refused, plain file:%i", found);

    if (found != NGX_OK
        || ngx_http_zstd_mmap_set_vary(ctx->request) != NGX_OK)
    {
        return 0;
    }

    ngx_http_zstd_mmap_count(declined);

    return 1;
}


ngx_int_t
ngx_http_zstd_mmap_abort(ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc)
{
    ngx_http_zstd_mmap_report(ctx, rc);

    if (rc == ZMAP_CHANGED) {
        ngx_http_zstd_mmap_forget_file(ctx);
    }

    ngx_http_zstd_mmap_arm_reset(ctx);
    ngx_http_zstd_mmap_count(errors);

    if (ctx->armed) {
        /* makes the TLS shutdown a quiet one */
        ctx->request->connection->timedout = 1;
    }

    return NGX_ERROR;
}


static void
ngx_http_zstd_mmap_report(ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc)
{
    ngx_err_t     err;
    ngx_log_t    *log;
    ngx_uint_t    level;
    zmap_file_t  *file;

    err = (rc == ZMAP_SYSERR) ? ngx_errno : 0;

    log = ctx->request->connection->log;
    file = ctx->file;

    ngx_http_zstd_mmap_count_reason(ngx_http_zstd_mmap_reason(rc));

    if (rc == ZMAP_SEEK_TABLE) {
        ngx_http_zstd_mmap_distrust_table(ctx);
        return;
    }

    if (file->reported & (1u << rc)) {
        return;
    }

    file->reported |= 1u << rc;

    level = (rc >= ZMAP_CHANGED) ? NGX_LOG_ERR : NGX_LOG_CRIT;

    ngx_log_error(level, log, err,
                  "\"%V\" is not usable: %s (%uL of %uL bytes walked)",
                  &ctx->path, zmap_strerror(rc), file->walk.offset,
                  file->version.size);
}


/* nothing is wrong with the file: it may be said again, but not at any rate */

static void
ngx_http_zstd_mmap_report_limit(ngx_http_zstd_mmap_ctx_t *ctx, char *why)
{
    ngx_http_zstd_mmap_worker_t  *worker;

    worker = ctx->worker;

    ngx_http_zstd_mmap_count(limited);
    ngx_http_zstd_mmap_count_reason(NGX_HTTP_ZSTD_MMAP_REASON_LIMIT);

    if (worker->limited == ngx_time()) {
        return;
    }

    worker->limited = ngx_time();

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "\"%V\" is not decoded: %s, %uL bytes of "
                  "zstd_mmap_streams are in use",
                  &ctx->path, why, worker->streams);
}


/* what a decoder found: from now on this version has no table for anybody */

static void
ngx_http_zstd_mmap_distrust_table(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_walk_distrust(&ctx->file->walk);
    ngx_http_zstd_mmap_report_table(ctx);
}


void
ngx_http_zstd_mmap_report_table(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_file_t  *file;

    file = ctx->file;

    if (file->reported & (1u << ZMAP_SEEK_TABLE)) {
        return;
    }

    file->reported |= 1u << ZMAP_SEEK_TABLE;

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "the seek table of \"%V\" contradicts its frames "
                  "and is ignored", &ctx->path);
}


static ngx_http_zstd_mmap_reason_e
ngx_http_zstd_mmap_reason(zmap_rc_e rc)
{
    switch (rc) {

    case ZMAP_AGAIN:
        return NGX_HTTP_ZSTD_MMAP_REASON_LIMIT;

    case ZMAP_SYSERR:
        return NGX_HTTP_ZSTD_MMAP_REASON_IO;

    case ZMAP_NOMEM:
        return NGX_HTTP_ZSTD_MMAP_REASON_MEMORY;

    case ZMAP_FAULT:
        return NGX_HTTP_ZSTD_MMAP_REASON_FAULT;

    case ZMAP_CHANGED:
        return NGX_HTTP_ZSTD_MMAP_REASON_CHANGED;

    case ZMAP_OVERFLOW:
    case ZMAP_TOO_LARGE:
        return NGX_HTTP_ZSTD_MMAP_REASON_TOO_LARGE;

    case ZMAP_WINDOW:
        return NGX_HTTP_ZSTD_MMAP_REASON_WINDOW;

    case ZMAP_DICTIONARY:
        return NGX_HTTP_ZSTD_MMAP_REASON_DICTIONARY;

    default:
        return NGX_HTTP_ZSTD_MMAP_REASON_CORRUPT;
    }
}


/*
 * RFC 9112, 8: a close-delimited body that ends with an orderly close counts
 * as complete, and so does one that TLS ends with close_notify.  HTTP/0.9 has
 * no other, as it has no header.
 */

void
ngx_http_zstd_mmap_arm_reset(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    if (ctx->armed
        || r->http_version >= NGX_HTTP_VERSION_20
        || r->main->chunked
        || (r->main->headers_out.content_length_n != -1
            && r->http_version >= NGX_HTTP_VERSION_10))
    {
        return;
    }

    ngx_http_zstd_mmap_set_linger(r->connection, 1);
    ctx->armed = 1;
}


void
ngx_http_zstd_mmap_disarm_reset(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->armed) {
        ngx_http_zstd_mmap_set_linger(ctx->request->connection, 0);
        ctx->armed = 0;
    }
}


static void
ngx_http_zstd_mmap_set_linger(ngx_connection_t *c, ngx_uint_t reset)
{
    struct linger  linger;

    linger.l_onoff = reset ? 1 : 0;
    linger.l_linger = 0;

    if (setsockopt(c->fd, SOL_SOCKET, SO_LINGER, (const void *) &linger,
                   sizeof(struct linger))
        == -1)
    {
        ngx_log_error(NGX_LOG_ALERT, c->log, ngx_socket_errno,
                      "setsockopt(SO_LINGER) failed");
    }
}
