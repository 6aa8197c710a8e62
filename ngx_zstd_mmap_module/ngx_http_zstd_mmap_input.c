
/*
 * Chooses between the staged copy of a file and the file itself.
 */


#include "ngx_http_zstd_mmap_input.h"


static ngx_uint_t ngx_http_zstd_mmap_match_uri(ngx_http_request_t *r,
    ngx_http_zstd_mmap_stage_t *stage);


void
ngx_http_zstd_mmap_take_segment(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_log_t                      *log;
    ngx_int_t                       rc;
    ngx_http_zstd_mmap_stage_t     *stage;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(ctx->request,
                                        ngx_http_zstd_mmap_module);
    stage = zlcf->stage;

    if (ctx->segment.data || stage == NULL || stage->zone == NULL
        || ctx->file->version.size > (uint64_t) stage->max
        || !ngx_http_zstd_mmap_match_uri(ctx->request, stage))
    {
        return;
    }

    log = ctx->request->connection->log;

    rc = ngx_http_zstd_mmap_find_segment(stage->zone, &ctx->file->version,
                                         stage->min_uses, &ctx->segment, log);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: find segment rc:%i %p", rc, ctx->segment.data);

    if (rc != NGX_AGAIN) {
        return;
    }

    rc = ngx_http_zstd_mmap_fill_segment(stage->zone, &ctx->file->version,
                                         ctx->of.fd, &ctx->segment, log);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: fill segment rc:%i %p", rc, ctx->segment.data);
}


static ngx_uint_t
ngx_http_zstd_mmap_match_uri(ngx_http_request_t *r,
    ngx_http_zstd_mmap_stage_t *stage)
{
#if (NGX_PCRE)
    ngx_int_t  n;

    if (stage->regex == NULL) {
        return 1;
    }

    n = ngx_regex_exec(stage->regex, &r->uri, NULL, 0);

    if (n < NGX_REGEX_NO_MATCHED) {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                      ngx_regex_exec_n " failed: %i on \"%V\" using the regex "
                      "of \"zstd_mmap_stage\"", n, &r->uri);
        return 0;
    }

    return n != NGX_REGEX_NO_MATCHED;
#else
    return 1;
#endif
}
