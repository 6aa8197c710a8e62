
/*
 * Guarded reads of a mapping: walk, one-shot decode, decode step.
 */


#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_file.h"
#include "ngx_http_zstd_mmap_input.h"
#include "ngx_http_zstd_mmap_stats.h"

#include "core/zmap_guard.h"


typedef struct {
    zmap_decoder_t  *decoder;
    zmap_piece_t     src;
    u_char          *dst;
    size_t           size;
    size_t           produced;
} ngx_http_zstd_mmap_decode_job_t;


static zmap_rc_e ngx_http_zstd_mmap_run_walk(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_guard_pt job);
static zmap_rc_e ngx_http_zstd_mmap_walk_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_peek_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_body_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_step_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_map(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_take_decoder(
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_set_source(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_decode_job_t *job);
static zmap_rc_e ngx_http_zstd_mmap_guarded(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_guard_pt job, void *data);
static void ngx_http_zstd_mmap_recover(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_check(ngx_http_zstd_mmap_ctx_t *ctx);
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
    zmap_rc_e                        rc;
    ngx_http_zstd_mmap_decode_job_t  job;

    ngx_http_zstd_mmap_take_segment(ctx);

    rc = ngx_http_zstd_mmap_take_decoder(ctx);
    if (rc != ZMAP_OK) {
        return rc;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: decode %uL bytes to %O",
                   ctx->file->version.size, ctx->size);

    ngx_http_zstd_mmap_count(decodes);

    ngx_http_zstd_mmap_set_source(ctx, &job);

    job.dst = ctx->body ? ctx->body->data : NULL;
    job.size = ctx->size;

    rc = ngx_http_zstd_mmap_guarded(ctx, ngx_http_zstd_mmap_body_job, &job);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: decode rc:%d", rc);

    zmap_decoder_put(ctx->worker->decoders, ctx->decoder);
    ctx->decoder = NULL;

    ngx_http_zstd_mmap_judge(ctx->file, rc);

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_body_job(void *data)
{
    ngx_http_zstd_mmap_decode_job_t *job = data;

    return zmap_decode_all(job->decoder, job->dst, job->size,
                           job->src.data, job->src.size);
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

    ngx_http_zstd_mmap_set_source(ctx, &job);

    job.dst = dst;
    job.size = size;
    job.produced = 0;

    rc = ngx_http_zstd_mmap_guarded(ctx, ngx_http_zstd_mmap_step_job, &job);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: step rc:%d produced:%uz in:%uL",
                   rc, job.produced, zmap_decode_consumed(ctx->decoder));

    *produced = job.produced;

    /* libzstd lets a frame end short of its content size at an empty block */

    if (rc == ZMAP_OK && ctx->size != -1
        && zmap_decode_total(ctx->decoder) != (uint64_t) ctx->size)
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

    return zmap_decode_step(job->decoder, &job->src, job->dst, job->size,
                            &job->produced);
}


static zmap_rc_e
ngx_http_zstd_mmap_map(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_map_t  *map;

    map = &ctx->file->map;

    if (map->kind != ZMAP_MAP_NONE) {
        return ZMAP_OK;
    }

    return zmap_map_open(map, ctx->of.fd, ctx->file->version.size,
                         ZMAP_ADVICE_NONE);
}


static zmap_rc_e
ngx_http_zstd_mmap_take_decoder(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ctx->decoder = zmap_decoder_get(ctx->worker->decoders);

    return ctx->decoder ? ZMAP_OK : ZMAP_NOMEM;
}


static void
ngx_http_zstd_mmap_set_source(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_decode_job_t *job)
{
    job->decoder = ctx->decoder;
    job->src.offset = 0;

    if (ctx->segment.data) {
        job->src.data = ctx->segment.data;
        job->src.size = ctx->segment.size;

    } else {
        job->src.data = ctx->file->map.data;
        job->src.size = ctx->file->map.size;
    }
}


static zmap_rc_e
ngx_http_zstd_mmap_guarded(ngx_http_zstd_mmap_ctx_t *ctx, zmap_guard_pt job,
    void *data)
{
    zmap_rc_e    rc, check;
    zmap_map_t  *map;

    if (ctx->segment.data) {
        /* memory of ours that was compared with the file when it was filled */
        return job(data);
    }

    map = &ctx->file->map;

    rc = zmap_guard_call(map->data, map->size, job, data);

    if (rc == ZMAP_FAULT) {
        ngx_http_zstd_mmap_count(bus_errors);
        ngx_http_zstd_mmap_recover(ctx);
    }

    check = ngx_http_zstd_mmap_check(ctx);

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


static zmap_rc_e
ngx_http_zstd_mmap_check(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e     rc;
    zmap_file_t  *file;

    file = ctx->file;

    rc = zmap_version_check(&file->version, ctx->of.fd);

    if (rc == ZMAP_TOUCHED) {

        /*
         * Content_Checksum tells better than a ctime whether bytes changed,
         * but only of a body that is one frame: several frames may each be
         * right and of two versions.
         */

        if (file->verdict == ZMAP_OK && file->walk.frames.checksum
            && file->walk.frames.frames == 1)
        {
            return ZMAP_OK;
        }

        rc = ZMAP_CHANGED;
    }

    if (rc == ZMAP_CHANGED) {
        ngx_http_zstd_mmap_forget_file(ctx);
    }

    return rc;
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
