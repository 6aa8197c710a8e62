
/*
 * What becomes of a request whose file cannot be served.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_ERROR_H
#define NGX_HTTP_ZSTD_MMAP_ERROR_H


#include "ngx_http_zstd_mmap_ctx.h"


/* the file changed while it was read, or its seek table lies: serve it anew */
#define NGX_HTTP_ZSTD_MMAP_RETRY  NGX_ABORT


/*
 * Before the header: says why, once per file version and reason, and gives
 * the request to the plain file that lies beside (NGX_DECLINED), else 500.
 * ZMAP_AGAIN, too much time, as ngx_http_zstd_mmap_refuse_limit().
 * The first ZMAP_CHANGED of a request is NGX_HTTP_ZSTD_MMAP_RETRY instead, and
 * the table forgets the file; so is ZMAP_SEEK_TABLE: the seek table is then not
 * asked any more.
 */
ngx_int_t ngx_http_zstd_mmap_refuse(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_rc_e rc);

/*
 * Before the header of a reply for which there is no room or no time: says why,
 * at most once a second, and gives the request to the plain file that lies
 * beside (NGX_DECLINED), else 503 with "Retry-After".
 */
ngx_int_t ngx_http_zstd_mmap_refuse_limit(ngx_http_zstd_mmap_ctx_t *ctx,
    char *why);

/*
 * After the header: says why and returns NGX_ERROR, with which the caller
 * ends the request; the body is never taken for a whole one.
 */
ngx_int_t ngx_http_zstd_mmap_abort(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_rc_e rc);

/* says, once per file version, that its seek table is ignored, and why */
void ngx_http_zstd_mmap_report_table(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * Where neither a Content-Length nor chunks would show that the body is cut,
 * makes every end of the connection a reset, the death of the worker included.
 * Call it when the header is sent and before the body.
 */
void ngx_http_zstd_mmap_arm_reset(ngx_http_zstd_mmap_ctx_t *ctx);

/* the whole body has left: an orderly close again */
void ngx_http_zstd_mmap_disarm_reset(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_ERROR_H */
