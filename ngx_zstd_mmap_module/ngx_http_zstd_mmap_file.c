
/*
 * The .zst file of a request: path, descriptor, version.
 */


#include "ngx_http_zstd_mmap_file.h"
#include "ngx_http_zstd_mmap_stats.h"


#define NGX_HTTP_ZSTD_MMAP_SUFFIX  ".zst"


static ngx_int_t ngx_http_zstd_mmap_open_path(ngx_http_request_t *r,
    ngx_str_t *path, ngx_open_file_info_t *of);
static ngx_int_t ngx_http_zstd_mmap_open_error(ngx_http_request_t *r,
    ngx_str_t *path, ngx_open_file_info_t *of);
static void ngx_http_zstd_mmap_use_file(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_file_t *file);
static ngx_uint_t ngx_http_zstd_mmap_is_fresh(ngx_http_zstd_mmap_ctx_t *ctx,
    zmap_file_t *file);
static void ngx_http_zstd_mmap_keep_file(ngx_http_zstd_mmap_ctx_t *ctx);
static uint64_t ngx_http_zstd_mmap_now(void);


ngx_int_t
ngx_http_zstd_mmap_open(ngx_http_zstd_mmap_ctx_t *ctx)
{
    u_char              *p;
    size_t               root;
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    p = ngx_http_map_uri_to_path(r, &ctx->path, &root,
                                 sizeof(NGX_HTTP_ZSTD_MMAP_SUFFIX) - 1);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_cpymem(p, NGX_HTTP_ZSTD_MMAP_SUFFIX,
                   sizeof(NGX_HTTP_ZSTD_MMAP_SUFFIX));

    /* the terminating NUL does not count */
    ctx->path.len = p - ctx->path.data - 1;

    rc = ngx_http_zstd_mmap_open_path(r, &ctx->path, &ctx->of);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!ctx->of.is_file) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "zstd mmap: \"%V\" is not a regular file", &ctx->path);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_zstd_mmap_open_path(ngx_http_request_t *r, ngx_str_t *path,
    ngx_open_file_info_t *of)
{
    ngx_uint_t                 test_only;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zstd mmap: open \"%V\"", path);

    test_only = of->test_only;

    ngx_memzero(of, sizeof(ngx_open_file_info_t));

    of->read_ahead = clcf->read_ahead;
    of->directio = clcf->directio;
    of->valid = clcf->open_file_cache_valid;
    of->min_uses = clcf->open_file_cache_min_uses;
    of->test_only = test_only;
    of->errors = clcf->open_file_cache_errors;
    of->events = clcf->open_file_cache_events;

    if (ngx_http_set_disable_symlinks(r, clcf, path, of) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_open_cached_file(clcf->open_file_cache, path, of, r->pool)
        != NGX_OK)
    {
        return ngx_http_zstd_mmap_open_error(r, path, of);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_zstd_mmap_open_error(ngx_http_request_t *r, ngx_str_t *path,
    ngx_open_file_info_t *of)
{
    ngx_uint_t  level;

    switch (of->err) {

    case 0:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;

    case NGX_ENOENT:
    case NGX_ENOTDIR:
    case NGX_ENAMETOOLONG:

        if (!of->test_only) {
            ngx_http_zstd_mmap_count_reason(
                                         NGX_HTTP_ZSTD_MMAP_REASON_NOT_FOUND);
        }

        return NGX_DECLINED;

    case NGX_EACCES:
#if (NGX_HAVE_OPENAT)
    case NGX_EMLINK:
    case NGX_ELOOP:
#endif

        level = NGX_LOG_ERR;
        ngx_http_zstd_mmap_count_reason(NGX_HTTP_ZSTD_MMAP_REASON_DENIED);
        break;

    default:

        level = NGX_LOG_CRIT;
        break;
    }

    ngx_log_error(level, r->connection->log, of->err,
                  "%s \"%V\" failed", of->failed, path);

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_zstd_mmap_get_file(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_log_t       *log;
    zmap_file_t     *file;
    zmap_version_t   version;

    log = ctx->request->connection->log;
    file = NULL;

    if (ctx->worker->files) {
        file = zmap_cache_find(ctx->worker->files, ctx->path.data,
                               ctx->path.len, ngx_http_zstd_mmap_now());
    }

    if (file && ngx_http_zstd_mmap_is_fresh(ctx, file)) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, log, 0,
                       "zstd mmap: file %p is fresh", file);
        ngx_http_zstd_mmap_use_file(ctx, zmap_file_ref(file));
        return NGX_OK;
    }

    if (zmap_version_read(&version, ctx->of.fd) != ZMAP_OK) {
        ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                      ngx_fd_info_n " \"%V\" failed", &ctx->path);
        return NGX_ERROR;
    }

    if (file && zmap_version_equal(&file->version, &version)) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, log, 0,
                       "zstd mmap: file %p is unchanged", file);
        file->checked = ngx_time();
        ngx_http_zstd_mmap_use_file(ctx, zmap_file_ref(file));
        return NGX_OK;
    }

    file = zmap_file_create(&version);
    if (file == NULL) {
        ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                      "no memory for the version of \"%V\"", &ctx->path);
        return NGX_ERROR;
    }

    ngx_http_zstd_mmap_use_file(ctx, file);
    ngx_http_zstd_mmap_keep_file(ctx);

    return NGX_OK;
}


/* the count is the context's from now on */

static void
ngx_http_zstd_mmap_use_file(ngx_http_zstd_mmap_ctx_t *ctx, zmap_file_t *file)
{
    ngx_http_request_t          *r;
    ngx_http_zstd_mmap_input_t  *input;

    r = ctx->request;
    input = &ctx->input;

    ctx->file = file;

    input->file = file;
    input->tabled = 0;
    input->asked = 0;
    input->young = zmap_version_racy(&file->version, r->start_sec,
                                     r->start_msec * 1000000)
                   ? 1 : 0;
    input->fd = ctx->of.fd;
    input->conf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);
    input->worker = ctx->worker;
    input->log = r->connection->log;
}


/*
 * ngx_open_file_info_t has neither device nor ctime, and its mtime is in
 * seconds: what open_file_cache says is trusted for one second only.
 */

static ngx_uint_t
ngx_http_zstd_mmap_is_fresh(ngx_http_zstd_mmap_ctx_t *ctx, zmap_file_t *file)
{
    ngx_open_file_info_t      *of;
    ngx_http_core_loc_conf_t  *clcf;

    of = &ctx->of;
    clcf = ngx_http_get_module_loc_conf(ctx->request, ngx_http_core_module);

    return clcf->open_file_cache
           && file->checked == (uint64_t) ngx_time()
           && file->version.ino == (uint64_t) of->uniq
           && file->version.mtime == (int64_t) of->mtime
           && file->version.size == (uint64_t) of->size;
}


static void
ngx_http_zstd_mmap_keep_file(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_log_t      *log;
    zmap_file_t    *file;
    zmap_cache_t   *files;

    file = ctx->file;
    files = ctx->worker->files;
    log = ctx->request->connection->log;

    if (files == NULL) {
        return;
    }

    if (ngx_http_zstd_mmap_is_racy(&file->version)) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, log, 0,
                       "zstd mmap: file %p is too young to keep", file);
        zmap_cache_remove(files, ctx->path.data, ctx->path.len);
        return;
    }

    file->checked = ngx_time();

    if (zmap_cache_store(files, ctx->path.data, ctx->path.len, file,
                         ngx_http_zstd_mmap_now())
        != ZMAP_OK)
    {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "no memory to keep \"%V\" in the file table",
                      &ctx->path);
        return;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: file %p is kept, %uz files",
                   file, zmap_cache_count(files));
}


void
ngx_http_zstd_mmap_forget_file(ngx_http_zstd_mmap_ctx_t *ctx)
{
    zmap_cache_t  *files;

    files = ctx->worker->files;

    if (files == NULL
        || zmap_cache_find(files, ctx->path.data, ctx->path.len,
                           ngx_http_zstd_mmap_now())
           != ctx->file)
    {
        return;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: forget \"%V\"", &ctx->path);

    zmap_cache_remove(files, ctx->path.data, ctx->path.len);
}


ngx_int_t
ngx_http_zstd_mmap_find_plain(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_int_t              rc;
    ngx_str_t              path;
    ngx_http_request_t    *r;
    ngx_open_file_info_t   of;

    r = ctx->request;

    path.len = ctx->path.len - (sizeof(NGX_HTTP_ZSTD_MMAP_SUFFIX) - 1);
    path.data = ngx_pnalloc(r->pool, path.len + 1);
    if (path.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(path.data, ctx->path.data, path.len);
    path.data[path.len] = '\0';

    of.test_only = 1;

    rc = ngx_http_zstd_mmap_open_path(r, &path, &of);

    if (rc == NGX_OK) {
        return of.is_file ? NGX_OK : NGX_DECLINED;
    }

    return (rc == NGX_DECLINED) ? NGX_DECLINED : NGX_ERROR;
}


static uint64_t
ngx_http_zstd_mmap_now(void)
{
    return ngx_current_msec / 1000;
}
