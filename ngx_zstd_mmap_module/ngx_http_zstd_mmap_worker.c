
/*
 * The state of one worker process.
 */


#include "ngx_http_zstd_mmap_worker.h"
#include "ngx_http_zstd_mmap_stats.h"

#include "core/zmap_guard.h"


/* msec in which a scratch that could not grow is not asked for again */
#define NGX_HTTP_ZSTD_MMAP_REFUSED  10000


static ngx_int_t ngx_http_zstd_mmap_init_worker(
    ngx_http_zstd_mmap_worker_t *worker, ngx_http_zstd_mmap_main_conf_t *zmcf,
    ngx_log_t *log);


static void ngx_http_zstd_mmap_init_buffers(
    ngx_http_zstd_mmap_worker_t *worker, ngx_http_zstd_mmap_main_conf_t *zmcf,
    ngx_log_t *log);
static ngx_int_t ngx_http_zstd_mmap_reserve_buffers(
    ngx_http_zstd_mmap_worker_t *worker, ngx_http_zstd_mmap_main_conf_t *zmcf,
    ngx_log_t *log);


static ngx_http_zstd_mmap_worker_t  ngx_http_zstd_mmap_worker;


ngx_http_zstd_mmap_worker_t *
ngx_http_zstd_mmap_get_worker(ngx_http_zstd_mmap_main_conf_t *zmcf,
    ngx_log_t *log)
{
    ngx_http_zstd_mmap_worker_t  *worker;

    worker = &ngx_http_zstd_mmap_worker;

    if (worker->decoders) {
        return worker;
    }

    if (ngx_http_zstd_mmap_init_worker(worker, zmcf, log) != NGX_OK) {
        return NULL;
    }

    return worker;
}


static ngx_int_t
ngx_http_zstd_mmap_init_worker(ngx_http_zstd_mmap_worker_t *worker,
    ngx_http_zstd_mmap_main_conf_t *zmcf, ngx_log_t *log)
{
    if (zmap_guard_install() != ZMAP_OK) {
        ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                      "sigaction(SIGBUS) failed");
        return NGX_ERROR;
    }

    if (zmcf->cache_max && worker->files == NULL) {
        worker->files = zmap_cache_create(zmcf->cache_max,
                                          zmcf->cache_inactive);
        if (worker->files == NULL) {
            ngx_log_error(NGX_LOG_CRIT, log, 0,
                          "no memory for the zstd_mmap file table");
            return NGX_ERROR;
        }
    }

    if (worker->bodies == NULL) {
        ngx_http_zstd_mmap_init_buffers(worker, zmcf, log);
    }

    worker->decoders = zmap_decoders_create();
    if (worker->decoders == NULL) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "no memory for the zstd_mmap decoders");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * The master found the pages for "hugepages=on" when it started; what happened
 * to the pool since is no reason to end service.
 */

static void
ngx_http_zstd_mmap_init_buffers(ngx_http_zstd_mmap_worker_t *worker,
    ngx_http_zstd_mmap_main_conf_t *zmcf, ngx_log_t *log)
{
    if (ngx_http_zstd_mmap_reserve_buffers(worker, zmcf, log) != NGX_OK) {
        return;
    }

    worker->buffers = zmap_pool_create_over(worker->memory.base,
                                            zmcf->buffers_size);
    if (worker->buffers) {
        worker->bodies = zmap_bodies_create(worker->buffers);
    }

    if (worker->bodies == NULL) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "no memory for zstd_mmap_buffers, bodies are streamed");

        zmap_pool_destroy(worker->buffers);
        worker->buffers = NULL;
        zmap_hugemem_release(&worker->memory);
    }
}


static ngx_int_t
ngx_http_zstd_mmap_reserve_buffers(ngx_http_zstd_mmap_worker_t *worker,
    ngx_http_zstd_mmap_main_conf_t *zmcf, ngx_log_t *log)
{
    ngx_uint_t  want;

    want = zmcf->buffers_hugepages ? ZMAP_HUGE_AUTO : ZMAP_HUGE_OFF;

    if (zmap_hugemem_reserve(&worker->memory, zmcf->buffers_size, want, 0)
        != ZMAP_OK)
    {
        ngx_log_error(NGX_LOG_CRIT, log, worker->memory.error,
                      "no memory for zstd_mmap_buffers of %O bytes, "
                      "bodies are streamed", zmcf->buffers_size);
        return NGX_ERROR;
    }

    if (want != ZMAP_HUGE_OFF && worker->memory.pages != ZMAP_PAGES_HUGETLB) {
        ngx_log_error(NGX_LOG_WARN, log, worker->memory.error,
                      "zstd_mmap_buffers got %s pages instead of hugetlb ones, "
                      "%uL are missing in the pool",
                      zmap_pages_name(worker->memory.pages),
                      worker->memory.missing);
    }

    return NGX_OK;
}


zmap_window_t *
ngx_http_zstd_mmap_get_window(ngx_http_zstd_mmap_worker_t *worker,
    size_t size, ngx_uint_t huge, ngx_log_t *log)
{
    zmap_hugemem_t  *scratch, memory;

    scratch = &worker->scratch;

    if (scratch->base
        && (scratch->size >= size
            || (ngx_msec_int_t) (worker->refused - ngx_current_msec) > 0))
    {
        return &worker->window;
    }

    ngx_memzero(&memory, sizeof(zmap_hugemem_t));

    if (zmap_hugemem_reserve(&memory, size,
                             huge ? ZMAP_HUGE_AUTO : ZMAP_HUGE_OFF, 0)
        != ZMAP_OK)
    {
        ngx_log_error(NGX_LOG_CRIT, log, memory.error,
                      "no memory to read %uz bytes of a file", size);

        /* what there is reads as well, in more steps: this runs for each */

        worker->refused = ngx_current_msec + NGX_HTTP_ZSTD_MMAP_REFUSED;

        return scratch->base ? &worker->window : NULL;
    }

    if (huge && memory.pages != ZMAP_PAGES_HUGETLB) {
        ngx_log_error(NGX_LOG_WARN, log, memory.error,
                      "the scratch of zstd_mmap_input got %s pages instead of "
                      "hugetlb ones, %uL are missing in the pool",
                      zmap_pages_name(memory.pages), memory.missing);
    }

    if (scratch->base) {
        zmap_hugemem_release(scratch);
    }

    *scratch = memory;

    zmap_window_init(&worker->window, scratch->base,
                     scratch->size - scratch->size % ZMAP_READ_BLOCK);

    return &worker->window;
}


ngx_uint_t
ngx_http_zstd_mmap_has_buffers(ngx_http_zstd_mmap_worker_t *worker,
    size_t size)
{
    size_t  room;

    if (worker->bodies == NULL) {
        return 0;
    }

    room = zmap_pool_size(worker->buffers) / 2;

    return worker->streaming <= room && size <= room - worker->streaming;
}


void
ngx_http_zstd_mmap_show_worker(ngx_http_zstd_mmap_worker_t *worker)
{
    ngx_http_zstd_mmap_gauges_t  *gauges;

    gauges = ngx_http_zstd_mmap_stats_worker();

    gauges->files = worker->files ? zmap_cache_count(worker->files) : 0;
    gauges->streams = worker->streams;

    if (worker->bodies == NULL) {
        return;
    }

    gauges->buffers_size = zmap_pool_size(worker->buffers);
    gauges->buffers_used = zmap_pool_used(worker->buffers);
    gauges->buffers_kept = zmap_bodies_kept_bytes(worker->bodies);
    gauges->buffers_pages = worker->memory.pages;
}


void
ngx_http_zstd_mmap_exit_worker(void)
{
    ngx_http_zstd_mmap_worker_t  *worker;

    worker = &ngx_http_zstd_mmap_worker;

    zmap_cache_destroy(worker->files);
    zmap_bodies_destroy(worker->bodies);
    zmap_pool_destroy(worker->buffers);
    zmap_hugemem_release(&worker->memory);
    zmap_decoders_destroy(worker->decoders);
    zmap_hugemem_release(&worker->scratch);
    zmap_guard_uninstall();

    ngx_memzero(worker, sizeof(ngx_http_zstd_mmap_worker_t));
}
