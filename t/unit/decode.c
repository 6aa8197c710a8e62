
/*
 * Decoding in one call and in steps, over good and bad bodies.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "zmap_decode.h"
#include "zmap_range.h"


#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))

#define CODED_MAX     (4 * 1024 * 1024)
#define FRAMES_MAX    64
#define PLAIN_MAX     (3 * 1024 * 1024)
#define WINDOW_MAX    (8 * 1024 * 1024)


/* libzstd, counted and made to fail on demand */

static size_t      live;
static ZSTD_DCtx  *contexts[64];
static int         create_fails;
static int         parameter_fails;
static int         stream_stands;


/* a symbol of the library behind this program's own of that name */

static void
library(const char *name, void *pointer)
{
    void  *symbol;

    symbol = dlsym(RTLD_NEXT, name);

    if (symbol == NULL) {
        abort();
    }

    memcpy(pointer, &symbol, sizeof(symbol));
}


ZSTD_DCtx *
ZSTD_createDCtx(void)
{
    ZSTD_DCtx  *dctx;
    ZSTD_DCtx  *(*create)(void);

    if (create_fails || live == COUNT(contexts)) {
        return NULL;
    }

    library("ZSTD_createDCtx", &create);
    dctx = create();
    contexts[live++] = dctx;

    return dctx;
}


size_t
ZSTD_freeDCtx(ZSTD_DCtx *dctx)
{
    size_t    i;
    size_t  (*release)(ZSTD_DCtx *);

    for (i = 0; i < live && contexts[i] != dctx; i++) {
        /* void */
    }

    if (i == live) {
        abort();
    }

    contexts[i] = contexts[--live];
    library("ZSTD_freeDCtx", &release);

    return release(dctx);
}


size_t
ZSTD_DCtx_setParameter(ZSTD_DCtx *dctx, ZSTD_dParameter param, int value)
{
    size_t  (*set)(ZSTD_DCtx *, ZSTD_dParameter, int);

    if (parameter_fails) {
        return (size_t) -42;     /* ZSTD_error_parameter_outOfBound */
    }

    library("ZSTD_DCtx_setParameter", &set);

    return set(dctx, param, value);
}


size_t
ZSTD_decompressStream(ZSTD_DStream *stream, ZSTD_outBuffer *out,
    ZSTD_inBuffer *in)
{
    static size_t  (*decompress)(ZSTD_DStream *, ZSTD_outBuffer *,
                                 ZSTD_inBuffer *);

    if (stream_stands) {
        return (size_t) (stream_stands - 1);
    }

    if (decompress == NULL) {
        library("ZSTD_decompressStream", &decompress);
    }

    return decompress(stream, out, in);
}


static size_t
live_bytes(void)
{
    size_t  i, bytes;

    bytes = 0;

    for (i = 0; i < live; i++) {
        bytes += ZSTD_sizeof_DCtx(contexts[i]);
    }

    return bytes;
}


/* a file and what it decodes to */

typedef struct {
    uint8_t  *coded;
    size_t    coded_size;
    uint8_t  *plain;
    size_t    plain_size;

    size_t              nframes;
    zmap_frame_entry_t  index[FRAMES_MAX];     /* of those of libzstd */
} body_t;


static zmap_decoders_t  *decoders;
static zmap_decoder_t   *decoder;
static uint32_t          noise = 88172645;

/* what the decoder is told of the frames of a body, or NULL */
static const zmap_frames_t  *followed;


static uint32_t
next_random(void)
{
    noise ^= noise << 13;
    noise ^= noise >> 17;
    noise ^= noise << 5;

    return noise;
}


static int
setup(void **state)
{
    (void) state;

    decoders = zmap_decoders_create();
    decoder = decoders ? zmap_decoder_get(decoders) : NULL;

    return decoder == NULL;
}


static int
teardown(void **state)
{
    (void) state;

    create_fails = 0;
    parameter_fails = 0;
    stream_stands = 0;
    followed = NULL;

    zmap_decoder_put(decoders, decoder);
    zmap_decoders_destroy(decoders);

    return live != 0;
}


static void
body_init(body_t *body)
{
    body->coded = malloc(CODED_MAX);
    body->plain = malloc(PLAIN_MAX);
    body->coded_size = 0;
    body->plain_size = 0;
    body->nframes = 0;

    assert_non_null(body->coded);
    assert_non_null(body->plain);
}


static void
body_free(body_t *body)
{
    free(body->coded);
    free(body->plain);
}


static void
body_bytes(body_t *body, const void *data, size_t size)
{
    assert_true(size <= CODED_MAX - body->coded_size);

    memcpy(body->coded + body->coded_size, data, size);
    body->coded_size += size;
}


static void
body_skippable(body_t *body, uint8_t size)
{
    size_t   i;
    uint8_t  frame[8 + 255] = { 0x53, 0x2a, 0x4d, 0x18, size };

    for (i = 0; i < size; i++) {
        frame[8 + i] = (uint8_t) next_random();
    }

    body_bytes(body, frame, 8 + (size_t) size);
}


/* a frame of what has been put at the end of the content */

static void
body_compress(body_t *body, size_t size, int sized, int checksum, int window)
{
    size_t          rc;
    uint8_t        *plain;
    ZSTD_CCtx      *cctx;
    ZSTD_inBuffer   in;
    ZSTD_outBuffer  out;

    plain = body->plain + body->plain_size;

    cctx = ZSTD_createCCtx();
    assert_non_null(cctx);

    (void) ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag, checksum);
    (void) ZSTD_CCtx_setParameter(cctx, ZSTD_c_windowLog, window);

    if (sized) {
        (void) ZSTD_CCtx_setPledgedSrcSize(cctx, size);
    }

    in = (ZSTD_inBuffer) { plain, size, 0 };
    out = (ZSTD_outBuffer) { body->coded + body->coded_size,
                             CODED_MAX - body->coded_size, 0 };

    /* the end in a call of its own, so that libzstd does not know the size */

    rc = ZSTD_compressStream2(cctx, &out, &in, ZSTD_e_continue);
    assert_false(ZSTD_isError(rc));
    rc = ZSTD_compressStream2(cctx, &out, &in, ZSTD_e_end);
    assert_int_equal(rc, 0);
    assert_int_equal(in.pos, size);

    (void) ZSTD_freeCCtx(cctx);

    assert_true(body->nframes < FRAMES_MAX);
    body->index[body->nframes].coded = body->coded_size;
    body->index[body->nframes].decoded = body->plain_size;
    body->nframes++;

    body->coded_size += out.pos;
    body->plain_size += size;
}


static void
body_frame(body_t *body, size_t size, int sized, int checksum, int window)
{
    size_t    i;
    uint8_t  *plain;

    assert_true(size <= PLAIN_MAX - body->plain_size);

    plain = body->plain + body->plain_size;

    for (i = 0; i < size; i++) {
        plain[i] = (uint8_t) "etaoin shrdlu"[(next_random() >> 8) % 13];
    }

    body_compress(body, size, sized, checksum, window);
}


/* bytes that cannot be compressed */

static void
body_noise(body_t *body, size_t size)
{
    size_t    i;
    uint8_t  *plain;

    assert_true(size <= PLAIN_MAX - body->plain_size);

    plain = body->plain + body->plain_size;

    for (i = 0; i < size; i++) {
        plain[i] = (uint8_t) (next_random() >> 8);
    }

    body_compress(body, size, 1, 1, 0);
}


static void
body_repeat(body_t *body, const void *data, size_t size, size_t count)
{
    while (count-- > 0) {
        body_bytes(body, data, size);
    }
}


static void
body_piece(body_t *body, char kind)
{
    switch (kind) {

    case 'e':                                         /* empty, sized */
        body_frame(body, 0, 1, 1, 0);
        break;

    case 'E':                                         /* empty, unsized */
        body_frame(body, 0, 0, 0, 17);
        break;

    case 't':
        body_frame(body, 1, 1, 1, 0);
        break;

    case 'z':                                         /* two blocks */
        body_frame(body, 150000, 1, 1, 0);
        break;

    case 'n':                                         /* no checksum */
        body_frame(body, 150000, 1, 0, 0);
        break;

    case 'u':                                         /* no content size */
        body_frame(body, 150000, 0, 1, 17);
        break;

    case 'b':                                         /* block and chunk */
        body_frame(body, 131072, 1, 1, 17);
        break;

    case 'B':
        body_frame(body, 131072, 0, 0, 17);
        break;

    case 'm':
        body_frame(body, 1024 * 1024, 1, 1, 0);
        break;

    case 'L':                                         /* several steps */
        body_frame(body, 2600 * 1024, 1, 1, 0);
        break;

    case 'R':
        body_noise(body, 2600 * 1024);
        break;

    case 's':
        body_skippable(body, 200);
        break;

    case 'S':
        body_skippable(body, 0);
        break;

    case 'K':                                         /* above any piece */
        body_bytes(body, "\x5e\x2a\x4d\x18\xc0\xd4\x01", 8);
        body_repeat(body, "\x28\xb5\x2f\xfd", 4, 30000);
        break;

    default:
        fail();
    }
}


/* one letter a frame; in the end the memory of the file is of its exact size */

static void
body_make(body_t *body, const char *pieces)
{
    body_init(body);

    while (*pieces) {
        body_piece(body, *pieces++);
    }

    body->coded = realloc(body->coded, body->coded_size);
    assert_non_null(body->coded);
}


/* a step whose piece is the whole body */

static zmap_rc_e
step(const uint8_t *src, size_t size, uint8_t *dst, size_t dst_size,
    size_t *produced)
{
    zmap_piece_t  piece = { src, 0, size };

    return zmap_decode_step(decoder, &piece, dst, dst_size, produced);
}


/* a part of a file in memory of its exact size, and no other */

static void
piece_take(zmap_piece_t *piece, const body_t *body, uint64_t offset,
    size_t size)
{
    uint8_t  *data;

    free((void *) piece->data);

    data = malloc(size ? size : 1);
    assert_non_null(data);
    memcpy(data, body->coded + offset, size);

    piece->data = data;
    piece->offset = offset;
    piece->size = size;
}


static size_t
piece_left(const zmap_piece_t *piece)
{
    uint64_t  pos;

    pos = zmap_decode_consumed(decoder);

    if (piece->data == NULL || pos - piece->offset > piece->size) {
        return 0;
    }

    return piece->size - (size_t) (pos - piece->offset);
}


/* the next one, unless this one will do; it begins at most 40 bytes early */

static void
piece_slide(zmap_piece_t *piece, const body_t *body, size_t size, size_t len)
{
    size_t  pos, early, left;

    pos = (size_t) zmap_decode_consumed(decoder);
    left = piece_left(piece);

    if (piece->data != NULL
        && (left >= ZMAP_DECODE_PIECE_MIN || left == size - pos))
    {
        return;
    }

    early = next_random() % 41;
    early = early < pos ? early : pos;
    len = len < size - pos ? len : size - pos;

    piece_take(piece, body, pos - early, early + len);
}


static uint64_t
next_size(const body_t *body, size_t pos)
{
    uint64_t  size;

    size = ZSTD_getFrameContentSize(body->coded + pos, body->coded_size - pos);

    if (size == ZSTD_CONTENTSIZE_UNKNOWN && followed != NULL) {
        assert_int_equal(zmap_range_frame_size(followed, pos, &size), 0);
    }

    return size;
}


/* the next frame would not have been decoded whole, and now can be */

static int
next_waits(const body_t *body, size_t n, size_t produced, uint64_t begun)
{
    size_t    pos, coded;
    uint64_t  size;

    pos = (size_t) zmap_decode_consumed(decoder);
    size = next_size(body, pos);

    if (size > n || pos == begun) {
        return 0;
    }

    coded = ZSTD_findFrameCompressedSize(body->coded + pos,
                                         body->coded_size - pos);

    return size > n - produced
           || coded > ZMAP_DECODE_STEP_INPUT - (pos - begun);
}


/*
 * Decodes the first size bytes of the file in steps of chunk bytes, 0: of
 * changing lengths, by pieces of len bytes, and compares all that comes out.
 */

static zmap_rc_e
steps_by(const body_t *body, size_t size, size_t chunk, uint64_t limit,
    size_t len)
{
    size_t         n, produced, done, calls;
    uint8_t       *dst;
    uint64_t       before;
    zmap_rc_e      rc;
    zmap_piece_t   piece = { NULL, 0, 0 };

    dst = malloc(chunk ? chunk : 5000);
    assert_non_null(dst);

    assert_int_equal(zmap_decode_begin(decoder, size, WINDOW_MAX, limit),
                     ZMAP_OK);

    if (followed != NULL) {
        zmap_decode_follow(decoder, followed);
    }

    done = 0;
    calls = 0;

    do {
        piece_slide(&piece, body, size, len);

        n = chunk ? chunk : (next_random() >> 8) % 5001;
        produced = 12345678;
        before = zmap_decode_consumed(decoder);
        rc = zmap_decode_step(decoder, &piece, dst, n, &produced);

        assert_true(produced <= n);
        assert_true(rc != ZMAP_AGAIN || produced == n
                    || piece_left(&piece) < ZMAP_DECODE_PIECE_MIN
                    || zmap_decode_consumed(decoder) - before
                       >= ZMAP_DECODE_STEP_INPUT
                    || next_waits(body, n, produced, before));
        assert_true(rc != ZMAP_AGAIN || produced == n
                    || zmap_decode_consumed(decoder) > before);
        assert_true(produced <= body->plain_size - done);
        assert_memory_equal(dst, body->plain + done, produced);

        done += produced;
        assert_int_equal(zmap_decode_total(decoder), done);
        assert_true(zmap_decode_consumed(decoder) <= size);
        assert_true(calls++ <= body->plain_size + size + 2);
    } while (rc == ZMAP_AGAIN);

    /* the end is the end */

    assert_int_equal(zmap_decode_step(decoder, &piece, dst, n, &produced), rc);
    assert_int_equal(produced, 0);
    assert_int_equal(zmap_decode_total(decoder), done);

    if (rc == ZMAP_OK) {
        assert_int_equal(zmap_decode_consumed(decoder), size);
        assert_true(done == body->plain_size || size < body->coded_size);
    }

    if (rc == ZMAP_SEEK_TABLE) {
        assert_true(done <= followed->content_size);
    }

    free((void *) piece.data);
    free(dst);

    return rc;
}


static const size_t  pieces[] = {
    ZMAP_DECODE_PIECE_MIN, 29, 257, 65521
};


/* by the whole file, and by pieces, which must not make a difference */

static zmap_rc_e
steps(const body_t *body, size_t size, size_t chunk, uint64_t limit)
{
    size_t     i;
    zmap_rc_e  rc;

    rc = steps_by(body, size, chunk, limit, CODED_MAX);

    /* byte by byte is slow */

    i = chunk == 1 && size > 50000 ? COUNT(pieces) - 1 : 0;

    for ( ; i < COUNT(pieces); i++) {
        assert_int_equal(steps_by(body, size, chunk, limit, pieces[i]), rc);
    }

    return rc;
}


/* decodes size bytes of the file at once into memory of exactly dst_size */

static zmap_rc_e
whole(const body_t *body, size_t size, size_t dst_size)
{
    uint8_t    *src, *dst;
    zmap_rc_e   rc;

    src = malloc(size ? size : 1);
    dst = malloc(dst_size ? dst_size : 1);
    assert_true(src != NULL && dst != NULL);
    memcpy(src, body->coded, size);

    rc = zmap_decode_all(decoder, dst_size ? dst : NULL, dst_size, src, size,
                         followed);

    if (rc == ZMAP_OK) {
        assert_true(dst_size <= body->plain_size);
        assert_memory_equal(dst, body->plain, dst_size);
        assert_int_equal(zmap_decode_total(decoder), dst_size);
        assert_int_equal(zmap_decode_consumed(decoder), size);
    }

    free(src);
    free(dst);

    return rc;
}


static const size_t  chunks[] = { 1, 7, 4096, 131072, 1024 * 1024, 0 };


static void
assert_steps(const body_t *body, zmap_rc_e rc)
{
    size_t  i;

    for (i = 0; i < COUNT(chunks); i++) {
        assert_int_equal(steps(body, body->coded_size, chunks[i], 0), rc);
    }
}


static void
good_bodies_decode_to_their_content(void **state)
{
    size_t  i;
    body_t  body;

    static const char *const  bodies[] = {
        "e", "E", "t", "z", "n", "u", "b", "B", "m",
        "zz", "bb", "BB", "uu", "zun", "tttt",
        "sz", "zsz", "zs", "Sz", "zS", "sSsuSssbS",
        "ez", "ze", "eEzEe", "bE", "bES", "EEEE",
        "s", "S", "sss", "L", "R", "sLs",
        "K", "Kz", "zK", "zKsKSuKeK"
    };

    (void) state;

    for (i = 0; i < COUNT(bodies); i++) {
        body_make(&body, bodies[i]);

        assert_int_equal(whole(&body, body.coded_size, body.plain_size),
                         ZMAP_OK);
        assert_steps(&body, ZMAP_OK);

        body_free(&body);
    }
}


/*
 * Steps of a file that is far larger than its content of three bytes: none
 * takes more than it may, and the last one ends with rc.
 */

static size_t
long_steps(const body_t *body, zmap_rc_e rc)
{
    size_t     calls, before, taken, done, n;
    uint8_t    dst[3];
    zmap_rc_e  rc_now;

    assert_int_equal(zmap_decode_begin(decoder, body->coded_size, WINDOW_MAX,
                                       0), ZMAP_OK);
    done = 0;
    calls = 0;

    do {
        before = zmap_decode_consumed(decoder);
        rc_now = step(body->coded, body->coded_size, dst + done,
                      sizeof(dst) - done, &n);
        taken = zmap_decode_consumed(decoder) - before;

        assert_true(taken < ZMAP_DECODE_STEP_INPUT + ZMAP_DECODE_PIECE_MIN);

        if (rc_now == ZMAP_AGAIN && done + n < sizeof(dst)) {
            assert_true(taken >= ZMAP_DECODE_STEP_INPUT);
        }

        done += n;
        calls++;
        assert_true(calls <= 10);
    } while (rc_now == ZMAP_AGAIN);

    assert_int_equal(rc_now, rc);

    if (rc == ZMAP_OK) {
        assert_int_equal(done, 3);
        assert_memory_equal(dst, "abc", 3);
        assert_int_equal(zmap_decode_consumed(decoder), body->coded_size);
    }

    return calls;
}


static void
a_step_takes_a_bounded_input(void **state)
{
    size_t  i;
    body_t  body;

    static const uint8_t  head[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38 };
    static const uint8_t  last[] = { 0x19, 0, 0, 'a', 'b', 'c' };
    static const uint8_t  first[] = { 0x18, 0, 0, 'a', 'b', 'c' };
    static const uint8_t  end[] = { 0x01, 0, 0 };

    static const struct {
        uint8_t  bytes[10];
        size_t   size;
        int      inside;             /* blocks of the frame */
    } rows[] = {
        { { 0, 0, 0 }, 3, 1 },                             /* raw block */
        { { 0x02, 0, 0, 'x' }, 4, 1 },                     /* RLE block */
        { { 0x50, 0x2a, 0x4d, 0x18 }, 8, 0 },              /* skippable */
        { { 0x5f, 0x2a, 0x4d, 0x18, 1 }, 9, 0 },
        { { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0 }, 9, 0 },
    };

    (void) state;

    for (i = 0; i < COUNT(rows); i++) {

        /* in front of the content */

        body_init(&body);

        if (rows[i].inside) {
            body_bytes(&body, head, sizeof(head));
        }

        body_repeat(&body, rows[i].bytes, rows[i].size,
                    5 * ZMAP_DECODE_STEP_INPUT / 2 / rows[i].size);

        if (!rows[i].inside) {
            body_bytes(&body, head, sizeof(head));
        }

        body_bytes(&body, last, sizeof(last));
        assert_int_equal(long_steps(&body, ZMAP_OK), 3);

        body.coded_size--;
        assert_int_equal(long_steps(&body, ZMAP_TRUNCATED), 3);
        body.coded_size++;

        body_bytes(&body, "", 1);
        assert_int_equal(long_steps(&body, ZMAP_MAGIC), 3);

        body_free(&body);

        /* behind it, where the room in dst has ended */

        body_init(&body);
        body_bytes(&body, head, sizeof(head));
        body_bytes(&body, first, sizeof(first));

        if (!rows[i].inside) {
            body_bytes(&body, end, sizeof(end));
        }

        body_repeat(&body, rows[i].bytes, rows[i].size,
                    5 * ZMAP_DECODE_STEP_INPUT / 2 / rows[i].size);

        if (rows[i].inside) {
            body_bytes(&body, end, sizeof(end));
        }

        memcpy(body.plain, "abc", 3);
        body.plain_size = 3;
        assert_int_equal(whole(&body, body.coded_size, 3), ZMAP_OK);
        assert_int_equal(steps(&body, body.coded_size, 4096, 0), ZMAP_OK);
        assert_int_equal(steps(&body, body.coded_size, 4, 0), ZMAP_OK);

        body_free(&body);
    }
}


/* a file of several frames and what may stand between them */

static void
body_mixed(body_t *body)
{
    body_init(body);
    body_skippable(body, 0);
    body_frame(body, 700, 1, 1, 0);
    body_frame(body, 0, 1, 1, 0);
    body_skippable(body, 70);
    body_frame(body, 0, 0, 0, 17);
    body_bytes(body, "\x28\xb5\x2f\xfd\x00\x38\0\0\0\0\0\0\x01\0\0", 15);
    body_frame(body, 500, 0, 1, 17);
    body_frame(body, 300, 0, 0, 17);
    body_skippable(body, 5);
    body_skippable(body, 9);
}


/* two pieces, or three when the first ends inside a skippable frame */

static zmap_rc_e
steps_split(const body_t *body, size_t size, size_t border, size_t chunk)
{
    size_t         n, done;
    uint8_t       *dst;
    uint64_t       pos;
    zmap_rc_e      rc;
    zmap_piece_t   piece = { NULL, 0, 0 };

    dst = malloc(chunk);
    assert_non_null(dst);

    assert_int_equal(zmap_decode_begin(decoder, size, WINDOW_MAX, 0), ZMAP_OK);
    piece_take(&piece, body, 0, border);
    done = 0;

    do {
        pos = zmap_decode_consumed(decoder);

        if (piece_left(&piece) < ZMAP_DECODE_PIECE_MIN
            && piece.offset + piece.size < size)
        {
            rc = zmap_decode_step(decoder, &piece, dst, chunk, &n);
            assert_int_equal(rc, ZMAP_OVERFLOW);
            assert_int_equal(n, 0);
            assert_int_equal(zmap_decode_consumed(decoder), pos);

            piece_take(&piece, body, pos, size - (size_t) pos);
        }

        rc = zmap_decode_step(decoder, &piece, dst, chunk, &n);

        assert_true(n <= body->plain_size - done);
        assert_memory_equal(dst, body->plain + done, n);
        done += n;
    } while (rc == ZMAP_AGAIN);

    assert_true(rc != ZMAP_OK || zmap_decode_consumed(decoder) == size);
    assert_true(rc != ZMAP_OK || size < body->coded_size
                || done == body->plain_size);

    free((void *) piece.data);
    free(dst);

    return rc;
}


static void
a_border_at_every_byte_changes_nothing(void **state)
{
    size_t     i, j, size, border;
    body_t     body;
    zmap_rc_e  rc;

    static const size_t  few[] = { 1, 333, 100000 };

    static const struct {
        uint8_t  bytes[8];
        size_t   size;
        size_t   cut;
    } rows[] = {
        { { 0 }, 0, 0 },
        { { 0 }, 0, 1 },
        { { 0 }, 0, 10 },
        { { 0 }, 0, 32 },                 /* in the checksumless frame */
        { { 0 }, 0, 360 },
        { { 0 }, 1, 0 },
        { { 0x28, 0xb5, 0x2f }, 3, 0 },
        { { 0x28, 0xb5, 0x2f, 0xfd, 0x60 }, 5, 0 },
        { { 0x50, 0x2a, 0x4d, 0x18, 1 }, 8, 0 },
    };

    (void) state;

    for (i = 0; i < COUNT(rows); i++) {
        body_mixed(&body);
        body_bytes(&body, rows[i].bytes, rows[i].size);
        size = body.coded_size - rows[i].cut;

        for (j = 0; j < COUNT(few); j++) {
            rc = steps_by(&body, size, few[j], 0, CODED_MAX);
            assert_int_equal(rc == ZMAP_OK, i == 0);

            for (border = 0; border <= size; border++) {
                assert_int_equal(steps_split(&body, size, border, few[j]), rc);
            }
        }

        body_free(&body);
    }
}


static void
a_wrong_checksum_is_found_by_pieces(void **state)
{
    size_t  i, border;
    body_t  body;

    (void) state;

    body_init(&body);
    body_frame(&body, 900, 1, 1, 0);
    body.coded[body.coded_size - 1] ^= 1;
    body_skippable(&body, 60);

    for (border = 0; border <= body.coded_size; border++) {
        for (i = 1; i <= 1000; i *= 10) {
            assert_int_equal(steps_split(&body, body.coded_size, border, i),
                             ZMAP_CHECKSUM);
        }
    }

    body_free(&body);
}


/* nothing is done with it, and the body goes on with a better one */

static void
a_piece_that_will_not_do_is_refused(void **state)
{
    size_t     i, n;
    body_t     body;
    uint8_t    dst[700];
    uint64_t   pos;

    static const struct {
        int64_t  offset;              /* from the next byte on */
        size_t   size;
    } rows[] = {
        { 0, 0 },
        { 0, 1 },
        { 0, ZMAP_DECODE_PIECE_MIN - 1 },
        { 1, 1000 },
        { INT64_MAX, 1000 },
        { -20, 0 },
        { -20, 19 },
        { -20, 20 },
        { -20, 20 + ZMAP_DECODE_PIECE_MIN - 1 },
    };

    (void) state;

    body_init(&body);
    body_skippable(&body, 200);
    body_frame(&body, 700, 1, 1, 0);

    assert_int_equal(zmap_decode_begin(decoder, body.coded_size, WINDOW_MAX,
                                       0), ZMAP_OK);
    assert_int_equal(step(body.coded, body.coded_size, NULL, 0, &n),
                     ZMAP_AGAIN);

    pos = zmap_decode_consumed(decoder);
    assert_int_equal(pos, 208);

    for (i = 0; i < COUNT(rows); i++) {
        zmap_piece_t  piece = { (const uint8_t *) 1,
                                pos + (uint64_t) rows[i].offset,
                                rows[i].size };
        n = 7;
        assert_int_equal(zmap_decode_step(decoder, &piece, dst, sizeof(dst),
                                          &n), ZMAP_OVERFLOW);
        assert_int_equal(n, 0);
        assert_int_equal(zmap_decode_consumed(decoder), pos);
        assert_int_equal(zmap_decode_total(decoder), 0);
    }

    assert_int_equal(step(body.coded, body.coded_size, dst, sizeof(dst), &n),
                     ZMAP_OK);
    assert_int_equal(n, sizeof(dst));
    assert_memory_equal(dst, body.plain, n);

    /* a body that has ended wants none */

    assert_int_equal(step((const uint8_t *) 1, 0, dst, 1, &n), ZMAP_OK);

    body_free(&body);
}


/* they are not the body's: a file that has grown, a page that is not full */

static void
bytes_behind_the_body_do_not_count(void **state)
{
    size_t  n;
    body_t  body;
    uint8_t dst[701];

    (void) state;

    body_init(&body);
    body_frame(&body, 700, 1, 1, 0);

    assert_int_equal(zmap_decode_begin(decoder, body.coded_size - 1,
                                       WINDOW_MAX, 0), ZMAP_OK);
    assert_int_equal(step(body.coded, body.coded_size, dst, sizeof(dst), &n),
                     ZMAP_TRUNCATED);

    body_bytes(&body, "junk", 4);

    assert_int_equal(zmap_decode_begin(decoder, body.coded_size - 4,
                                       WINDOW_MAX, 0), ZMAP_OK);
    assert_int_equal(step(body.coded, body.coded_size, dst, sizeof(dst), &n),
                     ZMAP_OK);
    assert_memory_equal(dst, body.plain, n);

    body_free(&body);
}


static void
a_skippable_frame_may_be_far_larger_than_memory(void **state)
{
    size_t        n;
    body_t        body;
    uint8_t       dst[700];
    uint64_t      far;
    zmap_piece_t  piece;

    (void) state;

    body_init(&body);
    body_frame(&body, 700, 1, 1, 0);

    far = UINT64_C(8) + UINT32_MAX;
    piece = (zmap_piece_t) {
        (const uint8_t *) "\x50\x2a\x4d\x18\xff\xff\xff\xff 10 bytes ", 0, 18
    };

    assert_int_equal(zmap_decode_begin(decoder, far + body.coded_size,
                                       WINDOW_MAX, 0), ZMAP_OK);
    assert_int_equal(zmap_decode_step(decoder, &piece, dst, sizeof(dst), &n),
                     ZMAP_AGAIN);
    assert_int_equal(n, 0);
    assert_int_equal(zmap_decode_consumed(decoder), far);

    assert_int_equal(zmap_decode_step(decoder, &piece, dst, sizeof(dst), &n),
                     ZMAP_OVERFLOW);

    piece = (zmap_piece_t) { body.coded, far, body.coded_size };

    assert_int_equal(zmap_decode_step(decoder, &piece, dst, sizeof(dst), &n),
                     ZMAP_OK);
    assert_int_equal(n, 700);
    assert_memory_equal(dst, body.plain, n);
    assert_int_equal(zmap_decode_consumed(decoder), far + body.coded_size);

    body_free(&body);
}


/*
 * The bytes of this frame behind its magic number begin like a skippable one,
 * for which libzstd takes them when a step or a piece ends between the two.
 */

static void
no_border_hides_a_frame(void **state)
{
    size_t  at, before;
    body_t  body;

    static const uint8_t  frame[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0x50, 0x2a, 0x4d, 0x18, 0x6b, 0xca, 0, 0
    };

    (void) state;

    for (at = 0; at <= sizeof(frame); at++) {
        before = ZMAP_DECODE_STEP_INPUT - at;

        body_init(&body);
        body.coded_size = before;
        memset(body.coded, 0, before);
        memcpy(body.coded, "\x50\x2a\x4d\x18", 4);
        body.coded[4] = (uint8_t) (before - 8);
        body.coded[5] = (uint8_t) ((before - 8) >> 8);
        body.coded[6] = (uint8_t) ((before - 8) >> 16);

        body_bytes(&body, frame, sizeof(frame));
        body_piece(&body, 'K');

        body.plain_size = 6477;
        memset(body.plain, 0, body.plain_size);

        assert_int_equal(whole(&body, body.coded_size, 6477), ZMAP_OK);
        assert_int_equal(steps_by(&body, body.coded_size, 6477, 0, CODED_MAX),
                         ZMAP_OK);
        assert_int_equal(steps_by(&body, body.coded_size, 8000, 0, 65521),
                         ZMAP_OK);
        assert_int_equal(steps_split(&body, body.coded_size, before + at,
                                     8000), ZMAP_OK);

        body_free(&body);
    }
}


/* the file ends where a step does, or its last frame begins before that */

static void
a_step_ends_beside_the_end_of_a_file(void **state)
{
    int     i;
    body_t  body;

    static const uint8_t  frame[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38, 0x19, 0, 0, 'a', 'b', 'c'
    };

    (void) state;

    for (i = -12; i <= 16; i++) {
        body_init(&body);
        body_repeat(&body, "\x50\x2a\x4d\x18\x08\0\0\0\0\0\0\0\0\0\0\0", 16,
                    ZMAP_DECODE_STEP_INPUT / 16 - 2);
        body_skippable(&body, (uint8_t) (12 + i));
        body_bytes(&body, frame, sizeof(frame));

        assert_int_equal(body.coded_size,
                         ZMAP_DECODE_STEP_INPUT + (size_t) i);
        assert_int_equal(long_steps(&body, ZMAP_OK), i >= 12 ? 2 : 1);

        body_free(&body);
    }
}


static void
no_byte_is_no_body(void **state)
{
    size_t   produced;
    uint8_t  byte;

    (void) state;

    assert_int_equal(zmap_decode_all(decoder, &byte, 1, NULL, 0, NULL),
                     ZMAP_EMPTY);
    assert_int_equal(zmap_decode_all(decoder, NULL, 0, NULL, 0, NULL),
                     ZMAP_EMPTY);

    assert_int_equal(zmap_decode_begin(decoder, 0, WINDOW_MAX, 0), ZMAP_OK);
    assert_int_equal(step(NULL, 0, &byte, 1, &produced),
                     ZMAP_EMPTY);
    assert_int_equal(produced, 0);

    /* nor is a decoder that was given none */

    zmap_decoder_reset(decoder);
    assert_int_equal(step(NULL, 0, &byte, 1, &produced),
                     ZMAP_EMPTY);
}


static void
an_empty_buffer_waits_and_loses_nothing(void **state)
{
    int        i;
    body_t     body;
    size_t     done, produced;
    uint8_t   *dst;
    zmap_rc_e  rc;

    (void) state;

    body_make(&body, "szebs");
    dst = malloc(body.plain_size);
    assert_non_null(dst);

    assert_int_equal(zmap_decode_begin(decoder, body.coded_size, WINDOW_MAX,
                                       0), ZMAP_OK);
    done = 0;

    do {
        for (i = 0; i < 100; i++) {
            rc = step(body.coded, body.coded_size, NULL, 0, &produced);
            assert_int_equal(produced, 0);
            assert_int_equal(rc, done < body.plain_size ? ZMAP_AGAIN
                                                        : ZMAP_OK);
        }

        if (rc == ZMAP_AGAIN) {
            produced = body.plain_size - done < 9973 ? body.plain_size - done
                                                     : 9973;
            rc = step(body.coded, body.coded_size, dst + done, produced,
                                  &produced);
            done += produced;
        }
    } while (rc == ZMAP_AGAIN);

    assert_int_equal(rc, ZMAP_OK);
    assert_int_equal(done, body.plain_size);
    assert_memory_equal(dst, body.plain, done);

    free(dst);
    body_free(&body);
}


static void
a_buffer_of_another_size_is_refused(void **state)
{
    body_t  body;

    (void) state;

    body_make(&body, "zsn");

    assert_int_equal(whole(&body, body.coded_size, body.plain_size - 1),
                     ZMAP_CONTENT_SIZE);
    assert_int_equal(whole(&body, body.coded_size, body.plain_size + 1),
                     ZMAP_CONTENT_SIZE);
    assert_int_equal(whole(&body, body.coded_size, 150000),
                     ZMAP_CONTENT_SIZE);
    assert_int_equal(whole(&body, body.coded_size, 0), ZMAP_CONTENT_SIZE);

    body_free(&body);

    body_make(&body, "B");
    assert_int_equal(whole(&body, body.coded_size, 131071),
                     ZMAP_CONTENT_SIZE);
    assert_int_equal(whole(&body, body.coded_size, 0), ZMAP_CONTENT_SIZE);
    body_free(&body);

    body_make(&body, "s");
    assert_int_equal(whole(&body, body.coded_size, 1), ZMAP_CONTENT_SIZE);
    body_free(&body);
}


/* where a cut leaves whole frames, what is left is a shorter body */

static void
a_cut_at_every_byte_is_truncation(void **state)
{
    size_t     cut, i, end[5];
    body_t     body;
    zmap_rc_e  rc;

    static const size_t  few[] = { 1, 7, 4096, 0 };

    (void) state;

    body_init(&body);
    end[0] = 0;
    body_skippable(&body, 20);
    end[1] = body.coded_size;
    body_frame(&body, 1500, 1, 1, 0);
    end[2] = body.coded_size;
    body_frame(&body, 1500, 0, 0, 17);
    end[3] = body.coded_size;
    body_skippable(&body, 9);
    end[4] = body.coded_size;

    for (cut = 0; cut < body.coded_size; cut++) {
        rc = ZMAP_TRUNCATED;

        for (i = 1; i < COUNT(end); i++) {
            if (cut == end[i]) {
                rc = ZMAP_OK;
            }
        }

        if (cut == 0) {
            rc = ZMAP_EMPTY;
        }

        for (i = 0; i < COUNT(few); i++) {
            assert_int_equal(steps(&body, cut, few[i], 0), rc);
        }

        if (rc == ZMAP_OK) {
            rc = cut < end[3] ? ZMAP_CONTENT_SIZE : ZMAP_OK;
        }

        assert_int_equal(whole(&body, cut, body.plain_size), rc);
    }

    body_free(&body);
}


static void
bytes_after_the_last_frame_are_found(void **state)
{
    size_t  i;
    body_t  body;

    static const struct {
        size_t     size;
        uint8_t    bytes[8];
        zmap_rc_e  rc;
    } rows[] = {
        { 1, { 0 }, ZMAP_MAGIC },
        { 4, { 'j', 'u', 'n', 'k' }, ZMAP_MAGIC },
        { 8, { 'j', 'u', 'n', 'k' }, ZMAP_MAGIC },
        { 1, { 0x28 }, ZMAP_TRUNCATED },
        { 2, { 0x28, 0xb5 }, ZMAP_TRUNCATED },
        { 3, { 0x28, 0xb5, 0x2f }, ZMAP_TRUNCATED },
        { 4, { 0x28, 0xb5, 0x2f, 0xfd }, ZMAP_TRUNCATED },
        { 3, { 0x28, 0xb5, 0x2e }, ZMAP_MAGIC },
        { 1, { 0x50 }, ZMAP_TRUNCATED },
        { 3, { 0x5f, 0x2a, 0x4d }, ZMAP_TRUNCATED },
        { 4, { 0x50, 0x2a, 0x4d, 0x18 }, ZMAP_TRUNCATED },
        { 7, { 0x50, 0x2a, 0x4d, 0x18 }, ZMAP_TRUNCATED },
        { 8, { 0x50, 0x2a, 0x4d, 0x18, 1 }, ZMAP_TRUNCATED },
        { 8, { 0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255 }, ZMAP_TRUNCATED },
        { 4, { 0x60, 0x2a, 0x4d, 0x18 }, ZMAP_MAGIC },
        { 4, { 0x27, 0xb5, 0x2f, 0xfd }, ZMAP_MAGIC },        /* v0.7 */
    };

    (void) state;

    for (i = 0; i < COUNT(rows); i++) {
        body_init(&body);
        body_frame(&body, 5000, 1, 1, 0);
        body_bytes(&body, rows[i].bytes, rows[i].size);

        assert_int_equal(whole(&body, body.coded_size, body.plain_size),
                         rows[i].rc);
        assert_steps(&body, rows[i].rc);

        body_free(&body);
    }
}


static void
hand_made_frames_get_their_verdict(void **state)
{
    size_t  i;
    body_t  body;

    static const struct {
        size_t     size;
        uint8_t    bytes[24];
        size_t     dst_size;
        zmap_rc_e  whole;
        zmap_rc_e  steps;
    } rows[] = {
        /* one raw byte */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 1, 0x09, 0, 0, 'A' }, 1,
          ZMAP_OK, ZMAP_OK },
        /* unused bit, RFC 8878, 3.1.1.1.1.3 */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x30, 1, 0x09, 0, 0, 'A' }, 1,
          ZMAP_OK, ZMAP_OK },
        /* reserved bit, 3.1.1.1.1.4 */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x28, 1, 0x09, 0, 0, 'A' }, 1,
          ZMAP_HEADER, ZMAP_HEADER },
        /* reserved block type */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 1, 0x0f, 0, 0, 'A' }, 1,
          ZMAP_CORRUPT, ZMAP_CORRUPT },
        /* dictionary 7 */
        { 11, { 0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 1, 0x09, 0, 0, 'A' }, 1,
          ZMAP_DICTIONARY, ZMAP_DICTIONARY },
        /* Window_Size of 2^41: more than libzstd can address */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x09, 0, 0, 'A' }, 1,
          ZMAP_WINDOW, ZMAP_WINDOW },
        /* 16 MiB of window */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x70, 0x09, 0, 0, 'A' }, 1,
          ZMAP_OK, ZMAP_WINDOW },
        /* claims 1 TiB, holds 5 bytes */
        { 17, { 0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0,
                0x2b, 0, 0, 'B' }, 5,
          ZMAP_CORRUPT, ZMAP_WINDOW },
        /* RLE block of 128 KiB and one byte */
        { 10, { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38, 0x0b, 0, 0x10, 'A' }, 0,
          ZMAP_CONTENT_SIZE, ZMAP_CORRUPT },
        /* a format before RFC 8878 */
        { 10, { 0x27, 0xb5, 0x2f, 0xfd, 0x20, 1, 0x09, 0, 0, 'A' }, 1,
          ZMAP_MAGIC, ZMAP_MAGIC },
    };

    (void) state;

    for (i = 0; i < COUNT(rows); i++) {
        body_init(&body);
        body_bytes(&body, rows[i].bytes, rows[i].size);
        memcpy(body.plain, "A", 1);
        body.plain_size = 1;

        assert_int_equal(whole(&body, body.coded_size, rows[i].dst_size),
                         rows[i].whole);
        assert_steps(&body, rows[i].steps);

        body_free(&body);
    }
}


static void
a_wrong_checksum_is_found(void **state)
{
    body_t  body;

    (void) state;

    body_make(&body, "zu");
    body.coded[body.coded_size - 1] ^= 1;

    assert_int_equal(whole(&body, body.coded_size, body.plain_size),
                     ZMAP_CHECKSUM);
    assert_steps(&body, ZMAP_CHECKSUM);

    body_free(&body);
}


/* no flipped bit may give other content without an error */

static void
no_flipped_bit_passes(void **state)
{
    size_t    bit, done, n, errors;
    body_t    body;
    uint8_t  *dst;

    (void) state;

    body_init(&body);
    body_frame(&body, 700, 1, 1, 0);
    dst = malloc(body.plain_size);
    assert_non_null(dst);
    errors = 0;

    for (bit = 0; bit < body.coded_size * 8; bit++) {
        body.coded[bit / 8] ^= (uint8_t) (1 << bit % 8);

        if (zmap_decode_all(decoder, dst, body.plain_size, body.coded,
                            body.coded_size, NULL)
            == ZMAP_OK)
        {
            assert_memory_equal(dst, body.plain, body.plain_size);

        } else {
            errors++;
        }

        assert_int_equal(zmap_decode_begin(decoder, body.coded_size,
                                           WINDOW_MAX, body.plain_size),
                         ZMAP_OK);

        for (done = 0; done < body.plain_size; done += n) {
            n = body.plain_size - done < 64 ? body.plain_size - done : 64;

            if (step(body.coded, body.coded_size, dst + done, n, &n)
                != ZMAP_AGAIN)
            {
                done += n;
                break;
            }
        }

        if (step(body.coded, body.coded_size, NULL, 0, &n) == ZMAP_OK) {
            assert_int_equal(done, body.plain_size);
            assert_memory_equal(dst, body.plain, body.plain_size);
        }

        body.coded[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }

    assert_true(errors > body.coded_size * 8 / 2);

    free(dst);
    body_free(&body);
}


/* the four-byte content size of a frame, one off in both directions */

static void
a_lying_content_size_is_refused(void **state)
{
    int        delta;
    body_t     body;
    size_t     i, size;
    zmap_rc_e  rc;

    (void) state;

    for (delta = -1; delta <= 1; delta += 2) {
        body_make(&body, "z");
        assert_int_equal(body.coded[4] >> 5, 5);       /* single segment */

        size = body.plain_size + (size_t) delta;

        for (i = 0; i < 4; i++) {
            body.coded[5 + i] = (uint8_t) (size >> 8 * i);
        }

        rc = whole(&body, body.coded_size, size);
        assert_true(rc == ZMAP_CONTENT_SIZE || rc == ZMAP_CORRUPT);
        rc = whole(&body, body.coded_size, body.plain_size);
        assert_true(rc == ZMAP_CONTENT_SIZE || rc == ZMAP_CORRUPT);

        for (i = 0; i < COUNT(chunks); i++) {
            rc = steps_by(&body, body.coded_size, chunks[i], 0, CODED_MAX);
            assert_true(rc == ZMAP_CONTENT_SIZE || rc == ZMAP_CORRUPT);
            rc = steps_by(&body, body.coded_size, chunks[i], 0, 257);
            assert_true(rc == ZMAP_CONTENT_SIZE || rc == ZMAP_CORRUPT);
        }

        body_free(&body);
    }
}


static void
a_window_above_the_limit_is_refused(void **state)
{
    body_t    body;
    size_t    i, n;
    uint8_t   dst[3000];

    static const struct {
        int        log;
        uint64_t   max;
        zmap_rc_e  rc;
    } rows[] = {
        { 24, 8 * 1024 * 1024, ZMAP_WINDOW },
        { 24, 16 * 1024 * 1024 - 1, ZMAP_OK },         /* rounded up */
        { 24, 16 * 1024 * 1024, ZMAP_OK },
        { 23, 8 * 1024 * 1024, ZMAP_OK },
        { 23, 4 * 1024 * 1024, ZMAP_WINDOW },
        { 23, UINT64_MAX, ZMAP_OK },
        { 11, 0, ZMAP_WINDOW },                        /* not "default" */
        { 10, 0, ZMAP_OK },
    };

    (void) state;

    for (i = 0; i < COUNT(rows); i++) {
        body_init(&body);
        body_frame(&body, 2000, 0, 1, rows[i].log);

        assert_int_equal(zmap_decode_begin(decoder, body.coded_size,
                                           rows[i].max, 0), ZMAP_OK);
        assert_int_equal(step(body.coded, body.coded_size, dst,
                                          sizeof(dst), &n), rows[i].rc);
        assert_int_equal(n, rows[i].rc == ZMAP_OK ? 2000 : 0);

        /* in one call the window takes no memory */

        assert_int_equal(whole(&body, body.coded_size, 2000), ZMAP_OK);

        body_free(&body);
    }
}


static void
more_than_the_limit_is_refused(void **state)
{
    body_t  body;
    size_t  i, j;

    static const char *const  bodies[] = { "z", "u", "zsu", "bE" };

    (void) state;

    for (i = 0; i < COUNT(bodies); i++) {
        body_make(&body, bodies[i]);

        for (j = 0; j < COUNT(chunks); j++) {
            assert_int_equal(steps(&body, body.coded_size, chunks[j],
                                   body.plain_size), ZMAP_OK);
            assert_int_equal(steps(&body, body.coded_size, chunks[j],
                                   body.plain_size - 1), ZMAP_TOO_LARGE);
            assert_int_equal(steps(&body, body.coded_size, chunks[j], 1),
                             ZMAP_TOO_LARGE);
        }

        body_free(&body);
    }
}


static void
standing_still_ends_as_corrupt(void **state)
{
    body_t   body;
    size_t   n;
    uint8_t  dst[64];

    (void) state;

    body_make(&body, "z");

    /* libzstd says "more" or "frame done" and does nothing */

    for (stream_stands = 2; stream_stands > 0; stream_stands--) {
        assert_int_equal(zmap_decode_begin(decoder, body.coded_size,
                                           WINDOW_MAX, 0), ZMAP_OK);
        assert_int_equal(step(body.coded, body.coded_size, dst,
                                          sizeof(dst), &n), ZMAP_CORRUPT);
        assert_int_equal(n, 0);
    }

    body_free(&body);
}


static void
an_unfinished_body_leaves_no_trace(void **state)
{
    int               i;
    body_t            body, other;
    size_t            n;
    uint8_t           dst[1000];
    zmap_decoder_t   *again;

    (void) state;

    body_make(&body, "zu");
    body_make(&other, "un");

    for (i = 0; i < 20; i++) {
        assert_int_equal(zmap_decode_begin(decoder, body.coded_size,
                                           WINDOW_MAX, 0), ZMAP_OK);
        assert_int_equal(step(body.coded, body.coded_size, dst,
                                          sizeof(dst), &n), ZMAP_AGAIN);
        assert_int_equal(n, sizeof(dst));

        if (i % 3 == 0) {
            zmap_decoder_put(decoders, decoder);
            again = zmap_decoder_get(decoders);
            assert_ptr_equal(again, decoder);

        } else if (i % 3 == 1) {
            zmap_decoder_reset(decoder);
        }

        if (i % 3 != 2) {
            assert_int_equal(zmap_decode_total(decoder), 0);
            assert_int_equal(zmap_decode_consumed(decoder), 0);
        }

        if (i % 2) {
            assert_int_equal(whole(&other, other.coded_size,
                                   other.plain_size), ZMAP_OK);
        } else {
            assert_int_equal(steps(&other, other.coded_size, 7000, 0),
                             ZMAP_OK);
        }
    }

    body_free(&body);
    body_free(&other);
}


static void
idle_decoders_are_bounded_in_number(void **state)
{
    int              i;
    zmap_decoder_t  *taken[40];

    (void) state;

    for (i = 0; i < 40; i++) {
        taken[i] = zmap_decoder_get(decoders);
        assert_non_null(taken[i]);
    }

    assert_int_equal(live, 41);

    for (i = 0; i < 40; i++) {
        zmap_decoder_put(decoders, taken[i]);
    }

    assert_int_equal(live, 1 + ZMAP_DECODERS_IDLE);

    /* and all of them are used again */

    for (i = 0; i < ZMAP_DECODERS_IDLE; i++) {
        taken[i] = zmap_decoder_get(decoders);
    }

    assert_int_equal(live, 1 + ZMAP_DECODERS_IDLE);

    for (i = 0; i < ZMAP_DECODERS_IDLE; i++) {
        zmap_decoder_put(decoders, taken[i]);
    }
}


static void
take_window(zmap_decoder_t *d, const body_t *body)
{
    size_t        n;
    uint8_t       dst[100];
    zmap_piece_t  piece = { body->coded, 0, body->coded_size };

    assert_int_equal(zmap_decode_begin(d, body->coded_size, 1 << 26, 0),
                     ZMAP_OK);
    assert_int_equal(zmap_decode_step(d, &piece, dst, sizeof(dst), &n),
                     ZMAP_AGAIN);
}


static void
idle_decoders_are_bounded_in_bytes(void **state)
{
    int              i, kept;
    body_t           body, huge;
    size_t           own;
    zmap_decoder_t  *taken[10];

    (void) state;

    body_init(&body);
    body_frame(&body, 2000, 0, 1, 23);
    body_init(&huge);
    body_frame(&huge, 2000, 0, 1, 26);

    own = live_bytes();

    for (i = 0; i < 10; i++) {
        taken[i] = zmap_decoder_get(decoders);
        assert_non_null(taken[i]);
        take_window(taken[i], &body);
    }

    assert_true(live_bytes() > 10 * 8 * 1024 * 1024);

    for (i = 0; i < 10; i++) {
        zmap_decoder_put(decoders, taken[i]);
    }

    kept = (int) live - 1;
    assert_true(kept >= 2 && kept <= 4);
    assert_true(live_bytes() - own <= ZMAP_DECODERS_IDLE_BYTES);

    /* taking one makes room for it again */

    for (i = 0; i < 5; i++) {
        taken[0] = zmap_decoder_get(decoders);
        zmap_decoder_put(decoders, taken[0]);
        assert_int_equal(live, 1 + kept);
    }

    /* one that is too large alone is never kept */

    taken[0] = zmap_decoder_get(decoders);
    take_window(taken[0], &huge);
    assert_true(live_bytes() > 64 * 1024 * 1024);
    zmap_decoder_put(decoders, taken[0]);
    assert_int_equal(live, kept);

    body_free(&body);
    body_free(&huge);
}


static void
no_memory_gives_no_decoder(void **state)
{
    (void) state;

    create_fails = 1;
    assert_null(zmap_decoder_get(decoders));
    create_fails = 0;

    parameter_fails = 1;
    assert_int_equal(zmap_decode_begin(decoder, 10, WINDOW_MAX, 0),
                     ZMAP_NOMEM);
    parameter_fails = 0;

    zmap_decoders_destroy(NULL);
}


/* decodes all of it in steps of chunk bytes; the memory that this took */

static size_t
memory_of_steps(const body_t *body, size_t chunk)
{
    size_t     before, done, n;
    uint8_t   *dst;
    zmap_rc_e  rc;

    dst = malloc(chunk);
    assert_non_null(dst);

    zmap_decoder_put(decoders, decoder);
    zmap_decoders_destroy(decoders);
    assert_int_equal(setup(NULL), 0);

    before = live_bytes();

    assert_int_equal(zmap_decode_begin(decoder, body->coded_size, WINDOW_MAX,
                                       0), ZMAP_OK);
    zmap_decode_follow(decoder, followed);
    done = 0;

    do {
        rc = step(body->coded, body->coded_size, dst, chunk, &n);

        assert_true(n <= body->plain_size - done);
        assert_memory_equal(dst, body->plain + done, n);
        done += n;
    } while (rc == ZMAP_AGAIN);

    assert_int_equal(rc, ZMAP_OK);
    assert_int_equal(done, body->plain_size);

    free(dst);

    return live_bytes() - before;
}


static void
follow(zmap_frames_t *frames, body_t *body)
{
    *frames = (zmap_frames_t) {
        .frames = body->nframes,
        .content_size = body->plain_size,
        .tabled = 1,
        .index = body->index,
        .nindex = body->nframes
    };

    followed = frames;
}


/* 20 frames of 100,000 bytes, the last ones shorter */

static void
body_frames(body_t *body, int sized)
{
    size_t  i;

    body_init(body);

    for (i = 0; i < 20; i++) {
        body_frame(body, 100000 - 100 * i, sized, 1, 23);
        body_skippable(body, 30);
    }
}


static const size_t  frame_chunks[] = {
    100000, 100001, 131072, 199899, 199900, 262144, 1000000
};


static void
frames_that_fit_take_no_window(void **state)
{
    size_t         i;
    body_t         body;
    zmap_frames_t  frames;

    (void) state;

    body_frames(&body, 1);

    for (i = 0; i < COUNT(frame_chunks); i++) {
        assert_int_equal(memory_of_steps(&body, frame_chunks[i]), 0);
    }

    assert_true(memory_of_steps(&body, 99999) > 0);
    body_free(&body);

    /* nor do those of which only an index tells */

    body_frames(&body, 0);
    assert_true(memory_of_steps(&body, 1000000) > 8 * 1024 * 1024);

    follow(&frames, &body);

    for (i = 0; i < COUNT(frame_chunks); i++) {
        assert_int_equal(memory_of_steps(&body, frame_chunks[i]), 0);
    }

    assert_true(memory_of_steps(&body, 99999) > 8 * 1024 * 1024);
    body_free(&body);
}


static void
the_end_of_a_step_cuts_no_frame_that_fits(void **state)
{
    int     i;
    body_t  body;

    (void) state;

    body_init(&body);

    for (i = 0; i < 7; i++) {
        body_noise(&body, 400000);
    }

    assert_int_equal(memory_of_steps(&body, 400000), 0);
    assert_int_equal(memory_of_steps(&body, PLAIN_MAX), 0);
    body_free(&body);

    /* a step for so much room takes as much input; one for less does not */

    body_make(&body, "tR");
    assert_int_equal(memory_of_steps(&body, PLAIN_MAX), 0);
    assert_true(memory_of_steps(&body, 1000000) > 0);
    body_free(&body);
}


static void
followed_bodies_decode_to_their_content(void **state)
{
    size_t         i;
    body_t         body;
    zmap_frames_t  frames;

    static const char *const  bodies[] = {
        "E", "u", "B", "BB", "uu", "zun", "sSsuSssbS", "eEzEe", "bES", "EEEE",
        "sLs", "zKsKSuKeK", "BzBuBtB"
    };

    (void) state;

    for (i = 0; i < COUNT(bodies); i++) {
        body_make(&body, bodies[i]);
        follow(&frames, &body);

        assert_int_equal(whole(&body, body.coded_size, body.plain_size),
                         ZMAP_OK);
        assert_steps(&body, ZMAP_OK);

        body_free(&body);
    }
}


static void
a_followed_body_begins_at_any_frame(void **state)
{
    size_t         i, n, done;
    body_t         body;
    uint8_t        dst[7000];
    zmap_rc_e      rc;
    zmap_frames_t  frames;

    (void) state;

    body_make(&body, "uBsEzKuB");
    follow(&frames, &body);

    for (i = 0; i < body.nframes; i++) {
        assert_int_equal(zmap_decode_begin(decoder, body.coded_size,
                                           WINDOW_MAX, 0), ZMAP_OK);
        zmap_decode_seek(decoder, body.index[i].coded);
        zmap_decode_follow(decoder, &frames);

        done = body.index[i].decoded;

        do {
            rc = step(body.coded, body.coded_size, dst, sizeof(dst), &n);

            assert_true(n <= body.plain_size - done);
            assert_memory_equal(dst, body.plain + done, n);
            done += n;
        } while (rc == ZMAP_AGAIN);

        assert_int_equal(rc, ZMAP_OK);
        assert_int_equal(done, body.plain_size);
    }

    body_free(&body);
}


/* no byte comes behind where the index says that frame number i ends */

static void
lying_steps(const body_t *body, const zmap_frames_t *frames, size_t i,
    size_t chunk, size_t len)
{
    size_t         n, done, end;
    uint8_t       *dst;
    zmap_rc_e      rc;
    zmap_piece_t   piece = { NULL, 0, 0 };

    end = (size_t) (i + 1 < frames->nindex ? frames->index[i + 1].decoded
                                           : frames->content_size);
    end = end < body->plain_size ? end : body->plain_size;

    dst = malloc(chunk);
    assert_non_null(dst);

    assert_int_equal(zmap_decode_begin(decoder, body->coded_size, WINDOW_MAX,
                                       0), ZMAP_OK);
    zmap_decode_follow(decoder, frames);
    done = 0;

    do {
        piece_slide(&piece, body, body->coded_size, len);
        rc = zmap_decode_step(decoder, &piece, dst, chunk, &n);

        assert_true(n <= end - done);
        assert_memory_equal(dst, body->plain + done, n);
        done += n;
    } while (rc == ZMAP_AGAIN);

    assert_int_equal(rc, ZMAP_SEEK_TABLE);

    free((void *) piece.data);
    free(dst);
}


static void
a_frame_of_another_size_than_followed_is_found(void **state)
{
    size_t               i, j, k, l, next, from;
    body_t               body;
    uint64_t             size;
    zmap_frames_t        frames;
    zmap_frame_entry_t   lie[FRAMES_MAX];

    static const size_t  sizes[] = {
        0, 1, 131071, 131072, 149999, 150001, 151000, 262144, 10000000
    };

    (void) state;

    body_make(&body, "usuBu");
    follow(&frames, &body);

    for (i = 0; i < body.nframes; i++) {
        for (j = 0; j < COUNT(sizes); j++) {
            memcpy(lie, body.index, sizeof(lie));
            frames.index = lie;
            frames.content_size = body.plain_size;

            next = i + 1 < body.nframes ? lie[i + 1].decoded
                                        : body.plain_size;
            size = next - lie[i].decoded;

            if (size == sizes[j]) {
                continue;
            }

            for (k = i + 1; k < body.nframes; k++) {
                lie[k].decoded += sizes[j] - size;
            }

            frames.content_size += sizes[j] - size;

            assert_int_equal(whole(&body, body.coded_size,
                                   frames.content_size), ZMAP_SEEK_TABLE);

            from = body.coded_size > 50000 ? 1 : 0;

            for (k = from; k < COUNT(chunks) - 1; k++) {
                lying_steps(&body, &frames, i, chunks[k], CODED_MAX);

                for (l = 1; l < COUNT(pieces); l++) {
                    lying_steps(&body, &frames, i, chunks[k], pieces[l]);
                }
            }
        }
    }

    body_free(&body);
}


/* the last bytes before it go out only where the piece ends */

static void
a_longer_frame_ends_before_its_last_bytes(void **state)
{
    size_t         n;
    body_t         body;
    uint8_t        dst[149999];
    zmap_frames_t  frames;

    (void) state;

    body_make(&body, "u");
    follow(&frames, &body);
    frames.content_size--;

    assert_int_equal(zmap_decode_begin(decoder, body.coded_size, WINDOW_MAX,
                                       0), ZMAP_OK);
    zmap_decode_follow(decoder, &frames);

    assert_int_equal(step(body.coded, body.coded_size, dst, 100000, &n),
                     ZMAP_AGAIN);
    assert_int_equal(n, 100000);
    assert_int_equal(step(body.coded, body.coded_size, dst, 49999, &n),
                     ZMAP_SEEK_TABLE);

    body_free(&body);
}


static void
what_is_wrong_with_a_followed_frame_is_found(void **state)
{
    body_t         body;
    zmap_frames_t  frames;

    (void) state;

    body_make(&body, "BuB");
    follow(&frames, &body);

    /* the checksum of the second frame */

    body.coded[body.index[2].coded - 1] ^= 1;

    assert_int_equal(whole(&body, body.coded_size, body.plain_size),
                     ZMAP_CHECKSUM);
    assert_steps(&body, ZMAP_CHECKSUM);

    body.coded[body.index[2].coded - 1] ^= 1;

    /* a frame that the index does not know */

    body.index[1].coded++;

    assert_int_equal(whole(&body, body.coded_size, body.plain_size),
                     ZMAP_SEEK_TABLE);
    assert_steps(&body, ZMAP_SEEK_TABLE);

    body.index[1].coded--;

    /* the limit holds here, too */

    assert_int_equal(steps(&body, body.coded_size, PLAIN_MAX,
                           body.plain_size - 1), ZMAP_TOO_LARGE);

    body_free(&body);
}


#define DECODE_TEST(test)                                                     \
    cmocka_unit_test_setup_teardown(test, setup, teardown)


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        DECODE_TEST(good_bodies_decode_to_their_content),
        DECODE_TEST(a_step_takes_a_bounded_input),
        DECODE_TEST(a_step_ends_beside_the_end_of_a_file),
        DECODE_TEST(a_border_at_every_byte_changes_nothing),
        DECODE_TEST(a_wrong_checksum_is_found_by_pieces),
        DECODE_TEST(a_piece_that_will_not_do_is_refused),
        DECODE_TEST(bytes_behind_the_body_do_not_count),
        DECODE_TEST(a_skippable_frame_may_be_far_larger_than_memory),
        DECODE_TEST(no_border_hides_a_frame),
        DECODE_TEST(no_byte_is_no_body),
        DECODE_TEST(an_empty_buffer_waits_and_loses_nothing),
        DECODE_TEST(a_buffer_of_another_size_is_refused),
        DECODE_TEST(a_cut_at_every_byte_is_truncation),
        DECODE_TEST(bytes_after_the_last_frame_are_found),
        DECODE_TEST(hand_made_frames_get_their_verdict),
        DECODE_TEST(a_wrong_checksum_is_found),
        DECODE_TEST(no_flipped_bit_passes),
        DECODE_TEST(a_lying_content_size_is_refused),
        DECODE_TEST(a_window_above_the_limit_is_refused),
        DECODE_TEST(more_than_the_limit_is_refused),
        DECODE_TEST(standing_still_ends_as_corrupt),
        DECODE_TEST(an_unfinished_body_leaves_no_trace),
        DECODE_TEST(idle_decoders_are_bounded_in_number),
        DECODE_TEST(idle_decoders_are_bounded_in_bytes),
        DECODE_TEST(no_memory_gives_no_decoder),
        DECODE_TEST(frames_that_fit_take_no_window),
        DECODE_TEST(the_end_of_a_step_cuts_no_frame_that_fits),
        DECODE_TEST(followed_bodies_decode_to_their_content),
        DECODE_TEST(a_followed_body_begins_at_any_frame),
        DECODE_TEST(a_frame_of_another_size_than_followed_is_found),
        DECODE_TEST(a_longer_frame_ends_before_its_last_bytes),
        DECODE_TEST(what_is_wrong_with_a_followed_frame_is_found),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("decode", tests, NULL, NULL) != 0;
}
