
/*
 * Frames: from memory where that is cheaper or safer, else by descriptor.
 */


#include "ngx_http_zstd_mmap_frames.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_input.h"
#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_stream.h"
#include "ngx_http_zstd_mmap_whole.h"

#include "core/zmap_read.h"


/*
 * Up to here a write from memory costs a sender less than sendfile(2) does; to
 * a corked socket, which tcp_nopush makes, it does so for longer.
 */
#define NGX_HTTP_ZSTD_MMAP_SEND_BORDER  (64 * 1024)
#define NGX_HTTP_ZSTD_MMAP_CORK_BORDER  (512 * 1024)

/* no more than a turn of nginx's own sendfile_max_chunk, a whole huge page */
#define NGX_HTTP_ZSTD_MMAP_SLICE        (2 * 1024 * 1024)


static ngx_uint_t ngx_http_zstd_mmap_want_memory(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_can_sendfile(ngx_http_request_t *r);
static ngx_uint_t ngx_http_zstd_mmap_in_slices(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_send_segment(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_send_copied(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_copy_frames(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_compare(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_rc_e rc);
static void ngx_http_zstd_mmap_count_frames(off_t n, ngx_uint_t kept);
static void ngx_http_zstd_mmap_count_body(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_send_file(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_file_t *ngx_http_zstd_mmap_create_file(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_set_file(ngx_buf_t *b, ngx_file_t *file,
    off_t pos, off_t last);
static ngx_int_t ngx_http_zstd_mmap_send_slices(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_http_zstd_mmap_fill_pt fill,
    size_t room);
static zmap_rc_e ngx_http_zstd_mmap_copy_slice(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b, size_t *work);
static zmap_rc_e ngx_http_zstd_mmap_file_slice(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b, size_t *work);


static const ngx_http_zstd_mmap_whole_t  ngx_http_zstd_mmap_whole_frames = {
    ZMAP_BODY_CODED,
    ngx_http_zstd_mmap_copy_frames,
    NULL,                              /* start */
    NULL,                              /* run */
    NULL,                              /* resume */
    ngx_http_zstd_mmap_send_coded_header,
    ngx_http_zstd_mmap_count_frames
};


ngx_int_t
ngx_http_zstd_mmap_send_frames(ngx_http_zstd_mmap_ctx_t *ctx)
{
    off_t                           room;
    ngx_int_t                       rc;
    ngx_http_request_t             *r;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    r = ctx->request;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        r->single_range = ngx_http_zstd_mmap_in_slices(ctx);

        return ngx_http_zstd_mmap_send_coded_header(ctx);
    }

    ngx_http_zstd_mmap_take_segment(r, &ctx->input);

    if (!ngx_http_zstd_mmap_want_memory(ctx)) {
        ngx_http_zstd_mmap_release_segment(&ctx->input.segment);

        return ngx_http_zstd_mmap_send_file(ctx);
    }

    if (ctx->input.segment.data) {
        return ngx_http_zstd_mmap_send_segment(ctx);
    }

    rc = ngx_http_zstd_mmap_send_copied(ctx);

    if (rc != NGX_BUSY) {
        return rc;
    }

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    room = ngx_align((off_t) ctx->file->version.size, ZMAP_READ_BLOCK);
    room = ngx_min(room, zlcf->chunk - zlcf->chunk % ZMAP_READ_BLOCK);

    return ngx_http_zstd_mmap_send_slices(ctx, ngx_http_zstd_mmap_copy_slice,
                                          room);
}


/*
 * Where sendfile(2) cannot be used, nginx would read the file into buffers of
 * its own first: then memory of ours is better at any size, except where it
 * was told how to read from slow disks.
 */

static ngx_uint_t
ngx_http_zstd_mmap_want_memory(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_request_t             *r;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    r = ctx->request;
    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    if (zlcf->send != NGX_HTTP_ZSTD_MMAP_SEND_AUTO) {
        return zlcf->send == NGX_HTTP_ZSTD_MMAP_SEND_MEMORY;
    }

    if (ctx->file->version.size <= NGX_HTTP_ZSTD_MMAP_SEND_BORDER) {
        return 1;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (ngx_http_zstd_mmap_can_sendfile(r)) {
        return ctx->input.segment.data && clcf->tcp_nopush
               && ctx->file->version.size <= NGX_HTTP_ZSTD_MMAP_CORK_BORDER;
    }

    return ctx->input.segment.data
           || (!ctx->of.is_directio && clcf->aio == NGX_HTTP_AIO_OFF);
}


/* TLS in user space needs the bytes in memory */

static ngx_uint_t
ngx_http_zstd_mmap_can_sendfile(ngx_http_request_t *r)
{
    return r->connection->sendfile && !r->main_filter_need_in_memory;
}


/* what a GET of a file that is not staged would be sent in */

static ngx_uint_t
ngx_http_zstd_mmap_in_slices(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    if (!ngx_http_zstd_mmap_want_memory(ctx)) {
        return ctx->file->version.size > NGX_HTTP_ZSTD_MMAP_SLICE;
    }

    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);

    return ctx->file->version.size > (uint64_t) zmcf->buffers_max;
}


static ngx_int_t
ngx_http_zstd_mmap_send_segment(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_buf_t           *b;
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zstd_mmap_send_coded_header(ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    ngx_http_zstd_mmap_count_body(ctx);

    ngx_http_zstd_mmap_set_memory(b, ctx->input.segment.data,
                                  ctx->input.segment.size);

    return ngx_http_zstd_mmap_send_buf(r, b);
}


/*
 * The copy is kept where copies are what the location wants: otherwise it
 * would take the room of decoded bodies, which are dearer to make.
 */

static ngx_int_t
ngx_http_zstd_mmap_send_copied(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                         size;
    ngx_uint_t                       keep;
    ngx_http_zstd_mmap_loc_conf_t   *zlcf;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    size = ctx->file->version.size;
    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);
    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    if (size > (uint64_t) zmcf->buffers_max) {
        return NGX_BUSY;
    }

    keep = zlcf->send == NGX_HTTP_ZSTD_MMAP_SEND_MEMORY
           || size <= NGX_HTTP_ZSTD_MMAP_SEND_BORDER;

    return ngx_http_zstd_mmap_send_whole(ctx,
                                         &ngx_http_zstd_mmap_whole_frames,
                                         size, keep);
}


/* the buffer is made of whole blocks, which O_DIRECT wants */

static zmap_rc_e
ngx_http_zstd_mmap_copy_frames(ngx_http_zstd_mmap_ctx_t *ctx)
{
    size_t     size;
    zmap_rc_e  rc;

    size = ctx->file->version.size;

    rc = zmap_read(ctx->of.fd, ctx->body->data,
                   ngx_align(size, ZMAP_READ_BLOCK), size, 0);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: copy of %uz bytes rc:%d", size, rc);

    return ngx_http_zstd_mmap_compare(ctx, rc);
}


/*
 * A read that came short is no copy, also when the file looks as before: its
 * times are those of the kernel's last tick.
 */

static zmap_rc_e
ngx_http_zstd_mmap_compare(ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc)
{
    return (rc == ZMAP_OK) ? ngx_http_zstd_mmap_check_file(&ctx->input) : rc;
}


static void
ngx_http_zstd_mmap_count_frames(off_t n, ngx_uint_t kept)
{
    ngx_http_zstd_mmap_count_bytes(frames_sent, n);
}


static void
ngx_http_zstd_mmap_count_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    off_t  n;

    n = ngx_http_zstd_mmap_body_length(ctx->request,
                                       ctx->file->version.size);

    ngx_http_zstd_mmap_count_bytes(frames_sent, n);
}


static ngx_int_t
ngx_http_zstd_mmap_send_file(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_buf_t           *b;
    ngx_int_t            rc;
    ngx_file_t          *file;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (ctx->file->version.size > NGX_HTTP_ZSTD_MMAP_SLICE) {
        return ngx_http_zstd_mmap_send_slices(ctx,
                                              ngx_http_zstd_mmap_file_slice,
                                              0);
    }

    /* all is allocated before the header is sent */

    b = ngx_calloc_buf(r->pool);
    file = ngx_http_zstd_mmap_create_file(ctx);

    if (b == NULL || file == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zstd_mmap_send_coded_header(ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    ngx_http_zstd_mmap_count_body(ctx);

    ngx_http_zstd_mmap_set_file(b, file, 0, ctx->file->version.size);

    return ngx_http_zstd_mmap_send_buf(r, b);
}


static ngx_file_t *
ngx_http_zstd_mmap_create_file(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_file_t  *file;

    file = ngx_pcalloc(ctx->request->pool, sizeof(ngx_file_t));
    if (file == NULL) {
        return NULL;
    }

    file->fd = ctx->of.fd;
    file->name = ctx->path;
    file->log = ctx->request->connection->log;
    file->directio = ctx->of.is_directio;

    return file;
}


static void
ngx_http_zstd_mmap_set_file(ngx_buf_t *b, ngx_file_t *file, off_t pos,
    off_t last)
{
    b->in_file = 1;
    b->file = file;
    b->file_pos = pos;
    b->file_last = last;
}


/* a body of several buffers can have one range only */

static ngx_int_t
ngx_http_zstd_mmap_send_slices(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_fill_pt fill, size_t room)
{
    ngx_int_t                     rc;
    ngx_http_request_t           *r;
    ngx_http_zstd_mmap_stream_t  *stream;

    r = ctx->request;

    ctx->slices = ngx_http_zstd_mmap_create_file(ctx);
    stream = ngx_http_zstd_mmap_create_stream(ctx, fill, room,
                                              NGX_HTTP_ZSTD_MMAP_PIECES);

    if (ctx->slices == NULL || stream == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->single_range = 1;

    rc = ngx_http_zstd_mmap_send_coded_header(ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    ngx_http_zstd_mmap_count_body(ctx);

    ngx_http_zstd_mmap_set_range(ctx, ctx->file->version.size);

    return ngx_http_zstd_mmap_start_stream(stream, ctx->pos);
}


static zmap_rc_e
ngx_http_zstd_mmap_copy_slice(ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b,
    size_t *work)
{
    off_t      n;
    size_t     room, before;
    zmap_rc_e  rc;

    room = b->end - b->start;
    before = ctx->pos % ZMAP_READ_BLOCK;

    n = ngx_min((off_t) (room - before), ctx->end - ctx->pos);

    /* no more than the blocks of the range */
    room = ngx_align(before + n, ZMAP_READ_BLOCK);

    rc = zmap_read(ctx->of.fd, b->start, room, before + n, ctx->pos - before);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: copy of %O bytes at %O rc:%d", n, ctx->pos, rc);

    rc = ngx_http_zstd_mmap_compare(ctx, rc);

    if (rc != ZMAP_OK) {
        return rc;
    }

    *work = n;

    b->pos = b->start + before;
    b->last = b->pos + n;
    b->memory = 1;
    b->recycled = 1;

    ctx->pos += n;

    return (ctx->pos == ctx->end) ? ZMAP_OK : ZMAP_AGAIN;
}


static zmap_rc_e
ngx_http_zstd_mmap_file_slice(ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b,
    size_t *work)
{
    off_t      n;
    zmap_rc_e  rc;

    rc = ngx_http_zstd_mmap_check_file(&ctx->input);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: slice at %O rc:%d", ctx->pos, rc);

    if (rc != ZMAP_OK) {
        return rc;
    }

    n = NGX_HTTP_ZSTD_MMAP_SLICE - ctx->pos % NGX_HTTP_ZSTD_MMAP_SLICE;
    n = ngx_min(n, ctx->end - ctx->pos);

    *work = n;

    ngx_http_zstd_mmap_set_file(b, ctx->slices, ctx->pos, ctx->pos + n);

    ctx->pos += n;

    return (ctx->pos == ctx->end) ? ZMAP_OK : ZMAP_AGAIN;
}
