
/*
 * Walk, one-shot decode, decode step; reads of a mapping are guarded.
 */


#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_stats.h"

#include "core/zmap_guard.h"

#include <time.h>


/* blocks between two looks at the clock: each may be a page read from a disk */
#define NGX_HTTP_ZSTD_MMAP_WALK_BLOCKS  16


typedef struct {
    zmap_file_t  *file;
    uint64_t      until;       /* nanoseconds; 0: to the end */
} ngx_http_zstd_mmap_walk_job_t;


typedef struct {
    zmap_decoder_t  *decoder;
    zmap_piece_t     piece;
    zmap_frames_t   *frames;     /* to follow, or NULL */
    u_char          *dst;
    size_t           size;
    size_t           produced;
} ngx_http_zstd_mmap_decode_job_t;


static zmap_rc_e ngx_http_zstd_mmap_run_walk(
    ngx_http_zstd_mmap_input_t *input, zmap_guard_pt job, void *data);
static zmap_rc_e ngx_http_zstd_mmap_walk_job(void *data);
static uint64_t ngx_http_zstd_mmap_nanoseconds(void);
static zmap_rc_e ngx_http_zstd_mmap_peek_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_run_body(
    ngx_http_zstd_mmap_input_t *input, ngx_http_zstd_mmap_decode_job_t *job);
static zmap_rc_e ngx_http_zstd_mmap_body_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_body_by_pieces(
    ngx_http_zstd_mmap_input_t *input, ngx_http_zstd_mmap_decode_job_t *job);
static zmap_rc_e ngx_http_zstd_mmap_step_job(void *data);
static zmap_rc_e ngx_http_zstd_mmap_run(ngx_http_zstd_mmap_input_t *input,
    zmap_guard_pt job, void *data);
static zmap_rc_e ngx_http_zstd_mmap_guarded(ngx_http_zstd_mmap_input_t *input,
    zmap_guard_pt job, void *data);
static void ngx_http_zstd_mmap_recover(ngx_http_zstd_mmap_input_t *input);


zmap_rc_e
ngx_http_zstd_mmap_walk(ngx_http_zstd_mmap_input_t *input, ngx_msec_t msec)
{
    ngx_http_zstd_mmap_walk_job_t  job;

    job.file = input->file;
    job.until = 0;

    if (msec) {
        job.until = ngx_http_zstd_mmap_nanoseconds()
                    + (uint64_t) msec * 1000000;
    }

    return ngx_http_zstd_mmap_run_walk(input, ngx_http_zstd_mmap_walk_job,
                                       &job);
}


zmap_rc_e
ngx_http_zstd_mmap_peek(ngx_http_zstd_mmap_input_t *input)
{
    if (input->file->walk.frames.frames) {
        return ZMAP_OK;
    }

    return ngx_http_zstd_mmap_run_walk(input, ngx_http_zstd_mmap_peek_job,
                                       input->file);
}


static zmap_rc_e
ngx_http_zstd_mmap_run_walk(ngx_http_zstd_mmap_input_t *input,
    zmap_guard_pt job, void *data)
{
    zmap_rc_e     rc;
    zmap_walk_t  *walk;

    walk = &input->file->walk;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: walk at %uL of %uL",
                   walk->offset, walk->size);

    rc = ngx_http_zstd_mmap_guarded(input, job, data);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: walk rc:%d at %uL, frames:%uL content:%uL",
                   rc, walk->offset, walk->frames.frames,
                   walk->frames.content_size);

    if (rc == ZMAP_AGAIN) {
        ngx_http_zstd_mmap_drop_pages(input, walk->offset);
        return rc;
    }

    ngx_http_zstd_mmap_count_huge(input);
    ngx_http_zstd_mmap_drop_pages(input, input->file->map.size);
    input->dropped = 0;

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_walk_job(void *data)
{
    ngx_http_zstd_mmap_walk_job_t *job = data;

    zmap_rc_e     rc;
    zmap_file_t  *file;

    file = job->file;

    if (job->until == 0) {
        return zmap_walk_run(&file->walk, file->map.data, 0);
    }

    do {
        rc = zmap_walk_run(&file->walk, file->map.data,
                           NGX_HTTP_ZSTD_MMAP_WALK_BLOCKS);

    } while (rc == ZMAP_AGAIN && ngx_http_zstd_mmap_nanoseconds() < job->until);

    return rc;
}


/* nginx's own time stands still within a turn of the event loop */

static uint64_t
ngx_http_zstd_mmap_nanoseconds(void)
{
    struct timespec  ts;

    if (clock_gettime(CLOCK_MONOTONIC, &ts) == -1) {
        return 0;
    }

    return (uint64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}


static zmap_rc_e
ngx_http_zstd_mmap_peek_job(void *data)
{
    zmap_file_t *file = data;

    return zmap_walk_first(&file->walk, file->map.data);
}


zmap_rc_e
ngx_http_zstd_mmap_decode_body(ngx_http_zstd_mmap_input_t *input, u_char *dst,
    size_t size)
{
    zmap_rc_e                        rc;
    ngx_http_zstd_mmap_decode_job_t  job;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: decode %uL bytes to %uz",
                   input->file->version.size, size);

    ngx_http_zstd_mmap_count(decodes);

    job.decoder = input->decoder;
    job.frames = input->tabled ? &input->file->walk.frames : NULL;
    job.dst = dst;
    job.size = size;

    input->whole = 1;
    rc = ngx_http_zstd_mmap_run_body(input, &job);
    input->whole = 0;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: decode rc:%d", rc);

    ngx_http_zstd_mmap_drop_pages(input, input->file->map.size);

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_run_body(ngx_http_zstd_mmap_input_t *input,
    ngx_http_zstd_mmap_decode_job_t *job)
{
    zmap_rc_e  rc;

    rc = ngx_http_zstd_mmap_get_piece(input, 0, &job->piece);
    if (rc != ZMAP_OK) {
        return rc;
    }

    if (job->piece.size < input->file->version.size) {
        return ngx_http_zstd_mmap_body_by_pieces(input, job);
    }

    return ngx_http_zstd_mmap_run(input, ngx_http_zstd_mmap_body_job, job);
}


static zmap_rc_e
ngx_http_zstd_mmap_body_job(void *data)
{
    ngx_http_zstd_mmap_decode_job_t *job = data;

    return zmap_decode_all(job->decoder, job->dst, job->size,
                           job->piece.data, job->piece.size, job->frames);
}


/* the end of the last frame may lie behind the last byte of the body */

static zmap_rc_e
ngx_http_zstd_mmap_body_by_pieces(ngx_http_zstd_mmap_input_t *input,
    ngx_http_zstd_mmap_decode_job_t *job)
{
    u_char     spare;
    size_t     left;
    zmap_rc_e  rc;

    rc = zmap_decode_begin(job->decoder, input->file->version.size,
                           input->conf->decode_window, 0);
    if (rc != ZMAP_OK) {
        return rc;
    }

    zmap_decode_follow(job->decoder, job->frames);

    left = job->size;

    for ( ;; ) {

        job->size = left;

        if (left == 0) {
            job->dst = &spare;
            job->size = 1;
        }

        rc = ngx_http_zstd_mmap_run(input, ngx_http_zstd_mmap_step_job, job);

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

        rc = ngx_http_zstd_mmap_get_piece(input,
                                          zmap_decode_consumed(job->decoder),
                                          &job->piece);
        if (rc != ZMAP_OK) {
            return rc;
        }
    }
}


zmap_rc_e
ngx_http_zstd_mmap_decode_begin(ngx_http_zstd_mmap_input_t *input,
    uint64_t limit)
{
    zmap_rc_e  rc;

    ngx_http_zstd_mmap_count(decodes);

    rc = zmap_decode_begin(input->decoder, input->file->version.size,
                           input->conf->decode_window, limit);

    if (rc == ZMAP_OK && input->tabled) {
        zmap_decode_follow(input->decoder, &input->file->walk.frames);
    }

    return rc;
}


zmap_rc_e
ngx_http_zstd_mmap_decode_step(ngx_http_zstd_mmap_input_t *input, u_char *dst,
    size_t size, size_t *produced)
{
    zmap_rc_e                        rc;
    ngx_http_zstd_mmap_decode_job_t  job;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: step in:%uL out:%uL",
                   zmap_decode_consumed(input->decoder),
                   zmap_decode_total(input->decoder));

    job.decoder = input->decoder;
    job.dst = dst;
    job.size = size;
    job.produced = 0;

    rc = ngx_http_zstd_mmap_get_piece(input,
                                      zmap_decode_consumed(input->decoder),
                                      &job.piece);
    if (rc == ZMAP_OK) {
        rc = ngx_http_zstd_mmap_run(input, ngx_http_zstd_mmap_step_job, &job);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: step rc:%d produced:%uz in:%uL",
                   rc, job.produced, zmap_decode_consumed(input->decoder));

    *produced = job.produced;

    ngx_http_zstd_mmap_drop_pages(input,
                                  zmap_decode_consumed(input->decoder));

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_step_job(void *data)
{
    ngx_http_zstd_mmap_decode_job_t *job = data;

    return zmap_decode_step(job->decoder, &job->piece, job->dst, job->size,
                            &job->produced);
}


/* runs a decode job on what its source needs */

static zmap_rc_e
ngx_http_zstd_mmap_run(ngx_http_zstd_mmap_input_t *input, zmap_guard_pt job,
    void *data)
{
    zmap_rc_e  rc, check;

    switch (ngx_http_zstd_mmap_get_source(input)) {

    case NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED:
        /* memory of ours that was compared with the file when it was filled */
        return job(data);

    case NGX_HTTP_ZSTD_MMAP_SOURCE_MAP:
        return ngx_http_zstd_mmap_guarded(input, job, data);

    default:
        break;
    }

    rc = job(data);

    check = ngx_http_zstd_mmap_check_file(input);

    if (check != ZMAP_OK) {
        zmap_window_drop(input->window ? input->window
                                       : &input->worker->window);
        return check;
    }

    return rc;
}


static zmap_rc_e
ngx_http_zstd_mmap_guarded(ngx_http_zstd_mmap_input_t *input,
    zmap_guard_pt job, void *data)
{
    zmap_rc_e    rc, check;
    zmap_map_t  *map;

    map = &input->file->map;

    rc = zmap_guard_call(map->data, map->size, job, data);

    if (rc == ZMAP_FAULT) {
        ngx_http_zstd_mmap_count(bus_errors);
        ngx_http_zstd_mmap_recover(input);
    }

    check = ngx_http_zstd_mmap_check_file(input);

    return (check == ZMAP_OK) ? rc : check;
}


/* the jump may have left either between two of its updates */

static void
ngx_http_zstd_mmap_recover(ngx_http_zstd_mmap_input_t *input)
{
    zmap_file_t  *file;

    file = input->file;

    if (input->decoder) {
        zmap_decoder_reset(input->decoder);
        return;
    }

    zmap_walk_free(&file->walk);
    zmap_walk_init(&file->walk, file->version.size);
}
