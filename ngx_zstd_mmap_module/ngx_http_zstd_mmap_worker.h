
/*
 * What one worker process owns: file table, decode buffers, decoders.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_WORKER_H
#define NGX_HTTP_ZSTD_MMAP_WORKER_H


#include "ngx_http_zstd_mmap_conf.h"

#include "core/zmap_bodies.h"
#include "core/zmap_cache.h"
#include "core/zmap_decode.h"
#include "core/zmap_hugemem.h"
#include "core/zmap_pool.h"
#include "core/zmap_window.h"


typedef struct {
    zmap_cache_t     *files;           /* NULL: no table is kept */
    zmap_hugemem_t    memory;          /* of the buffers */
    zmap_pool_t      *buffers;         /* NULL: every body is streamed */
    zmap_bodies_t    *bodies;          /* what lies in the buffers */
    size_t            streaming;       /* bytes of the buffers in pieces */
    uint64_t          streams;         /* bytes charged to zstd_mmap_streams */
    time_t            limited;         /* when their limit was last logged */
    zmap_decoders_t  *decoders;
    zmap_hugemem_t    scratch;         /* of the window */
    zmap_window_t     window;          /* over files that are read, not mapped;
                                          shared by all replies */
    ngx_msec_t        refused;         /* until then the scratch that there is
                                          has to do */

    /* who used the window last, and for which file; never followed */
    const void       *reader;
    const void       *reading;
} ngx_http_zstd_mmap_worker_t;


/*
 * The worker's state, made at its first use and kept until the process exits:
 * in single-process mode requests of an earlier cycle still hold parts of it
 * after a reload, so the sizes of the first configuration stay.
 * NULL: no memory, or the SIGBUS handler could not be installed; logged.
 */
ngx_http_zstd_mmap_worker_t *ngx_http_zstd_mmap_get_worker(
    ngx_http_zstd_mmap_main_conf_t *zmcf, ngx_log_t *log);

/*
 * The worker's window with room for at least size bytes, in huge pages where
 * huge is set and the pool has them; what is missing is logged.  Without memory
 * it has the room that it had, for some seconds without another attempt; NULL
 * when it had none.  Pieces of it are good until the next call.
 */
zmap_window_t *ngx_http_zstd_mmap_get_window(
    ngx_http_zstd_mmap_worker_t *worker, size_t size, ngx_uint_t huge,
    ngx_log_t *log);

/*
 * Nonzero when pieces of streams may take so many bytes more of the buffers:
 * slow ones leave half of them to bodies that fit into one.
 */
ngx_uint_t ngx_http_zstd_mmap_has_buffers(ngx_http_zstd_mmap_worker_t *worker,
    size_t size);

/* puts what the worker holds into the gauges of the status */
void ngx_http_zstd_mmap_show_worker(ngx_http_zstd_mmap_worker_t *worker);

/* frees the state when the process exits */
void ngx_http_zstd_mmap_exit_worker(void);


#endif /* NGX_HTTP_ZSTD_MMAP_WORKER_H */
