
/*
 * Chooses between the staged copy of a file, its mapping, and reads.
 */


#include "ngx_http_zstd_mmap_input.h"
#include "ngx_http_zstd_mmap_stats.h"


/* what a large file may have mapped behind the decoder, bytes */
#define NGX_HTTP_ZSTD_MMAP_BEHIND  (4 * 1024 * 1024)

/* what the replies that have ended may have left mapped of it, bytes */
#define NGX_HTTP_ZSTD_MMAP_LEFT    (16 * 1024 * 1024)


static zmap_rc_e ngx_http_zstd_mmap_read_piece(
    ngx_http_zstd_mmap_input_t *input, uint64_t offset, zmap_piece_t *piece);
static zmap_window_t *ngx_http_zstd_mmap_take_window(
    ngx_http_zstd_mmap_input_t *input, size_t *want);
static size_t ngx_http_zstd_mmap_want(ngx_http_zstd_mmap_input_t *input);
static zmap_rc_e ngx_http_zstd_mmap_fill_window(
    ngx_http_zstd_mmap_input_t *input, zmap_window_t *window, uint64_t offset,
    size_t want, zmap_piece_t *piece);
static ngx_uint_t ngx_http_zstd_mmap_match_uri(ngx_http_request_t *r,
    ngx_http_zstd_mmap_stage_t *stage);


void
ngx_http_zstd_mmap_take_segment(ngx_http_request_t *r,
    ngx_http_zstd_mmap_input_t *input)
{
    ngx_int_t                    rc;
    zmap_version_t              *version;
    ngx_http_zstd_mmap_stage_t  *stage;

    stage = input->conf->stage;
    version = &input->file->version;

    if (input->asked || stage == NULL || stage->zone == NULL
        || version->size > (uint64_t) stage->max
        || !ngx_http_zstd_mmap_match_uri(r, stage))
    {
        return;
    }

    input->asked = 1;

    rc = ngx_http_zstd_mmap_find_segment(stage->zone, version,
                                         stage->min_uses, &input->segment,
                                         input->log);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: find segment rc:%i %p",
                   rc, input->segment.data);

    if (rc != NGX_AGAIN) {
        return;
    }

    rc = ngx_http_zstd_mmap_fill_segment(stage->zone, version, input->fd,
                                         &input->segment, input->log);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: fill segment rc:%i %p",
                   rc, input->segment.data);
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
ngx_http_zstd_mmap_map(ngx_http_zstd_mmap_input_t *input)
{
    zmap_map_t  *map;

    static const zmap_advice_e  advices[] = {
        ZMAP_ADVICE_NONE,              /* auto: none was found to help */
        ZMAP_ADVICE_NONE,
        ZMAP_ADVICE_SEQUENTIAL,
        ZMAP_ADVICE_WILLNEED,
        ZMAP_ADVICE_HUGEPAGE
    };

    map = &input->file->map;

    if (map->kind != ZMAP_MAP_NONE) {
        return ZMAP_OK;
    }

    return zmap_map_open(map, input->fd, input->file->version.size,
                         advices[input->conf->advise]);
}


zmap_rc_e
ngx_http_zstd_mmap_take_decoder(ngx_http_zstd_mmap_input_t *input)
{
    if (input->decoder == NULL) {
        input->decoder = zmap_decoder_get(input->worker->decoders);
    }

    return input->decoder ? ZMAP_OK : ZMAP_NOMEM;
}


void
ngx_http_zstd_mmap_put_decoder(ngx_http_zstd_mmap_input_t *input)
{
    if (input->decoder) {
        zmap_decoder_put(input->worker->decoders, input->decoder);
        input->decoder = NULL;
    }
}


void
ngx_http_zstd_mmap_leave_pages(ngx_http_zstd_mmap_input_t *input)
{
    uint64_t      end;
    zmap_file_t  *file;

    file = input->file;

    if (file->map.size <= NGX_HTTP_ZSTD_MMAP_BEHIND) {
        return;
    }

    end = zmap_decode_consumed(input->decoder);

    if (end > input->dropped) {
        file->left += end - input->dropped;
    }

    if (file->left > NGX_HTTP_ZSTD_MMAP_LEFT) {
        zmap_map_drop(&file->map, 0, file->map.size);
        file->left = 0;
    }
}


void
ngx_http_zstd_mmap_close_input(ngx_http_zstd_mmap_input_t *input)
{
    ngx_http_zstd_mmap_put_decoder(input);
    ngx_http_zstd_mmap_release_segment(&input->segment);
}


ngx_http_zstd_mmap_source_e
ngx_http_zstd_mmap_get_source(ngx_http_zstd_mmap_input_t *input)
{
    if (input->segment.data) {
        return NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED;
    }

    return (input->conf->input == NGX_HTTP_ZSTD_MMAP_INPUT_MAP)
           ? NGX_HTTP_ZSTD_MMAP_SOURCE_MAP
           : NGX_HTTP_ZSTD_MMAP_SOURCE_READ;
}


zmap_rc_e
ngx_http_zstd_mmap_get_piece(ngx_http_zstd_mmap_input_t *input,
    uint64_t offset, zmap_piece_t *piece)
{
    zmap_rc_e  rc;

    switch (ngx_http_zstd_mmap_get_source(input)) {

    case NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED:
        piece->data = input->segment.data;
        piece->size = input->segment.size;
        break;

    case NGX_HTTP_ZSTD_MMAP_SOURCE_MAP:

        rc = ngx_http_zstd_mmap_map(input);
        if (rc != ZMAP_OK) {
            return rc;
        }

        piece->data = input->file->map.data;
        piece->size = input->file->map.size;
        break;

    default:
        return ngx_http_zstd_mmap_read_piece(input, offset, piece);
    }

    piece->offset = 0;

    return ZMAP_OK;
}


static zmap_rc_e
ngx_http_zstd_mmap_read_piece(ngx_http_zstd_mmap_input_t *input,
    uint64_t offset, zmap_piece_t *piece)
{
    size_t          want;
    zmap_window_t  *window;

    window = ngx_http_zstd_mmap_take_window(input, &want);
    if (window == NULL) {
        return ZMAP_NOMEM;
    }

    return ngx_http_zstd_mmap_fill_window(input, window, offset, want, piece);
}


static zmap_window_t *
ngx_http_zstd_mmap_take_window(ngx_http_zstd_mmap_input_t *input,
    size_t *want)
{
    *want = NGX_HTTP_ZSTD_MMAP_READ;

    if (input->window) {
        return input->window;
    }

    if (input->conf->input == NGX_HTTP_ZSTD_MMAP_INPUT_SCRATCH) {
        *want = ngx_http_zstd_mmap_want(input);

        return ngx_http_zstd_mmap_get_window(input->worker,
                                             input->conf->scratch, 1,
                                             input->log);
    }

    return ngx_http_zstd_mmap_get_window(input->worker,
                                         NGX_HTTP_ZSTD_MMAP_READ, 0,
                                         input->log);
}


/*
 * A body that is decoded in one go, and a reply that has the scratch to itself,
 * take all that it holds; so do those of one file that fits into it, since one
 * read is then for all.  Otherwise the next step of another throws the rest
 * away.
 */

static size_t
ngx_http_zstd_mmap_want(ngx_http_zstd_mmap_input_t *input)
{
    off_t                         scratch;
    ngx_http_zstd_mmap_worker_t  *worker;

    worker = input->worker;
    scratch = input->conf->scratch;

    if (input->whole
        || worker->reader == input
        || (worker->reading == input->file
            && input->file->version.size <= (uint64_t) scratch))
    {
        return scratch;
    }

    return ZMAP_DECODE_STEP_INPUT;
}


/* the window keeps nothing of a version that another one may look like */

static zmap_rc_e
ngx_http_zstd_mmap_fill_window(ngx_http_zstd_mmap_input_t *input,
    zmap_window_t *window, uint64_t offset, size_t want, zmap_piece_t *piece)
{
    zmap_rc_e     rc;
    ngx_uint_t    racy;
    zmap_file_t  *file;

    file = input->file;
    racy = ngx_http_zstd_mmap_is_racy(&file->version);

    if (racy && (!input->whole || file->version.size > want)) {
        /* the rest would be read again by the next step */
        want = ngx_min(want, ZMAP_DECODE_STEP_INPUT);
    }

    rc = zmap_window_fill(window, input->fd, &file->version, offset, want,
                          piece);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, input->log, 0,
                   "zstd mmap: window rc:%d at %uL: %uz bytes from %uL",
                   rc, offset, piece->size, piece->offset);

    if (racy) {
        zmap_window_drop(window);
    }

    if (input->window == NULL) {
        input->worker->reader = input;
        input->worker->reading = file;
    }

    return rc;
}


zmap_rc_e
ngx_http_zstd_mmap_check_file(ngx_http_zstd_mmap_input_t *input)
{
    zmap_rc_e     rc;
    zmap_file_t  *file;

    file = input->file;

    rc = zmap_version_check(&file->version, input->fd);

    if (rc != ZMAP_TOUCHED) {
        return rc;
    }

    /*
     * Content_Checksum tells better than a ctime whether bytes changed, but
     * only of a body that is one frame: several frames may each be right and
     * of two versions.
     */

    if (file->verdict == ZMAP_OK && file->walk.frames.checksum
        && file->walk.frames.frames == 1)
    {
        return ZMAP_OK;
    }

    return ZMAP_CHANGED;
}


void
ngx_http_zstd_mmap_count_huge(ngx_http_zstd_mmap_input_t *input)
{
    zmap_map_t  *map;

    map = &input->file->map;

    if (input->conf->advise == NGX_HTTP_ZSTD_MMAP_ADVISE_HUGEPAGE
        && map->kind == ZMAP_MAP_FILE && map->size >= ZMAP_HUGE_PAGE)
    {
        ngx_http_zstd_mmap_count_bytes(mapped_huge, zmap_map_huge(map));
    }
}


void
ngx_http_zstd_mmap_drop_pages(ngx_http_zstd_mmap_input_t *input,
    uint64_t offset)
{
    zmap_map_t  *map;

    map = &input->file->map;

    if (map->size <= NGX_HTTP_ZSTD_MMAP_BEHIND
        || (offset - input->dropped < NGX_HTTP_ZSTD_MMAP_BEHIND
            && offset < map->size))
    {
        return;
    }

    zmap_map_drop(map, input->dropped, offset);

    input->dropped = offset;
}
