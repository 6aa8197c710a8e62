
/*
 * Where the coded bytes of a file come from: the staging zone or the file.
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


#endif /* NGX_HTTP_ZSTD_MMAP_INPUT_H */
