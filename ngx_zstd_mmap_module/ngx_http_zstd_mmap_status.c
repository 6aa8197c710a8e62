
/*
 * The status page: counters, zones and workers.
 */


#include "ngx_http_zstd_mmap_stats.h"
#include "ngx_http_zstd_mmap_status.h"
#include "ngx_http_zstd_mmap_zone.h"

#include "core/zmap_hugemem.h"


/* RFC 8259, 7: "\u0000" is the longest form of what one byte can be */
#define NGX_HTTP_ZSTD_MMAP_JSON_ESCAPED  6

#define NGX_HTTP_ZSTD_MMAP_PAGES_LEN  (sizeof("hugetlb") - 1)


#define NGX_HTTP_ZSTD_MMAP_JSON_ZONE                                          \
    "\":{\"size\":%uz,\"used\":%uz,\"pages\":\"%s\",\"segments\":%ui}"

#define NGX_HTTP_ZSTD_MMAP_JSON_ZONE_LEN                                      \
    (sizeof(",\"" NGX_HTTP_ZSTD_MMAP_JSON_ZONE) + 3 * NGX_ATOMIC_T_LEN        \
     + NGX_HTTP_ZSTD_MMAP_PAGES_LEN)

#define NGX_HTTP_ZSTD_MMAP_JSON_WORKER                                        \
    "{\"pid\":%uA,\"buffers\":{\"size\":%uA,\"used\":%uA,\"kept\":%uA,"       \
    "\"pages\":\"%s\"},\"files\":%uA,\"streams\":%uA}"

#define NGX_HTTP_ZSTD_MMAP_JSON_WORKER_LEN                                    \
    (sizeof("," NGX_HTTP_ZSTD_MMAP_JSON_WORKER) + 6 * NGX_ATOMIC_T_LEN        \
     + NGX_HTTP_ZSTD_MMAP_PAGES_LEN)


typedef struct {
    ngx_str_t                     name;
    size_t                        offset;    /* in the sum of the counts */
} ngx_http_zstd_mmap_field_t;


typedef struct {
    ngx_str_t                     name;
    ngx_http_zstd_mmap_field_t   *fields;
} ngx_http_zstd_mmap_group_t;


typedef struct {
    ngx_http_zstd_mmap_counts_t   counts;
    ngx_array_t                  *workers;   /* ngx_http_zstd_mmap_gauges_t */
    ngx_array_t                  *zones;     /* of the configuration */
} ngx_http_zstd_mmap_snapshot_t;


static ngx_int_t ngx_http_zstd_mmap_status_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_zstd_mmap_send_status(ngx_http_request_t *r,
    ngx_buf_t *b);
static ngx_int_t ngx_http_zstd_mmap_forbid_storing(ngx_http_request_t *r);
static ngx_buf_t *ngx_http_zstd_mmap_create_json(ngx_http_request_t *r);
static size_t ngx_http_zstd_mmap_json_len(
    ngx_http_zstd_mmap_snapshot_t *snapshot);
static void ngx_http_zstd_mmap_put_groups(ngx_buf_t *b,
    ngx_http_zstd_mmap_counts_t *counts);
static void ngx_http_zstd_mmap_put_zones(ngx_buf_t *b, ngx_array_t *zones);
static void ngx_http_zstd_mmap_put_workers(ngx_buf_t *b,
    ngx_array_t *workers);
static void ngx_http_zstd_mmap_put_escaped(ngx_buf_t *b, ngx_str_t *text);
static size_t ngx_http_zstd_mmap_utf8_len(u_char *p, size_t size);
static void ngx_http_zstd_mmap_put(ngx_buf_t *b, const char *fmt, ...);


#define NGX_HTTP_ZSTD_MMAP_COUNTER_FIELD(name)                                \
    { ngx_string(#name),                                                      \
      offsetof(ngx_http_zstd_mmap_counts_t, counters.name) },

static ngx_http_zstd_mmap_field_t  ngx_http_zstd_mmap_counter_fields[] = {
    NGX_HTTP_ZSTD_MMAP_COUNTERS(NGX_HTTP_ZSTD_MMAP_COUNTER_FIELD)
    { ngx_null_string, 0 }
};


#define NGX_HTTP_ZSTD_MMAP_REASON_FIELD(name, NAME)                           \
    { ngx_string(#name),                                                      \
      offsetof(ngx_http_zstd_mmap_counts_t,                                   \
               reasons[NGX_HTTP_ZSTD_MMAP_REASON_##NAME]) },

static ngx_http_zstd_mmap_field_t  ngx_http_zstd_mmap_reason_fields[] = {
    NGX_HTTP_ZSTD_MMAP_REASONS(NGX_HTTP_ZSTD_MMAP_REASON_FIELD)
    { ngx_null_string, 0 }
};


#define NGX_HTTP_ZSTD_MMAP_BYTES_FIELD(name)                                  \
    { ngx_string(#name),                                                      \
      offsetof(ngx_http_zstd_mmap_counts_t, bytes.name) },

static ngx_http_zstd_mmap_field_t  ngx_http_zstd_mmap_bytes_fields[] = {
    NGX_HTTP_ZSTD_MMAP_BYTES(NGX_HTTP_ZSTD_MMAP_BYTES_FIELD)
    { ngx_null_string, 0 }
};


static ngx_http_zstd_mmap_group_t  ngx_http_zstd_mmap_groups[] = {
    { ngx_string("counters"), ngx_http_zstd_mmap_counter_fields },
    { ngx_string("reasons"), ngx_http_zstd_mmap_reason_fields },
    { ngx_string("bytes"), ngx_http_zstd_mmap_bytes_fields },
    { ngx_null_string, NULL }
};


char *
ngx_http_zstd_mmap_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler == ngx_http_zstd_mmap_status_handler) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "json") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "format \"%V\" is not supported in \"%V\" "
                           "directive, it must be json",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    clcf->handler = ngx_http_zstd_mmap_status_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_zstd_mmap_status_handler(ngx_http_request_t *r)
{
    ngx_int_t   rc;
    ngx_buf_t  *b;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_http_zstd_mmap_create_json(r);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    return ngx_http_zstd_mmap_send_status(r, b);
}


static ngx_int_t
ngx_http_zstd_mmap_send_status(ngx_http_request_t *r, ngx_buf_t *b)
{
    ngx_int_t    rc;
    ngx_chain_t  out;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = ngx_buf_size(b);

    if (ngx_http_zstd_mmap_forbid_storing(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b->last_buf = (r == r->main);
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


/*
 * A line of its own, not headers_out.cache_control: what is found there the
 * "expires" directive replaces by its max-age.
 */

static ngx_int_t
ngx_http_zstd_mmap_forbid_storing(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    ngx_str_set(&h->key, "Cache-Control");
    ngx_str_set(&h->value, "no-store");
    h->lowcase_key = NULL;

    return NGX_OK;
}


static ngx_buf_t *
ngx_http_zstd_mmap_create_json(ngx_http_request_t *r)
{
    ngx_buf_t                       *b;
    ngx_http_zstd_mmap_snapshot_t    snapshot;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zstd_mmap_module);

    ngx_http_zstd_mmap_sum_stats(&snapshot.counts);

    snapshot.zones = zmcf->zones;
    snapshot.workers = ngx_http_zstd_mmap_list_workers(r->pool);
    if (snapshot.workers == NULL) {
        return NULL;
    }

    b = ngx_create_temp_buf(r->pool, ngx_http_zstd_mmap_json_len(&snapshot));
    if (b == NULL) {
        return NULL;
    }

    ngx_http_zstd_mmap_put(b, "{");
    ngx_http_zstd_mmap_put_groups(b, &snapshot.counts);
    ngx_http_zstd_mmap_put_zones(b, snapshot.zones);
    ngx_http_zstd_mmap_put_workers(b, snapshot.workers);
    ngx_http_zstd_mmap_put(b, "}\n");

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zstd mmap: status of %ui workers, %uz of %uz bytes",
                   snapshot.workers->nelts, b->last - b->pos,
                   b->end - b->start);

    if (b->last == b->end) {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0,
                      "zstd_mmap_status is longer than %uz bytes",
                      b->end - b->start);
        return NULL;
    }

    return b;
}


/* at least one byte more than is written: a full buffer shows an error */

static size_t
ngx_http_zstd_mmap_json_len(ngx_http_zstd_mmap_snapshot_t *snapshot)
{
    size_t                       len;
    ngx_uint_t                   i;
    ngx_http_zstd_mmap_zone_t  **zone;
    ngx_http_zstd_mmap_field_t  *field;
    ngx_http_zstd_mmap_group_t  *group;

    len = sizeof("{\"zones\":{},\"workers\":[]}\n");

    for (group = ngx_http_zstd_mmap_groups; group->fields; group++) {

        len += group->name.len + sizeof("\"\":{},");

        for (field = group->fields; field->name.len; field++) {
            len += field->name.len + sizeof("\"\":,") + NGX_ATOMIC_T_LEN;
        }
    }

    if (snapshot->zones) {
        zone = snapshot->zones->elts;

        for (i = 0; i < snapshot->zones->nelts; i++) {
            len += zone[i]->name.len * NGX_HTTP_ZSTD_MMAP_JSON_ESCAPED
                   + NGX_HTTP_ZSTD_MMAP_JSON_ZONE_LEN;
        }
    }

    return len
           + snapshot->workers->nelts * NGX_HTTP_ZSTD_MMAP_JSON_WORKER_LEN;
}


static void
ngx_http_zstd_mmap_put_groups(ngx_buf_t *b,
    ngx_http_zstd_mmap_counts_t *counts)
{
    char                        *comma;
    ngx_atomic_t                *value;
    ngx_http_zstd_mmap_field_t  *field;
    ngx_http_zstd_mmap_group_t  *group;

    for (group = ngx_http_zstd_mmap_groups; group->fields; group++) {

        ngx_http_zstd_mmap_put(b, "\"%V\":{", &group->name);

        comma = "";

        for (field = group->fields; field->name.len; field++) {

            value = (ngx_atomic_t *) ((u_char *) counts + field->offset);

            ngx_http_zstd_mmap_put(b, "%s\"%V\":%uA",
                                   comma, &field->name, *value);
            comma = ",";
        }

        ngx_http_zstd_mmap_put(b, "},");
    }
}


static void
ngx_http_zstd_mmap_put_zones(ngx_buf_t *b, ngx_array_t *zones)
{
    ngx_uint_t                         i;
    ngx_http_zstd_mmap_zone_t        **zone;
    ngx_http_zstd_mmap_zone_status_t   status;

    ngx_http_zstd_mmap_put(b, "\"zones\":{");

    if (zones) {
        zone = zones->elts;

        for (i = 0; i < zones->nelts; i++) {

            ngx_http_zstd_mmap_zone_status(zone[i], &status);

            ngx_http_zstd_mmap_put(b, i ? ",\"" : "\"");
            ngx_http_zstd_mmap_put_escaped(b, &zone[i]->name);
            ngx_http_zstd_mmap_put(b, NGX_HTTP_ZSTD_MMAP_JSON_ZONE,
                                   zone[i]->size, status.used,
                                   zmap_pages_name(status.pages),
                                   status.segments);
        }
    }

    ngx_http_zstd_mmap_put(b, "},");
}


static void
ngx_http_zstd_mmap_put_workers(ngx_buf_t *b, ngx_array_t *workers)
{
    ngx_uint_t                    i;
    ngx_http_zstd_mmap_gauges_t  *worker;

    ngx_http_zstd_mmap_put(b, "\"workers\":[");

    worker = workers->elts;

    for (i = 0; i < workers->nelts; i++) {

        if (i) {
            ngx_http_zstd_mmap_put(b, ",");
        }

        ngx_http_zstd_mmap_put(b, NGX_HTTP_ZSTD_MMAP_JSON_WORKER,
                               worker[i].pid, worker[i].buffers_size,
                               worker[i].buffers_used, worker[i].buffers_kept,
                               zmap_pages_name(worker[i].buffers_pages),
                               worker[i].files, worker[i].streams);
    }

    ngx_http_zstd_mmap_put(b, "]");
}


/*
 * RFC 8259, 8.1: JSON is UTF-8.  A name in nginx.conf is any bytes: one that
 * belongs to no character is written as the character of that number.
 */

static void
ngx_http_zstd_mmap_put_escaped(ngx_buf_t *b, ngx_str_t *text)
{
    size_t     len;
    u_char    *p, *last;
    ngx_str_t  s;

    p = text->data;
    last = p + text->len;

    for ( /* void */ ; p < last; p += len) {

        len = ngx_http_zstd_mmap_utf8_len(p, last - p);

        if (len == 0) {
            len = 1;
            ngx_http_zstd_mmap_put(b, "\\u%04xd", *p);
            continue;
        }

        if (len == 1 && (*p == '"' || *p == '\\')) {
            ngx_http_zstd_mmap_put(b, "\\");
        }

        s.len = len;
        s.data = p;

        ngx_http_zstd_mmap_put(b, "%V", &s);
    }
}


/*
 * The bytes of the character at p, 0 when it is none that JSON may hold as it
 * is.  ngx_utf8_decode() lets surrogates pass (RFC 3629, 3) and any byte
 * above 0x7f as the second or a later one.
 */

static size_t
ngx_http_zstd_mmap_utf8_len(u_char *p, size_t size)
{
    size_t    i, len;
    u_char   *next;
    uint32_t  c;

    if (*p < 0x80) {
        return *p > 0x1f && *p != 0x7f;
    }

    next = p;
    c = ngx_utf8_decode(&next, size);
    len = next - p;

    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || *p > 0xf4) {
        return 0;
    }

    for (i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }

    return len;
}


static void
ngx_http_zstd_mmap_put(ngx_buf_t *b, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    b->last = ngx_vslprintf(b->last, b->end, fmt, args);
    va_end(args);
}
