
/*
 * Replies in one buffer: frames by their descriptor, decoded bytes by memory.
 */


#include "ngx_http_zstd_mmap_send.h"
#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_input.h"
#include "ngx_http_zstd_mmap_stats.h"


/* where a write from memory and sendfile(2) cost a sender about the same */
#define NGX_HTTP_ZSTD_MMAP_SEND_BORDER  (32 * 1024)


static ngx_uint_t ngx_http_zstd_mmap_frames_in_memory(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_find_body(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_reserve_body(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_fill_body(ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_set_memory(ngx_buf_t *b, u_char *data,
    size_t size);
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

    if (r->method == NGX_HTTP_GET) {
        ngx_http_zstd_mmap_take_segment(ctx);
    }

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

    ngx_http_zstd_mmap_count_bytes(frames_sent,
                                   r->headers_out.content_length_n);

    if (ngx_http_zstd_mmap_frames_in_memory(ctx)) {
        ngx_http_zstd_mmap_set_memory(b, ctx->segment.data, ctx->segment.size);

        return ngx_http_zstd_mmap_send_buf(r, b);
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


/*
 * Where sendfile(2) cannot be used, nginx would read the file into buffers of
 * its own first: then memory is better at any size.
 */

static ngx_uint_t
ngx_http_zstd_mmap_frames_in_memory(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_request_t             *r;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    r = ctx->request;

    if (ctx->segment.data == NULL) {
        return 0;
    }

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    if (zlcf->send != NGX_HTTP_ZSTD_MMAP_SEND_AUTO) {
        return zlcf->send == NGX_HTTP_ZSTD_MMAP_SEND_MEMORY;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    return ctx->segment.size <= NGX_HTTP_ZSTD_MMAP_SEND_BORDER
           || !clcf->sendfile
           || !r->connection->sendfile
           || r->filter_need_in_memory
           || r->main_filter_need_in_memory;
}


static void
ngx_http_zstd_mmap_set_memory(ngx_buf_t *b, u_char *data, size_t size)
{
    b->memory = 1;
    b->start = data;
    b->pos = data;
    b->last = data + size;
    b->end = b->last;
}


ngx_int_t
ngx_http_zstd_mmap_send_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_buf_t           *b;
    ngx_int_t            rc;
    zmap_rc_e            zrc;
    ngx_uint_t           kept, ready;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        return ngx_http_zstd_mmap_send_decoded_header(ctx, 1);
    }

    kept = ngx_http_zstd_mmap_find_body(ctx);
    ready = kept;

    if (!ready && ngx_http_zstd_mmap_reserve_body(ctx) != NGX_OK) {
        return NGX_BUSY;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!ready && !ngx_http_zstd_mmap_is_conditional(r)) {
        zrc = ngx_http_zstd_mmap_fill_body(ctx);
        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_refuse(ctx, zrc);
        }

        ready = 1;
    }

    rc = ngx_http_zstd_mmap_send_decoded_header(ctx, 1);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (ctx->size == 0 && r != r->main) {
        /* any buffer would make it a part of the page that is not empty */
        return rc;
    }

    if (!ready) {
        zrc = ngx_http_zstd_mmap_fill_body(ctx);
        if (zrc != ZMAP_OK) {
            return ngx_http_zstd_mmap_abort(ctx, zrc);
        }
    }

    if (kept) {
        ngx_http_zstd_mmap_count(cached);
    }

    if (ctx->size) {
        ngx_http_zstd_mmap_count_bytes(decoded_sent,
                                     r->headers_out.content_length_n == -1
                                     ? ctx->size
                                     : r->headers_out.content_length_n);
        ngx_http_zstd_mmap_set_memory(b, ctx->body->data, ctx->size);
    }

    return ngx_http_zstd_mmap_send_buf(r, b);
}


static ngx_uint_t
ngx_http_zstd_mmap_find_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->worker->bodies == NULL) {
        return 0;
    }

    ctx->body = zmap_bodies_find(ctx->worker->bodies, &ctx->file->version,
                                 ZMAP_BODY_DECODED);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: kept body %p", ctx->body);

    return ctx->body ? 1 : 0;
}


static ngx_int_t
ngx_http_zstd_mmap_reserve_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->size == 0) {
        return NGX_OK;
    }

    if (ctx->worker->bodies == NULL) {
        return NGX_BUSY;
    }

    ctx->body = zmap_bodies_alloc(ctx->worker->bodies, ctx->size);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: buffer %p, used %uz of %uz", ctx->body,
                   zmap_pool_used(ctx->worker->buffers),
                   zmap_pool_size(ctx->worker->buffers));

    return ctx->body ? NGX_OK : NGX_BUSY;
}


/* decodes; what may be kept is found by the next request of the version */

static zmap_rc_e
ngx_http_zstd_mmap_fill_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e   rc;
    ngx_time_t  *tp;

    rc = ngx_http_zstd_mmap_decode_body(ctx);

    if (rc != ZMAP_OK || ctx->body == NULL) {
        return rc;
    }

    ngx_http_zstd_mmap_count_bytes(decoded_produced, ctx->size);

    tp = ngx_timeofday();

    if (!zmap_version_racy(&ctx->file->version, tp->sec, tp->msec * 1000000))
    {
        zmap_bodies_keep(ctx->worker->bodies, ctx->body, &ctx->file->version,
                         ZMAP_BODY_DECODED);
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
