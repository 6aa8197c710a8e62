
/*
 * What is known of the bytes of a file version: by this worker, and by all of
 * them where the location has a staging zone.
 *
 * All functions belong to the thread of the event loop.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_VERDICT_H
#define NGX_HTTP_ZSTD_MMAP_VERDICT_H


#include "ngx_http_zstd_mmap_input.h"


/*
 * Takes over what another worker found out, unless something is known here:
 * file->verdict, with the walk's summary but no index (file->told), and
 * file->verified.  While the verdict is ZMAP_AGAIN no job may walk the file.
 */
void ngx_http_zstd_mmap_ask_others(ngx_http_zstd_mmap_input_t *input);

/*
 * Keeps what a walk of the file, or a decode, found wrong with its bytes; any
 * other result is left alone
 */
void ngx_http_zstd_mmap_judge(ngx_http_zstd_mmap_input_t *input, zmap_rc_e rc);

/* the same of a whole walk, which may also have found them good */
void ngx_http_zstd_mmap_judge_walk(ngx_http_zstd_mmap_input_t *input,
    zmap_rc_e rc);

/* the same of a decode of the whole file */
void ngx_http_zstd_mmap_judge_content(ngx_http_zstd_mmap_input_t *input,
    zmap_rc_e rc);

/*
 * Makes this worker the one that verifies the version: NGX_OK, until it judges
 * the content or releases the claim.  NGX_BUSY: another one is at it.
 */
ngx_int_t ngx_http_zstd_mmap_claim(ngx_http_zstd_mmap_input_t *input);
void ngx_http_zstd_mmap_release_claim(ngx_http_zstd_mmap_input_t *input);


#endif /* NGX_HTTP_ZSTD_MMAP_VERDICT_H */
