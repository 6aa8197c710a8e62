
/*
 * Directives: their table, setters, defaults and inheritance.
 */


#include "ngx_http_zstd_mmap_conf.h"


#define NGX_HTTP_ZSTD_MMAP_KB  1024
#define NGX_HTTP_ZSTD_MMAP_MB  (1024 * 1024)
#define NGX_HTTP_ZSTD_MMAP_GB  (1024 * 1024 * 1024LL)

/* each file is a mapping: half of the default of vm.max_map_count */
#define NGX_HTTP_ZSTD_MMAP_CACHE_LIMIT  32768


typedef struct {
    off_t   min;
    off_t   max;
    char   *range;                     /* the same for the message */
} ngx_http_zstd_mmap_bounds_t;


static char *ngx_http_zstd_mmap_set_enum(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zstd_mmap_set_size(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zstd_mmap_buffers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zstd_mmap_cache(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_zstd_mmap_parse_size(ngx_str_t *value,
    ngx_http_zstd_mmap_bounds_t *bounds, off_t *size);
static char *ngx_http_zstd_mmap_invalid(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, char *expected);


static ngx_conf_enum_t  ngx_http_zstd_mmap_modes[] = {
    { ngx_string("off"), NGX_HTTP_ZSTD_MMAP_OFF },
    { ngx_string("on"), NGX_HTTP_ZSTD_MMAP_ON },
    { ngx_string("always"), NGX_HTTP_ZSTD_MMAP_ALWAYS },
    { ngx_string("decode"), NGX_HTTP_ZSTD_MMAP_DECODE },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_zstd_mmap_decodes[] = {
    { ngx_string("off"), NGX_HTTP_ZSTD_MMAP_DECODE_OFF },
    { ngx_string("on"), NGX_HTTP_ZSTD_MMAP_DECODE_ON },
    { ngx_string("missing"), NGX_HTTP_ZSTD_MMAP_DECODE_MISSING },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_zstd_mmap_verifies[] = {
    { ngx_string("off"), NGX_HTTP_ZSTD_MMAP_VERIFY_OFF },
    { ngx_string("structure"), NGX_HTTP_ZSTD_MMAP_VERIFY_STRUCTURE },
    { ngx_null_string, 0 }
};


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_buffers_bounds = {
    64 * NGX_HTTP_ZSTD_MMAP_KB, 1024 * NGX_HTTP_ZSTD_MMAP_GB,
    "a size from 64k to 1024g"
};


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_chunk_bounds = {
    4 * NGX_HTTP_ZSTD_MMAP_KB, 16 * NGX_HTTP_ZSTD_MMAP_MB,
    "a size from 4k to 16m"
};


/*
 * RFC 8878, 3.1.1.1.2: no window is smaller than 1 KiB; libzstd decodes none
 * above 2 GiB.
 */

static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_window_bounds = {
    NGX_HTTP_ZSTD_MMAP_KB, 2 * NGX_HTTP_ZSTD_MMAP_GB,
    "a size from 1k to 2g"
};


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_max_size_bounds = {
    0, NGX_MAX_OFF_T_VALUE, "a size, or 0 for no limit"
};


ngx_command_t  ngx_http_zstd_mmap_commands[] = {

    { ngx_string("zstd_mmap"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF
                        |NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_enum,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, mode),
      &ngx_http_zstd_mmap_modes },

    { ngx_string("zstd_mmap_decode"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_enum,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, decode),
      &ngx_http_zstd_mmap_decodes },

    { ngx_string("zstd_mmap_buffers"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_zstd_mmap_buffers,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      &ngx_http_zstd_mmap_buffers_bounds },

    { ngx_string("zstd_mmap_chunk"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, chunk),
      &ngx_http_zstd_mmap_chunk_bounds },

    { ngx_string("zstd_mmap_cache"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_zstd_mmap_cache,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zstd_mmap_verify"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_enum,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, verify),
      &ngx_http_zstd_mmap_verifies },

    { ngx_string("zstd_mmap_send_window"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, send_window),
      &ngx_http_zstd_mmap_window_bounds },

    { ngx_string("zstd_mmap_decode_window"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, decode_window),
      &ngx_http_zstd_mmap_window_bounds },

    { ngx_string("zstd_mmap_max_size"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, max_size),
      &ngx_http_zstd_mmap_max_size_bounds },

    { ngx_string("zstd_mmap_vary"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, vary),
      NULL },

      ngx_null_command
};


void *
ngx_http_zstd_mmap_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_zstd_mmap_main_conf_t));
    if (zmcf == NULL) {
        return NULL;
    }

    zmcf->buffers_size = NGX_CONF_UNSET;
    zmcf->buffers_max = NGX_CONF_UNSET;
    zmcf->cache_max = NGX_CONF_UNSET;
    zmcf->cache_inactive = NGX_CONF_UNSET;

    return zmcf;
}


char *
ngx_http_zstd_mmap_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_zstd_mmap_main_conf_t *zmcf = conf;

    ngx_conf_init_value(zmcf->buffers_size, 32 * NGX_HTTP_ZSTD_MMAP_MB);
    ngx_conf_init_value(zmcf->buffers_max,
                        ngx_min(4 * NGX_HTTP_ZSTD_MMAP_MB,
                                zmcf->buffers_size));
    ngx_conf_init_value(zmcf->cache_max, 1024);
    ngx_conf_init_value(zmcf->cache_inactive, 60);

    return NGX_CONF_OK;
}


void *
ngx_http_zstd_mmap_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_zstd_mmap_loc_conf_t  *zlcf;

    zlcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_zstd_mmap_loc_conf_t));
    if (zlcf == NULL) {
        return NULL;
    }

    zlcf->mode = NGX_CONF_UNSET_UINT;
    zlcf->decode = NGX_CONF_UNSET_UINT;
    zlcf->verify = NGX_CONF_UNSET_UINT;
    zlcf->chunk = NGX_CONF_UNSET;
    zlcf->send_window = NGX_CONF_UNSET;
    zlcf->decode_window = NGX_CONF_UNSET;
    zlcf->max_size = NGX_CONF_UNSET;
    zlcf->vary = NGX_CONF_UNSET;

    return zlcf;
}


char *
ngx_http_zstd_mmap_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_zstd_mmap_loc_conf_t *prev = parent;
    ngx_http_zstd_mmap_loc_conf_t *conf = child;

    ngx_conf_merge_uint_value(conf->mode, prev->mode, NGX_HTTP_ZSTD_MMAP_OFF);
    ngx_conf_merge_uint_value(conf->decode, prev->decode,
                              NGX_HTTP_ZSTD_MMAP_DECODE_ON);
    ngx_conf_merge_uint_value(conf->verify, prev->verify,
                              NGX_HTTP_ZSTD_MMAP_VERIFY_STRUCTURE);
    ngx_conf_merge_off_value(conf->chunk, prev->chunk,
                             256 * NGX_HTTP_ZSTD_MMAP_KB);
    ngx_conf_merge_off_value(conf->send_window, prev->send_window,
                             8 * NGX_HTTP_ZSTD_MMAP_MB);
    ngx_conf_merge_off_value(conf->decode_window, prev->decode_window,
                             128 * NGX_HTTP_ZSTD_MMAP_MB);
    ngx_conf_merge_off_value(conf->max_size, prev->max_size, 0);
    ngx_conf_merge_value(conf->vary, prev->vary, 1);

    return NGX_CONF_OK;
}


static char *
ngx_http_zstd_mmap_set_enum(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_str_t        *value;
    ngx_uint_t       *np;
    ngx_conf_enum_t  *e;

    np = (ngx_uint_t *) (p + cmd->offset);

    if (*np != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (e = cmd->post; e->name.len; e++) {

        if (e->name.len == value[1].len
            && ngx_strcasecmp(e->name.data, value[1].data) == 0)
        {
            *np = e->value;
            return NGX_CONF_OK;
        }
    }

    return ngx_http_zstd_mmap_invalid(cf, cmd, &value[1], NULL);
}


static char *
ngx_http_zstd_mmap_set_size(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    off_t                        *op;
    ngx_str_t                    *value;
    ngx_http_zstd_mmap_bounds_t  *bounds;

    op = (off_t *) (p + cmd->offset);

    if (*op != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    if (ngx_http_zstd_mmap_parse_size(&value[1], bounds, op) != NGX_OK) {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[1], bounds->range);
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_zstd_mmap_buffers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zstd_mmap_main_conf_t *zmcf = conf;

    ngx_str_t                    *value, s;
    ngx_http_zstd_mmap_bounds_t  *bounds, max;

    if (zmcf->buffers_size != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    if (ngx_http_zstd_mmap_parse_size(&value[1], bounds, &zmcf->buffers_size)
        != NGX_OK)
    {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[1], bounds->range);
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[2].data, "max=", 4) != 0) {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[2], "max=SIZE");
    }

    s.data = value[2].data + 4;
    s.len = value[2].len - 4;

    max.min = 4 * NGX_HTTP_ZSTD_MMAP_KB;
    max.max = zmcf->buffers_size;

    if (ngx_http_zstd_mmap_parse_size(&s, &max, &zmcf->buffers_max) != NGX_OK)
    {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[2],
                           "a size from 4k to that of all buffers together");
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_zstd_mmap_cache(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zstd_mmap_main_conf_t *zmcf = conf;

    ngx_str_t   *value, s;
    ngx_uint_t   i;

    if (zmcf->cache_max != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        zmcf->cache_max = 0;
        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "max=", 4) == 0
            && zmcf->cache_max == NGX_CONF_UNSET)
        {
            zmcf->cache_max = ngx_atoi(value[i].data + 4, value[i].len - 4);
            if (zmcf->cache_max <= 0
                || zmcf->cache_max > NGX_HTTP_ZSTD_MMAP_CACHE_LIMIT)
            {
                goto invalid;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "inactive=", 9) == 0
            && zmcf->cache_inactive == NGX_CONF_UNSET)
        {
            s.data = value[i].data + 9;
            s.len = value[i].len - 9;

            zmcf->cache_inactive = ngx_parse_time(&s, 1);
            if (zmcf->cache_inactive == (time_t) NGX_ERROR) {
                goto invalid;
            }

            continue;
        }

        goto invalid;
    }

    if (zmcf->cache_max == NGX_CONF_UNSET) {
        return "must have the \"max\" parameter";
    }

    return NGX_CONF_OK;

invalid:

    return ngx_http_zstd_mmap_invalid(cf, cmd, &value[i],
                                      "\"off\" alone, or max=N [inactive=TIME] "
                                      "with N up to 32768");
}


static ngx_int_t
ngx_http_zstd_mmap_parse_size(ngx_str_t *value,
    ngx_http_zstd_mmap_bounds_t *bounds, off_t *size)
{
    off_t  n;

    n = ngx_parse_offset(value);

    if (n == (off_t) NGX_ERROR || n < bounds->min || n > bounds->max) {
        return NGX_ERROR;
    }

    *size = n;

    return NGX_OK;
}


static char *
ngx_http_zstd_mmap_invalid(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, char *expected)
{
    if (expected == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive",
                           value, &cmd->name);

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be %s", value, &cmd->name, expected);
    }

    return NGX_CONF_ERROR;
}
