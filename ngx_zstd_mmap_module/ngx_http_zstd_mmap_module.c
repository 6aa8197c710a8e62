
/*
 * The module's entry points for nginx.
 */


#include "ngx_http_zstd_mmap_conf.h"
#include "ngx_http_zstd_mmap_handler.h"
#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_job.h"
#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_worker.h"


static ngx_int_t ngx_http_zstd_mmap_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_zstd_mmap_init_process(ngx_cycle_t *cycle);
static void ngx_http_zstd_mmap_exit_process(ngx_cycle_t *cycle);


static ngx_http_module_t  ngx_http_zstd_mmap_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_zstd_mmap_init,               /* postconfiguration */

    ngx_http_zstd_mmap_create_main_conf,   /* create main configuration */
    ngx_http_zstd_mmap_init_main_conf,     /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_zstd_mmap_create_loc_conf,    /* create location configuration */
    ngx_http_zstd_mmap_merge_loc_conf      /* merge location configuration */
};


ngx_module_t  ngx_http_zstd_mmap_module = {
    NGX_MODULE_V1,
    &ngx_http_zstd_mmap_module_ctx,        /* module context */
    ngx_http_zstd_mmap_commands,           /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_http_zstd_mmap_init_process,       /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_zstd_mmap_exit_process,       /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_zstd_mmap_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_CONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_zstd_mmap_handler;

    if (ngx_http_zstd_mmap_init_stats(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_zstd_mmap_init_header_filter(cf);
}


static ngx_int_t
ngx_http_zstd_mmap_init_process(ngx_cycle_t *cycle)
{
    ngx_http_zstd_mmap_enter_stats(cycle);

    return NGX_OK;
}


static void
ngx_http_zstd_mmap_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_zstd_mmap_exit_jobs();
    ngx_http_zstd_mmap_exit_worker();
    ngx_http_zstd_mmap_leave_stats();
}
