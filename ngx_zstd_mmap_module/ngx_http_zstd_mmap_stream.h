
/*
 * Replies that are decoded chunk by chunk while the client takes them.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_STREAM_H
#define NGX_HTTP_ZSTD_MMAP_STREAM_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * Sends the decoded body through two chunks of zstd_mmap_chunk bytes; with
 * ctx->size -1 its length is unknown and is learnt for the file version.
 * Returns what a content handler returns: NGX_DONE when the request goes on.
 */
ngx_int_t ngx_http_zstd_mmap_send_stream(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_STREAM_H */
