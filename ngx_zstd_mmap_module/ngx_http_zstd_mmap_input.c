
/*
 * Chooses between the staged copy of a file, its mapping, and reads.
 */


#include "ngx_http_zstd_mmap_input.h"
#include "ngx_http_zstd_mmap_file.h"
#include "ngx_http_zstd_mmap_stats.h"


/* what zstd_mmap_input read asks for at a time */
#define NGX_HTTP_ZSTD_MMAP_READ  (64 * 1024)

/* what a large file may have mapped behind the decoder, bytes */
#define NGX_HTTP_ZSTD_MMAP_BEHIND  (4 * 1024 * 1024)


static zmap_rc_e ngx_http_zstd_mmap_read_piece(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t offset, zmap_piece_t *piece);
static size_t ngx_http_zstd_mmap_want(ngx_http_zstd_mmap_ctx_t *ctx);
static zmap_rc_e ngx_http_zstd_mmap_fill_window(
    ngx_http_zstd_mmap_ctx_t *ctx, zmap_window_t *window, uint64_t offset,
    size_t want, zmap_piece_t *piece);
static ngx_uint_t ngx_http_zstd_mmap_match_uri(ngx_http_request_t *r,
    ngx_http_zstd_mmap_stage_t *stage);


void
ngx_http_zstd_mmap_take_segment(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_log_t                      *log;
    ngx_int_t                       rc;
    ngx_http_zstd_mmap_stage_t     *stage;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);
    stage = zlcf->stage;

    if (ctx->segment.data || stage == NULL || stage->zone == NULL
        || ctx->file->version.size > (uint64_t) stage->max
        || !ngx_http_zstd_mmap_match_uri(ctx->request, stage))
    {
        return;
    }

    log = ctx->request->connection->log;

    rc = ngx_http_zstd_mmap_find_segment(stage->zone, &ctx->file->version,
                                         stage->min_uses, &ctx->segment, log);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: find segment rc:%i %p", rc, ctx->segment.data);

    if (rc != NGX_AGAIN) {
        return;
    }

    rc = ngx_http_zstd_mmap_fill_segment(stage->zone, &ctx->file->version,
                                         ctx->of.fd, &ctx->segment, log);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: fill segment rc:%i %p", rc, ctx->segment.data);
}


static ngx_uint_t
ngx_http_zstd_mmap_match_uri(ngx_http_request_t *r,
    ngx_http_zstd_mmap_stage_t *stage)
{
#if (NGX_PCRE)
    ngx_int_t  n;

    if (stage->regex == NULL) {
        return 1;
    }

    n = ngx_regex_exec(stage->regex, &r->uri, NULL, 0);

    if (n < NGX_REGEX_NO_MATCHED) {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                      ngx_regex_exec_n " failed: %i on \"%V\" using the regex "
                      "of \"zstd_mmap_stage\"", n, &r->uri);
        return 0;
    }

    return n != NGX_REGEX_NO_MATCHED;
#else
    return 1;
#endif
}


zmap_rc_e
ngx_http_zstd_mmap_map(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_rc_e                       rc;
    zmap_map_t                     *map;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    static const zmap_advice_e  advices[] = {
        ZMAP_ADVICE_NONE,              /* auto: none was found to help */
        ZMAP_ADVICE_NONE,
        ZMAP_ADVICE_SEQUENTIAL,
        ZMAP_ADVICE_WILLNEED,
        ZMAP_ADVICE_HUGEPAGE
    };

    map = &ctx->file->map;

    if (map->kind != ZMAP_MAP_NONE) {
        return ZMAP_OK;
    }

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    rc = zmap_map_open(map, ctx->of.fd, ctx->file->version.size,
                       advices[zlcf->advise]);

    if (rc == ZMAP_CHANGED) {
        ngx_http_zstd_mmap_forget_file(ctx);
    }

    return rc;
}


ngx_http_zstd_mmap_source_e
ngx_http_zstd_mmap_get_source(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    if (ctx->segment.data) {
        return NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED;
    }

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    return (zlcf->input == NGX_HTTP_ZSTD_MMAP_INPUT_MAP)
           ? NGX_HTTP_ZSTD_MMAP_SOURCE_MAP
           : NGX_HTTP_ZSTD_MMAP_SOURCE_READ;
}


zmap_rc_e
ngx_http_zstd_mmap_get_piece(ngx_http_zstd_mmap_ctx_t *ctx, uint64_t offset,
    zmap_piece_t *piece)
{
    zmap_rc_e  rc;

    switch (ngx_http_zstd_mmap_get_source(ctx)) {

    case NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED:
        piece->data = ctx->segment.data;
        piece->size = ctx->segment.size;
        break;

    case NGX_HTTP_ZSTD_MMAP_SOURCE_MAP:

        rc = ngx_http_zstd_mmap_map(ctx);
        if (rc != ZMAP_OK) {
            return rc;
        }

        piece->data = ctx->file->map.data;
        piece->size = ctx->file->map.size;
        break;

    default:
        return ngx_http_zstd_mmap_read_piece(ctx, offset, piece);
    }

    piece->offset = 0;

    return ZMAP_OK;
}


static zmap_rc_e
ngx_http_zstd_mmap_read_piece(ngx_http_zstd_mmap_ctx_t *ctx, uint64_t offset,
    zmap_piece_t *piece)
{
    size_t                          want;
    ngx_log_t                      *log;
    zmap_window_t                  *window;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    log = ctx->request->connection->log;
    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    if (zlcf->input == NGX_HTTP_ZSTD_MMAP_INPUT_SCRATCH) {
        window = ngx_http_zstd_mmap_get_window(ctx->worker, zlcf->scratch, 1,
                                               log);
        want = ngx_http_zstd_mmap_want(ctx);

    } else {
        window = ngx_http_zstd_mmap_get_window(ctx->worker,
                                               NGX_HTTP_ZSTD_MMAP_READ, 0,
                                               log);
        want = NGX_HTTP_ZSTD_MMAP_READ;
    }

    if (window == NULL) {
        return ZMAP_NOMEM;
    }

    return ngx_http_zstd_mmap_fill_window(ctx, window, offset, want, piece);
}


/*
 * A body that is decoded in one go, and a reply that has the scratch to itself,
 * take all that it holds; so do those of one file that fits into it, since one
 * read is then for all.  Otherwise the next step of another throws the rest
 * away.
 */

static size_t
ngx_http_zstd_mmap_want(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_worker_t    *worker;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    worker = ctx->worker;
    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    if (ctx->body
        || worker->reader == ctx
        || (worker->reading == ctx->file
            && ctx->file->version.size <= (uint64_t) zlcf->scratch))
    {
        return zlcf->scratch;
    }

    return ZMAP_DECODE_STEP_INPUT;
}


/* the window keeps nothing of a version that another one may look like */

static zmap_rc_e
ngx_http_zstd_mmap_fill_window(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_window_t *window, uint64_t offset, size_t want, zmap_piece_t *piece)
{
    zmap_rc_e     rc;
    ngx_uint_t    racy;
    zmap_file_t  *file;

    file = ctx->file;
    racy = ngx_http_zstd_mmap_is_racy(&file->version);

    if (racy && (ctx->body == NULL || file->version.size > want)) {
        /* the rest would be read again by the next step */
        want = ngx_min(want, ZMAP_DECODE_STEP_INPUT);
    }

    rc = zmap_window_fill(window, ctx->of.fd, &file->version, offset, want,
                          piece);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: window rc:%d at %uL: %uz bytes from %uL",
                   rc, offset, piece->size, piece->offset);

    if (rc == ZMAP_CHANGED) {
        ngx_http_zstd_mmap_forget_file(ctx);
    }

    if (racy) {
        zmap_window_drop(window);
    }

    ctx->worker->reader = ctx;
    ctx->worker->reading = file;

    return rc;
}


void
ngx_http_zstd_mmap_count_huge(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_map_t                     *map;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    map = &ctx->file->map;
    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);

    if (zlcf->advise == NGX_HTTP_ZSTD_MMAP_ADVISE_HUGEPAGE
        && map->kind == ZMAP_MAP_FILE && map->size >= ZMAP_HUGE_PAGE)
    {
        ngx_http_zstd_mmap_count_bytes(mapped_huge, zmap_map_huge(map));
    }
}


void
ngx_http_zstd_mmap_drop_pages(ngx_http_zstd_mmap_ctx_t *ctx, uint64_t offset)
{
    zmap_map_t  *map;

    map = &ctx->file->map;

    if (map->size <= NGX_HTTP_ZSTD_MMAP_BEHIND
        || (offset - ctx->dropped < NGX_HTTP_ZSTD_MMAP_BEHIND
            && offset < map->size))
    {
        return;
    }

    zmap_map_drop(map, ctx->dropped, offset);

    ctx->dropped = offset;
}
