
/*
 * The frame walker against libzstd's streaming decoder.
 */


#include <zstd.h>
#include <zstd_errors.h>

#include "fuzz.h"
#include "zmap_frame.h"


#define FUZZ_MAGIC         0xfd2fb528u
#define FUZZ_WINDOW_LOG    27
#define FUZZ_DECODED_MAX   (64 * 1024 * 1024)
#define FUZZ_CHUNK         (128 * 1024)

/*
 * Fewer bytes than the least frame has: libzstd then never sees a whole frame
 * at once, which it would decode by rules other than those of streaming.
 */
#define FUZZ_FEED          4


typedef enum {
    FUZZ_WELL,         /* decoded, and a frame ended with the last byte */
    FUZZ_BROKEN,
    FUZZ_CUT,          /* the input ended inside a frame */
    FUZZ_UNDECIDED     /* too large to be decoded here */
} fuzz_outcome_e;


typedef struct {
    fuzz_outcome_e   outcome;
    ZSTD_ErrorCode   error;       /* of FUZZ_BROKEN; 0: found here */
    uint64_t         total;       /* decoded bytes */
    uint64_t         frames;      /* zstd frames begun */

    const uint8_t   *data;
    size_t           size;
    size_t           start;       /* of the frame that is being decoded */
    size_t           offset;      /* next byte to feed */
    uint64_t         produced;    /* decoded bytes of that frame */
} fuzz_decode_t;


static uint32_t
fuzz_magic(const uint8_t *data, size_t size)
{
    if (size < 4) {
        return 0;
    }

    return data[0] | data[1] << 8 | data[2] << 16 | (uint32_t) data[3] << 24;
}


/* formats before 0.8 are not those of RFC 8878; libzstd may know them still */

static int
fuzz_legacy(uint32_t magic)
{
    return magic >= 0xfd2fb522u && magic < FUZZ_MAGIC;
}


/* libzstd does not compare where the last block of a frame is an empty one */

static int
fuzz_frame_size_holds(const fuzz_decode_t *decode)
{
    unsigned long long  declared;

    declared = ZSTD_getFrameContentSize(decode->data + decode->start,
                                        decode->size - decode->start);

    return declared == ZSTD_CONTENTSIZE_UNKNOWN
           || declared == decode->produced;
}


static int
fuzz_frame_begins(fuzz_decode_t *decode, const zmap_frames_t *frames)
{
    uint32_t             magic;
    zmap_frame_entry_t  *entry;

    decode->start = decode->offset;
    decode->produced = 0;

    magic = fuzz_magic(decode->data + decode->start,
                       decode->size - decode->start);

    if (fuzz_legacy(magic)) {
        decode->outcome = FUZZ_BROKEN;
        return 0;
    }

    if (magic != FUZZ_MAGIC) {
        return 1;
    }

    /* what only a seek table says need not be true */

    if (frames && frames->index && frames->sized) {
        FUZZ_CHECK(decode->frames < frames->nindex);

        entry = &frames->index[decode->frames];
        FUZZ_CHECK(entry->coded == decode->start);
        FUZZ_CHECK(entry->decoded == decode->total);
    }

    decode->frames++;

    return 1;
}


static fuzz_outcome_e
fuzz_failed(fuzz_decode_t *decode, size_t rc)
{
    decode->error = ZSTD_getErrorCode(rc);

    if (decode->error == ZSTD_error_frameParameter_windowTooLarge
        || decode->error == ZSTD_error_memory_allocation)
    {
        return FUZZ_UNDECIDED;
    }

    return FUZZ_BROKEN;
}


/* feeds once; 0: the outcome is known */

static int
fuzz_feed(fuzz_decode_t *decode, ZSTD_DCtx *dctx,
    const zmap_frames_t *frames)
{
    size_t           rc;
    ZSTD_inBuffer    in;
    ZSTD_outBuffer   out;

    static uint8_t   chunk[FUZZ_CHUNK];

    in = (ZSTD_inBuffer) { decode->data + decode->offset, FUZZ_FEED, 0 };

    if (in.size > decode->size - decode->offset) {
        in.size = decode->size - decode->offset;
    }

    out = (ZSTD_outBuffer) { chunk, sizeof(chunk), 0 };

    rc = ZSTD_decompressStream(dctx, &out, &in);

    decode->offset += in.pos;
    decode->produced += out.pos;
    decode->total += out.pos;

    if (ZSTD_isError(rc)) {
        decode->outcome = fuzz_failed(decode, rc);
        return 0;
    }

    if (decode->total > FUZZ_DECODED_MAX) {
        decode->outcome = FUZZ_UNDECIDED;
        return 0;
    }

    if (rc != 0) {
        decode->outcome = FUZZ_CUT;
        return decode->offset < decode->size || out.pos == out.size;
    }

    decode->outcome = FUZZ_WELL;

    if (!fuzz_frame_size_holds(decode)) {
        decode->outcome = FUZZ_BROKEN;
        return 0;
    }

    return decode->offset < decode->size && fuzz_frame_begins(decode, frames);
}


/* frames: what an accepting walk found, or NULL */

static void
fuzz_decode(fuzz_decode_t *decode, const uint8_t *data, size_t size,
    const zmap_frames_t *frames)
{
    static ZSTD_DCtx  *dctx;

    if (dctx == NULL) {
        dctx = ZSTD_createDCtx();
        FUZZ_CHECK(dctx != NULL);
    }

    ZSTD_DCtx_reset(dctx, ZSTD_reset_session_only);
    ZSTD_DCtx_setParameter(dctx, ZSTD_d_windowLogMax, FUZZ_WINDOW_LOG);

    *decode = (fuzz_decode_t) {
        .outcome = FUZZ_CUT, .data = data, .size = size
    };

    if (!fuzz_frame_begins(decode, frames)) {
        return;
    }

    while (fuzz_feed(decode, dctx, frames)) { /* void */ }
}


/* where libzstd finds the frames of an accepted file, and what they declare */

static void
fuzz_frames_end_alike(const uint8_t *data, size_t size,
    const zmap_frames_t *frames)
{
    size_t              rc, offset;
    uint32_t            dictionary;
    uint64_t            zstd, declared;
    unsigned long long  content;

    zstd = 0;
    declared = 0;
    dictionary = 0;

    for (offset = 0; offset < size; offset += rc) {
        rc = ZSTD_findFrameCompressedSize(data + offset, size - offset);

        if (ZSTD_isError(rc)) {
            FUZZ_CHECK(ZSTD_getErrorCode(rc)
                       == ZSTD_error_frameParameter_windowTooLarge);
            FUZZ_CHECK(frames->window >= 1ull << 32);
            return;
        }

        FUZZ_CHECK(rc <= size - offset);

        zstd += fuzz_magic(data + offset, size - offset) == FUZZ_MAGIC;
        content = ZSTD_getFrameContentSize(data + offset, size - offset);
        declared += content == ZSTD_CONTENTSIZE_UNKNOWN ? 0 : content;

        if (dictionary == 0) {
            dictionary = ZSTD_getDictID_fromFrame(data + offset,
                                                  size - offset);
        }
    }

    FUZZ_CHECK(zstd > 0);
    FUZZ_CHECK(zstd == frames->frames);
    FUZZ_CHECK(dictionary == frames->dictionary_id);
    FUZZ_CHECK(!frames->sized || declared <= frames->content_size);
}


/* whether an accepted file has a compressed block */

static int
fuzz_compressed(const uint8_t *data, size_t size)
{
    size_t    i;
    uint32_t  block;
    uint8_t   fhd;

    static const uint8_t  fields[] = { 0, 2, 4, 8 };
    static const uint8_t  dictionary[] = { 0, 1, 2, 4 };

    for (i = 0; i < size; /* void */) {

        if (data[i] != 0x28) {
            i += 8 + (size_t) fuzz_magic(data + i + 4, 4);
            continue;
        }

        fhd = data[i + 4];
        i += 5 + fields[fhd >> 6] + dictionary[fhd & 3];
        i += !(fhd & 0x20) || fhd < 0x40;

        do {
            block = data[i] | data[i + 1] << 8
                    | (uint32_t) data[i + 2] << 16;

            if ((block & 6) == 4) {
                return 1;
            }

            i += 3 + ((block & 6) == 2 ? 1 : block >> 3);
        } while (!(block & 1));

        i += fhd & 4;
    }

    return 0;
}


/* an accepted file fails to decode for what lies inside its blocks only */

static void
fuzz_broken_inside(const fuzz_decode_t *decode)
{
    switch (decode->error) {

    case ZSTD_error_checksum_wrong:
    case ZSTD_error_dictionary_wrong:
        return;

    case ZSTD_error_prefix_unknown:
    case ZSTD_error_version_unsupported:
    case ZSTD_error_frameParameter_unsupported:
        FUZZ_CHECK(!"frame header");
        return;

    default:
        FUZZ_CHECK(fuzz_compressed(decode->data, decode->size));
    }
}


static void
fuzz_accepted(const uint8_t *data, size_t size, const zmap_frames_t *frames)
{
    fuzz_decode_t  decode;

    FUZZ_CHECK(frames->sized || fuzz_compressed(data, size));

    fuzz_frames_end_alike(data, size, frames);

    fuzz_decode(&decode, data, size, frames);

    switch (decode.outcome) {

    case FUZZ_WELL:
        FUZZ_CHECK(decode.frames == frames->frames);
        FUZZ_CHECK(!frames->sized || decode.total == frames->content_size);
        return;

    case FUZZ_BROKEN:
        fuzz_broken_inside(&decode);
        return;

    case FUZZ_CUT:
        FUZZ_CHECK(!"the end of the file is the end of a frame");
        return;

    case FUZZ_UNDECIDED:
        FUZZ_CHECK(decode.total > FUZZ_DECODED_MAX
                   || frames->window > 1ull << FUZZ_WINDOW_LOG);
    }
}


static void
fuzz_refused(const uint8_t *data, size_t size)
{
    fuzz_decode_t  decode;

    fuzz_decode(&decode, data, size, NULL);

    FUZZ_CHECK(decode.outcome != FUZZ_WELL || decode.frames == 0);
}


static void
fuzz_same_findings(const zmap_frames_t *a, const zmap_frames_t *b)
{
    FUZZ_CHECK(a->frames == b->frames);
    FUZZ_CHECK(a->skippable == b->skippable);
    FUZZ_CHECK(a->content_size == b->content_size);
    FUZZ_CHECK(a->window == b->window);
    FUZZ_CHECK(a->dictionary_id == b->dictionary_id);
    FUZZ_CHECK(a->sized == b->sized);
    FUZZ_CHECK(a->tabled == b->tabled);
    FUZZ_CHECK(a->table_lies == b->table_lies);
    FUZZ_CHECK(a->checksum == b->checksum);
    FUZZ_CHECK(a->nindex == b->nindex);
    FUZZ_CHECK((a->index == NULL) == (b->index == NULL));

    if (a->nindex != 0) {
        FUZZ_CHECK(memcmp(a->index, b->index, a->nindex * sizeof(*a->index))
                   == 0);
    }
}


/* step by step as in one run, and each step goes on */

static void
fuzz_resumed(const zmap_walk_t *whole, const uint8_t *data, zmap_rc_e expected)
{
    uint64_t     before;
    zmap_rc_e    rc;
    zmap_walk_t  walk;

    zmap_walk_init(&walk, whole->size);

    for ( ;; ) {
        before = walk.offset;
        rc = zmap_walk_run(&walk, data, 1);

        if (rc != ZMAP_AGAIN) {
            break;
        }

        FUZZ_CHECK(walk.offset > before);
    }

    FUZZ_CHECK(rc == expected);
    FUZZ_CHECK(walk.offset == whole->offset);
    fuzz_same_findings(&walk.frames, &whole->frames);

    FUZZ_CHECK(zmap_walk_run(&walk, data, 1) == expected);
    FUZZ_CHECK(walk.offset == whole->offset);

    zmap_walk_free(&walk);
}


int
LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    uint8_t      *data;
    zmap_rc_e     rc;
    zmap_walk_t   walk;

    data = fuzz_copy(input, size);

    zmap_walk_init(&walk, size);
    rc = zmap_walk_run(&walk, data, 0);

    FUZZ_CHECK(walk.offset <= size);
    FUZZ_CHECK(rc == ZMAP_OK || rc >= ZMAP_EMPTY);
    fuzz_resumed(&walk, data, rc);

    if (rc == ZMAP_OK) {
        FUZZ_CHECK(walk.offset == size);
        fuzz_accepted(data, size, &walk.frames);

    } else {
        fuzz_refused(data, size);
    }

    zmap_walk_free(&walk);
    free(data);

    return 0;
}
