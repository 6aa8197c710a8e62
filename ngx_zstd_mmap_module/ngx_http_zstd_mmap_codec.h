
/*
 * Reads a file's coded bytes: walks and decodes its frames.
 *
 * The only place where user-space code touches a mapping, always under the
 * SIGBUS guard; afterwards fstat() tells whether the bytes were those of the
 * version (a file truncated inside its last page reads as zeros without any
 * signal).  Each call logs its step for debug only: the caller decides what a
 * failure means.
 *
 * Return codes are those of the core.  ZMAP_CHANGED replaces any other result
 * when the file is no longer its version; ZMAP_FAULT alone means that an
 * unchanged file could not be read.  A call may run on any thread on which its
 * input may be used; the event loop then judges its result (verdict.h).
 */


#ifndef NGX_HTTP_ZSTD_MMAP_CODEC_H
#define NGX_HTTP_ZSTD_MMAP_CODEC_H


#include "ngx_http_zstd_mmap_input.h"


/*
 * Goes on with the walk of the file, which is mapped, for about msec
 * milliseconds, to its end with 0.  ZMAP_AGAIN: it is not at its end.  Nobody
 * else may use the walk meanwhile.
 */
zmap_rc_e ngx_http_zstd_mmap_walk(ngx_http_zstd_mmap_input_t *input,
    ngx_msec_t msec);

/* walks as far as the header of the first zstd frame, unless that was done */
zmap_rc_e ngx_http_zstd_mmap_peek(ngx_http_zstd_mmap_input_t *input);

/* decodes the whole file into dst[0..size), which its body fills */
zmap_rc_e ngx_http_zstd_mmap_decode_body(ngx_http_zstd_mmap_input_t *input,
    u_char *dst, size_t size);

/* prepares the decoder for the steps; limit as in zmap_decode_begin() */
zmap_rc_e ngx_http_zstd_mmap_decode_begin(ngx_http_zstd_mmap_input_t *input,
    uint64_t limit);

/* the next piece, see zmap_decode_step() */
zmap_rc_e ngx_http_zstd_mmap_decode_step(ngx_http_zstd_mmap_input_t *input,
    u_char *dst, size_t size, size_t *produced);


#endif /* NGX_HTTP_ZSTD_MMAP_CODEC_H */
