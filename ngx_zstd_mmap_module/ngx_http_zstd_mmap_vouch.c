
/*
 * Walks and verifies a file version, once for all requests of it.
 */


#include "ngx_http_zstd_mmap_vouch.h"
#include "ngx_http_zstd_mmap_codec.h"
#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_verdict.h"
#include "ngx_http_zstd_mmap_wait.h"


/* what a turn of the event loop may spend on a walk, msec */
#define NGX_HTTP_ZSTD_MMAP_WALK_TURN  2

/* what a thread walks between two looks whether it is still wanted, msec */
#define NGX_HTTP_ZSTD_MMAP_WALK_LOOK  100

/* between two looks at what another worker does, msec */
#define NGX_HTTP_ZSTD_MMAP_LOOK       20

/* a piece of a body that is decoded for its checksums only */
#define NGX_HTTP_ZSTD_MMAP_PROBE      (256 * 1024)


/* what a verification has to find; the file may be walked anew meanwhile */

typedef struct {
    u_char    *data;               /* NGX_HTTP_ZSTD_MMAP_PROBE bytes */
    uint64_t   size;               /* of the body, if sized */
    unsigned   sized:1;
} ngx_http_zstd_mmap_probe_t;


static zmap_rc_e ngx_http_zstd_mmap_find_verdict(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_http_zstd_mmap_job_t **job);
static void ngx_http_zstd_mmap_forget_told(zmap_file_t *file);
static zmap_rc_e ngx_http_zstd_mmap_walk_turn(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_start_vouching(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_http_zstd_mmap_job_t *job);
static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_create_walk(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_run_walk_job(
    ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_end_walk(ngx_http_zstd_mmap_job_t *job);
static zmap_rc_e ngx_http_zstd_mmap_check_window(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_uint_t ngx_http_zstd_mmap_has_window_room(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_verify(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job);
static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_create_look(
    ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_run_look(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_end_look(ngx_http_zstd_mmap_job_t *job);
static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_create_probe(
    ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_open_probe(ngx_http_zstd_mmap_job_t *job,
    ngx_uint_t tabled);
static zmap_rc_e ngx_http_zstd_mmap_run_probe(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_end_probe(ngx_http_zstd_mmap_job_t *job);


zmap_rc_e
ngx_http_zstd_mmap_vouch_frames(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_uint_t indexed, ngx_http_zstd_mmap_job_t **job)
{
    zmap_rc_e     rc;
    zmap_file_t  *file;

    file = ctx->file;

    rc = ngx_http_zstd_mmap_find_verdict(ctx, job);

    if (file->told && indexed
        && (file->walk.frames.frames > 1 || file->walk.frames.tabled))
    {
        ngx_http_zstd_mmap_forget_told(file);
        rc = ZMAP_AGAIN;
    }

    if (rc != ZMAP_AGAIN || *job) {
        return rc;
    }

    rc = ngx_http_zstd_mmap_map(&ctx->input);

    if (rc == ZMAP_OK) {
        rc = ngx_http_zstd_mmap_walk_turn(ctx);
    }

    if (rc != ZMAP_AGAIN) {
        return rc;
    }

    *job = ngx_http_zstd_mmap_create_walk(ctx);

    return ngx_http_zstd_mmap_start_vouching(ctx, *job);
}


/* ZMAP_AGAIN: not known, or *job is finding out; nobody else may walk then */

static zmap_rc_e
ngx_http_zstd_mmap_find_verdict(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job)
{
    zmap_file_t  *file;

    file = ctx->file;
    *job = NULL;

    if (file->verdict != ZMAP_AGAIN) {
        return file->verdict;
    }

    *job = ngx_http_zstd_mmap_find_file_job(file,
                                            ngx_http_zstd_mmap_run_walk_job);

    if (*job == NULL && file->walk.offset == 0) {
        ngx_http_zstd_mmap_ask_others(&ctx->input);
    }

    return file->verdict;
}


/* the index is the worker's own: it has to walk the file for it */

static void
ngx_http_zstd_mmap_forget_told(zmap_file_t *file)
{
    zmap_walk_init(&file->walk, file->version.size);

    file->verdict = ZMAP_AGAIN;
    file->told = 0;
}


/* the work is done at once for a request that cannot wait */

static zmap_rc_e
ngx_http_zstd_mmap_start_vouching(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t *job)
{
    zmap_rc_e  rc;

    if (job == NULL) {
        return ZMAP_NOMEM;
    }

    if (ngx_http_zstd_mmap_can_wait(ctx->request)) {
        ngx_http_zstd_mmap_share_job(job);
        return ZMAP_AGAIN;
    }

    rc = ngx_http_zstd_mmap_finish_job(job);

    ngx_http_zstd_mmap_destroy_job(job);

    return rc;
}


/* where there are threads, no page of a large file is waited for here */

static zmap_rc_e
ngx_http_zstd_mmap_walk_turn(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e  rc;

    if (ngx_http_zstd_mmap_has_threads(ctx->input.conf,
                                       ctx->file->version.size))
    {
        return ZMAP_AGAIN;
    }

    rc = ngx_http_zstd_mmap_walk(&ctx->input, NGX_HTTP_ZSTD_MMAP_WALK_TURN);

    ctx->input.dropped = 0;

    ngx_http_zstd_mmap_judge_walk(&ctx->input, rc);

    return rc;
}


static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_create_walk(ngx_http_zstd_mmap_ctx_t *ctx)
{
    return ngx_http_zstd_mmap_create_job(&ctx->input,
                                         ctx->file->version.size,
                                         ngx_http_zstd_mmap_run_walk_job,
                                         ngx_http_zstd_mmap_end_walk);
}


static zmap_rc_e
ngx_http_zstd_mmap_run_walk_job(ngx_http_zstd_mmap_job_t *job)
{
    ngx_msec_t  msec;

    msec = job->threaded ? NGX_HTTP_ZSTD_MMAP_WALK_LOOK
                         : NGX_HTTP_ZSTD_MMAP_WALK_TURN;

    return ngx_http_zstd_mmap_walk(&job->input, msec);
}


static void
ngx_http_zstd_mmap_end_walk(ngx_http_zstd_mmap_job_t *job)
{
    ngx_http_zstd_mmap_judge_walk(&job->input, job->rc);
}


zmap_rc_e
ngx_http_zstd_mmap_vouch_header(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job)
{
    zmap_rc_e  rc;

    rc = ngx_http_zstd_mmap_find_verdict(ctx, job);

    if (rc != ZMAP_AGAIN || *job) {
        return rc;
    }

    rc = ngx_http_zstd_mmap_map(&ctx->input);

    if (rc == ZMAP_OK) {
        rc = ngx_http_zstd_mmap_peek(&ctx->input);
    }

    ngx_http_zstd_mmap_judge(&ctx->input, rc);

    return rc;
}


zmap_rc_e
ngx_http_zstd_mmap_vouch_content(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job)
{
    zmap_rc_e            rc;
    zmap_file_t         *file;
    ngx_http_request_t  *r;

    r = ctx->request;
    file = ctx->file;

    if (ctx->input.conf->verify != NGX_HTTP_ZSTD_MMAP_VERIFY_CHECKSUM
        || file->verified)
    {
        return ZMAP_OK;
    }

    rc = ngx_http_zstd_mmap_check_window(ctx);
    if (rc != ZMAP_OK) {
        return rc;
    }

    if (r->method == NGX_HTTP_HEAD || r->header_only) {
        /* no byte of a body is sent for these */
        return ZMAP_OK;
    }

    *job = ngx_http_zstd_mmap_find_file_job(file,
                                            ngx_http_zstd_mmap_run_probe);
    if (*job) {
        return ZMAP_AGAIN;
    }

    return ngx_http_zstd_mmap_verify(ctx, job);
}


static zmap_rc_e
ngx_http_zstd_mmap_check_window(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                         window;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    window = ctx->file->walk.frames.window;
    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);

    if (window > (uint64_t) ctx->input.conf->decode_window
        || window > (uint64_t) zmcf->streams)
    {
        return ZMAP_WINDOW;
    }

    return ZMAP_OK;
}


/* one worker does it for all */

static zmap_rc_e
ngx_http_zstd_mmap_verify(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job)
{
    zmap_file_t                 *file;
    ngx_http_zstd_mmap_input_t  *input;

    file = ctx->file;
    input = &ctx->input;

    ngx_http_zstd_mmap_ask_others(input);

    if (file->verified || file->verdict != ZMAP_OK) {
        return file->verdict;
    }

    *job = ngx_http_zstd_mmap_find_file_job(file, ngx_http_zstd_mmap_run_look);
    if (*job) {
        return ZMAP_AGAIN;
    }

    if (ngx_http_zstd_mmap_claim(input) == NGX_BUSY
        && ngx_http_zstd_mmap_can_wait(ctx->request))
    {
        *job = ngx_http_zstd_mmap_create_look(ctx);

        return ngx_http_zstd_mmap_start_vouching(ctx, *job);
    }

    if (!ngx_http_zstd_mmap_has_window_room(ctx)) {
        ngx_http_zstd_mmap_release_claim(input);
        return ZMAP_AGAIN;
    }

    *job = ngx_http_zstd_mmap_create_probe(ctx);

    if (*job == NULL) {
        ngx_http_zstd_mmap_release_claim(input);
    }

    return ngx_http_zstd_mmap_start_vouching(ctx, *job);
}


static ngx_uint_t
ngx_http_zstd_mmap_has_window_room(ngx_http_zstd_mmap_ctx_t *ctx)
{
    uint64_t                         used;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    used = ctx->worker->streams;
    zmcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_zstd_mmap_module);

    return used <= (uint64_t) zmcf->streams
           && ctx->file->walk.frames.window <= zmcf->streams - used;
}


/* looks now and then whether the other worker has ended */

static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_create_look(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_job_t  *job;

    job = ngx_http_zstd_mmap_create_job(&ctx->input, 0,
                                        ngx_http_zstd_mmap_run_look,
                                        ngx_http_zstd_mmap_end_look);
    if (job) {
        job->task = NULL;
        job->delay = NGX_HTTP_ZSTD_MMAP_LOOK;
    }

    return job;
}


static zmap_rc_e
ngx_http_zstd_mmap_run_look(ngx_http_zstd_mmap_job_t *job)
{
    zmap_file_t                 *file;
    ngx_http_zstd_mmap_input_t  *input;

    input = &job->input;
    file = input->file;

    if (file->verdict == ZMAP_AGAIN) {
        /* it is walked anew, maybe in a thread: that is waited for */
        return ZMAP_OK;
    }

    ngx_http_zstd_mmap_ask_others(input);

    if (file->verified || file->verdict != ZMAP_OK) {
        return file->verdict;
    }

    if (ngx_http_zstd_mmap_claim(input) == NGX_BUSY) {
        return ZMAP_AGAIN;
    }

    /* the other one gave it up: who is waked first claims it again */

    ngx_http_zstd_mmap_release_claim(input);

    return ZMAP_OK;
}


static void
ngx_http_zstd_mmap_end_look(ngx_http_zstd_mmap_job_t *job)
{
    /* void */
}


static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_create_probe(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_job_t  *job;

    ngx_http_zstd_mmap_take_segment(ctx->request, &ctx->input);

    job = ngx_http_zstd_mmap_create_job(&ctx->input,
                                ngx_max(ctx->file->version.size,
                                        ctx->file->walk.frames.content_size),
                                ngx_http_zstd_mmap_run_probe,
                                ngx_http_zstd_mmap_end_probe);
    if (job == NULL) {
        return NULL;
    }

    if (ngx_http_zstd_mmap_open_probe(job, !ctx->untabled) != NGX_OK) {
        ngx_http_zstd_mmap_destroy_job(job);
        return NULL;
    }

    return job;
}


/* tabled: the request has not found, in another object, that the table lies */

static ngx_int_t
ngx_http_zstd_mmap_open_probe(ngx_http_zstd_mmap_job_t *job,
    ngx_uint_t tabled)
{
    zmap_frames_t               *frames;
    ngx_http_zstd_mmap_probe_t  *probe;

    frames = &job->input.file->walk.frames;

    /* others found out about the frames, but have the index */
    job->input.tabled = tabled && frames->tabled && !job->input.file->told;

    job->charged = frames->window;
    job->input.worker->streams += job->charged;

    probe = ngx_palloc(job->pool, sizeof(ngx_http_zstd_mmap_probe_t));
    if (probe == NULL) {
        return NGX_ERROR;
    }

    probe->data = ngx_palloc(job->pool, NGX_HTTP_ZSTD_MMAP_PROBE);
    probe->size = frames->content_size;
    probe->sized = frames->sized;

    job->data = probe;

    if (probe->data == NULL
        || ngx_http_zstd_mmap_take_decoder(&job->input) != ZMAP_OK
        || ngx_http_zstd_mmap_decode_begin(&job->input,
                                           probe->sized ? probe->size : 0)
           != ZMAP_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static zmap_rc_e
ngx_http_zstd_mmap_run_probe(ngx_http_zstd_mmap_job_t *job)
{
    size_t                       produced;
    zmap_rc_e                    rc;
    ngx_http_zstd_mmap_probe_t  *probe;

    probe = job->data;

    rc = ngx_http_zstd_mmap_decode_step(&job->input, probe->data,
                                        NGX_HTTP_ZSTD_MMAP_PROBE, &produced);

    ngx_http_zstd_mmap_count_bytes(decoded_produced, produced);

    /* libzstd finds frames that are short of what they say, but for some */

    if (rc == ZMAP_OK && probe->sized
        && zmap_decode_total(job->input.decoder) != probe->size)
    {
        return ZMAP_CONTENT_SIZE;
    }

    return rc;
}


static void
ngx_http_zstd_mmap_end_probe(ngx_http_zstd_mmap_job_t *job)
{
    zmap_file_t                 *file;
    ngx_http_zstd_mmap_probe_t  *probe;

    file = job->input.file;
    probe = job->data;

    ngx_http_zstd_mmap_judge_content(&job->input, job->rc);
    ngx_http_zstd_mmap_release_claim(&job->input);

    if (job->rc == ZMAP_OK && !probe->sized) {
        file->learnt = zmap_decode_total(job->input.decoder);
        file->has_learnt = 1;
    }
}
