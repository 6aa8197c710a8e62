
/*
 * Replies that are made piece by piece while the client takes them.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_STREAM_H
#define NGX_HTTP_ZSTD_MMAP_STREAM_H


#include "ngx_http_zstd_mmap_ctx.h"


typedef struct ngx_http_zstd_mmap_stream_s  ngx_http_zstd_mmap_stream_t;


/*
 * Makes the next piece of the body in b, which is zeroed but for start, pos,
 * last and end, the piece's memory: sets what a buffer of memory or of a file
 * needs.  *work: bytes that were read or made, for the share of the other
 * connections.
 * ZMAP_AGAIN: the body goes on, also when the piece is empty; ZMAP_OK: this is
 * its end; else what is wrong, and the reply is cut.  With ctx->pending set the
 * piece is not made yet, and is asked for again, with the same memory, when
 * ngx_http_zstd_mmap_continue_stream() was called.
 */
typedef zmap_rc_e (*ngx_http_zstd_mmap_fill_pt)(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_buf_t *b, size_t *work);


/*
 * Takes what the reply needs, before its header: so many pieces of room bytes
 * each from the worker's buffers or from a pool, no memory with room 0.  Where
 * ctx->steps makes them they are its own, too.  NULL: no memory.
 */
ngx_http_zstd_mmap_stream_t *ngx_http_zstd_mmap_create_stream(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_http_zstd_mmap_fill_pt fill,
    size_t room, ngx_uint_t pieces);

/*
 * Sends the body, after the header.  hole: where the range filter cuts a range
 * out of the body, how many of the bytes before it fill() leaves out.  Returns
 * what a content handler returns: NGX_DONE when the request goes on.
 */
ngx_int_t ngx_http_zstd_mmap_start_stream(ngx_http_zstd_mmap_stream_t *stream,
    off_t hole);

/* the piece that was pending has been made; never inside of fill() */
void ngx_http_zstd_mmap_continue_stream(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_STREAM_H */
