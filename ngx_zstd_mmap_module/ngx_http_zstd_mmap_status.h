
/*
 * The status page: counters, zones and workers.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_STATUS_H
#define NGX_HTTP_ZSTD_MMAP_STATUS_H


#include "ngx_http_zstd_mmap_conf.h"


/*
 * Setter of "zstd_mmap_status FORMAT", one argument, location only: makes the
 * status the content of the location.  Formats: json.
 */
char *ngx_http_zstd_mmap_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


#endif /* NGX_HTTP_ZSTD_MMAP_STATUS_H */
