
/*
 * Directives: their table, setters, defaults and inheritance.
 */


#include "ngx_http_zstd_mmap_conf.h"
#include "ngx_http_zstd_mmap_status.h"
#include "ngx_http_zstd_mmap_zone.h"


#define NGX_HTTP_ZSTD_MMAP_KB  1024
#define NGX_HTTP_ZSTD_MMAP_MB  (1024 * 1024)
#define NGX_HTTP_ZSTD_MMAP_GB  (1024 * 1024 * 1024LL)

/* each file is a mapping: half of the default of vm.max_map_count */
#define NGX_HTTP_ZSTD_MMAP_CACHE_LIMIT  32768

/* a file is staged on the event loop, at several GB/s */
#define NGX_HTTP_ZSTD_MMAP_STAGE_MAX    (8 * NGX_HTTP_ZSTD_MMAP_MB)


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
static char *ngx_http_zstd_mmap_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_zstd_mmap_parse_zone(ngx_str_t *value,
    ngx_str_t *name, ngx_str_t *size);
static ngx_http_zstd_mmap_zone_t *ngx_http_zstd_mmap_get_zone(
    ngx_http_zstd_mmap_main_conf_t *zmcf, ngx_str_t *name);
static char *ngx_http_zstd_mmap_input(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zstd_mmap_threads(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zstd_mmap_stage(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zstd_mmap_stage_param(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_http_zstd_mmap_stage_t *stage, ngx_str_t *value);
static ngx_uint_t ngx_http_zstd_mmap_has_regex(
    ngx_http_zstd_mmap_stage_t *stage);
static char *ngx_http_zstd_mmap_stage_regex(ngx_conf_t *cf,
    ngx_http_zstd_mmap_stage_t *stage, ngx_str_t *value);
static ngx_int_t ngx_http_zstd_mmap_parse_enum(ngx_str_t *value,
    ngx_conf_enum_t *e, ngx_uint_t *result);
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
    { ngx_string("checksum"), NGX_HTTP_ZSTD_MMAP_VERIFY_CHECKSUM },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_zstd_mmap_sends[] = {
    { ngx_string("auto"), NGX_HTTP_ZSTD_MMAP_SEND_AUTO },
    { ngx_string("memory"), NGX_HTTP_ZSTD_MMAP_SEND_MEMORY },
    { ngx_string("sendfile"), NGX_HTTP_ZSTD_MMAP_SEND_SENDFILE },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_zstd_mmap_inputs[] = {
    { ngx_string("map"), NGX_HTTP_ZSTD_MMAP_INPUT_MAP },
    { ngx_string("read"), NGX_HTTP_ZSTD_MMAP_INPUT_READ },
    { ngx_string("scratch"), NGX_HTTP_ZSTD_MMAP_INPUT_SCRATCH },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_zstd_mmap_advises[] = {
    { ngx_string("auto"), NGX_HTTP_ZSTD_MMAP_ADVISE_AUTO },
    { ngx_string("off"), NGX_HTTP_ZSTD_MMAP_ADVISE_OFF },
    { ngx_string("sequential"), NGX_HTTP_ZSTD_MMAP_ADVISE_SEQUENTIAL },
    { ngx_string("willneed"), NGX_HTTP_ZSTD_MMAP_ADVISE_WILLNEED },
    { ngx_string("hugepage"), NGX_HTTP_ZSTD_MMAP_ADVISE_HUGEPAGE },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_zstd_mmap_hugepages[] = {
    { ngx_string("hugepages=off"), ZMAP_HUGE_OFF },
    { ngx_string("hugepages=auto"), ZMAP_HUGE_AUTO },
    { ngx_string("hugepages=on"), ZMAP_HUGE_ON },
    { ngx_null_string, 0 }
};


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_buffers_bounds = {
    64 * NGX_HTTP_ZSTD_MMAP_KB, 1024 * NGX_HTTP_ZSTD_MMAP_GB,
    "a size from 64k to 1024g"
};


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_streams_bounds = {
    NGX_HTTP_ZSTD_MMAP_MB, 1024 * NGX_HTTP_ZSTD_MMAP_GB,
    "a size from 1m to 1024g"
};


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_zone_bounds = {
    NGX_HTTP_ZSTD_MMAP_MB, 1024 * NGX_HTTP_ZSTD_MMAP_GB,
    "NAME:SIZE with a size from 1m to 1024g"
};


/* a worker has one scratch, and a step of a stream reads 1 MiB of it */

static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_scratch_bounds = {
    NGX_HTTP_ZSTD_MMAP_MB, NGX_HTTP_ZSTD_MMAP_GB,
    "map, read, scratch, or scratch=SIZE with a size from 1m to 1g"
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


static ngx_http_zstd_mmap_bounds_t  ngx_http_zstd_mmap_threads_bounds = {
    0, NGX_MAX_OFF_T_VALUE, "min=SIZE"
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
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE123,
      ngx_http_zstd_mmap_buffers,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      &ngx_http_zstd_mmap_buffers_bounds },

    { ngx_string("zstd_mmap_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_zstd_mmap_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      &ngx_http_zstd_mmap_zone_bounds },

    { ngx_string("zstd_mmap_stage"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF
                        |NGX_CONF_TAKE1234,
      ngx_http_zstd_mmap_stage,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, stage),
      NULL },

    { ngx_string("zstd_mmap_send"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_enum,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, send),
      &ngx_http_zstd_mmap_sends },

    { ngx_string("zstd_mmap_input"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_input,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      &ngx_http_zstd_mmap_scratch_bounds },

    { ngx_string("zstd_mmap_advise"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_enum,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_loc_conf_t, advise),
      &ngx_http_zstd_mmap_advises },

    { ngx_string("zstd_mmap_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

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

    { ngx_string("zstd_mmap_streams"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_zstd_mmap_set_size,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zstd_mmap_main_conf_t, streams),
      &ngx_http_zstd_mmap_streams_bounds },

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

    { ngx_string("zstd_mmap_threads"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_zstd_mmap_threads,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      &ngx_http_zstd_mmap_threads_bounds },

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

    /*
     * set by ngx_pcalloc():
     *
     *     zmcf->zones = NULL;
     */

    zmcf->buffers_size = NGX_CONF_UNSET;
    zmcf->buffers_max = NGX_CONF_UNSET;
    zmcf->buffers_hugepages = NGX_CONF_UNSET_UINT;
    zmcf->cache_max = NGX_CONF_UNSET;
    zmcf->cache_inactive = NGX_CONF_UNSET;
    zmcf->streams = NGX_CONF_UNSET;

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
    ngx_conf_init_uint_value(zmcf->buffers_hugepages, ZMAP_HUGE_OFF);
    ngx_conf_init_value(zmcf->cache_max, 1024);
    ngx_conf_init_value(zmcf->cache_inactive, 60);
    ngx_conf_init_value(zmcf->streams, 256 * NGX_HTTP_ZSTD_MMAP_MB);

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_zstd_mmap_check_buffers(ngx_cycle_t *cycle)
{
    uint64_t                         size, workers;
    ngx_core_conf_t                 *ccf;
    zmap_hugemem_t                   memory;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

    zmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_zstd_mmap_module);

    if (ngx_test_config || zmcf->buffers_hugepages != ZMAP_HUGE_ON) {
        return NGX_OK;
    }

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    workers = ccf->master ? ngx_max(ccf->worker_processes, 1) : 1;
    size = ngx_align((uint64_t) zmcf->buffers_size, ZMAP_HUGE_PAGE);

    ngx_memzero(&memory, sizeof(zmap_hugemem_t));

    if (zmap_mul_u64(size, workers, &size) == 0
        && zmap_hugemem_reserve(&memory, size, ZMAP_HUGE_ON, 0) == ZMAP_OK)
    {
        zmap_hugemem_release(&memory);
        return NGX_OK;
    }

    if (memory.missing == 0) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, memory.error,
                      "no huge pages for zstd_mmap_buffers of %uL workers: "
                      "the pool has them, but this process may not take them",
                      workers);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_EMERG, cycle->log, memory.error,
                  "no huge pages for zstd_mmap_buffers of %uL workers: "
                  "%uL are missing, raise sysctl vm.nr_hugepages by that many",
                  workers, memory.missing);

    return NGX_ERROR;
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
    zlcf->send = NGX_CONF_UNSET_UINT;
    zlcf->input = NGX_CONF_UNSET_UINT;
    zlcf->scratch = NGX_CONF_UNSET;
    zlcf->advise = NGX_CONF_UNSET_UINT;
    zlcf->vary = NGX_CONF_UNSET;
    zlcf->stage = NGX_CONF_UNSET_PTR;
    zlcf->threads = NGX_CONF_UNSET_PTR;
    zlcf->threads_min = NGX_CONF_UNSET;

    return zlcf;
}


char *
ngx_http_zstd_mmap_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_zstd_mmap_loc_conf_t *prev = parent;
    ngx_http_zstd_mmap_loc_conf_t *conf = child;

    ngx_http_zstd_mmap_stage_t      *stage;
    ngx_http_zstd_mmap_main_conf_t  *zmcf;

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
    ngx_conf_merge_uint_value(conf->send, prev->send,
                              NGX_HTTP_ZSTD_MMAP_SEND_AUTO);
    ngx_conf_merge_uint_value(conf->input, prev->input,
                              NGX_HTTP_ZSTD_MMAP_INPUT_MAP);
    ngx_conf_merge_off_value(conf->scratch, prev->scratch,
                             8 * NGX_HTTP_ZSTD_MMAP_MB);
    ngx_conf_merge_uint_value(conf->advise, prev->advise,
                              NGX_HTTP_ZSTD_MMAP_ADVISE_AUTO);
    ngx_conf_merge_value(conf->vary, prev->vary, 1);
    ngx_conf_merge_ptr_value(conf->stage, prev->stage, NULL);
    ngx_conf_merge_off_value(conf->threads_min, prev->threads_min,
                             256 * NGX_HTTP_ZSTD_MMAP_KB);
    ngx_conf_merge_ptr_value(conf->threads, prev->threads, NULL);

    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zstd_mmap_module);

    if (conf->chunk > zmcf->streams / NGX_HTTP_ZSTD_MMAP_PIECES) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"zstd_mmap_streams\" of %O bytes has no room for "
                           "two pieces of \"zstd_mmap_chunk\", %O bytes each",
                           zmcf->streams, conf->chunk);
        return NGX_CONF_ERROR;
    }

    stage = conf->stage;

    if (stage == NULL || stage->zone || stage->name.len == 0) {
        return NGX_CONF_OK;
    }

    /* the zone may be declared below the location */

    stage->zone = ngx_http_zstd_mmap_get_zone(zmcf, &stage->name);

    if (stage->zone == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown zone \"%V\" in \"zstd_mmap_stage\" "
                           "directive", &stage->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_zstd_mmap_set_enum(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_str_t   *value;
    ngx_uint_t  *np;

    np = (ngx_uint_t *) (p + cmd->offset);

    if (*np != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_zstd_mmap_parse_enum(&value[1], cmd->post, np) == NGX_OK) {
        return NGX_CONF_OK;
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
    ngx_uint_t                    i;
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

    max.min = 4 * NGX_HTTP_ZSTD_MMAP_KB;
    max.max = zmcf->buffers_size;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "max=", 4) == 0
            && zmcf->buffers_max == NGX_CONF_UNSET)
        {
            s.data = value[i].data + 4;
            s.len = value[i].len - 4;

            if (ngx_http_zstd_mmap_parse_size(&s, &max, &zmcf->buffers_max)
                != NGX_OK)
            {
                return ngx_http_zstd_mmap_invalid(cf, cmd, &value[i],
                           "a size from 4k to that of all buffers together");
            }

            continue;
        }

        if (zmcf->buffers_hugepages == NGX_CONF_UNSET_UINT
            && ngx_http_zstd_mmap_parse_enum(&value[i],
                                             ngx_http_zstd_mmap_hugepages,
                                             &zmcf->buffers_hugepages)
               == NGX_OK)
        {
            continue;
        }

        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[i],
                                          "max=SIZE or "
                                          "hugepages=auto|on|off, once");
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


static char *
ngx_http_zstd_mmap_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zstd_mmap_main_conf_t *zmcf = conf;

    off_t                         size;
    ngx_str_t                    *value, name, s;
    ngx_uint_t                    mode;
    ngx_http_zstd_mmap_zone_t    *zone, **zp;
    ngx_http_zstd_mmap_bounds_t  *bounds;

    value = cf->args->elts;
    bounds = cmd->post;

    if (ngx_http_zstd_mmap_parse_zone(&value[1], &name, &s) != NGX_OK
        || ngx_http_zstd_mmap_parse_size(&s, bounds, &size) != NGX_OK)
    {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[1], bounds->range);
    }

    mode = ZMAP_HUGE_AUTO;

    if (cf->args->nelts == 3
        && ngx_http_zstd_mmap_parse_enum(&value[2],
                                         ngx_http_zstd_mmap_hugepages, &mode)
           != NGX_OK)
    {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[2],
                                          "hugepages=auto|on|off");
    }

    if (ngx_http_zstd_mmap_get_zone(zmcf, &name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate zone \"%V\" in \"%V\" directive",
                           &name, &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (zmcf->zones == NULL) {
        zmcf->zones = ngx_array_create(cf->pool, 4,
                                       sizeof(ngx_http_zstd_mmap_zone_t *));
        if (zmcf->zones == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    zp = ngx_array_push(zmcf->zones);
    if (zp == NULL) {
        return NGX_CONF_ERROR;
    }

    *zp = NULL;

    zone = ngx_http_zstd_mmap_add_zone(cf, &name, size, mode);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    *zp = zone;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_zstd_mmap_parse_zone(ngx_str_t *value, ngx_str_t *name,
    ngx_str_t *size)
{
    u_char  *p;

    p = ngx_strlchr(value->data, value->data + value->len, ':');

    if (p == NULL || p == value->data) {
        return NGX_ERROR;
    }

    name->data = value->data;
    name->len = p - value->data;

    size->data = p + 1;
    size->len = value->data + value->len - size->data;

    /* what "zstd_mmap_stage" takes for no zone */

    if (name->len == 3 && ngx_strncmp(name->data, "off", 3) == 0) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_http_zstd_mmap_zone_t *
ngx_http_zstd_mmap_get_zone(ngx_http_zstd_mmap_main_conf_t *zmcf,
    ngx_str_t *name)
{
    ngx_uint_t                   i;
    ngx_http_zstd_mmap_zone_t  **zone;

    if (zmcf->zones == NULL) {
        return NULL;
    }

    zone = zmcf->zones->elts;

    for (i = 0; i < zmcf->zones->nelts; i++) {
        if (zone[i]->name.len == name->len
            && ngx_strncmp(zone[i]->name.data, name->data, name->len) == 0)
        {
            return zone[i];
        }
    }

    return NULL;
}


static char *
ngx_http_zstd_mmap_input(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zstd_mmap_loc_conf_t *zlcf = conf;

    ngx_str_t                    *value, s;
    ngx_http_zstd_mmap_bounds_t  *bounds;

    if (zlcf->input != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    /* "scratch" alone has the default size, also where another was set above */
    zlcf->scratch = 8 * NGX_HTTP_ZSTD_MMAP_MB;

    if (ngx_http_zstd_mmap_parse_enum(&value[1], ngx_http_zstd_mmap_inputs,
                                      &zlcf->input)
        == NGX_OK)
    {
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[1].data, "scratch=", 8) == 0) {

        s.data = value[1].data + 8;
        s.len = value[1].len - 8;

        if (ngx_http_zstd_mmap_parse_size(&s, bounds, &zlcf->scratch)
            == NGX_OK)
        {
            zlcf->input = NGX_HTTP_ZSTD_MMAP_INPUT_SCRATCH;
            return NGX_CONF_OK;
        }
    }

    return ngx_http_zstd_mmap_invalid(cf, cmd, &value[1], bounds->range);
}


/* nginx itself refuses a pool that is not declared anywhere */

static char *
ngx_http_zstd_mmap_threads(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zstd_mmap_loc_conf_t *zlcf = conf;

    ngx_str_t                    *value, s;
    ngx_http_zstd_mmap_bounds_t  *bounds;

    if (zlcf->threads != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;
    bounds = cmd->post;

    zlcf->threads_min = 256 * NGX_HTTP_ZSTD_MMAP_KB;

    if (cf->args->nelts == 3) {

        s.data = value[2].data + 4;
        s.len = value[2].len - 4;

        if (ngx_strncmp(value[2].data, "min=", 4) != 0
            || ngx_http_zstd_mmap_parse_size(&s, bounds, &zlcf->threads_min)
               != NGX_OK)
        {
            return ngx_http_zstd_mmap_invalid(cf, cmd, &value[2],
                                              bounds->range);
        }
    }

    if (ngx_strcmp(value[1].data, "off") == 0) {
        zlcf->threads = NULL;

        return (cf->args->nelts == 2) ? NGX_CONF_OK
               : ngx_http_zstd_mmap_invalid(cf, cmd, &value[2],
                                            "\"off\" alone");
    }

#if (NGX_THREADS)

    zlcf->threads = ngx_thread_pool_add(cf, &value[1]);

    return zlcf->threads ? NGX_CONF_OK : NGX_CONF_ERROR;

#else

    return "needs an nginx with thread pools: configure --with-threads";

#endif
}


static char *
ngx_http_zstd_mmap_stage(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    char                        *rv;
    ngx_str_t                   *value;
    ngx_uint_t                   i;
    ngx_http_zstd_mmap_stage_t  *stage, **sp;

    sp = (ngx_http_zstd_mmap_stage_t **) (p + cmd->offset);

    if (*sp != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return ngx_http_zstd_mmap_invalid(cf, cmd, &value[1],
                                          "the name of a zone, or \"off\"");
    }

    stage = ngx_pcalloc(cf->pool, sizeof(ngx_http_zstd_mmap_stage_t));
    if (stage == NULL) {
        return NGX_CONF_ERROR;
    }

    *sp = stage;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        return cf->args->nelts == 2 ? NGX_CONF_OK
               : ngx_http_zstd_mmap_invalid(cf, cmd, &value[2], "absent");
    }

    stage->name = value[1];
    stage->max = NGX_CONF_UNSET;
    stage->min_uses = NGX_CONF_UNSET_UINT;

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_zstd_mmap_stage_param(cf, cmd, stage, &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    ngx_conf_init_value(stage->max, NGX_HTTP_ZSTD_MMAP_STAGE_MAX);
    ngx_conf_init_uint_value(stage->min_uses, 2);

    return NGX_CONF_OK;
}


static char *
ngx_http_zstd_mmap_stage_param(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_zstd_mmap_stage_t *stage, ngx_str_t *value)
{
    ngx_int_t                    n;
    ngx_str_t                    s;
    ngx_http_zstd_mmap_bounds_t  bounds;

    if (ngx_strncmp(value->data, "max=", 4) == 0
        && stage->max == NGX_CONF_UNSET)
    {
        s.data = value->data + 4;
        s.len = value->len - 4;

        bounds.min = 1;
        bounds.max = NGX_MAX_OFF_T_VALUE;

        if (ngx_http_zstd_mmap_parse_size(&s, &bounds, &stage->max) == NGX_OK)
        {
            return NGX_CONF_OK;
        }

    } else if (ngx_strncmp(value->data, "min_uses=", 9) == 0
               && stage->min_uses == NGX_CONF_UNSET_UINT)
    {
        n = ngx_atoi(value->data + 9, value->len - 9);

        if (n > 0) {
            stage->min_uses = n;
            return NGX_CONF_OK;
        }

    } else if (value->data[0] == '~') {
        if (!ngx_http_zstd_mmap_has_regex(stage)) {
            return ngx_http_zstd_mmap_stage_regex(cf, stage, value);
        }
    }

    return ngx_http_zstd_mmap_invalid(cf, cmd, value,
                            "max=SIZE, min_uses=N, ~REGEX or ~*REGEX, once");
}


static ngx_uint_t
ngx_http_zstd_mmap_has_regex(ngx_http_zstd_mmap_stage_t *stage)
{
#if (NGX_PCRE)
    return stage->regex != NULL;
#else
    return 0;
#endif
}


static char *
ngx_http_zstd_mmap_stage_regex(ngx_conf_t *cf,
    ngx_http_zstd_mmap_stage_t *stage, ngx_str_t *value)
{
#if (NGX_PCRE)
    u_char               errstr[NGX_MAX_CONF_ERRSTR];
    ngx_regex_compile_t  rc;

    ngx_memzero(&rc, sizeof(ngx_regex_compile_t));

    rc.pattern.data = value->data + 1;
    rc.pattern.len = value->len - 1;
    rc.pool = cf->pool;
    rc.err.data = errstr;
    rc.err.len = NGX_MAX_CONF_ERRSTR;

    if (rc.pattern.len && rc.pattern.data[0] == '*') {
        rc.pattern.data++;
        rc.pattern.len--;
        rc.options = NGX_REGEX_CASELESS;
    }

    if (ngx_regex_compile(&rc) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"zstd_mmap_stage\" "
                           "directive: %V", value, &rc.err);
        return NGX_CONF_ERROR;
    }

    stage->regex = rc.regex;

    return NGX_CONF_OK;
#else
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" in \"zstd_mmap_stage\" directive requires "
                       "the PCRE library", value);
    return NGX_CONF_ERROR;
#endif
}


static ngx_int_t
ngx_http_zstd_mmap_parse_enum(ngx_str_t *value, ngx_conf_enum_t *e,
    ngx_uint_t *result)
{
    for ( /* void */ ; e->name.len; e++) {

        if (e->name.len == value->len
            && ngx_strcasecmp(e->name.data, value->data) == 0)
        {
            *result = e->value;
            return NGX_OK;
        }
    }

    return NGX_ERROR;
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
