
/*
 * Counters and gauges of all workers, in shared memory.
 */


#include "ngx_http_zstd_mmap_conf.h"
#include "ngx_http_zstd_mmap_stats.h"


static ngx_int_t ngx_http_zstd_mmap_init_stats_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_http_zstd_mmap_stats_t *ngx_http_zstd_mmap_find_stats(
    ngx_cycle_t *cycle);
static ngx_uint_t ngx_http_zstd_mmap_alive(ngx_pid_t pid);


static ngx_http_zstd_mmap_stats_t   ngx_http_zstd_mmap_private_stats;
static ngx_http_zstd_mmap_stats_t  *ngx_http_zstd_mmap_slots;

ngx_http_zstd_mmap_stats_t         *ngx_http_zstd_mmap_stats =
                                        &ngx_http_zstd_mmap_private_stats;


/*
 * The tag is an address in this file's own data: another build of the module,
 * whose slots may look different, never gets this one's memory at a reload.
 */

ngx_int_t
ngx_http_zstd_mmap_init_stats(ngx_conf_t *cf)
{
    size_t           size;
    ngx_shm_zone_t  *shm_zone;

    static ngx_str_t  name = ngx_string("zstd_mmap_stats");

    /* eight pages: what nginx's slab allocator needs for itself, and more */

    size = ngx_align(NGX_MAX_PROCESSES * sizeof(ngx_http_zstd_mmap_stats_t),
                     ngx_pagesize);
    size += 8 * ngx_pagesize;

    shm_zone = ngx_shared_memory_add(cf, &name, size,
                                     &ngx_http_zstd_mmap_private_stats);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = ngx_http_zstd_mmap_init_stats_zone;
    shm_zone->data = cf->cycle;

    return NGX_OK;
}


static ngx_int_t
ngx_http_zstd_mmap_init_stats_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t            size;
    ngx_slab_pool_t  *shpool;

    if (data) {
        shm_zone->data = data;
        return NGX_OK;
    }

    if (ngx_http_zstd_mmap_check_buffers(shm_zone->data) != NGX_OK) {
        return NGX_ERROR;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;
    size = NGX_MAX_PROCESSES * sizeof(ngx_http_zstd_mmap_stats_t);

    shm_zone->data = ngx_slab_calloc(shpool, size);
    if (shm_zone->data == NULL) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_zstd_mmap_enter_stats(ngx_cycle_t *cycle)
{
    ngx_http_zstd_mmap_stats_t  *slots, *stats;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return;
    }

    slots = ngx_http_zstd_mmap_find_stats(cycle);
    ngx_http_zstd_mmap_slots = slots;

    if (slots == NULL) {
        ngx_http_zstd_mmap_stats = &ngx_http_zstd_mmap_private_stats;
        return;
    }

    stats = &slots[ngx_process_slot];

    ngx_memzero((void *) &stats->gauges, sizeof(stats->gauges));
    ngx_memory_barrier();
    stats->gauges.pid = ngx_pid;

    ngx_http_zstd_mmap_stats = stats;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, cycle->log, 0,
                   "zstd mmap: stats slot:%i pid:%P",
                   ngx_process_slot, ngx_pid);
}


/*
 * A single process may have lost the memory to a reload that left no http
 * block, and there is nobody else to show the worker to.
 */

void
ngx_http_zstd_mmap_leave_stats(void)
{
    if (ngx_process == NGX_PROCESS_WORKER) {
        ngx_http_zstd_mmap_stats->gauges.pid = 0;
    }
}


static ngx_http_zstd_mmap_stats_t *
ngx_http_zstd_mmap_find_stats(ngx_cycle_t *cycle)
{
    ngx_uint_t        i;
    ngx_shm_zone_t   *shm_zone;
    ngx_list_part_t  *part;

    for (part = &cycle->shared_memory.part; part; part = part->next) {

        shm_zone = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (shm_zone[i].tag == &ngx_http_zstd_mmap_private_stats) {
                return shm_zone[i].data;
            }
        }
    }

    return NULL;
}


void
ngx_http_zstd_mmap_sum_stats(ngx_http_zstd_mmap_counts_t *sum)
{
    ngx_uint_t     i, n;
    ngx_atomic_t  *from, *to;

    ngx_memzero((void *) sum, sizeof(ngx_http_zstd_mmap_counts_t));

    if (ngx_http_zstd_mmap_slots == NULL) {
        return;
    }

    to = (ngx_atomic_t *) sum;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {

        from = (ngx_atomic_t *) &ngx_http_zstd_mmap_slots[i].counts;

        for (n = 0; n < sizeof(*sum) / sizeof(ngx_atomic_t); n++) {
            to[n] += from[n];
        }
    }
}


ngx_array_t *
ngx_http_zstd_mmap_list_workers(ngx_pool_t *pool)
{
    ngx_uint_t                    i;
    ngx_array_t                  *workers;
    ngx_http_zstd_mmap_gauges_t   gauges, *worker;

    workers = ngx_array_create(pool, 16, sizeof(ngx_http_zstd_mmap_gauges_t));
    if (workers == NULL || ngx_http_zstd_mmap_slots == NULL) {
        return workers;
    }

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {

        gauges = ngx_http_zstd_mmap_slots[i].gauges;

        if (!ngx_http_zstd_mmap_alive(gauges.pid)) {
            continue;
        }

        worker = ngx_array_push(workers);
        if (worker == NULL) {
            return NULL;
        }

        *worker = gauges;
    }

    return workers;
}


/* EPERM: a worker that a reload left behind with another user */

static ngx_uint_t
ngx_http_zstd_mmap_alive(ngx_pid_t pid)
{
    if (pid == 0) {
        return 0;
    }

    return kill(pid, 0) == 0 || ngx_errno != NGX_ESRCH;
}
