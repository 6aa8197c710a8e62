
/*
 * Reads a file's mapping: walks and decodes its frames.
 *
 * The only place where user-space code touches a mapping, always under the
 * SIGBUS guard; afterwards fstat() tells whether the bytes were those of the
 * version (a file truncated inside its last page reads as zeros without any
 * signal).  Each call logs its step for debug only: the caller decides what a
 * failure means.
 *
 * Return codes are those of the core.  ZMAP_CHANGED replaces any other result
 * when the file is no longer its version, and the table has then forgotten
 * it; ZMAP_FAULT alone means that an unchanged file could not be read.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_CODEC_H
#define NGX_HTTP_ZSTD_MMAP_CODEC_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * Walks the whole file unless that was done; the verdict stays with the
 * version
 */
zmap_rc_e ngx_http_zstd_mmap_walk(ngx_http_zstd_mmap_ctx_t *ctx);

/* walks as far as the header of the first zstd frame, unless that was done */
zmap_rc_e ngx_http_zstd_mmap_peek(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * Decodes the whole file into ctx->body, which has room for ctx->size bytes.
 * A verdict on the data stays with the version.
 */
zmap_rc_e ngx_http_zstd_mmap_decode_body(ngx_http_zstd_mmap_ctx_t *ctx);

/* prepares ctx->decoder for the steps; limit as in zmap_decode_begin() */
zmap_rc_e ngx_http_zstd_mmap_decode_begin(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t limit);

/*
 * The next piece, see zmap_decode_step(); ZMAP_CONTENT_SIZE also when the body
 * ends short of ctx->size.
 */
zmap_rc_e ngx_http_zstd_mmap_decode_step(ngx_http_zstd_mmap_ctx_t *ctx,
    u_char *dst, size_t size, size_t *produced);


#endif /* NGX_HTTP_ZSTD_MMAP_CODEC_H */
