
/*
 * Staging zones: their declaration, their memory and its life.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_ZONE_H
#define NGX_HTTP_ZSTD_MMAP_ZONE_H


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_zstd_mmap_table.h"

#include "core/zmap_hugemem.h"


/*
 * What is mapped for a zone: one per process, used by all cycles of that
 * process that declare the zone with the same name, size and mode.
 */

typedef struct {
    ngx_http_zstd_mmap_table_t    table;
    zmap_hugemem_t                memory;
    ngx_uint_t                    refs;        /* cycles */
} ngx_http_zstd_mmap_region_t;


/* one per cycle, in its pool */

typedef struct {
    ngx_str_t                     name;        /* as in the directive */
    size_t                        size;        /* as in the directive, bytes */
    zmap_huge_e                   mode;
    ngx_shm_zone_t               *shm_zone;

    /* NULL under "nginx -t" and before the init callback has run */
    ngx_http_zstd_mmap_region_t  *region;
} ngx_http_zstd_mmap_zone_t;


typedef struct {
    size_t                        used;        /* bytes in pages given out */
    ngx_uint_t                    segments;    /* files that can be served */
    zmap_pages_e                  pages;       /* what the mapping has now */
} ngx_http_zstd_mmap_zone_status_t;


/*
 * Declares a zone.  Its memory is reserved by the init callback when the
 * cycle is made: a cycle whose zone has the name, size and mode of one of the
 * cycle before takes over its memory and content; all others get new memory,
 * and the old one goes when its last cycle and process have gone.  Nothing is
 * reserved under "nginx -t".  NULL: no memory, or a zone of that name exists;
 * logged.
 */
ngx_http_zstd_mmap_zone_t *ngx_http_zstd_mmap_add_zone(ngx_conf_t *cf,
    ngx_str_t *name, size_t size, zmap_huge_e mode);

/* all zero, plain, for a zone without memory; takes no lock */
void ngx_http_zstd_mmap_zone_status(ngx_http_zstd_mmap_zone_t *zone,
    ngx_http_zstd_mmap_zone_status_t *status);


#endif /* NGX_HTTP_ZSTD_MMAP_ZONE_H */
