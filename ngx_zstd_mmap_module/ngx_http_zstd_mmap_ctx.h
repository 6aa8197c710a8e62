
/*
 * The state of one request.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_CTX_H
#define NGX_HTTP_ZSTD_MMAP_CTX_H


#include "ngx_http_zstd_mmap_stage.h"
#include "ngx_http_zstd_mmap_worker.h"


/* where decoding takes the coded bytes from */

typedef enum {
    NGX_HTTP_ZSTD_MMAP_SOURCE_MAP = 0,
    NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED,  /* the pinned segment */
    NGX_HTTP_ZSTD_MMAP_SOURCE_READ     /* the worker's window */
} ngx_http_zstd_mmap_source_e;


/*
 * Lives on a cleanup of r->pool, because r->ctx is cleared by an internal
 * redirect and by a 412; the cleanup gives back what the request took.
 */

typedef struct {
    ngx_http_request_t           *request;
    ngx_http_zstd_mmap_worker_t  *worker;

    ngx_str_t                     path;      /* of the .zst file; a NUL
                                                follows */
    ngx_open_file_info_t          of;        /* of.fd is open until r->pool
                                                is destroyed */
    zmap_file_t                  *file;      /* one count of ours */

    off_t                         size;      /* of the decoded body; -1 while
                                                it is unknown */
    ngx_http_zstd_mmap_segment_t  segment;   /* a pin of ours; its data is
                                                NULL: not staged */
    zmap_body_t                  *body;      /* one count of ours */
    zmap_body_t                  *pieces;    /* one count of ours */
    zmap_decoder_t               *decoder;   /* of the worker's decoders */
    uint64_t                      dropped;   /* coded bytes that were taken
                                                out of the mapping again */

    ngx_file_t                   *slices;    /* frames that are sent in pieces:
                                                the file */
    off_t                         begin;     /* of a body in pieces: the range
                                                that is wanted, up to end */
    off_t                         end;
    off_t                         pos;       /* the next byte to make */

    unsigned                      retried:1; /* after the file had changed */
    unsigned                      vary:1;    /* r->gzip_vary was set by us */
    unsigned                      armed:1;   /* closing would reset */
} ngx_http_zstd_mmap_ctx_t;


/* without the worker, which is set when a file was found; NULL: no memory */
ngx_http_zstd_mmap_ctx_t *ngx_http_zstd_mmap_create_ctx(
    ngx_http_request_t *r);

/* the last one that was created for the request, or NULL */
ngx_http_zstd_mmap_ctx_t *ngx_http_zstd_mmap_find_ctx(ngx_http_request_t *r);

/* gives the decoder back, if there is one */
void ngx_http_zstd_mmap_put_decoder(ngx_http_zstd_mmap_ctx_t *ctx);

/* gives back what depends on the version of the file, and the file */
void ngx_http_zstd_mmap_reset_ctx(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_CTX_H */
