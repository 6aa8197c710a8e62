
/*
 * The state of one worker process.
 */


#include "ngx_http_zstd_mmap_worker.h"

#include "core/zmap_guard.h"


static ngx_int_t ngx_http_zstd_mmap_init_worker(
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

    if (worker->buffers == NULL) {
        worker->buffers = zmap_pool_create(zmcf->buffers_size);
        if (worker->buffers == NULL) {
            ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                          "no memory for zstd_mmap_buffers of %O bytes, "
                          "bodies are streamed", zmcf->buffers_size);
        }
    }

    worker->decoders = zmap_decoders_create();
    if (worker->decoders == NULL) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "no memory for the zstd_mmap decoders");
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_zstd_mmap_exit_worker(ngx_cycle_t *cycle)
{
    ngx_http_zstd_mmap_worker_t  *worker;

    worker = &ngx_http_zstd_mmap_worker;

    zmap_cache_destroy(worker->files);
    zmap_pool_destroy(worker->buffers);
    zmap_decoders_destroy(worker->decoders);
    zmap_guard_uninstall();

    ngx_memzero(worker, sizeof(ngx_http_zstd_mmap_worker_t));
}
