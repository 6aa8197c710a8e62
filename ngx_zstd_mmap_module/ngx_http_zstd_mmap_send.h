
/*
 * Replies whose body is one buffer: the frames, or a body decoded at once.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_SEND_H
#define NGX_HTTP_ZSTD_MMAP_SEND_H


#include "ngx_http_zstd_mmap_ctx.h"


/* the file as it is; returns what a content handler returns */
ngx_int_t ngx_http_zstd_mmap_send_frames(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * The decoded body of ctx->size bytes, decoded before the header is sent, so
 * that a bad file is still refused; a conditional request decodes only once
 * the header filters found that a body is wanted.  NGX_BUSY, with nothing
 * done: the worker's buffers have no room; else as a content handler.
 */
ngx_int_t ngx_http_zstd_mmap_send_decoded(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_SEND_H */
