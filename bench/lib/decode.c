
/*
 * What libzstd alone needs for the frames that a range touches:
 *
 *     decode FILE FIRST LAST MILLISECONDS
 *
 * The frames of FILE that hold the decoded bytes FIRST to LAST are read into
 * memory and decoded, each in one call, from there into memory that is used
 * again; for so long, over and over.  Prints the number of frames, their
 * decoded bytes, and the CPU time of one round in microseconds.
 */


#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <zstd.h>


typedef struct {
    char    *coded;
    size_t   coded_size;
    char    *decoded;
    size_t   decoded_size;
    size_t   frames;
} decode_work_t;


static void
decode_die(const char *what)
{
    fprintf(stderr, "decode: %s\n", what);
    exit(1);
}


static double
decode_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}


static void *
decode_memory(size_t size)
{
    void  *p;

    p = malloc(size);
    if (p == NULL) {
        decode_die("no memory");
    }

    memset(p, 1, size);

    return p;
}


/* the frames that hold [first, last], copied; each must tell its size */

static void
decode_find(decode_work_t *work, const char *data, size_t size,
    unsigned long long first, unsigned long long last)
{
    size_t              pos, begin, end, n;
    unsigned long long  place, content;

    begin = size;
    end = size;
    place = 0;

    for (pos = 0; pos < size && place <= last; pos += n) {

        n = ZSTD_findFrameCompressedSize(data + pos, size - pos);
        content = ZSTD_getFrameContentSize(data + pos, size - pos);

        if (ZSTD_isError(n) || content >= ZSTD_CONTENTSIZE_ERROR) {
            decode_die("no frames that tell their size");
        }

        if (place + content > first) {
            begin = (begin == size) ? pos : begin;
            work->decoded_size += content;
            work->frames++;
        }

        place += content;
        end = pos + n;
    }

    if (begin == size || place <= last) {
        decode_die("the range is not in the file");
    }

    work->coded_size = end - begin;
    work->coded = decode_memory(work->coded_size);
    memcpy(work->coded, data + begin, work->coded_size);
    work->decoded = decode_memory(work->decoded_size);
}


static void
decode_round(ZSTD_DCtx *dctx, const decode_work_t *work)
{
    size_t  in, out, n, made;

    out = 0;

    for (in = 0; in < work->coded_size; in += n) {
        n = ZSTD_findFrameCompressedSize(work->coded + in,
                                         work->coded_size - in);
        made = ZSTD_decompressDCtx(dctx, work->decoded + out,
                                   work->decoded_size - out,
                                   work->coded + in, n);
        if (ZSTD_isError(made)) {
            decode_die(ZSTD_getErrorName(made));
        }

        out += made;
    }

    if (out != work->decoded_size) {
        decode_die("other sizes than the frames told");
    }
}


int
main(int argc, char **argv)
{
    int             fd;
    void           *data;
    double          start, end, now;
    ZSTD_DCtx      *dctx;
    struct stat     st;
    unsigned long   rounds;
    decode_work_t   work;

    memset(&work, 0, sizeof(decode_work_t));

    fd = (argc == 5) ? open(argv[1], O_RDONLY) : -1;

    if (fd == -1 || fstat(fd, &st) != 0) {
        decode_die("FILE FIRST LAST MILLISECONDS");
    }

    data = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    dctx = ZSTD_createDCtx();

    if (data == MAP_FAILED || dctx == NULL) {
        decode_die("no memory");
    }

    decode_find(&work, data, (size_t) st.st_size, strtoull(argv[2], NULL, 10),
                strtoull(argv[3], NULL, 10));
    munmap(data, (size_t) st.st_size);

    decode_round(dctx, &work);

    rounds = 0;
    start = decode_now();
    end = start + atof(argv[4]) * 1e3;

    do {
        decode_round(dctx, &work);
        rounds++;
        now = decode_now();
    } while (now < end);

    printf("%zu %zu %.3f\n", work.frames, work.decoded_size,
           (now - start) / (double) rounds);

    return 0;
}
