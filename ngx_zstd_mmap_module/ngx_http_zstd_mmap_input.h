
/*
 * Where the coded bytes of a file come from: the staging zone, its mapping, or
 * reads into a window.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_INPUT_H
#define NGX_HTTP_ZSTD_MMAP_INPUT_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * Pins the staged copy of the file in ctx->segment, and stages the file when
 * it was asked for often enough; does nothing where the location does not
 * stage the file, and when that was done before.  Not staged is no error.
 *
 * Call it when the bytes are needed and the verdict is good.
 */
void ngx_http_zstd_mmap_take_segment(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * Maps the file unless that was done, with the location's zstd_mmap_advise.
 * With ZMAP_CHANGED the table has forgotten the file.
 */
zmap_rc_e ngx_http_zstd_mmap_map(ngx_http_zstd_mmap_ctx_t *ctx);

/* what decoding reads: the segment if there is one, else zstd_mmap_input */
ngx_http_zstd_mmap_source_e ngx_http_zstd_mmap_get_source(
    ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * A piece of that source which the next decode step can begin with, offset
 * being the next byte to decode.  A piece of a mapping is all of it, and is
 * read under the guard only.  ZMAP_OK, or as zmap_window_fill() and
 * zmap_map_open(), or ZMAP_NOMEM, logged; with ZMAP_CHANGED the table has
 * forgotten the file.
 */
zmap_rc_e ngx_http_zstd_mmap_get_piece(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t offset, zmap_piece_t *piece);

/* counts what the kernel mapped by huge pages where the location asks for it */
void ngx_http_zstd_mmap_count_huge(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * The version's bytes before offset are not needed soon: keeps what a worker
 * has mapped of large files small.
 */
void ngx_http_zstd_mmap_drop_pages(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t offset);


#endif /* NGX_HTTP_ZSTD_MMAP_INPUT_H */
