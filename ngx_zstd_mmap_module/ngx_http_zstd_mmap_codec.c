
/*
 * Walk, one-shot decode, decode step; reads of a mapping are guarded.
 */


#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_file.h"
#include "ngx_http_zstd_mmap_input.h"
#include "ngx_http_zstd_mmap_stats.h"

#include "core/zmap_guard.h"


typedef struct {
    zmap_decoder_t  *decoder;
    zmap_piece_t     piece;
    u_char          *dst;
    size_t           size;
    size_t           produced;
} ngx_http_zstd_mmap_decode_job_t;


static zmap_rc_e ngx_http_zstd_mmap_run_walk(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_guard_pt job);
static zmap_rc_e ngx_http_zstd_mmap_walk_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_peek_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_run_body(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_body_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_body_by_pieces(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_http_zstd_mmap_decode_job_t *job);
static zmap_rc_e ngx_http_zstd_mmap_step_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_take_decoder(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_run(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_guard_pt job, void *data);
static zmap_rc_e ngx_http_zstd_mmap_guarded(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_guard_pt job, void *data);
static void ngx_http_zstd_mmap_recover(ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_judge(zmap_file_t *file, zmap_rc_e rc);


zmap_rc_e
ngx_http_zstd_mmap_walk(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e     rc;
    zmap_file_t  *file;

    file = ctx->file;

    if (file->verdict != ZMAP_AGAIN) {
        return file->verdict;
    }

    rc = ngx_http_zstd_mmap_run_walk(ctx, ngx_http_zstd_mmap_walk_job);

    if (rc == ZMAP_OK) {
        file->verdict = ZMAP_OK;
    }

    return rc;
}


zmap_rc_e
ngx_http_zstd_mmap_peek(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_file_t  *file;

    file = ctx->file;

    if (file->verdict != ZMAP_AGAIN) {
        return file->verdict;
    }

    if (file->walk.frames.frames) {
        return ZMAP_OK;
    }

    return ngx_http_zstd_mmap_run_walk(ctx, ngx_http_zstd_mmap_peek_job);
}


static zmap_rc_e
ngx_http_zstd_mmap_run_walk(ngx_http_zstd_mmap_ctx_t *ctx, zmap_guard_pt job)
{
    zmap_rc_e     rc;
    zmap_file_t  *file;

    file = ctx->file;

    rc = ngx_http_zstd_mmap_map(ctx);
    if (rc != ZMAP_OK) {
        return rc;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: walk at %uL of %uL",
                   file->walk.offset, file->walk.size);

    rc = ngx_http_zstd_mmap_guarded(ctx, job, file);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: walk rc:%d at %uL, frames:%uL content:%uL",
                   rc, file->walk.offset, file->walk.frames.frames,
                   file->walk.frames.content_size);

    ngx_http_zstd_mmap_judge(file, rc);

    ngx_http_zstd_mmap_count_huge(ctx);
    ngx_http_zstd_mmap_drop_pages(ctx, file->map.size);
    ctx->dropped = 0;

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_walk_job(void *data)
{
    zmap_file_t *file = data;

    return zmap_walk_run(&file->walk, file->map.data, 0);
}


static zmap_rc_e
ngx_http_zstd_mmap_peek_job(void *data)
{
    zmap_file_t *file = data;

    return zmap_walk_first(&file->walk, file->map.data);
}


zmap_rc_e
ngx_http_zstd_mmap_decode_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e  rc;

    ngx_http_zstd_mmap_take_segment(ctx);

    rc = ngx_http_zstd_mmap_take_decoder(ctx);
    if (rc != ZMAP_OK) {
        return rc;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: decode %uL bytes to %O",
                   ctx->file->version.size, ctx->size);

    ngx_http_zstd_mmap_count(decodes);

    rc = ngx_http_zstd_mmap_run_body(ctx);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: decode rc:%d", rc);

    ngx_http_zstd_mmap_put_decoder(ctx);

    ngx_http_zstd_mmap_judge(ctx->file, rc);

    ngx_http_zstd_mmap_drop_pages(ctx, ctx->file->map.size);

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_run_body(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e                        rc;
    ngx_http_zstd_mmap_decode_job_t  job;

    job.decoder = ctx->decoder;
    job.dst = ctx->body ? ctx->body->data : NULL;
    job.size = ctx->size;

    rc = ngx_http_zstd_mmap_get_piece(ctx, 0, &job.piece);
    if (rc != ZMAP_OK) {
        return rc;
    }

    if (job.piece.size < ctx->file->version.size) {
        return ngx_http_zstd_mmap_body_by_pieces(ctx, &job);
    }

    return ngx_http_zstd_mmap_run(ctx, ngx_http_zstd_mmap_body_job, &job);
}


static zmap_rc_e
ngx_http_zstd_mmap_body_job(void *data)
{
    ngx_http_zstd_mmap_decode_job_t *job = data;

    return zmap_decode_all(job->decoder, job->dst, job->size,
                           job->piece.data, job->piece.size);
}


/* the end of the last frame may lie behind the last byte of the body */

static zmap_rc_e
ngx_http_zstd_mmap_body_by_pieces(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_decode_job_t *job)
{
    u_char                          spare;
    size_t                          left;
    zmap_rc_e                       rc;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    rc = zmap_decode_begin(job->decoder, ctx->file->version.size,
                           zlcf->decode_window, 0);
    if (rc != ZMAP_OK) {
        return rc;
    }

    left = ctx->size;

    for ( ;; ) {

        job->size = left;

        if (left == 0) {
            job->dst = &spare;
            job->size = 1;
        }

        rc = ngx_http_zstd_mmap_run(ctx, ngx_http_zstd_mmap_step_job, job);

        if (rc != ZMAP_OK && rc != ZMAP_AGAIN) {
            return rc;
        }

        if (job->produced > left) {
            return ZMAP_CONTENT_SIZE;
        }

        left -= job->produced;
        job->dst += job->produced;

        if (rc == ZMAP_OK) {
            return left ? ZMAP_CONTENT_SIZE : ZMAP_OK;
        }

        rc = ngx_http_zstd_mmap_get_piece(ctx,
                                          zmap_decode_consumed(job->decoder),
                                          &job->piece);
        if (rc != ZMAP_OK) {
            return rc;
        }
    }
}


zmap_rc_e
ngx_http_zstd_mmap_decode_begin(ngx_http_zstd_mmap_ctx_t *ctx, uint64_t limit)
{
    zmap_rc_e                       rc;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    ngx_http_zstd_mmap_take_segment(ctx);

    rc = ngx_http_zstd_mmap_take_decoder(ctx);
    if (rc != ZMAP_OK) {
        return rc;
    }

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    ngx_http_zstd_mmap_count(decodes);

    return zmap_decode_begin(ctx->decoder, ctx->file->version.size,
                             zlcf->decode_window, limit);
}


zmap_rc_e
ngx_http_zstd_mmap_decode_step(ngx_http_zstd_mmap_ctx_t *ctx, u_char *dst,
    size_t size, size_t *produced)
{
    zmap_rc_e                        rc;
    ngx_http_zstd_mmap_decode_job_t  job;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: step in:%uL out:%uL",
                   zmap_decode_consumed(ctx->decoder),
                   zmap_decode_total(ctx->decoder));

    job.decoder = ctx->decoder;
    job.dst = dst;
    job.size = size;
    job.produced = 0;

    rc = ngx_http_zstd_mmap_get_piece(ctx, zmap_decode_consumed(ctx->decoder),
                                      &job.piece);
    if (rc == ZMAP_OK) {
        rc = ngx_http_zstd_mmap_run(ctx, ngx_http_zstd_mmap_step_job, &job);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: step rc:%d produced:%uz in:%uL",
                   rc, job.produced, zmap_decode_consumed(ctx->decoder));

    *produced = job.produced;

    ngx_http_zstd_mmap_drop_pages(ctx, zmap_decode_consumed(ctx->decoder));

    /* a reply that ends short of its length would have the client wait */

    if (rc == ZMAP_OK && ctx->size != -1
        && ctx->pos + job.produced != (uint64_t) ctx->size)
    {
        rc = ZMAP_CONTENT_SIZE;
    }

    ngx_http_zstd_mmap_judge(ctx->file, rc);

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_step_job(void *data)
{
    ngx_http_zstd_mmap_decode_job_t *job = data;

    return zmap_decode_step(job->decoder, &job->piece, job->dst, job->size,
                            &job->produced);
}


static zmap_rc_e
ngx_http_zstd_mmap_take_decoder(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ctx->decoder = zmap_decoder_get(ctx->worker->decoders);

    return ctx->decoder ? ZMAP_OK : ZMAP_NOMEM;
}


/* runs a decode job on what its source needs */

static zmap_rc_e
ngx_http_zstd_mmap_run(ngx_http_zstd_mmap_ctx_t *ctx, zmap_guard_pt job,
    void *data)
{
    zmap_rc_e  rc, check;

    switch (ngx_http_zstd_mmap_get_source(ctx)) {

    case NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED:
        /* memory of ours that was compared with the file when it was filled */
        return job(data);

    case NGX_HTTP_ZSTD_MMAP_SOURCE_MAP:
        return ngx_http_zstd_mmap_guarded(ctx, job, data);

    default:
        break;
    }

    rc = job(data);

    check = ngx_http_zstd_mmap_check_file(ctx);

    if (check != ZMAP_OK) {
        zmap_window_drop(&ctx->worker->window);
        return check;
    }

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_guarded(ngx_http_zstd_mmap_ctx_t *ctx, zmap_guard_pt job,
    void *data)
{
    zmap_rc_e    rc, check;
    zmap_map_t  *map;

    map = &ctx->file->map;

    rc = zmap_guard_call(map->data, map->size, job, data);

    if (rc == ZMAP_FAULT) {
        ngx_http_zstd_mmap_count(bus_errors);
        ngx_http_zstd_mmap_recover(ctx);
    }

    check = ngx_http_zstd_mmap_check_file(ctx);

    return (check == ZMAP_OK) ? rc : check;
}


/* the jump may have left either between two of its updates */

static void
ngx_http_zstd_mmap_recover(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_file_t  *file;

    file = ctx->file;

    if (ctx->decoder) {
        zmap_decoder_reset(ctx->decoder);
        return;
    }

    zmap_walk_free(&file->walk);
    zmap_walk_init(&file->walk, file->version.size);
}


/* only what the bytes of the version themselves say is kept */

static void
ngx_http_zstd_mmap_judge(zmap_file_t *file, zmap_rc_e rc)
{
    if (rc >= ZMAP_EMPTY && rc != ZMAP_WINDOW && rc != ZMAP_DICTIONARY) {
        ngx_http_zstd_mmap_count(verify_failures);
        file->verdict = rc;
    }
}
