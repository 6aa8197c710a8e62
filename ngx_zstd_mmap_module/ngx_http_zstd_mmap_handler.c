
/*
 * The content phase handler: which file, which representation, who answers.
 */


#include "ngx_http_zstd_mmap_handler.h"
#include "ngx_http_zstd_mmap_decoded.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_file.h"
#include "ngx_http_zstd_mmap_frames.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_vouch.h"
#include "ngx_http_zstd_mmap_wait.h"

#include "core/zmap_accept.h"


/* RFC 9110, 15.5.7; nginx has a page for it and no name */
#define NGX_HTTP_ZSTD_MMAP_NOT_ACCEPTABLE  406


static ngx_int_t ngx_http_zstd_mmap_answer(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_serve(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_serve_e ngx_http_zstd_mmap_choose(ngx_http_request_t *r,
    ngx_uint_t mode, zmap_accept_t *accept);
static void ngx_http_zstd_mmap_read_accept(ngx_http_request_t *r,
    zmap_accept_t *accept);
static ngx_int_t ngx_http_zstd_mmap_serve_frames(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_sendable(ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_count_unsendable(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_wait_or_refuse(
    ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc,
    ngx_http_zstd_mmap_job_t *job);
static ngx_int_t ngx_http_zstd_mmap_serve_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_count_limited(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_fits_buffer(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_decode_allowed(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_decodable(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_know_size(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t *size);
static ngx_int_t ngx_http_zstd_mmap_leave(ngx_http_request_t *r,
    ngx_int_t rc);
static ngx_int_t ngx_http_zstd_mmap_prepare(ngx_http_request_t *r);


ngx_int_t
ngx_http_zstd_mmap_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_zstd_mmap_ctx_t        *ctx;
    ngx_http_zstd_mmap_loc_conf_t   *zlcf;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    if (zlcf->mode == NGX_HTTP_ZSTD_MMAP_OFF) {
        return NGX_DECLINED;
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD|NGX_HTTP_POST))) {
        return NGX_DECLINED;
    }

    if (r->uri.data[r->uri.len - 1] == '/') {
        return NGX_DECLINED;
    }

    ctx = ngx_http_zstd_mmap_find_ctx(r);

    if (ctx && ctx->resumed) {
        ctx->resumed = 0;
        return ngx_http_zstd_mmap_answer(ctx);
    }

    ctx = ngx_http_zstd_mmap_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zstd_mmap_open(ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    if (r->method == NGX_HTTP_POST) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    ngx_http_zstd_mmap_count(requests);

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zstd_mmap_module);

    ctx->worker = ngx_http_zstd_mmap_get_worker(zmcf, r->connection->log);
    if (ctx->worker == NULL) {
        ngx_http_zstd_mmap_count(errors);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_zstd_mmap_answer(ctx);
}


/* also once more, when the request has waited */

static ngx_int_t
ngx_http_zstd_mmap_answer(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_zstd_mmap_serve(ctx);

    /* once for each of its reasons */

    while (rc == NGX_HTTP_ZSTD_MMAP_RETRY) {
        ngx_http_zstd_mmap_reset_ctx(ctx);
        rc = ngx_http_zstd_mmap_serve(ctx);
    }

    if (rc == NGX_DONE || rc == NGX_AGAIN) {
        /* what it holds is shown now, and again when it ends */
        ngx_http_zstd_mmap_show_worker(ctx->worker);
    }

    return rc;
}


static ngx_int_t
ngx_http_zstd_mmap_serve(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t                       rc;
    zmap_rc_e                       zrc;
    zmap_serve_e                    serve;
    zmap_accept_t                   accept;
    ngx_http_request_t             *r;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    r = ctx->request;
    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    if (ctx->file == NULL && ngx_http_zstd_mmap_get_file(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    zrc = ctx->expired ? ZMAP_AGAIN : ngx_http_zstd_mmap_take_outcome(ctx);

    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_refuse(ctx, zrc);
    }

    zmap_accept_init(&accept);

    serve = ngx_http_zstd_mmap_choose(r, zlcf->mode, &accept);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zstd mmap: mode:%ui serve:%d", zlcf->mode, serve);

    if (serve == ZMAP_SERVE_ZSTD) {
        rc = ngx_http_zstd_mmap_serve_frames(ctx);
        if (rc != NGX_BUSY) {
            return rc;
        }

        if (!zmap_accept_identity(&accept)) {
            serve = ZMAP_SERVE_NONE;
        }
    }

    if (serve == ZMAP_SERVE_NONE) {
        /* the next handler may have a coding that the client takes */

        rc = ngx_http_zstd_mmap_decode_allowed(ctx);
        if (rc != NGX_OK) {
            return rc;
        }

        ngx_http_zstd_mmap_count_reason(
                                      NGX_HTTP_ZSTD_MMAP_REASON_NOT_ACCEPTED);

        return ngx_http_zstd_mmap_leave(r,
                                        NGX_HTTP_ZSTD_MMAP_NOT_ACCEPTABLE);
    }

    return ngx_http_zstd_mmap_serve_decoded(ctx);
}


/*
 * A subrequest carries its parent's header lines, but its body becomes part of
 * a page: it is always decoded.
 */

static zmap_serve_e
ngx_http_zstd_mmap_choose(ngx_http_request_t *r, ngx_uint_t mode,
    zmap_accept_t *accept)
{
    if (r != r->main || mode == NGX_HTTP_ZSTD_MMAP_DECODE) {
        return ZMAP_SERVE_IDENTITY;
    }

    if (mode == NGX_HTTP_ZSTD_MMAP_ALWAYS) {
        return ZMAP_SERVE_ZSTD;
    }

    ngx_http_zstd_mmap_read_accept(r, accept);

    return zmap_accept_choose(accept);
}


#if (nginx_version >= 1023000)

static void
ngx_http_zstd_mmap_read_accept(ngx_http_request_t *r, zmap_accept_t *accept)
{
    ngx_table_elt_t  *h;

    for (h = r->headers_in.accept_encoding; h; h = h->next) {
        zmap_accept_line(accept, h->value.data, h->value.len);
    }
}

#else

/* headers_in.accept_encoding has the first line only */

static void
ngx_http_zstd_mmap_read_accept(ngx_http_request_t *r, zmap_accept_t *accept)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    static u_char  name[] = "accept-encoding";

    if (r->headers_in.accept_encoding == NULL) {
        return;
    }

    for (part = &r->headers_in.headers.part; part; part = part->next) {

        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].hash
                && h[i].key.len == sizeof(name) - 1
                && ngx_strncmp(h[i].lowcase_key, name, sizeof(name) - 1) == 0)
            {
                zmap_accept_line(accept, h[i].value.data, h[i].value.len);
            }
        }
    }
}

#endif


/* NGX_BUSY: these frames are for no client, decoded bytes may be */

static ngx_int_t
ngx_http_zstd_mmap_serve_frames(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t                  rc;
    zmap_rc_e                  zrc;
    ngx_http_zstd_mmap_job_t  *job;

    if (ctx->input.conf->verify == NGX_HTTP_ZSTD_MMAP_VERIFY_OFF) {
        zrc = ngx_http_zstd_mmap_vouch_header(ctx, &job);

    } else {
        zrc = ngx_http_zstd_mmap_vouch_frames(ctx, 0, &job);
    }

    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_wait_or_refuse(ctx, zrc, job);
    }

    if (!ngx_http_zstd_mmap_sendable(ctx)) {
        ngx_http_zstd_mmap_count_unsendable(ctx);
        return NGX_BUSY;
    }

    zrc = ngx_http_zstd_mmap_vouch_content(ctx, &job);
    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_wait_or_refuse(ctx, zrc, job);
    }

    rc = ngx_http_zstd_mmap_prepare(ctx->request);
    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_http_zstd_mmap_send_frames(ctx);
}


/*
 * RFC 9659, 3: a client need not decode a window above 8 MiB, and a frame
 * that needs a dictionary is not interoperable as "zstd".
 */

static ngx_uint_t
ngx_http_zstd_mmap_sendable(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_frames_t                  *frames;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    frames = &ctx->file->walk.frames;
    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: window:%uL dictionary:%uD",
                   frames->window, frames->dictionary_id);

    return frames->dictionary_id == 0
           && frames->window <= (uint64_t) zlcf->send_window;
}


/* a dictionary is counted by the refusal to decode */

static void
ngx_http_zstd_mmap_count_unsendable(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->file->walk.frames.dictionary_id == 0 && !ctx->unsendable) {
        ngx_http_zstd_mmap_count_reason(NGX_HTTP_ZSTD_MMAP_REASON_WINDOW);
    }

    ctx->unsendable = 1;
}


static ngx_int_t
ngx_http_zstd_mmap_wait_or_refuse(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_rc_e rc, ngx_http_zstd_mmap_job_t *job)
{
    if (rc == ZMAP_AGAIN && job == NULL) {
        return ngx_http_zstd_mmap_refuse_limit(ctx, "there is no room for it");
    }

    if (rc == ZMAP_AGAIN && ngx_http_zstd_mmap_can_wait(ctx->request)) {
        return ngx_http_zstd_mmap_wait(ctx, job, NULL);
    }

    return ngx_http_zstd_mmap_refuse(ctx, rc);
}


static ngx_int_t
ngx_http_zstd_mmap_serve_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t                  rc;
    zmap_rc_e                  zrc;
    ngx_http_zstd_mmap_job_t  *job;

    rc = ngx_http_zstd_mmap_decode_allowed(ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    zrc = ngx_http_zstd_mmap_vouch_frames(ctx, 1, &job);
    if (zrc == ZMAP_OK) {
        zrc = ngx_http_zstd_mmap_decodable(ctx);
    }

    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_wait_or_refuse(ctx, zrc, job);
    }

    rc = ngx_http_zstd_mmap_prepare(ctx->request);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_zstd_mmap_fits_buffer(ctx)) {
        rc = ngx_http_zstd_mmap_send_decoded(ctx);
        if (rc != NGX_BUSY) {
            return rc;
        }

        ngx_http_zstd_mmap_count_limited(ctx);
    }

    zrc = ngx_http_zstd_mmap_vouch_content(ctx, &job);
    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_wait_or_refuse(ctx, zrc, job);
    }

    return ngx_http_zstd_mmap_stream_decoded(ctx);
}


/* no buffer is free: no error, but it should be seen */

static void
ngx_http_zstd_mmap_count_limited(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (!ctx->crowded) {
        ngx_http_zstd_mmap_count(limited);
    }

    ctx->crowded = 1;
}


/*
 * A file can be far larger than its content, with frames or blocks that are
 * empty; one call would hold the event loop for as long as it takes.
 */

static ngx_uint_t
ngx_http_zstd_mmap_fits_buffer(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);
    return ctx->size != -1
           && ctx->size <= zmcf->buffers_max
           && ctx->file->version.size / 2 <= (uint64_t) zmcf->buffers_max;
}


static ngx_int_t
ngx_http_zstd_mmap_decode_allowed(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t                       found;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    if (zlcf->decode == NGX_HTTP_ZSTD_MMAP_DECODE_ON) {
        return NGX_OK;
    }

    if (zlcf->decode == NGX_HTTP_ZSTD_MMAP_DECODE_OFF) {
        ngx_http_zstd_mmap_count_reason(
                                      NGX_HTTP_ZSTD_MMAP_REASON_NOT_ACCEPTED);
        return ngx_http_zstd_mmap_leave(ctx->request, NGX_DECLINED);
    }

    found = ngx_http_zstd_mmap_find_plain(ctx);

    if (found == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (found == NGX_DECLINED) {
        return NGX_OK;
    }

    ngx_http_zstd_mmap_count_reason(NGX_HTTP_ZSTD_MMAP_REASON_PLAIN);

    return ngx_http_zstd_mmap_leave(ctx->request, NGX_DECLINED);
}


/* checks the limits and sets the size of the body, as far as it is known */

static zmap_rc_e
ngx_http_zstd_mmap_decodable(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                        size;
    zmap_frames_t                  *frames;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    frames = &ctx->file->walk.frames;
    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    /* what was known before the request waited may not hold any more */

    ctx->size = -1;
    ctx->input.tabled = 0;

    if (frames->dictionary_id) {
        return ZMAP_DICTIONARY;
    }

    if (frames->window > (uint64_t) zlcf->decode_window) {
        return ZMAP_WINDOW;
    }

    if (frames->table_lies) {
        ngx_http_zstd_mmap_report_table(ctx);
    }

    if (!ngx_http_zstd_mmap_know_size(ctx, &size)) {
        return ZMAP_OK;
    }

    if (size > NGX_MAX_OFF_T_VALUE
        || (zlcf->max_size && size > (uint64_t) zlcf->max_size))
    {
        return ZMAP_TOO_LARGE;
    }

    ctx->size = size;

    return ZMAP_OK;
}


static ngx_uint_t
ngx_http_zstd_mmap_know_size(ngx_http_zstd_mmap_ctx_t *ctx, uint64_t *size)
{
    zmap_file_t    *file;
    zmap_frames_t  *frames;

    file = ctx->file;
    frames = &file->walk.frames;

    if (frames->sized) {
        *size = frames->content_size;
        return 1;
    }

    if (frames->tabled && !ctx->untabled) {
        *size = frames->content_size;
        ctx->input.tabled = 1;
        return 1;
    }

    if (file->has_learnt) {
        *size = file->learnt;
        return 1;
    }

    return 0;
}


/* an answer that Accept-Encoding selected, though it is not ours */

static ngx_int_t
ngx_http_zstd_mmap_leave(ngx_http_request_t *r, ngx_int_t rc)
{
    if (ngx_http_zstd_mmap_set_vary(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_zstd_mmap_count(declined);

    return rc;
}


static ngx_int_t
ngx_http_zstd_mmap_prepare(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    r->root_tested = !r->error_page;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    r->connection->log->action = "sending response to client";

    return NGX_OK;
}
