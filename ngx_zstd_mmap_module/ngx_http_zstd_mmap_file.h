
/*
 * Finds the .zst file of a request, its version, and the plain file beside.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_FILE_H
#define NGX_HTTP_ZSTD_MMAP_FILE_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * Maps the URI to a path and opens it with ".zst" appended: sets ctx->path
 * and ctx->of.  NGX_OK; NGX_DECLINED when there is no such regular file (also
 * when it may not be read: logged as gzip_static does); or an HTTP error.
 */
ngx_int_t ngx_http_zstd_mmap_open(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * Sets ctx->file and ctx->input to the version that is open.  The worker's
 * table gives it without a system call where open_file_cache vouches for the
 * descriptor and the version was compared within this second.  NGX_OK or
 * NGX_ERROR (logged).
 */
ngx_int_t ngx_http_zstd_mmap_get_file(ngx_http_zstd_mmap_ctx_t *ctx);

/* the table forgets the version: the file changed under our hands */
void ngx_http_zstd_mmap_forget_file(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * NGX_OK when a regular file lies at the path without ".zst", NGX_DECLINED
 * when none does, NGX_ERROR without memory
 */
ngx_int_t ngx_http_zstd_mmap_find_plain(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_FILE_H */
