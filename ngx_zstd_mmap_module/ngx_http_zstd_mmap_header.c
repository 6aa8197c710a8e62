
/*
 * Response headers: pushed last, taken back where nginx answers otherwise.
 */


#include "ngx_http_zstd_mmap_header.h"
#include "ngx_http_zstd_mmap_stats.h"


static ngx_int_t ngx_http_zstd_mmap_send_header(ngx_http_zstd_mmap_ctx_t *ctx,
    off_t length, char *suffix);
static ngx_int_t ngx_http_zstd_mmap_set_etag(ngx_http_zstd_mmap_ctx_t *ctx,
    char *suffix);
static ngx_uint_t ngx_http_zstd_mmap_is_tag(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_str_t *value);
static u_char *ngx_http_zstd_mmap_print_tag(ngx_http_zstd_mmap_ctx_t *ctx,
    u_char *p, off_t size, char *suffix);
static ngx_int_t ngx_http_zstd_mmap_set_encoding(ngx_http_request_t *r);
static ngx_table_elt_t *ngx_http_zstd_mmap_push_header(ngx_http_request_t *r,
    char *key, char *value);
static ngx_table_elt_t *ngx_http_zstd_mmap_find_vary(ngx_http_request_t *r);
static void ngx_http_zstd_mmap_clear_vary(ngx_http_request_t *r,
    ngx_http_zstd_mmap_ctx_t *ctx);
static void ngx_http_zstd_mmap_clear_headers(ngx_http_zstd_mmap_ctx_t *ctx);
static ngx_int_t ngx_http_zstd_mmap_header_filter(ngx_http_request_t *r);


#define NGX_HTTP_ZSTD_MMAP_TAG_LEN                                            \
    (NGX_OFF_T_LEN + NGX_TIME_T_LEN + sizeof("\"--zst\"") - 1)


static char  ngx_http_zstd_mmap_vary_value[] = "Accept-Encoding";

/*
 * Room comes back whenever a client has taken its reply, and another connection
 * may be another worker's: the least that delay-seconds can say.
 */

static char  ngx_http_zstd_mmap_retry_value[] = "1";

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


ngx_int_t
ngx_http_zstd_mmap_send_coded_header(ngx_http_zstd_mmap_ctx_t *ctx)
{
    if (ngx_http_zstd_mmap_set_encoding(ctx->request) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->request->allow_ranges = 1;

    ngx_http_zstd_mmap_count(sent);

    return ngx_http_zstd_mmap_send_header(ctx, ctx->file->version.size,
                                          "-zst");
}


ngx_int_t
ngx_http_zstd_mmap_send_decoded_header(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_uint_t ranges)
{
    ctx->request->allow_ranges = ranges ? 1 : 0;

    ngx_http_zstd_mmap_count(decoded);

    return ngx_http_zstd_mmap_send_header(ctx, ctx->size,
                              ctx->file->walk.frames.sized ? NULL : "-d");
}


static ngx_int_t
ngx_http_zstd_mmap_send_header(ngx_http_zstd_mmap_ctx_t *ctx, off_t length,
    char *suffix)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = length;
    r->headers_out.last_modified_time = ctx->file->version.mtime;

    if (ngx_http_zstd_mmap_set_etag(ctx, suffix) != NGX_OK
        || ngx_http_set_content_type(r) != NGX_OK
        || ngx_http_zstd_mmap_set_vary(r) != NGX_OK)
    {
        ngx_http_zstd_mmap_clear_headers(ctx);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_HTTP_RANGE_NOT_SATISFIABLE) {
        ngx_http_zstd_mmap_clear_headers(ctx);
    }

    return rc;
}


ngx_uint_t
ngx_http_zstd_mmap_is_not_modified(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_table_elt_t           *match, *since;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = ctx->request;

    match = r->headers_in.if_none_match;
    since = r->headers_in.if_modified_since;

    if (r != r->main || r->error_page || (match == NULL && since == NULL)) {
        return 0;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (match
        && (!clcf->etag || !ngx_http_zstd_mmap_is_tag(ctx, &match->value)))
    {
        return 0;
    }

    return since == NULL
           || (clcf->if_modified_since != NGX_HTTP_IMS_OFF
               && ngx_parse_http_time(since->value.data, since->value.len)
                  == (time_t) ctx->file->version.mtime);
}


/* a filter on the way may have made the tag a weak one: RFC 9110, 8.8.3.2 */

static ngx_uint_t
ngx_http_zstd_mmap_is_tag(ngx_http_zstd_mmap_ctx_t *ctx, ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *last, tag[NGX_HTTP_ZSTD_MMAP_TAG_LEN];

    p = value->data;
    len = value->len;

    if (len > 2 && p[0] == 'W' && p[1] == '/') {
        p += 2;
        len -= 2;
    }

    if (ctx->file->walk.frames.sized) {
        last = ngx_http_zstd_mmap_print_tag(ctx, tag, ctx->size, "");

    } else {
        last = ngx_http_zstd_mmap_print_tag(ctx, tag, ctx->file->version.size,
                                            "-d");
    }

    return len == (size_t) (last - tag) && ngx_memcmp(p, tag, len) == 0;
}


void
ngx_http_zstd_mmap_set_range(ngx_http_zstd_mmap_ctx_t *ctx, off_t size)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    ctx->begin = 0;
    ctx->end = size;

    /* a page for a 416 may have its line, a 206 of error_page and no length */

    if (r->headers_out.status == NGX_HTTP_PARTIAL_CONTENT
        && r->headers_out.content_range
        && r->headers_out.content_length_n != -1)
    {
        ctx->begin = r->headers_out.content_offset;
        ctx->end = ctx->begin + r->headers_out.content_length_n;
    }

    ctx->pos = ctx->begin;
}


/*
 * A decoded body whose size the file declares has the tag that nginx gives to
 * the plain file.  Every other tag is made of the coded size: a size that is
 * learnt later must not change the tag.
 */

static ngx_int_t
ngx_http_zstd_mmap_set_etag(ngx_http_zstd_mmap_ctx_t *ctx, char *suffix)
{
    u_char                    *p;
    ngx_table_elt_t           *etag;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = ctx->request;

    if (suffix == NULL) {
        return ngx_http_set_etag(r);
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (!clcf->etag) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_HTTP_ZSTD_MMAP_TAG_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    etag = ngx_http_zstd_mmap_push_header(r, "ETag", "");
    if (etag == NULL) {
        return NGX_ERROR;
    }

    etag->value.data = p;
    etag->value.len = ngx_http_zstd_mmap_print_tag(ctx, p,
                                                   ctx->file->version.size,
                                                   suffix)
                      - p;

    r->headers_out.etag = etag;

    return NGX_OK;
}


static u_char *
ngx_http_zstd_mmap_print_tag(ngx_http_zstd_mmap_ctx_t *ctx, u_char *p,
    off_t size, char *suffix)
{
    return ngx_sprintf(p, "\"%xT-%xO%s\"",
                       (time_t) ctx->file->version.mtime, size, suffix);
}


static ngx_int_t
ngx_http_zstd_mmap_set_encoding(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = ngx_http_zstd_mmap_push_header(r, "Content-Encoding", "zstd");
    if (h == NULL) {
        return NGX_ERROR;
    }

    r->headers_out.content_encoding = h;

    return NGX_OK;
}


ngx_int_t
ngx_http_zstd_mmap_set_vary(ngx_http_request_t *r)
{
    ngx_http_zstd_mmap_ctx_t       *ctx;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zstd_mmap_module);

    if (!zlcf->vary || zlcf->mode != NGX_HTTP_ZSTD_MMAP_ON || r != r->main) {
        return NGX_OK;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->gzip_vary) {
        /* nginx's header filter prints it, for all modules together */

        ctx = ngx_http_zstd_mmap_find_ctx(r);

        if (ctx && !r->gzip_vary) {
            ctx->vary = 1;
            r->gzip_vary = 1;
        }

        return NGX_OK;
    }

    if (ngx_http_zstd_mmap_find_vary(r)) {
        return NGX_OK;
    }

    if (ngx_http_zstd_mmap_push_header(r, "Vary",
                                       ngx_http_zstd_mmap_vary_value)
        == NULL)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_table_elt_t *
ngx_http_zstd_mmap_push_header(ngx_http_request_t *r, char *key, char *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key.len = ngx_strlen(key);
    h->key.data = (u_char *) key;
    h->value.len = ngx_strlen(value);
    h->value.data = (u_char *) value;
    h->lowcase_key = NULL;

    return h;
}


/* our own entry: an error page may run the handler twice for one request */

static ngx_table_elt_t *
ngx_http_zstd_mmap_find_vary(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_out.headers.part; part; part = part->next) {

        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (h[i].hash
                && h[i].value.data == (u_char *) ngx_http_zstd_mmap_vary_value)
            {
                return &h[i];
            }
        }
    }

    return NULL;
}


static void
ngx_http_zstd_mmap_clear_vary(ngx_http_request_t *r,
    ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_table_elt_t  *vary;

    vary = ngx_http_zstd_mmap_find_vary(r);
    if (vary) {
        vary->hash = 0;
    }

    if (ctx->vary) {
        r->gzip_vary = 0;
    }
}


static void
ngx_http_zstd_mmap_clear_headers(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    if (r->headers_out.content_encoding) {
        r->headers_out.content_encoding->hash = 0;
        r->headers_out.content_encoding = NULL;
    }

    ngx_http_clear_etag(r);

    ngx_http_zstd_mmap_clear_vary(r, ctx);
}


ngx_int_t
ngx_http_zstd_mmap_init_header_filter(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_zstd_mmap_header_filter;

    return NGX_OK;
}


/*
 * A 412 is made inside ngx_http_send_header(), also by the handler that got the
 * request from us: nginx then clears the header list and not r->gzip_vary.  A
 * 416 keeps both.
 *
 * "Retry-After" is for a 503 only: error_page may answer with another status.
 */

static ngx_int_t
ngx_http_zstd_mmap_header_filter(ngx_http_request_t *r)
{
    ngx_http_zstd_mmap_ctx_t  *ctx;

    if ((r->headers_out.status == NGX_HTTP_PRECONDITION_FAILED
         || r->headers_out.status == NGX_HTTP_RANGE_NOT_SATISFIABLE)
        && !r->error_page)
    {
        ctx = ngx_http_zstd_mmap_find_ctx(r);

        if (ctx) {
            ngx_http_zstd_mmap_clear_vary(r, ctx);
        }
    }

    if (r->headers_out.status == NGX_HTTP_SERVICE_UNAVAILABLE
        && r == r->main && ngx_http_zstd_mmap_was_limited(r)
        && ngx_http_zstd_mmap_push_header(r, "Retry-After",
                                          ngx_http_zstd_mmap_retry_value)
           == NULL)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}
