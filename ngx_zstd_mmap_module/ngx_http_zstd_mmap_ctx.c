
/*
 * The state of one request and its end.
 */


#include "ngx_http_zstd_mmap_ctx.h"


static void ngx_http_zstd_mmap_cleanup_ctx(void *data);


ngx_http_zstd_mmap_ctx_t *
ngx_http_zstd_mmap_create_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_zstd_mmap_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_zstd_mmap_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_zstd_mmap_ctx_t));

    ctx->request = r;
    ctx->size = -1;

    cln->handler = ngx_http_zstd_mmap_cleanup_ctx;

    return ctx;
}


ngx_http_zstd_mmap_ctx_t *
ngx_http_zstd_mmap_find_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_zstd_mmap_ctx_t  *ctx;

    /* subrequests share the pool of the main request */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler != ngx_http_zstd_mmap_cleanup_ctx) {
            continue;
        }

        ctx = cln->data;

        if (ctx->request == r) {
            return ctx;
        }
    }

    return NULL;
}


void
ngx_http_zstd_mmap_put_decoder(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ctx->decoder) {
        zmap_decoder_put(ctx->worker->decoders, ctx->decoder);
        ctx->decoder = NULL;
    }
}


void
ngx_http_zstd_mmap_reset_ctx(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_zstd_mmap_put_decoder(ctx);

    if (ctx->pieces) {
        ctx->worker->streaming -= ctx->pieces->size;
        zmap_bodies_release(ctx->worker->bodies, ctx->pieces);
        ctx->pieces = NULL;
    }

    if (ctx->body) {
        zmap_bodies_release(ctx->worker->bodies, ctx->body);
        ctx->body = NULL;
    }

    if (ctx->segment.data) {
        ngx_http_zstd_mmap_release_segment(&ctx->segment);
    }

    if (ctx->file) {
        zmap_file_unref(ctx->file);
        ctx->file = NULL;
    }

    ctx->size = -1;
    ctx->dropped = 0;
}


static void
ngx_http_zstd_mmap_cleanup_ctx(void *data)
{
    ngx_http_zstd_mmap_ctx_t *ctx = data;

    ngx_http_zstd_mmap_reset_ctx(ctx);

    if (ctx->worker) {
        ngx_http_zstd_mmap_show_worker(ctx->worker);
    }
}
