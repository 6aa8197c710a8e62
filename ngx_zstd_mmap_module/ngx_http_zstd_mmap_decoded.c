
/*
 * Decoded bytes: at once into one buffer, or piece by piece.
 */


#include "ngx_http_zstd_mmap_decoded.h"
#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_stream.h"
#include "ngx_http_zstd_mmap_whole.h"

#include "core/zmap_range.h"


static zmap_rc_e ngx_http_zstd_mmap_fill_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_send_ranged_header(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_count_decoded(off_t n, ngx_uint_t kept);
static zmap_rc_e ngx_http_zstd_mmap_begin_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_seek_decoded(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_decode_piece(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b, size_t *work);
static zmap_rc_e ngx_http_zstd_mmap_decode_end(ngx_http_zstd_mmap_ctx_t *ctx,
    size_t produced);
static void ngx_http_zstd_mmap_count_piece(ngx_http_zstd_mmap_ctx_t *ctx,
    size_t size);
static zmap_rc_e ngx_http_zstd_mmap_end_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc);


static const ngx_http_zstd_mmap_whole_t  ngx_http_zstd_mmap_whole_decoded = {
    ZMAP_BODY_DECODED,
    ngx_http_zstd_mmap_fill_decoded,
    ngx_http_zstd_mmap_send_ranged_header,
    ngx_http_zstd_mmap_count_decoded
};


ngx_int_t
ngx_http_zstd_mmap_send_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        return ngx_http_zstd_mmap_send_ranged_header(ctx);
    }

    return ngx_http_zstd_mmap_send_whole(ctx,
                                         &ngx_http_zstd_mmap_whole_decoded,
                                         ctx->size, 1);
}


static zmap_rc_e
ngx_http_zstd_mmap_fill_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e  rc;

    rc = ngx_http_zstd_mmap_decode_body(ctx);

    if (rc == ZMAP_OK) {
        ngx_http_zstd_mmap_count_bytes(decoded_produced, ctx->size);
    }

    return rc;
}


static ngx_int_t
ngx_http_zstd_mmap_send_ranged_header(ngx_http_zstd_mmap_ctx_t *ctx)
{
    return ngx_http_zstd_mmap_send_decoded_header(ctx, 1);
}


static void
ngx_http_zstd_mmap_count_decoded(off_t n, ngx_uint_t kept)
{
    if (kept) {
        ngx_http_zstd_mmap_count(cached);
    }

    ngx_http_zstd_mmap_count_bytes(decoded_sent, n);
}


ngx_int_t
ngx_http_zstd_mmap_stream_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e                       zrc;
    ngx_int_t                       rc;
    ngx_http_request_t             *r;
    ngx_http_zstd_mmap_stream_t    *stream;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    r = ctx->request;

    /* several buffers cannot be cut into several ranges */
    r->single_range = 1;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        return ngx_http_zstd_mmap_send_decoded_header(ctx, ctx->size != -1);
    }

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    stream = ngx_http_zstd_mmap_create_stream(ctx,
                                              ngx_http_zstd_mmap_decode_piece,
                                              zlcf->chunk);
    if (stream == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    zrc = ngx_http_zstd_mmap_begin_decoded(ctx);
    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_refuse(ctx, zrc);
    }

    rc = ngx_http_zstd_mmap_send_decoded_header(ctx, ctx->size != -1);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    ngx_http_zstd_mmap_count(streamed);

    ngx_http_zstd_mmap_seek_decoded(ctx);

    return ngx_http_zstd_mmap_start_stream(stream, ctx->pos);
}


static zmap_rc_e
ngx_http_zstd_mmap_begin_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                        limit;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    limit = (ctx->size == -1) ? zlcf->max_size : ctx->size;

    return ngx_http_zstd_mmap_decode_begin(ctx, limit);
}


/* a range costs the frames that it lies in */

static void
ngx_http_zstd_mmap_seek_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_frame_entry_t  begin;

    ngx_http_zstd_mmap_set_range(ctx, ctx->size);

    if (ctx->begin == 0) {
        return;
    }

    begin = zmap_range_begin(&ctx->file->walk.frames, ctx->begin);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: range %O-%O, decode from %uL at %uL",
                   ctx->begin, ctx->end, begin.decoded, begin.coded);

    zmap_decode_seek(ctx->decoder, begin.coded);

    ctx->pos = begin.decoded;
}


static zmap_rc_e
ngx_http_zstd_mmap_decode_piece(ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b,
    size_t *work)
{
    size_t     produced;
    uint64_t   consumed;
    zmap_rc_e  rc;

    consumed = zmap_decode_consumed(ctx->decoder);

    rc = ngx_http_zstd_mmap_decode_step(ctx, b->start, b->end - b->start,
                                        &produced);

    if (rc == ZMAP_AGAIN && produced
        && ctx->pos + (off_t) produced == ctx->size)
    {
        rc = ngx_http_zstd_mmap_decode_end(ctx, produced);
    }

    /* empty blocks and frames cost time, too */
    *work = ngx_max(produced, zmap_decode_consumed(ctx->decoder) - consumed);

    if (rc != ZMAP_OK && rc != ZMAP_AGAIN) {
        return rc;
    }

    ngx_http_zstd_mmap_count_piece(ctx, produced);

    b->last = b->start + produced;
    b->memory = produced ? 1 : 0;
    b->recycled = b->memory;

    ctx->pos += produced;

    return ngx_http_zstd_mmap_end_decoded(ctx, rc);
}


/*
 * The last bytes are no reply before the checksum behind them was compared; it
 * may lie behind what was read for them.
 */

static zmap_rc_e
ngx_http_zstd_mmap_decode_end(ngx_http_zstd_mmap_ctx_t *ctx, size_t produced)
{
    u_char     spare;
    size_t     none;
    zmap_rc_e  rc;

    ctx->pos += produced;
    rc = ngx_http_zstd_mmap_decode_step(ctx, &spare, 1, &none);
    ctx->pos -= produced;

    return (none && rc == ZMAP_AGAIN) ? ZMAP_CONTENT_SIZE : rc;
}


/* what lies outside of the range is dropped by nginx's range filter */

static void
ngx_http_zstd_mmap_count_piece(ngx_http_zstd_mmap_ctx_t *ctx, size_t size)
{
    off_t  first, last;

    first = ngx_max(ctx->pos, ctx->begin);
    last = ctx->pos + size;

    if (ctx->end != -1) {
        last = ngx_min(last, ctx->end);
    }

    ngx_http_zstd_mmap_count_bytes(decoded_produced, size);

    if (first < last) {
        ngx_http_zstd_mmap_count_bytes(decoded_sent, last - first);
    }
}


/* the end of a range that is not that of the body ends the decoding */

static zmap_rc_e
ngx_http_zstd_mmap_end_decoded(ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc)
{
    if (rc == ZMAP_AGAIN
        && (ctx->size == -1 || ctx->end == ctx->size || ctx->pos < ctx->end))
    {
        return rc;
    }

    if (ctx->size == -1) {
        ctx->file->learnt = ctx->pos;
        ctx->file->has_learnt = 1;
    }

    /* its window need not wait for a slow client to take the last piece */
    ngx_http_zstd_mmap_put_decoder(ctx);

    return ZMAP_OK;
}
