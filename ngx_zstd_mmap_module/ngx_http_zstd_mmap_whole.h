
/*
 * Replies whose body is one buffer of memory.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_WHOLE_H
#define NGX_HTTP_ZSTD_MMAP_WHOLE_H


#include "ngx_http_zstd_mmap_ctx.h"


/* how one of the two representations is made and accounted for */

typedef struct {
    zmap_body_e   kind;

    /* fills ctx->body, which is NULL for a body of 0 bytes */
    zmap_rc_e   (*fill)(ngx_http_zstd_mmap_ctx_t *ctx);

    /*
     * A shared job that takes ctx->body over and fills it, and what it runs.
     * NULL: it is better filled at once; both NULL: always.
     */
    ngx_http_zstd_mmap_job_t *(*start)(ngx_http_zstd_mmap_ctx_t *ctx);
    zmap_rc_e   (*run)(ngx_http_zstd_mmap_job_t *job);

    /* a job has ended after the header: ngx_http_zstd_mmap_send_rest() */
    ngx_int_t   (*resume)(ngx_http_zstd_mmap_ctx_t *ctx);

    /* as ngx_http_zstd_mmap_send_coded_header() */
    ngx_int_t   (*send_header)(ngx_http_zstd_mmap_ctx_t *ctx);

    /* counts a body of n bytes that is sent; kept: nothing had to be filled */
    void        (*count)(off_t n, ngx_uint_t kept);
} ngx_http_zstd_mmap_whole_t;


/*
 * Sends the body of size bytes from a buffer of the worker: one that was kept
 * for this version, or one that is filled before the header is sent, so that
 * a bad file is still refused.  A conditional request fills it only once the
 * header filters found that a body is wanted.  keep: the next request of this
 * version finds it.
 * NGX_BUSY, with nothing done: the worker's buffers have no room; else as a
 * content handler.
 */
ngx_int_t ngx_http_zstd_mmap_send_whole(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size, ngx_uint_t keep);

/* goes on after the header, when a job has filled the body */
ngx_int_t ngx_http_zstd_mmap_send_rest(ngx_http_zstd_mmap_ctx_t *ctx,
    const ngx_http_zstd_mmap_whole_t *whole, off_t size);

/*
 * What the header, once sent, left of a body of size bytes: all of it where a
 * filter took the length away
 */
off_t ngx_http_zstd_mmap_body_length(ngx_http_request_t *r, off_t size);

/*
 * The next request of the version finds the body, unless the version was too
 * young when the request began that had it made
 */
void ngx_http_zstd_mmap_keep_body(ngx_http_zstd_mmap_input_t *input,
    zmap_body_t *body, zmap_body_e kind);

/* sends b as all of the body, after the header; as ngx_http_output_filter() */
ngx_int_t ngx_http_zstd_mmap_send_buf(ngx_http_request_t *r, ngx_buf_t *b);

/* makes b, which is zeroed, a buffer of memory that no filter may change */
void ngx_http_zstd_mmap_set_memory(ngx_buf_t *b, u_char *data, size_t size);


#endif /* NGX_HTTP_ZSTD_MMAP_WHOLE_H */
