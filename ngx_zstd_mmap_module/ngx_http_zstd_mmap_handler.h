
/*
 * The content phase handler.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_HANDLER_H
#define NGX_HTTP_ZSTD_MMAP_HANDLER_H


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


ngx_int_t ngx_http_zstd_mmap_handler(ngx_http_request_t *r);


#endif /* NGX_HTTP_ZSTD_MMAP_HANDLER_H */
