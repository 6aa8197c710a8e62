
/*
 * The state of one request and its end.
 */


#include "ngx_http_zstd_mmap_ctx.h"


static void ngx_http_zstd_mmap_cleanup_ctx(void *data);


ngx_http_zstd_mmap_ctx_t *
ngx_http_zstd_mmap_create_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t              *cln;
    ngx_http_zstd_mmap_ctx_t        *ctx;
    ngx_http_zstd_mmap_worker_t     *worker;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zstd_mmap_module);

    worker = ngx_http_zstd_mmap_get_worker(zmcf, r->connection->log);
    if (worker == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_zstd_mmap_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_zstd_mmap_ctx_t));

    ctx->request = r;
    ctx->worker = worker;
    ctx->size = -1;

    cln->handler = ngx_http_zstd_mmap_cleanup_ctx;

    return ctx;
}


static void
ngx_http_zstd_mmap_cleanup_ctx(void *data)
{
    ngx_http_zstd_mmap_ctx_t *ctx = data;

    if (ctx->decoder) {
        zmap_decoder_put(ctx->worker->decoders, ctx->decoder);
    }

    if (ctx->chunks) {
        zmap_pool_free(ctx->worker->buffers, ctx->chunks);
    }

    if (ctx->body) {
        zmap_pool_free(ctx->worker->buffers, ctx->body);
    }

    if (ctx->file) {
        zmap_file_unref(ctx->file);
    }
}
