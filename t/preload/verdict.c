
/*
 * LD_PRELOAD: calls what the zone knows of verdicts, in a worker, for the file
 * of its next request.
 *
 * The file that ZMAP_VERDICT names has the order: "get", "put RC VERIFIED
 * FRAMES CONTENT_SIZE WINDOW", "claim" or "release".  The first worker to look
 * a file up in a zone removes it, does so, and writes what came of it into the
 * file of that name with ".reply".
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "ngx_http_zstd_mmap_stage.h"

#include <dlfcn.h>


#define FUNCTION(name)  ((__typeof__(&name)) dlsym(RTLD_DEFAULT, #name))


static size_t
take_order(char *order, size_t size)
{
    int          fd;
    ssize_t      n;
    const char  *path;

    path = getenv("ZMAP_VERDICT");

    if (path == NULL) {
        return 0;
    }

    fd = open(path, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return 0;
    }

    n = read(fd, order, size - 1);
    (void) close(fd);

    if (n <= 0 || unlink(path) == -1) {
        return 0;
    }

    order[n] = '\0';

    return n;
}


static void
reply(const char *text)
{
    int   fd;
    char  path[4096], new[4096];

    (void) snprintf(path, sizeof(path), "%s.reply", getenv("ZMAP_VERDICT"));
    (void) snprintf(new, sizeof(new), "%s.reply.new", getenv("ZMAP_VERDICT"));

    fd = open(new, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0644);

    if (fd == -1 || write(fd, text, strlen(text)) != (ssize_t) strlen(text)
        || close(fd) == -1 || rename(new, path) == -1)
    {
        abort();
    }
}


static void
get(ngx_http_zstd_mmap_zone_t *zone, const zmap_version_t *version,
    ngx_log_t *log)
{
    char                          text[256];
    ngx_int_t                     rc;
    ngx_http_zstd_mmap_verdict_t  out;

    memset(&out, 0xff, sizeof(out));

    rc = FUNCTION(ngx_http_zstd_mmap_get_verdict)(zone, version, &out, log);

    if (rc != NGX_OK) {
        (void) snprintf(text, sizeof(text), "%ld", (long) rc);

    } else {
        (void) snprintf(text, sizeof(text), "0 %d %u %llu %llu %llu %s",
                        (int) out.rc, out.verified,
                        (unsigned long long) out.frames.frames,
                        (unsigned long long) out.frames.content_size,
                        (unsigned long long) out.frames.window,
                        (out.frames.index || out.frames.nindex) ? "index"
                                                                : "-");
    }

    reply(text);
}


static void
put(ngx_http_zstd_mmap_zone_t *zone, const zmap_version_t *version,
    const char *order, ngx_log_t *log)
{
    int                           rc;
    unsigned                      verified;
    zmap_frame_entry_t            entry;
    unsigned long long            frames, content_size, window;
    ngx_http_zstd_mmap_verdict_t  in;

    if (sscanf(order, "put %d %u %llu %llu %llu", &rc, &verified, &frames,
               &content_size, &window)
        != 5)
    {
        abort();
    }

    memset(&in, 0, sizeof(in));

    in.rc = rc;
    in.verified = verified;
    in.frames.frames = frames;
    in.frames.content_size = content_size;
    in.frames.window = window;
    in.frames.index = &entry;
    in.frames.nindex = 1;

    FUNCTION(ngx_http_zstd_mmap_put_verdict)(zone, version, &in, log);

    reply("put");
}


static void
follow_order(ngx_http_zstd_mmap_zone_t *zone, const zmap_version_t *version,
    ngx_log_t *log)
{
    char       order[256], text[32];
    ngx_int_t  rc;

    if (take_order(order, sizeof(order)) == 0) {
        return;
    }

    switch (order[0]) {

    case 'g':
        get(zone, version, log);
        break;

    case 'p':
        put(zone, version, order, log);
        break;

    case 'c':
        rc = FUNCTION(ngx_http_zstd_mmap_claim_verify)(zone, version, log);
        (void) snprintf(text, sizeof(text), "%ld", (long) rc);
        reply(text);
        break;

    default:
        FUNCTION(ngx_http_zstd_mmap_release_verify)(zone, version, log);
        reply("released");
        break;
    }
}


ngx_int_t
ngx_http_zstd_mmap_find_segment(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_uint_t min_uses,
    ngx_http_zstd_mmap_segment_t *segment, ngx_log_t *log)
{
    static __typeof__(&ngx_http_zstd_mmap_find_segment)  real;

    if (real == NULL) {
        *(void **) &real = dlsym(RTLD_NEXT, "ngx_http_zstd_mmap_find_segment");
    }

    follow_order(zone, version, log);

    return real(zone, version, min_uses, segment, log);
}
