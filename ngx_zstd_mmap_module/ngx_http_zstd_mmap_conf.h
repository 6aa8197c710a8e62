
/*
 * Directives: what they set, per server and per location.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_CONF_H
#define NGX_HTTP_ZSTD_MMAP_CONF_H


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_zstd_mmap_zone.h"

#if !(NGX_HTTP_GZIP)
#error "nginx must be built with its gzip module or --with-compat"
#endif


/* what a reply in pieces holds of them */
#define NGX_HTTP_ZSTD_MMAP_PIECES  2


typedef enum {
    NGX_HTTP_ZSTD_MMAP_OFF = 0,
    NGX_HTTP_ZSTD_MMAP_ON,             /* negotiate */
    NGX_HTTP_ZSTD_MMAP_ALWAYS,         /* frames to everybody */
    NGX_HTTP_ZSTD_MMAP_DECODE          /* decoded bytes to everybody */
} ngx_http_zstd_mmap_mode_e;


typedef enum {
    NGX_HTTP_ZSTD_MMAP_DECODE_OFF = 0,
    NGX_HTTP_ZSTD_MMAP_DECODE_ON,
    NGX_HTTP_ZSTD_MMAP_DECODE_MISSING  /* where no plain file lies beside */
} ngx_http_zstd_mmap_decode_e;


typedef enum {
    NGX_HTTP_ZSTD_MMAP_VERIFY_OFF = 0, /* first frame header only */
    NGX_HTTP_ZSTD_MMAP_VERIFY_STRUCTURE,
    NGX_HTTP_ZSTD_MMAP_VERIFY_CHECKSUM
} ngx_http_zstd_mmap_verify_e;


typedef enum {
    NGX_HTTP_ZSTD_MMAP_SEND_AUTO = 0,
    NGX_HTTP_ZSTD_MMAP_SEND_MEMORY,
    NGX_HTTP_ZSTD_MMAP_SEND_SENDFILE
} ngx_http_zstd_mmap_send_e;


/* where the coded bytes of a file that is not staged come from */

typedef enum {
    NGX_HTTP_ZSTD_MMAP_INPUT_MAP = 0,
    NGX_HTTP_ZSTD_MMAP_INPUT_READ,
    NGX_HTTP_ZSTD_MMAP_INPUT_SCRATCH
} ngx_http_zstd_mmap_input_e;


typedef enum {
    NGX_HTTP_ZSTD_MMAP_ADVISE_AUTO = 0,
    NGX_HTTP_ZSTD_MMAP_ADVISE_OFF,
    NGX_HTTP_ZSTD_MMAP_ADVISE_SEQUENTIAL,
    NGX_HTTP_ZSTD_MMAP_ADVISE_WILLNEED,
    NGX_HTTP_ZSTD_MMAP_ADVISE_HUGEPAGE
} ngx_http_zstd_mmap_advise_e;


/* sizes in bytes, times in seconds */

typedef struct {
    off_t         buffers_size;
    off_t         buffers_max;         /* a larger body is streamed */
    ngx_uint_t    buffers_hugepages;   /* zmap_huge_e */
    ngx_int_t     cache_max;           /* 0: no table */
    time_t        cache_inactive;
    off_t         streams;             /* of all streams of a worker */
    ngx_array_t  *zones;               /* ngx_http_zstd_mmap_zone_t *; NULL:
                                          none */
} ngx_http_zstd_mmap_main_conf_t;


typedef struct {
    ngx_str_t                   name;  /* of the zone; empty: "off" */
    ngx_http_zstd_mmap_zone_t  *zone;  /* found when locations are merged */
    off_t                       max;   /* of a staged file */
    ngx_uint_t                  min_uses;
#if (NGX_PCRE)
    ngx_regex_t                *regex; /* NULL: every URI */
#endif
} ngx_http_zstd_mmap_stage_t;


typedef struct {
    ngx_uint_t  mode;                  /* ngx_http_zstd_mmap_mode_e */
    ngx_uint_t  decode;                /* ngx_http_zstd_mmap_decode_e */
    ngx_uint_t  verify;                /* ngx_http_zstd_mmap_verify_e */
    off_t       chunk;
    off_t       send_window;
    off_t       decode_window;
    off_t       max_size;              /* 0: no limit */
    ngx_uint_t  send;                  /* ngx_http_zstd_mmap_send_e */
    ngx_uint_t  input;                 /* ngx_http_zstd_mmap_input_e */
    off_t       scratch;               /* of INPUT_SCRATCH */
    ngx_uint_t  advise;                /* ngx_http_zstd_mmap_advise_e */
    ngx_flag_t  vary;

    ngx_http_zstd_mmap_stage_t  *stage;
    ngx_thread_pool_t           *threads;     /* NULL: off */
    off_t                        threads_min; /* bytes of work */
} ngx_http_zstd_mmap_loc_conf_t;


void *ngx_http_zstd_mmap_create_main_conf(ngx_conf_t *cf);
char *ngx_http_zstd_mmap_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_zstd_mmap_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_zstd_mmap_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);

/*
 * Called by the master when it starts, and not at a reload, while the workers
 * of the cycle before still have their pages: NGX_ERROR, logged, when
 * "hugepages=on" is set for the buffers and the pool has not enough pages for
 * all workers.  A later worker that finds none goes on without.
 */
ngx_int_t ngx_http_zstd_mmap_check_buffers(ngx_cycle_t *cycle);


extern ngx_command_t  ngx_http_zstd_mmap_commands[];
extern ngx_module_t   ngx_http_zstd_mmap_module;


#endif /* NGX_HTTP_ZSTD_MMAP_CONF_H */
