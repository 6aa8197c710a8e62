
/*
 * What a body costs without the module: a filter on libzstd's streaming
 * interface, its parts one by one, and the client that all are measured with.
 *
 *   streams filter  FILE COUNT [OUT]    per body a new context, the file by
 *                                       reads of 64 KiB, OUT bytes (128 KiB)
 *                                       decoded at a time, each written to a
 *                                       TCP socket on the loopback device
 *   streams floor   FILE COUNT PIECE    all of it at once into kept memory,
 *                                       written by PIECE bytes
 *   streams steps   FILE COUNT OUT      decoding alone, by steps of OUT bytes
 *                                       from kept into kept memory
 *   streams whole   FILE COUNT          decoding alone, all of it at once
 *   streams writes  SIZE COUNT PIECE    writing alone, the same PIECE bytes
 *   streams fetch   PORT PATH COUNT     GET over one connection; no CPU time
 *
 * Prints the CPU time of the writer, user and system, in nanoseconds a body,
 * and the bytes of a body.  CPUS=A,B in the environment has the writer run on
 * CPU A, and the reader, which discards what it reads, on CPU B.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <zstd.h>

#include "client.h"


#define OUT_SIZE  (128 * 1024)
#define IN_SIZE   (64 * 1024)


typedef struct {
    const char  *path;
    char        *src;           /* the coded bytes, where they are kept */
    size_t       src_size;
    char        *dst;           /* memory for decoded bytes */
    size_t       dst_size;
    size_t       piece;
    int          fd;            /* the socket, or -1 */
    ZSTD_DCtx   *dctx;
} streams_t;


typedef uint64_t (*streams_body_pt)(streams_t *s);


static uint64_t
cpu_time(void)
{
    struct rusage  ru;

    if (getrusage(RUSAGE_SELF, &ru) == -1) {
        die("getrusage: %s", strerror(errno));
    }

    return UINT64_C(1000)
           * (UINT64_C(1000000) * (uint64_t) (ru.ru_utime.tv_sec
                                              + ru.ru_stime.tv_sec)
              + (uint64_t) (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec));
}


/* memory whose pages are there */

static char *
memory(size_t size)
{
    char  *p;

    p = mmap(NULL, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        die("mmap: %s", strerror(errno));
    }

    (void) madvise(p, size, MADV_HUGEPAGE);
    memset(p, 1, size);

    return p;
}


static void
load(streams_t *s)
{
    int          fd;
    ssize_t      n;
    size_t       pos;
    struct stat  st;

    fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd == -1 || fstat(fd, &st) == -1 || st.st_size == 0) {
        die("%s: %s", s->path, strerror(errno));
    }

    s->src_size = (size_t) st.st_size;
    s->src = memory(s->src_size);

    for (pos = 0; pos < s->src_size; pos += (size_t) n) {
        n = read(fd, s->src + pos, s->src_size - pos);
        if (n <= 0) {
            die("%s: read: %s", s->path, strerror(errno));
        }
    }

    (void) close(fd);
}


static void
make_context(streams_t *s)
{
    s->dctx = ZSTD_createDCtx();

    if (s->dctx == NULL
        || ZSTD_isError(ZSTD_DCtx_setParameter(s->dctx, ZSTD_d_windowLogMax,
                                               27)))
    {
        die("no context");
    }
}


/* bodies: each returns its decoded bytes */

static size_t
step(streams_t *s, ZSTD_outBuffer *out, ZSTD_inBuffer *in)
{
    size_t  left;

    left = ZSTD_decompressStream(s->dctx, out, in);
    if (ZSTD_isError(left)) {
        die("%s: %s", s->path, ZSTD_getErrorName(left));
    }

    return left;
}


static uint64_t
filter_body(streams_t *s)
{
    int             file;
    char            input[IN_SIZE];
    ssize_t         n;
    uint64_t        total;
    ZSTD_inBuffer   in;
    ZSTD_outBuffer  out = { s->dst, s->piece, 0 };

    make_context(s);
    total = 0;

    file = open(s->path, O_RDONLY | O_CLOEXEC);
    if (file == -1) {
        die("%s: %s", s->path, strerror(errno));
    }

    for ( ;; ) {
        n = read(file, input, IN_SIZE);
        if (n == -1) {
            die("%s: read: %s", s->path, strerror(errno));
        }

        if (n == 0) {
            break;
        }

        in = (ZSTD_inBuffer) { input, (size_t) n, 0 };

        /* a full buffer may leave bytes in the context */

        do {
            if (out.pos == out.size) {
                write_all(s->fd, s->dst, out.pos);
                total += out.pos;
                out.pos = 0;
            }

            (void) step(s, &out, &in);

        } while (in.pos < in.size || out.pos == out.size);
    }

    write_all(s->fd, s->dst, out.pos);
    total += out.pos;

    (void) close(file);
    (void) ZSTD_freeDCtx(s->dctx);

    return total;
}


static uint64_t
steps_body(streams_t *s)
{
    uint64_t        total;
    ZSTD_inBuffer   in = { s->src, s->src_size, 0 };
    ZSTD_outBuffer  out = { s->dst, s->piece, 0 };

    total = 0;

    do {
        total += out.pos == out.size ? out.pos : 0;
        out.pos = out.pos == out.size ? 0 : out.pos;

        (void) step(s, &out, &in);

    } while (in.pos < in.size || out.pos == out.size);

    return total + out.pos;
}


static uint64_t
whole_body(streams_t *s)
{
    size_t  n;

    n = ZSTD_decompressDCtx(s->dctx, s->dst, s->dst_size, s->src,
                            s->src_size);
    if (ZSTD_isError(n)) {
        die("%s: %s", s->path, ZSTD_getErrorName(n));
    }

    return n;
}


static uint64_t
floor_body(streams_t *s)
{
    uint64_t  total, pos;

    total = whole_body(s);

    for (pos = 0; pos < total; pos += s->piece) {
        write_all(s->fd, s->dst + pos,
                  total - pos < s->piece ? total - pos : s->piece);
    }

    return total;
}


static uint64_t
writes_body(streams_t *s)
{
    size_t  pos;

    for (pos = 0; pos < s->dst_size; pos += s->piece) {
        write_all(s->fd, s->dst,
                  s->dst_size - pos < s->piece ? s->dst_size - pos : s->piece);
    }

    return s->dst_size;
}


/* bytes of the body when it is decoded by steps */

static size_t
decoded_size(streams_t *s)
{
    uint64_t        total;
    ZSTD_inBuffer   in = { s->src, s->src_size, 0 };
    ZSTD_outBuffer  out;
    static char     buffer[OUT_SIZE];

    total = 0;

    do {
        out = (ZSTD_outBuffer) { buffer, sizeof(buffer), 0 };
        (void) step(s, &out, &in);
        total += out.pos;

    } while (in.pos < in.size || out.pos == out.size);

    (void) ZSTD_DCtx_reset(s->dctx, ZSTD_reset_session_only);

    return (size_t) total;
}


/* the reader */

static int
listener(struct sockaddr_in *addr)
{
    int        fd;
    socklen_t  len;

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memset(addr, 0, sizeof(*addr));
    addr->sin_family = AF_INET;
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(*addr);

    if (fd == -1
        || bind(fd, (struct sockaddr *) addr, len) == -1
        || getsockname(fd, (struct sockaddr *) addr, &len) == -1
        || listen(fd, 1) == -1)
    {
        die("listen: %s", strerror(errno));
    }

    return fd;
}


static pid_t
start_reader(int *fd)
{
    int                 one, server;
    pid_t               pid;
    struct sockaddr_in  addr;

    server = listener(&addr);
    pid = fork();

    if (pid == -1) {
        die("fork: %s", strerror(errno));
    }

    if (pid == 0) {
        pin(1);
        (void) close(server);
        (void) discard(connect_to(ntohs(addr.sin_port)), UINT64_MAX);
        _exit(0);
    }

    *fd = accept(server, NULL, NULL);
    if (*fd == -1) {
        die("accept: %s", strerror(errno));
    }

    /* as nginx sets it for connections that are kept alive */
    one = 1;
    (void) setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    (void) close(server);

    return pid;
}


static void
measure(streams_t *s, streams_body_pt body, size_t count)
{
    size_t    i;
    uint64_t  size, before;

    /* the first one warms caches, and says how long all must be */
    size = body(s);
    before = cpu_time();

    for (i = 0; i < count; i++) {
        if (body(s) != size) {
            die("a body is of another length");
        }
    }

    (void) printf("%" PRIu64 " %" PRIu64 "\n", (cpu_time() - before) / count,
                  size);
}


static void
measure_sent(streams_t *s, streams_body_pt body, size_t count)
{
    int    status;
    pid_t  reader;

    reader = start_reader(&s->fd);
    measure(s, body, count);

    (void) close(s->fd);

    if (waitpid(reader, &status, 0) != reader || status != 0) {
        die("the reader failed");
    }
}


static void
fetch(const char *port, const char *path, size_t count)
{
    int  fd;

    pin(1);
    fd = connect_to((uint16_t) number(port));

    while (count--) {
        (void) get(fd, path, "");
    }
}


int
main(int argc, char **argv)
{
    size_t       count;
    streams_t    s = { .fd = -1 };
    const char  *mode;

    mode = argc > 1 ? argv[1] : "";

    if (argc < 4 || argc > 5) {
        die("see the top of the source");
    }

    if (strcmp(mode, "fetch") == 0) {
        fetch(argv[2], argv[3], number(argc > 4 ? argv[4] : "1"));
        return 0;
    }

    pin(0);

    s.path = argv[2];
    count = number(argv[3]);
    s.piece = argc > 4 ? number(argv[4]) : OUT_SIZE;

    if (strcmp(mode, "writes") == 0) {
        s.dst_size = number(argv[2]);
        s.dst = memory(s.piece);
        measure_sent(&s, writes_body, count);
        return 0;
    }

    if (strcmp(mode, "filter") == 0) {
        s.dst = memory(s.piece);
        measure_sent(&s, filter_body, count);
        return 0;
    }

    load(&s);
    make_context(&s);

    if (strcmp(mode, "steps") == 0) {
        s.dst = memory(s.piece);
        measure(&s, steps_body, count);
        return 0;
    }

    s.dst_size = decoded_size(&s);
    s.dst = memory(s.dst_size);

    if (strcmp(mode, "whole") == 0) {
        measure(&s, whole_body, count);

    } else if (strcmp(mode, "floor") == 0) {
        measure_sent(&s, floor_body, count);

    } else {
        die("no such mode: %s", mode);
    }

    return 0;
}
