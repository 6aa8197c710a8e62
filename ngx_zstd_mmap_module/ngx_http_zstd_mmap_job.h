
/*
 * Work that outlives a request: on a thread of nginx's pool, or by slices of
 * the event loop.
 *
 * A job holds no request.  It owns a memory pool, a copy of the location's
 * configuration, a count of the file version, a duplicate of the descriptor, a
 * pin of the staged copy, a decoder, and what its run() fills: so a client may
 * leave at any time, and so may the cycle.  All functions here belong to the
 * thread of the event loop; run() alone is called on another one, and between
 * start and ended() nobody else touches what it uses.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_JOB_H
#define NGX_HTTP_ZSTD_MMAP_JOB_H


#include "ngx_http_zstd_mmap_input.h"


typedef struct ngx_http_zstd_mmap_job_s  ngx_http_zstd_mmap_job_t;


/*
 * Does a slice of the work, some milliseconds of it.  ZMAP_AGAIN: there is
 * more.
 */
typedef zmap_rc_e (*ngx_http_zstd_mmap_run_pt)(ngx_http_zstd_mmap_job_t *job);

/*
 * Looks at the result, job->rc, with errno in job->err: ZMAP_AGAIN when the
 * work was given up, which is never so while somebody waits
 */
typedef void (*ngx_http_zstd_mmap_end_pt)(ngx_http_zstd_mmap_job_t *job);


struct ngx_http_zstd_mmap_job_s {
    ngx_queue_t                     queue;     /* of the worker's jobs */
    ngx_pool_t                     *pool;
    ngx_http_zstd_mmap_input_t      input;
    ngx_http_zstd_mmap_loc_conf_t   conf;
    ngx_thread_task_t              *task;      /* NULL: always by slices */
    ngx_msec_t                      delay;     /* before each slice */
    ngx_event_t                     event;

    ngx_http_zstd_mmap_run_pt       run;
    ngx_http_zstd_mmap_end_pt       end;       /* the owner's */
    ngx_http_zstd_mmap_end_pt       ended;     /* given to start; NULL: it was
                                                  not started */
    void                           *data;      /* the owner's */
    void                           *owner;     /* NULL: has left */
    zmap_body_t                    *body;      /* one count of ours, or NULL */

    uint64_t                        charged;   /* bytes of zstd_mmap_streams */

    zmap_rc_e                       rc;
    ngx_err_t                       err;

    ngx_atomic_t                    wanted;    /* how many wait for the end; by
                                                  nobody: a worker that leaves
                                                  does not wait either */
    unsigned                        threaded:1; /* a thread runs it */

    /* of a job that requests wait for */
    ngx_queue_t                     peers;
    ngx_queue_t                     waiters;
    unsigned                        shared:1;  /* one has the body */
};


/*
 * A job for the input of a request, which stays as it is.  size: bytes of work,
 * which zstd_mmap_threads min= is about.  NULL, logged: no memory or no
 * descriptor.
 */
ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_create_job(
    ngx_http_zstd_mmap_input_t *input, uint64_t size,
    ngx_http_zstd_mmap_run_pt run, ngx_http_zstd_mmap_end_pt end);

/*
 * Runs the job to its end in a thread, if there is a pool for work of this
 * size, else by slices, of which one is done in each turn of the event loop;
 * ended() is called in a later turn.  The job may then be started again, and is
 * to be destroyed.
 */
void ngx_http_zstd_mmap_start_job(ngx_http_zstd_mmap_job_t *job,
    ngx_http_zstd_mmap_end_pt ended);

/* runs the job to its end, here and now, instead, and calls end() */
zmap_rc_e ngx_http_zstd_mmap_finish_job(ngx_http_zstd_mmap_job_t *job);

/* nonzero: the job would run in a thread */
ngx_uint_t ngx_http_zstd_mmap_has_threads(ngx_http_zstd_mmap_loc_conf_t *conf,
    uint64_t size);

/* gives back what a job has that does not run */
void ngx_http_zstd_mmap_destroy_job(ngx_http_zstd_mmap_job_t *job);

/* when the process exits and its threads have ended: destroys all jobs */
void ngx_http_zstd_mmap_exit_jobs(void);


#endif /* NGX_HTTP_ZSTD_MMAP_JOB_H */
