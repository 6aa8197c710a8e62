
/*
 * Counters and gauges of all workers, in shared memory.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_STATS_H
#define NGX_HTTP_ZSTD_MMAP_STATS_H


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* the lists below are the names and the order of the status, too */

#define NGX_HTTP_ZSTD_MMAP_COUNTERS(X)                                        \
    X(requests)                                                               \
    X(sent)                                                                   \
    X(decoded)                                                                \
    X(cached)                                                                 \
    X(decodes)                                                                \
    X(streamed)                                                               \
    X(declined)                                                               \
    X(errors)                                                                 \
    X(staged)                                                                 \
    X(evicted)                                                                \
    X(verify_failures)                                                        \
    X(bus_errors)                                                             \
    X(limited)


#define NGX_HTTP_ZSTD_MMAP_BYTES(X)                                           \
    X(frames_sent)                                                            \
    X(decoded_sent)                                                           \
    X(decoded_produced)                                                       \
    X(mapped_huge)


#define NGX_HTTP_ZSTD_MMAP_REASONS(X)                                         \
    X(not_found, NOT_FOUND)                                                   \
    X(denied, DENIED)                                                         \
    X(not_accepted, NOT_ACCEPTED)                                             \
    X(plain, PLAIN)                    /* the plain file has precedence */    \
    X(window, WINDOW)                                                         \
    X(dictionary, DICTIONARY)                                                 \
    X(stale, STALE)                                                           \
    X(corrupt, CORRUPT)                                                       \
    X(too_large, TOO_LARGE)                                                   \
    X(changed, CHANGED)                /* while it was read */                \
    X(fault, FAULT)                    /* SIGBUS */                           \
    X(io, IO)                                                                 \
    X(memory, MEMORY)                                                         \
    X(limit, LIMIT)


#define NGX_HTTP_ZSTD_MMAP_REASON(name, NAME)                                 \
    NGX_HTTP_ZSTD_MMAP_REASON_##NAME,

typedef enum {
    NGX_HTTP_ZSTD_MMAP_REASONS(NGX_HTTP_ZSTD_MMAP_REASON)
    NGX_HTTP_ZSTD_MMAP_REASON_LAST     /* how many there are */
} ngx_http_zstd_mmap_reason_e;


#define NGX_HTTP_ZSTD_MMAP_VALUE(name)  ngx_atomic_t  name;

typedef struct {
    NGX_HTTP_ZSTD_MMAP_COUNTERS(NGX_HTTP_ZSTD_MMAP_VALUE)
} ngx_http_zstd_mmap_counters_t;


typedef struct {
    NGX_HTTP_ZSTD_MMAP_BYTES(NGX_HTTP_ZSTD_MMAP_VALUE)
} ngx_http_zstd_mmap_bytes_t;


/* counts only ever grow, whichever process has the slot they lie in */

typedef struct {
    ngx_http_zstd_mmap_counters_t  counters;
    ngx_http_zstd_mmap_bytes_t     bytes;
    ngx_atomic_t                   reasons[NGX_HTTP_ZSTD_MMAP_REASON_LAST];
} ngx_http_zstd_mmap_counts_t;


/*
 * What one worker holds now: the worker that has the slot stores plain values
 * whenever they change, everybody else only reads.
 */

typedef struct {
    ngx_atomic_t  pid;                 /* 0: nobody; never set this one */
    ngx_atomic_t  buffers_size;        /* bytes */
    ngx_atomic_t  buffers_used;        /* bytes, kept ones included */
    ngx_atomic_t  buffers_kept;        /* bytes that can be found again */
    ngx_atomic_t  buffers_pages;       /* zmap_pages_e */
    ngx_atomic_t  files;               /* entries of the file table */
    ngx_atomic_t  streams;             /* bytes of streaming decodes: windows
                                          and pieces */
} ngx_http_zstd_mmap_gauges_t;


/*
 * Each worker counts in a slot of its own, so that the cores do not pass one
 * cache line round with every request.
 */

typedef struct {
    ngx_http_zstd_mmap_counts_t  counts;
    ngx_http_zstd_mmap_gauges_t  gauges;
    u_char                       _apart[128];    /* two cache lines */
} ngx_http_zstd_mmap_stats_t;


/* never NULL: private memory, not shown, in processes that have no slot */
extern ngx_http_zstd_mmap_stats_t  *ngx_http_zstd_mmap_stats;


/* both may be used on any thread */

#define ngx_http_zstd_mmap_count(name)                                        \
    (void) ngx_atomic_fetch_add(                                              \
        &ngx_http_zstd_mmap_stats->counts.counters.name, 1)

#define ngx_http_zstd_mmap_count_bytes(name, n)                               \
    (void) ngx_atomic_fetch_add(                                              \
        &ngx_http_zstd_mmap_stats->counts.bytes.name,                         \
        (ngx_atomic_int_t) (n))

#define ngx_http_zstd_mmap_count_reason(reason)                               \
    (void) ngx_atomic_fetch_add(                                              \
        &ngx_http_zstd_mmap_stats->counts.reasons[reason], 1)


/* this worker's gauges: all zero, but for the pid, when it starts */
#define ngx_http_zstd_mmap_stats_worker()                                     \
    (&ngx_http_zstd_mmap_stats->gauges)


/*
 * Called by nginx's postconfiguration: declares the shared memory.  The counts
 * in it outlive a reload and the death of a worker; a binary upgrade starts
 * new ones.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_zstd_mmap_init_stats(ngx_conf_t *cf);

/*
 * Called by nginx's init_process, first: takes the slot of this process, or
 * goes back to private memory where the cycle has no http block.  Never fails.
 */
void ngx_http_zstd_mmap_enter_stats(ngx_cycle_t *cycle);

/* called by nginx's exit_process, last: the worker is no longer shown */
void ngx_http_zstd_mmap_leave_stats(void);


/* sums the counts of all slots, those of dead workers too */
void ngx_http_zstd_mmap_sum_stats(ngx_http_zstd_mmap_counts_t *sum);

/*
 * The gauges of all workers that are alive, ordered by slot, as array elements
 * of ngx_http_zstd_mmap_gauges_t copied into the pool.  NULL: no memory.
 */
ngx_array_t *ngx_http_zstd_mmap_list_workers(ngx_pool_t *pool);


#endif /* NGX_HTTP_ZSTD_MMAP_STATS_H */
