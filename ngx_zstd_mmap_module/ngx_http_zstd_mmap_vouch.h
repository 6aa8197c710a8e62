
/*
 * What must hold before the first byte of a file version is sent.
 *
 * The verdict stays with the version.  Work that would hold up the event loop
 * is a job, shared by all requests of the version: ZMAP_AGAIN then says that
 * the request has to wait for *job (ngx_http_zstd_mmap_wait()), and to ask
 * again.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_VOUCH_H
#define NGX_HTTP_ZSTD_MMAP_VOUCH_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * The whole file was walked: by this worker, as far as its frame index is
 * needed (indexed), else perhaps by another one.
 */
zmap_rc_e ngx_http_zstd_mmap_vouch_frames(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_uint_t indexed, ngx_http_zstd_mmap_job_t **job);

/* the first frame header was read: what zstd_mmap_verify off asks for */
zmap_rc_e ngx_http_zstd_mmap_vouch_header(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job);

/*
 * The whole file, which was walked, was decoded once, where zstd_mmap_verify
 * checksum asks for that; of a HEAD it asks only whether that could be done.
 * ZMAP_AGAIN with *job NULL: zstd_mmap_streams has no room for its window now.
 */
zmap_rc_e ngx_http_zstd_mmap_vouch_content(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_job_t **job);


#endif /* NGX_HTTP_ZSTD_MMAP_VOUCH_H */
