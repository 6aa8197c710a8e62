
/*
 * Response headers of the two representations.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_HEADER_H
#define NGX_HTTP_ZSTD_MMAP_HEADER_H


#include "ngx_http_zstd_mmap_ctx.h"


/*
 * Both send the header; what they return is what ngx_http_send_header()
 * returned (RFC 9110, 8.8.3: the two strong tags differ).
 *
 * Call them when everything that can fail before the header is done: what is
 * pushed earlier would show up in an error page.
 */
ngx_int_t ngx_http_zstd_mmap_send_coded_header(ngx_http_zstd_mmap_ctx_t *ctx);

/* ranges: the size of the body is known */
ngx_int_t ngx_http_zstd_mmap_send_decoded_header(
    ngx_http_zstd_mmap_ctx_t *ctx, ngx_uint_t ranges);

/*
 * Nonzero when nginx will answer the request for the decoded body with a 304: a
 * client asks for a tag or a date as it got it.  Any other condition, a list of
 * tags for one, is taken for one that wants the body.
 */
ngx_uint_t ngx_http_zstd_mmap_is_not_modified(ngx_http_zstd_mmap_ctx_t *ctx);

/*
 * Sets ctx->begin, end and pos to what nginx's range filter left of a body of
 * size bytes, once the header was sent: all of it unless the reply is a 206.
 */
void ngx_http_zstd_mmap_set_range(ngx_http_zstd_mmap_ctx_t *ctx, off_t size);

/*
 * "Vary: Accept-Encoding" on what is answered next, once, where this location
 * negotiates: for the main request's replies that Accept-Encoding selected,
 * also a 406 and a reply that another handler gives.  NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_zstd_mmap_set_vary(ngx_http_request_t *r);

/* nginx's postconfiguration: puts a header filter on top */
ngx_int_t ngx_http_zstd_mmap_init_header_filter(ngx_conf_t *cf);


#endif /* NGX_HTTP_ZSTD_MMAP_HEADER_H */
