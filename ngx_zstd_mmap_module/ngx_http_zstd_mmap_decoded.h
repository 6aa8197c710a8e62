
/*
 * Replies of decoded bytes.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_DECODED_H
#define NGX_HTTP_ZSTD_MMAP_DECODED_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * The body of ctx->size bytes in one buffer of the worker, kept for the next
 * request of the version.  NGX_BUSY, with nothing done: the worker's buffers
 * have no room; else as a content handler.
 */
ngx_int_t ngx_http_zstd_mmap_send_decoded(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * The body in pieces of zstd_mmap_chunk bytes; with ctx->size -1 its length is
 * unknown and is learnt for the file version.  As a content handler.
 */
ngx_int_t ngx_http_zstd_mmap_stream_decoded(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_DECODED_H */
