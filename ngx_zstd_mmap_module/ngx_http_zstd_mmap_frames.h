
/*
 * Replies of frames, as they lie in the file.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_FRAMES_H
#define NGX_HTTP_ZSTD_MMAP_FRAMES_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * Sends the file from memory (staged, kept, or copied piece by piece) or by
 * its descriptor, as zstd_mmap_send and the connection say.  What leaves from
 * memory was compared with the version after it was read.  A descriptor's
 * bytes are those of the file when they are read, and with sendfile(2) even
 * later; from 2 MiB on the version is compared between slices.
 * Returns what a content handler returns.
 */
ngx_int_t ngx_http_zstd_mmap_send_frames(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_FRAMES_H */
