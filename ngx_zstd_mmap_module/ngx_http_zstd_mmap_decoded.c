
/*
 * Decoded bytes: at once into one buffer, or piece by piece.
 */


#include "ngx_http_zstd_mmap_decoded.h"
#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_stream.h"
#include "ngx_http_zstd_mmap_verdict.h"
#include "ngx_http_zstd_mmap_wait.h"
#include "ngx_http_zstd_mmap_whole.h"

#include "core/zmap_range.h"


/* one piece of a body */

typedef struct {
    u_char     *dst;
    size_t      room;
    off_t       pos;           /* of the first byte in the body */
    off_t       size;          /* of the body; -1: unknown */

    zmap_rc_e   rc;
    size_t      produced;
    uint64_t    work;          /* bytes, decoded or coded */
} ngx_http_zstd_mmap_step_t;


static zmap_rc_e ngx_http_zstd_mmap_fill_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_judge_body(ngx_http_zstd_mmap_input_t *input,
    size_t size, zmap_rc_e rc);
static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_start_body(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_in_threads(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t work);
static uint64_t ngx_http_zstd_mmap_get_work(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_run_body_job(
    ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_end_body(ngx_http_zstd_mmap_job_t *job);
static ngx_int_t ngx_http_zstd_mmap_resume_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_send_ranged_header(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_count_decoded(off_t n, ngx_uint_t kept);
static ngx_uint_t ngx_http_zstd_mmap_has_room(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_take_room(ngx_http_zstd_mmap_ctx_t *ctx);
static uint64_t ngx_http_zstd_mmap_stream_room(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_takes_frames(
    ngx_http_zstd_mmap_ctx_t *ctx);
static uint64_t ngx_http_zstd_mmap_stream_window(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_send_without_room(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_begin_stream(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_open_source(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_begin_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_seek_decoded(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_decode_piece(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b, size_t *work);
static zmap_rc_e ngx_http_zstd_mmap_start_step(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_buf_t *b);
static zmap_rc_e ngx_http_zstd_mmap_run_step_job(
    ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_end_step(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_set_step(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_step_t *step, ngx_buf_t *b);
static size_t ngx_http_zstd_mmap_step_room(ngx_http_zstd_mmap_ctx_t *ctx,
    size_t room);
static zmap_rc_e ngx_http_zstd_mmap_run_step(
    ngx_http_zstd_mmap_input_t *input, ngx_http_zstd_mmap_step_t *step);
static zmap_rc_e ngx_http_zstd_mmap_run_end(ngx_http_zstd_mmap_input_t *input,
    ngx_http_zstd_mmap_step_t *step);
static zmap_rc_e ngx_http_zstd_mmap_take_step(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_step_t *step, zmap_rc_e rc, ngx_buf_t *b,
    size_t *work);
static void ngx_http_zstd_mmap_count_piece(ngx_http_zstd_mmap_ctx_t *ctx,
    size_t size);
static zmap_rc_e ngx_http_zstd_mmap_end_decoded(
    ngx_http_zstd_mmap_ctx_t *ctx, zmap_rc_e rc);


static const ngx_http_zstd_mmap_whole_t  ngx_http_zstd_mmap_whole_decoded = {
    ZMAP_BODY_DECODED,
    ngx_http_zstd_mmap_fill_decoded,
    ngx_http_zstd_mmap_start_body,
    ngx_http_zstd_mmap_run_body_job,
    ngx_http_zstd_mmap_resume_decoded,
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
    zmap_rc_e                    rc;
    ngx_http_zstd_mmap_input_t  *input;

    input = &ctx->input;

    ngx_http_zstd_mmap_take_segment(ctx->request, input);

    rc = ngx_http_zstd_mmap_take_decoder(input);
    if (rc != ZMAP_OK) {
        return rc;
    }

    rc = ngx_http_zstd_mmap_decode_body(input,
                                        ctx->body ? ctx->body->data : NULL,
                                        ctx->size);

    ngx_http_zstd_mmap_put_decoder(input);

    ngx_http_zstd_mmap_judge_body(input, ctx->size, rc);

    return rc;
}


static void
ngx_http_zstd_mmap_judge_body(ngx_http_zstd_mmap_input_t *input, size_t size,
    zmap_rc_e rc)
{
    ngx_http_zstd_mmap_judge_content(input, rc);

    if (rc == ZMAP_OK) {
        ngx_http_zstd_mmap_count_bytes(decoded_produced, size);
    }
}


static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_start_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                   work;
    ngx_http_zstd_mmap_job_t  *job;

    work = ngx_http_zstd_mmap_get_work(ctx);

    if (ctx->body == NULL || !ngx_http_zstd_mmap_in_threads(ctx, work)) {
        return NULL;
    }

    ngx_http_zstd_mmap_take_segment(ctx->request, &ctx->input);

    job = ngx_http_zstd_mmap_create_job(&ctx->input, work,
                                        ngx_http_zstd_mmap_run_body_job,
                                        ngx_http_zstd_mmap_end_body);
    if (job == NULL) {
        return NULL;
    }

    if (ngx_http_zstd_mmap_take_decoder(&job->input) != ZMAP_OK) {
        ngx_http_zstd_mmap_destroy_job(job);
        return NULL;
    }

    job->body = ctx->body;
    ctx->body = NULL;

    ngx_http_zstd_mmap_share_job(job);

    return job;
}


static ngx_uint_t
ngx_http_zstd_mmap_in_threads(ngx_http_zstd_mmap_ctx_t *ctx, uint64_t work)
{
    return ngx_http_zstd_mmap_has_threads(ctx->input.conf, work)
           && ngx_http_zstd_mmap_can_wait(ctx->request);
}


/* a coded file can be far larger than its content */

static uint64_t
ngx_http_zstd_mmap_get_work(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t  coded;

    coded = ctx->file->version.size;

    return (ctx->size == -1) ? coded : ngx_max((uint64_t) ctx->size, coded);
}


static zmap_rc_e
ngx_http_zstd_mmap_run_body_job(ngx_http_zstd_mmap_job_t *job)
{
    return ngx_http_zstd_mmap_decode_body(&job->input, job->body->data,
                                          job->body->size);
}


static void
ngx_http_zstd_mmap_end_body(ngx_http_zstd_mmap_job_t *job)
{
    ngx_http_zstd_mmap_input_t  *input;

    input = &job->input;

    ngx_http_zstd_mmap_judge_body(input, job->body->size, job->rc);

    if (job->rc == ZMAP_OK) {
        ngx_http_zstd_mmap_keep_body(input, job->body, ZMAP_BODY_DECODED);
    }
}


static ngx_int_t
ngx_http_zstd_mmap_resume_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    return ngx_http_zstd_mmap_send_rest(ctx,
                                        &ngx_http_zstd_mmap_whole_decoded,
                                        ctx->size);
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
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (!ngx_http_zstd_mmap_has_room(ctx)) {
        /* it would not be served however long a client tries again */
        return ngx_http_zstd_mmap_refuse(ctx, ZMAP_WINDOW);
    }

    /* several buffers cannot be cut into several ranges */
    r->single_range = 1;

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        return ngx_http_zstd_mmap_send_decoded_header(ctx, ctx->size != -1);
    }

    if (ngx_http_zstd_mmap_take_room(ctx) != NGX_OK) {
        return ngx_http_zstd_mmap_send_without_room(ctx);
    }

    rc = ngx_http_zstd_mmap_begin_stream(ctx);

    if (rc != NGX_DONE) {
        ngx_http_zstd_mmap_put_stream(ctx);
    }

    return rc;
}


/* whether the stream fits into zstd_mmap_streams when it is the only one */

static ngx_uint_t
ngx_http_zstd_mmap_has_room(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                         room, streams;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);

    streams = zmcf->streams;
    room = ngx_http_zstd_mmap_stream_room(ctx);

    return room <= streams
           && ngx_http_zstd_mmap_stream_window(ctx) <= streams - room;
}


static ngx_int_t
ngx_http_zstd_mmap_take_room(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);

    return ngx_http_zstd_mmap_charge_stream(ctx,
                                       ngx_http_zstd_mmap_stream_window(ctx),
                                       ngx_http_zstd_mmap_stream_room(ctx),
                                       zmcf->streams);
}


static uint64_t
ngx_http_zstd_mmap_stream_room(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ngx_http_zstd_mmap_takes_frames(ctx)) {
        return ctx->file->walk.frames.largest;
    }

    return NGX_HTTP_ZSTD_MMAP_PIECES * ctx->input.conf->chunk;
}


/* what libzstd takes for a frame: no more than the frame decodes to */

static uint64_t
ngx_http_zstd_mmap_stream_window(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t  window;

    window = ctx->file->walk.frames.window;

    return (ctx->size == -1) ? window : ngx_min(window, (uint64_t) ctx->size);
}


/*
 * A range lies in a frame or two as a rule.  Decoded whole, into one piece, a
 * frame needs no window and no copy out of it; but in fresh memory it would
 * cost more than that.  A range must not need more than zstd_mmap_streams where
 * the body does not.
 */

static ngx_uint_t
ngx_http_zstd_mmap_takes_frames(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                         streams;
    zmap_frames_t                   *frames;
    ngx_http_zstd_mmap_loc_conf_t   *zlcf;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zlcf = ctx->input.conf;
    frames = &ctx->file->walk.frames;

    if (ctx->request->headers_in.range == NULL
        || ctx->size == -1
        || (!frames->sized && !frames->tabled)
        || frames->index == NULL
        || zlcf->input != NGX_HTTP_ZSTD_MMAP_INPUT_MAP)
    {
        return 0;
    }

    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);
    streams = zmcf->streams;

    return frames->largest > (uint64_t) zlcf->chunk
           && frames->largest <= (uint64_t) zmcf->buffers_max
           && frames->largest <= streams
           && ngx_http_zstd_mmap_stream_window(ctx)
              <= streams - frames->largest
           && ngx_http_zstd_mmap_has_buffers(ctx->worker, frames->largest);
}


/* a 304 needs none */

static ngx_int_t
ngx_http_zstd_mmap_send_without_room(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (!ngx_http_zstd_mmap_is_not_modified(ctx)) {
        return ngx_http_zstd_mmap_refuse_limit(ctx, "there is no room for it");
    }

    rc = ngx_http_zstd_mmap_send_decoded_header(ctx, ctx->size != -1);

    if (rc == NGX_ERROR || rc > NGX_OK || ctx->request->header_only) {
        return rc;
    }

    /* a module on the way has made it a reply with a body after all */

    return ngx_http_zstd_mmap_abort(ctx, ZMAP_NOMEM);
}


/* NGX_DONE: the stream goes on; else it has not begun, or has ended */

static ngx_int_t
ngx_http_zstd_mmap_begin_stream(ngx_http_zstd_mmap_ctx_t *ctx)
{
    size_t                        room;
    zmap_rc_e                     zrc;
    ngx_int_t                     rc;
    ngx_uint_t                    pieces;
    ngx_http_request_t           *r;
    ngx_http_zstd_mmap_stream_t  *stream;

    r = ctx->request;

    zrc = ngx_http_zstd_mmap_open_source(ctx);
    if (zrc != ZMAP_OK) {
        return ngx_http_zstd_mmap_refuse(ctx, zrc);
    }

    pieces = ngx_http_zstd_mmap_takes_frames(ctx) ? 1
                                                 : NGX_HTTP_ZSTD_MMAP_PIECES;
    room = ngx_http_zstd_mmap_stream_room(ctx) / pieces;

    stream = ngx_http_zstd_mmap_create_stream(ctx,
                                              ngx_http_zstd_mmap_decode_piece,
                                              room, pieces);
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


/* in threads, what a step needs must outlive the request */

static zmap_rc_e
ngx_http_zstd_mmap_open_source(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                    work;
    ngx_http_zstd_mmap_step_t  *step;

    ctx->source = &ctx->input;

    ngx_http_zstd_mmap_take_segment(ctx->request, &ctx->input);

    work = ngx_http_zstd_mmap_get_work(ctx);

    if (!ngx_http_zstd_mmap_in_threads(ctx, work)) {
        return ngx_http_zstd_mmap_take_decoder(ctx->source);
    }

    ctx->steps = ngx_http_zstd_mmap_create_job(&ctx->input, work,
                                              ngx_http_zstd_mmap_run_step_job,
                                              NULL);
    if (ctx->steps == NULL) {
        return ZMAP_NOMEM;
    }

    step = ngx_pcalloc(ctx->steps->pool, sizeof(ngx_http_zstd_mmap_step_t));
    if (step == NULL) {
        return ZMAP_NOMEM;
    }

    ctx->steps->owner = ctx;
    ctx->steps->data = step;

    ctx->source = &ctx->steps->input;

    return ngx_http_zstd_mmap_take_decoder(ctx->source);
}


static zmap_rc_e
ngx_http_zstd_mmap_begin_decoded(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t  limit;

    limit = (ctx->size == -1) ? ctx->input.conf->max_size : ctx->size;

    return ngx_http_zstd_mmap_decode_begin(ctx->source, limit);
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

    zmap_decode_seek(ctx->source->decoder, begin.coded);

    /* what lies before is not mapped on account of this reply */
    ctx->source->dropped = begin.coded;

    ctx->pos = begin.decoded;
}


static zmap_rc_e
ngx_http_zstd_mmap_decode_piece(ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b,
    size_t *work)
{
    zmap_rc_e                  rc;
    ngx_http_zstd_mmap_step_t  step;

    if (ctx->steps == NULL) {
        ngx_http_zstd_mmap_set_step(ctx, &step, b);

        rc = ngx_http_zstd_mmap_run_step(ctx->source, &step);

        return ngx_http_zstd_mmap_take_step(ctx, &step, rc, b, work);
    }

    if (!ctx->stepped) {
        return ngx_http_zstd_mmap_start_step(ctx, b);
    }

    ctx->stepped = 0;
    rc = ngx_http_zstd_mmap_take_outcome(ctx);

    return ngx_http_zstd_mmap_take_step(ctx, ctx->steps->data, rc, b, work);
}


static zmap_rc_e
ngx_http_zstd_mmap_start_step(ngx_http_zstd_mmap_ctx_t *ctx, ngx_buf_t *b)
{
    ngx_http_zstd_mmap_set_step(ctx, ctx->steps->data, b);

    ctx->pending = 1;
    ctx->steps->wanted = 1;

    ngx_http_zstd_mmap_start_job(ctx->steps, ngx_http_zstd_mmap_end_step);

    return ZMAP_AGAIN;
}


static zmap_rc_e
ngx_http_zstd_mmap_run_step_job(ngx_http_zstd_mmap_job_t *job)
{
    ngx_http_zstd_mmap_step_t  *step;

    step = job->data;
    step->rc = ngx_http_zstd_mmap_run_step(&job->input, step);

    /* a job is one step: the next one waits until the client took a piece */
    return ZMAP_OK;
}


static void
ngx_http_zstd_mmap_end_step(ngx_http_zstd_mmap_job_t *job)
{
    ngx_http_zstd_mmap_ctx_t   *ctx;
    ngx_http_zstd_mmap_step_t  *step;

    ctx = job->owner;
    step = job->data;

    if (ctx == NULL) {
        ngx_http_zstd_mmap_destroy_job(job);
        return;
    }

    ctx->outcome = step->rc;
    ctx->err = job->err;

    ctx->pending = 0;
    ctx->stepped = 1;

    ngx_http_zstd_mmap_continue_stream(ctx);
}


static void
ngx_http_zstd_mmap_set_step(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_step_t *step, ngx_buf_t *b)
{
    step->dst = b->start;
    step->room = ngx_http_zstd_mmap_step_room(ctx, b->end - b->start);
    step->pos = ctx->pos;
    step->size = ctx->size;

    step->rc = ZMAP_AGAIN;
    step->produced = 0;
    step->work = 0;
}


/*
 * A range needs nothing behind it; the end of a body needs room to be found,
 * since empty frames may follow.  The frame that the range ends in is decoded
 * to its end where there is room and most of it is wanted: libzstd then decodes
 * it right into the piece, and compares the checksum.
 */

static size_t
ngx_http_zstd_mmap_step_room(ngx_http_zstd_mmap_ctx_t *ctx, size_t room)
{
    uint64_t  end, wanted;

    if (ctx->end == -1 || ctx->end == ctx->size) {
        return room;
    }

    end = zmap_range_end(&ctx->file->walk.frames, ctx->end);

    wanted = ctx->end - ctx->pos;

    if (end - ctx->pos > room || end - ctx->end > wanted) {
        end = ctx->end;
    }

    return (size_t) ngx_min(end - ctx->pos, room);
}


static zmap_rc_e
ngx_http_zstd_mmap_run_step(ngx_http_zstd_mmap_input_t *input,
    ngx_http_zstd_mmap_step_t *step)
{
    uint64_t   consumed;
    zmap_rc_e  rc;

    consumed = zmap_decode_consumed(input->decoder);

    rc = ngx_http_zstd_mmap_decode_step(input, step->dst, step->room,
                                        &step->produced);

    if (rc == ZMAP_AGAIN && step->produced
        && step->pos + (off_t) step->produced == step->size)
    {
        rc = ngx_http_zstd_mmap_run_end(input, step);
    }

    /* empty blocks and frames cost time, too */
    consumed = zmap_decode_consumed(input->decoder) - consumed;
    step->work = ngx_max(step->produced, consumed);

    /* a reply that ends short of its length would have the client wait */

    if (rc == ZMAP_OK && step->size != -1
        && step->pos + (off_t) step->produced != step->size)
    {
        return ZMAP_CONTENT_SIZE;
    }

    return rc;
}


/*
 * The last bytes are no reply before the checksum behind them was compared; it
 * may lie behind what was read for them.
 */

static zmap_rc_e
ngx_http_zstd_mmap_run_end(ngx_http_zstd_mmap_input_t *input,
    ngx_http_zstd_mmap_step_t *step)
{
    u_char     spare;
    size_t     none;
    zmap_rc_e  rc;

    rc = ngx_http_zstd_mmap_decode_step(input, &spare, 1, &none);

    if (none && (rc == ZMAP_OK || rc == ZMAP_AGAIN)) {
        return ZMAP_CONTENT_SIZE;
    }

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_take_step(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_step_t *step, zmap_rc_e rc, ngx_buf_t *b,
    size_t *work)
{
    *work = step->work;

    ngx_http_zstd_mmap_judge(ctx->source, rc);

    if (rc != ZMAP_OK && rc != ZMAP_AGAIN) {
        return rc;
    }

    ngx_http_zstd_mmap_count_piece(ctx, step->produced);

    b->last = b->start + step->produced;
    b->memory = step->produced ? 1 : 0;
    b->recycled = b->memory;

    ctx->pos += step->produced;

    return ngx_http_zstd_mmap_end_decoded(ctx, rc);
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
    ngx_http_zstd_mmap_put_stream_decoder(ctx);
    ngx_http_zstd_mmap_show_worker(ctx->worker);

    return ZMAP_OK;
}
