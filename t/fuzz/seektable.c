
/*
 * Seek tables: the walk against the frames that libzstd finds, and bodies that
 * are decoded by such a table against those that are not.
 *
 * The first bytes of the input say whether a table is made for the rest of it,
 * in what it lies, and by which steps the body is decoded.
 */


#include <zstd.h>

#include "fuzz.h"
#include "zmap_decode.h"


#define FUZZ_CONTROL      4
#define FUZZ_FRAMES       64
#define FUZZ_PLAIN        (256 * 1024)
#define FUZZ_WINDOW       (1024 * 1024)
#define FUZZ_FEED         4          /* as in frame.c: nothing at once */

/* bits of the first byte */
#define FUZZ_MAKE         1
#define FUZZ_CHECKSUMS    2
#define FUZZ_FEWER        4
#define FUZZ_CODED        8          /* the lie is in the coded size */


typedef struct {
    uint64_t   coded;                /* bytes */
    uint64_t   decoded;
    int        zstd;                 /* not a skippable one */
} fuzz_frame_t;


typedef struct {
    uint8_t       *data;             /* exact size */
    size_t         size;
    size_t         nframes;          /* without that of a table of ours */
    fuzz_frame_t   frames[FUZZ_FRAMES];
    uint8_t       *plain;
    size_t         plain_size;
    int            well;             /* all of it was decoded */
} fuzz_file_t;


static zmap_decoders_t  *decoders;
static zmap_decoder_t   *decoder;
static ZSTD_DCtx        *dctx;


static void
fuzz_begin(void)
{
    if (dctx == NULL) {
        decoders = zmap_decoders_create();
        dctx = ZSTD_createDCtx();

        FUZZ_CHECK(decoders != NULL && dctx != NULL);

        ZSTD_DCtx_setParameter(dctx, ZSTD_d_windowLogMax, 20);
    }

    decoder = zmap_decoder_get(decoders);
    FUZZ_CHECK(decoder != NULL);
}


static uint32_t
fuzz_u32(const uint8_t *p)
{
    return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t) p[3] << 24;
}


/* where the frames of an accepted file end; 0: there are too many */

static int
fuzz_list(fuzz_file_t *file)
{
    size_t         at;
    fuzz_frame_t  *frame;

    for (at = 0; at < file->size; at += (size_t) frame->coded) {

        if (file->nframes == FUZZ_FRAMES) {
            return 0;
        }

        frame = &file->frames[file->nframes++];
        frame->zstd = fuzz_u32(file->data + at) == 0xfd2fb528u;

        frame->coded = ZSTD_findFrameCompressedSize(file->data + at,
                                                    file->size - at);
        if (ZSTD_isError((size_t) frame->coded)) {
            return 0;
        }
    }

    return 1;
}


static int
fuzz_decode_frame(fuzz_file_t *file, fuzz_frame_t *frame, const uint8_t *src)
{
    size_t          rc, size;
    ZSTD_inBuffer   in;
    ZSTD_outBuffer  out;

    size = (size_t) frame->coded;
    in = (ZSTD_inBuffer) { src, 0, 0 };
    out = (ZSTD_outBuffer) { file->plain, FUZZ_PLAIN, file->plain_size };

    ZSTD_DCtx_reset(dctx, ZSTD_reset_session_only);

    do {
        if (in.pos == in.size) {
            in.size += size - in.size < FUZZ_FEED ? size - in.size : FUZZ_FEED;
        }

        rc = ZSTD_decompressStream(dctx, &out, &in);

        if (ZSTD_isError(rc) || out.pos == out.size
            || (rc != 0 && in.pos == size))
        {
            return 0;
        }
    } while (rc != 0);

    frame->decoded = out.pos - file->plain_size;
    file->plain_size = out.pos;

    return 1;
}


/* libzstd takes empty compressed blocks in a stream, and not at once */

static int
fuzz_decode_whole(const fuzz_frame_t *frame, const uint8_t *src,
    const uint8_t *expected)
{
    size_t          rc;

    static uint8_t  plain[FUZZ_PLAIN];

    rc = ZSTD_decompressDCtx(dctx, plain, FUZZ_PLAIN, src,
                             (size_t) frame->coded);

    return rc == frame->decoded && memcmp(plain, expected, rc) == 0;
}


/* frame after frame; libzstd does not always compare a content size */

static int
fuzz_decode(fuzz_file_t *file)
{
    size_t              i, at, before;
    fuzz_frame_t       *frame;
    unsigned long long  content;

    for (i = 0, at = 0; i < file->nframes; at += (size_t) frame->coded, i++) {
        frame = &file->frames[i];

        if (!frame->zstd) {
            continue;
        }

        before = file->plain_size;

        if (!fuzz_decode_frame(file, frame, file->data + at)
            || !fuzz_decode_whole(frame, file->data + at,
                                  file->plain + before))
        {
            return 0;
        }

        content = ZSTD_getFrameContentSize(file->data + at, file->size - at);

        if (content != ZSTD_CONTENTSIZE_UNKNOWN && content != frame->decoded) {
            return 0;
        }
    }

    return 1;
}


static uint8_t *
fuzz_put_u32(uint8_t *p, uint64_t value)
{
    *p++ = (uint8_t) value;
    *p++ = (uint8_t) (value >> 8);
    *p++ = (uint8_t) (value >> 16);
    *p++ = (uint8_t) (value >> 24);

    return p;
}


/* a table of the frames, with the lie that the control bytes want */

static void
fuzz_make_table(fuzz_file_t *file, const uint8_t *control)
{
    size_t     i, n, entry;
    int8_t     delta;
    uint8_t   *data, *p;
    uint64_t   coded, decoded;

    n = file->nframes;
    n -= (control[0] & FUZZ_FEWER) && n != 0;
    entry = (control[0] & FUZZ_CHECKSUMS) ? 12 : 8;
    delta = (int8_t) control[2];

    data = malloc(file->size + n * entry + 17);
    FUZZ_CHECK(data != NULL);
    memcpy(data, file->data, file->size);

    p = fuzz_put_u32(data + file->size, 0x184d2a5e);
    p = fuzz_put_u32(p, n * entry + 9);

    for (i = 0; i < n; i++) {
        coded = file->frames[i].coded;
        decoded = file->frames[i].decoded;

        if (i == control[1] % n) {
            if (control[0] & FUZZ_CODED) {
                coded += (uint64_t) delta;
            } else {
                decoded += (uint64_t) delta;
            }
        }

        p = fuzz_put_u32(p, coded);
        p = fuzz_put_u32(p, decoded);
        p = entry == 12 ? fuzz_put_u32(p, 0) : p;
    }

    p = fuzz_put_u32(p, n);
    *p++ = entry == 12 ? 0x80 : 0;
    p = fuzz_put_u32(p, 0x8f92eab1);

    free(file->data);
    file->data = data;
    file->size = (size_t) (p - data);
}


/* the entries of a table that agrees are those frames, and make the index */

static void
fuzz_index(const fuzz_file_t *file, const zmap_frames_t *frames)
{
    size_t               i, n, k, entry;
    uint64_t             at, total, size;
    const uint8_t       *p;
    unsigned long long   content;

    n = fuzz_u32(file->data + file->size - 9);
    entry = (file->data[file->size - 5] & 0x80) ? 12 : 8;
    p = file->data + file->size - 9 - n * entry;

    /* the frame of a table of ours is not in the list */

    FUZZ_CHECK(n == file->nframes || n + 1 == file->nframes);

    k = 0;
    at = 0;
    total = 0;

    for (i = 0; i < n; i++, p += entry) {
        size = fuzz_u32(p + 4);
        content = 0;

        if (file->frames[i].zstd) {
            content = ZSTD_getFrameContentSize(file->data + at,
                                               file->size - at);

            FUZZ_CHECK(k < frames->nindex);
            FUZZ_CHECK(frames->index[k].coded == at);
            FUZZ_CHECK(frames->index[k].decoded == total);
            k++;
        }

        FUZZ_CHECK(content == ZSTD_CONTENTSIZE_UNKNOWN || content == size);
        FUZZ_CHECK(fuzz_u32(p) == file->frames[i].coded);
        FUZZ_CHECK(size <= 0x40000000);

        at += file->frames[i].coded;
        total += size;
    }

    FUZZ_CHECK(frames->nindex == k);
    FUZZ_CHECK(frames->content_size == total);
}


/* where the index says that the first frame ends of which it does not hold */

static uint64_t
fuzz_lie(const fuzz_file_t *file, const zmap_frames_t *frames)
{
    size_t    i, k;
    uint64_t  end, total;

    total = 0;

    for (i = 0, k = 0; i < file->nframes; i++) {

        if (!file->frames[i].zstd) {
            continue;
        }

        total += file->frames[i].decoded;
        k++;

        end = k < frames->nindex ? frames->index[k].decoded
                                 : frames->content_size;

        if (end != total) {
            return end;
        }
    }

    return UINT64_MAX;
}


static zmap_rc_e
fuzz_step(const fuzz_file_t *file, const zmap_frames_t *frames,
    uint8_t *chunk, size_t size, uint64_t lie)
{
    size_t        n, done, calls;
    zmap_rc_e     rc;
    zmap_piece_t  piece = { file->data, 0, file->size };

    rc = zmap_decode_begin(decoder, file->size, FUZZ_WINDOW, 0);
    FUZZ_CHECK(rc == ZMAP_OK);

    zmap_decode_follow(decoder, frames);
    done = 0;
    calls = 0;

    do {
        rc = zmap_decode_step(decoder, &piece, chunk, size, &n);

        FUZZ_CHECK(n <= size);
        FUZZ_CHECK(calls++ <= file->plain_size + file->size);

        if (file->well) {
            FUZZ_CHECK(n <= file->plain_size - done);
            FUZZ_CHECK(memcmp(chunk, file->plain + done, n) == 0);
            FUZZ_CHECK(done + n <= lie);
        }

        done += n;
    } while (rc == ZMAP_AGAIN);

    FUZZ_CHECK(rc != ZMAP_OK || done == frames->content_size);

    return rc;
}


/* by steps and at once */

static void
fuzz_follow(const fuzz_file_t *file, const zmap_frames_t *frames,
    size_t size)
{
    uint8_t    *dst;
    uint64_t    lie;
    zmap_rc_e   rc, expected;

    lie = fuzz_lie(file, frames);
    expected = lie == UINT64_MAX ? ZMAP_OK : ZMAP_SEEK_TABLE;

    dst = malloc(size);
    FUZZ_CHECK(dst != NULL);

    rc = fuzz_step(file, frames, dst, size, lie);
    FUZZ_CHECK(!file->well || rc == expected);

    free(dst);

    if (frames->content_size > 2 * FUZZ_PLAIN) {
        return;
    }

    dst = malloc((size_t) frames->content_size);
    FUZZ_CHECK(dst != NULL || frames->content_size == 0);

    rc = zmap_decode_all(decoder, dst, (size_t) frames->content_size,
                         file->data, file->size, frames);

    FUZZ_CHECK(!file->well || rc == expected);
    FUZZ_CHECK(!file->well || rc != ZMAP_OK
               || memcmp(dst, file->plain, file->plain_size) == 0);

    free(dst);
}


static void
fuzz_walked(const fuzz_file_t *file, const zmap_frames_t *frames,
    const uint8_t *control)
{
    FUZZ_CHECK(!frames->tabled || !frames->table_lies);
    FUZZ_CHECK((frames->index != NULL) == (frames->sized || frames->tabled));

    if (!frames->tabled) {
        return;
    }

    fuzz_index(file, frames);

    if (!frames->sized && frames->window <= FUZZ_WINDOW) {
        fuzz_follow(file, frames, 1 + (size_t) control[3] * control[3]);
    }
}


static void
fuzz_run(fuzz_file_t *file, const uint8_t *control)
{
    int          ours, good;
    zmap_walk_t  walk;

    zmap_walk_init(&walk, file->size);

    good = zmap_walk_run(&walk, file->data, 0) == ZMAP_OK && fuzz_list(file);

    zmap_walk_free(&walk);

    if (!good) {
        return;
    }

    file->well = fuzz_decode(file);
    ours = (control[0] & FUZZ_MAKE) && file->nframes < FUZZ_FRAMES;

    if (ours) {
        fuzz_make_table(file, control);
    }

    zmap_walk_init(&walk, file->size);

    FUZZ_CHECK(zmap_walk_run(&walk, file->data, 0) == ZMAP_OK);

    fuzz_walked(file, &walk.frames, control);

    if (ours && file->well && control[2] == 0 && !(control[0] & FUZZ_FEWER)) {
        FUZZ_CHECK(walk.frames.tabled);
    }

    if (ours && ((control[0] & FUZZ_FEWER)
                 || ((control[0] & FUZZ_CODED) && control[2] != 0)))
    {
        FUZZ_CHECK(walk.frames.table_lies);
    }

    zmap_walk_free(&walk);
}


int
LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    fuzz_file_t     file;

    static uint8_t  plain[FUZZ_PLAIN];

    if (size < FUZZ_CONTROL) {
        return 0;
    }

    fuzz_begin();

    memset(&file, 0, sizeof(file));
    file.size = size - FUZZ_CONTROL;
    file.data = fuzz_copy(input + FUZZ_CONTROL, file.size);
    file.plain = plain;

    fuzz_run(&file, input);

    zmap_decoder_put(decoders, decoder);
    free(file.data);

    return 0;
}
