
/*
 * The state of one request.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_CTX_H
#define NGX_HTTP_ZSTD_MMAP_CTX_H


#include "ngx_http_zstd_mmap_job.h"


typedef struct ngx_http_zstd_mmap_ctx_s  ngx_http_zstd_mmap_ctx_t;


/*
 * Lives on a cleanup of r->pool, because r->ctx is cleared by an internal
 * redirect and by a 412; the cleanup gives back what the request took.
 */

struct ngx_http_zstd_mmap_ctx_s {
    ngx_http_request_t           *request;
    ngx_http_zstd_mmap_worker_t  *worker;

    ngx_str_t                     path;      /* of the .zst file; a NUL
                                                follows */
    ngx_open_file_info_t          of;        /* of.fd is open until r->pool
                                                is destroyed */
    zmap_file_t                  *file;      /* one count of ours */
    ngx_http_zstd_mmap_input_t    input;     /* of that file */

    off_t                         size;      /* of the decoded body; -1 while
                                                it is unknown */
    zmap_body_t                  *body;      /* one count of ours */
    ngx_buf_t                    *out;       /* for all of the body */
    zmap_body_t                  *pieces;    /* one count of ours */
    ngx_http_zstd_mmap_input_t   *source;    /* of a body in pieces: input, or
                                                that of steps */
    ngx_http_zstd_mmap_job_t     *steps;     /* ours; makes pieces in threads */
    uint64_t                      window;    /* bytes of zstd_mmap_streams that
                                                are charged for the decoder */
    uint64_t                      room;      /* and for the pieces */

    ngx_file_t                   *slices;    /* frames that are sent in pieces:
                                                the file */
    off_t                         begin;     /* of a body in pieces: the range
                                                that is wanted, up to end */
    off_t                         end;
    off_t                         pos;       /* the next byte to make */

    ngx_queue_t                   waiting;   /* of those who wait for job */
    ngx_http_zstd_mmap_job_t     *job;
    ngx_event_t                   event;     /* while it waits */
    ngx_int_t                   (*resume)(ngx_http_zstd_mmap_ctx_t *ctx);
    zmap_rc_e                     outcome;   /* of the job, and errno */
    ngx_err_t                     err;

    unsigned                      retried:1; /* after the file had changed */
    unsigned                      untabled:1; /* a seek table is not asked: it
                                                was found to lie */
    unsigned                      vary:1;    /* r->gzip_vary was set by us */
    unsigned                      armed:1;   /* closing would reset */
    unsigned                      filled:1;  /* body has its content */
    unsigned                      shared:1;  /* made for another request */
    unsigned                      resumed:1; /* the handler runs once more */
    unsigned                      expired:1; /* it waited for too long */
    unsigned                      unsendable:1; /* counted as such */
    unsigned                      crowded:1; /* found no buffer: counted */
    unsigned                      limited:1; /* there was no room for it, or no
                                                time */
    unsigned                      pending:1; /* the next piece is being made */
    unsigned                      stepped:1; /* it has been made */
};


/* without the worker, which is set when a file was found; NULL: no memory */
ngx_http_zstd_mmap_ctx_t *ngx_http_zstd_mmap_create_ctx(
    ngx_http_request_t *r);

/* the last one that was created for the request, or NULL */
ngx_http_zstd_mmap_ctx_t *ngx_http_zstd_mmap_find_ctx(ngx_http_request_t *r);

/* ends the wait for a job */
void ngx_http_zstd_mmap_leave_job(ngx_http_zstd_mmap_ctx_t *ctx);

/* the result of the job that it waited for, with its errno, once */
zmap_rc_e ngx_http_zstd_mmap_take_outcome(ngx_http_zstd_mmap_ctx_t *ctx);

/* nonzero when one of them was refused for lack of room or time */
ngx_uint_t ngx_http_zstd_mmap_was_limited(ngx_http_request_t *r);

/*
 * Charges a stream that is about to begin: bytes for its decoder and for its
 * pieces.  NGX_BUSY, with nothing done: limit, that of all streams of the
 * worker, leaves no room for them.
 */
ngx_int_t ngx_http_zstd_mmap_charge_stream(ngx_http_zstd_mmap_ctx_t *ctx,
    uint64_t window, uint64_t room, uint64_t limit);

/* gives back the decoder of a stream, and what is charged for it */
void ngx_http_zstd_mmap_put_stream_decoder(ngx_http_zstd_mmap_ctx_t *ctx);

/* gives back decoder and pieces, and what is charged for them */
void ngx_http_zstd_mmap_put_stream(ngx_http_zstd_mmap_ctx_t *ctx);

/* gives back what depends on the version of the file, and the file */
void ngx_http_zstd_mmap_reset_ctx(ngx_http_zstd_mmap_ctx_t *ctx);


#endif /* NGX_HTTP_ZSTD_MMAP_CTX_H */
