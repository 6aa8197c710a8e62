
/*
 * Files copied once into a zone and served from there by every worker, and what
 * one worker found out about a file and all others need to know.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_STAGE_H
#define NGX_HTTP_ZSTD_MMAP_STAGE_H


#include "ngx_http_zstd_mmap_zone.h"

#include "core/zmap_map.h"


/*
 * A pin, held by one request: the bytes stay as they are until it is released,
 * at the latest in an r->pool cleanup.  All functions belong to the thread of
 * the event loop and never wait: a zone that is full, fragmented, busy or
 * being rebuilt has the file "not staged", which is no error.
 */

typedef struct {
    u_char                     *data;      /* NULL: nothing is pinned */
    size_t                      size;
    ngx_http_zstd_mmap_zone_t  *zone;
    ngx_uint_t                  slot;
} ngx_http_zstd_mmap_segment_t;


/*
 * Looks a version up and counts it.  NGX_OK: the segment is pinned.  NGX_AGAIN:
 * all workers together asked at least min_uses times, the caller should fill
 * it.  NGX_DECLINED: not staged now.  The segment is set with NGX_OK only.
 * Versions too young to be kept (zmap_version_racy) are counted only.
 */
ngx_int_t ngx_http_zstd_mmap_find_segment(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_uint_t min_uses,
    ngx_http_zstd_mmap_segment_t *segment, ngx_log_t *log);

/*
 * Copies version->size bytes of fd (which may be O_DIRECT) and pins them; a
 * copy of a file that is no longer that version is thrown away.  Reads the
 * whole file: the caller limits the size.  NGX_OK, also when another worker
 * was first, or NGX_DECLINED, also while another worker is at it.
 */
ngx_int_t ngx_http_zstd_mmap_fill_segment(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_fd_t fd,
    ngx_http_zstd_mmap_segment_t *segment, ngx_log_t *log);

/* one pin more of what from pins */
void ngx_http_zstd_mmap_hold_segment(ngx_http_zstd_mmap_segment_t *to,
    const ngx_http_zstd_mmap_segment_t *from);

/* nonzero: too young to be kept or staged, by the cached time of nginx */
ngx_uint_t ngx_http_zstd_mmap_is_racy(const zmap_version_t *version);

/* takes no lock; empties the segment, an empty one is left alone */
void ngx_http_zstd_mmap_release_segment(ngx_http_zstd_mmap_segment_t *segment);


/*
 * Verdicts, of files of any size.  They are kept as long as the zone counts or
 * has the version; those of versions too young to be kept are neither put nor
 * got.
 */

/* NGX_OK: out is set.  NGX_DECLINED: nothing is known now. */
ngx_int_t ngx_http_zstd_mmap_get_verdict(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_http_zstd_mmap_verdict_t *out,
    ngx_log_t *log);

/*
 * Adds to what is known: a bad verdict is never replaced, and verified stays.
 * in->rc is ZMAP_OK or what is wrong with the bytes themselves, so that it
 * holds for every location and request; in->frames.index is not looked at.  The
 * bytes that were judged must have been read when the version was no longer too
 * young.  Ends a claim of this process on that version.
 */
void ngx_http_zstd_mmap_put_verdict(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, const ngx_http_zstd_mmap_verdict_t *in,
    ngx_log_t *log);

/*
 * Makes one process the verifier of a version.  NGX_OK: this one is it, until
 * it puts its verdict or releases the claim.  NGX_BUSY: another living process
 * is, or this one already, or the version is known as bad or verified by now.
 * NGX_DECLINED: it cannot be said, everybody verifies for himself.
 *
 * A claim may be lost, when the zone needs its slot or is busy while another
 * claim of the process ends: then two may verify.
 */
ngx_int_t ngx_http_zstd_mmap_claim_verify(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_log_t *log);

/* the verification was given up; nothing without a claim */
void ngx_http_zstd_mmap_release_verify(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_log_t *log);


#endif /* NGX_HTTP_ZSTD_MMAP_STAGE_H */
