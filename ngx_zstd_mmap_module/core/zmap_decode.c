
/*
 * Decodes bodies with libzstd and keeps idle contexts for the next ones.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdlib.h>

#include <zstd.h>
#include <zstd_errors.h>

#include "zmap_decode.h"
#include "zmap_range.h"


_Static_assert(ZMAP_DECODE_PIECE_MIN >= ZMAP_FRAME_HEADER_MAX
               && ZMAP_DECODE_PIECE_MIN >= ZMAP_FRAME_SKIP_MIN,
               "a piece holds the header of a frame");


struct zmap_decoder_s {
    ZSTD_DCtx            *dctx;
    zmap_decoder_t       *next;      /* idle */
    size_t                kept;      /* bytes it was counted with, idle */
    const zmap_frames_t  *frames;    /* that are followed, or NULL */
    uint64_t              size;      /* of the body, coded bytes */
    uint64_t              pos;       /* coded bytes consumed */
    uint64_t              total;     /* decoded bytes */
    uint64_t              limit;
    uint64_t              end;       /* total at the end of the frame, if
                                        sized */
    zmap_rc_e             rc;        /* of the body so far; final unless
                                        AGAIN */
    uint8_t               inside;    /* a frame has begun and not ended */
    uint8_t               sized;     /* it is known how long it is */
    uint8_t               tabled;    /* from the index, not by itself */
};


struct zmap_decoders_s {
    zmap_decoder_t  *idle;
    size_t           nidle;
    size_t           kept;      /* bytes of the idle decoders */
};


static zmap_decoder_t *zmap_decoder_create(void);
static void zmap_decoder_free(zmap_decoder_t *decoder);
static zmap_rc_e zmap_decode_frames(zmap_decoder_t *decoder, uint8_t *dst,
    size_t dst_size, const uint8_t *src, size_t src_size);
static zmap_rc_e zmap_decode_whole(zmap_decoder_t *decoder, uint8_t *dst,
    size_t room, const uint8_t *src, size_t size);
static int zmap_decode_piece_holds(const zmap_decoder_t *decoder,
    const zmap_piece_t *piece);
static zmap_rc_e zmap_decode_run(zmap_decoder_t *decoder,
    const zmap_piece_t *piece, ZSTD_outBuffer *out);
static uint64_t zmap_decode_step_end(const zmap_decoder_t *decoder);
static zmap_rc_e zmap_decode_skip(zmap_decoder_t *decoder,
    const zmap_piece_t *piece, uint64_t end);
static size_t zmap_decode_input(const zmap_decoder_t *decoder,
    const zmap_piece_t *piece, uint64_t end);
static size_t zmap_decode_held(const zmap_decoder_t *decoder,
    const zmap_piece_t *piece);
static int zmap_decode_is_full(const zmap_decoder_t *decoder,
    const ZSTD_outBuffer *out);
static zmap_rc_e zmap_decode_begin_frame(zmap_decoder_t *decoder,
    const uint8_t *src, size_t len, size_t held, int first,
    ZSTD_outBuffer *out);
static size_t zmap_decode_frame_most(size_t held, uint64_t size);
static zmap_rc_e zmap_decode_some(zmap_decoder_t *decoder, const uint8_t *src,
    size_t len, ZSTD_outBuffer *out);
static size_t zmap_decode_room(const zmap_decoder_t *decoder,
    const ZSTD_outBuffer *out);
static zmap_rc_e zmap_decode_frame_size(zmap_decoder_t *decoder,
    const uint8_t *data, size_t len);
static zmap_rc_e zmap_decode_wrong_size(const zmap_decoder_t *decoder);
static int zmap_decode_is_too_large(const zmap_decoder_t *decoder);
static int zmap_decode_window_log(uint64_t window_max);
static zmap_rc_e zmap_decode_error(size_t code);


zmap_decoders_t *
zmap_decoders_create(void)
{
    return calloc(1, sizeof(zmap_decoders_t));
}


void
zmap_decoders_destroy(zmap_decoders_t *decoders)
{
    zmap_decoder_t  *decoder, *next;

    if (decoders == NULL) {
        return;
    }

    for (decoder = decoders->idle; decoder != NULL; decoder = next) {
        next = decoder->next;
        zmap_decoder_free(decoder);
    }

    free(decoders);
}


zmap_decoder_t *
zmap_decoder_get(zmap_decoders_t *decoders)
{
    zmap_decoder_t  *decoder;

    decoder = decoders->idle;

    if (decoder == NULL) {
        return zmap_decoder_create();
    }

    decoders->idle = decoder->next;
    decoders->kept -= decoder->kept;
    decoders->nidle--;

    return decoder;
}


void
zmap_decoder_put(zmap_decoders_t *decoders, zmap_decoder_t *decoder)
{
    size_t  bytes;

    bytes = sizeof(zmap_decoder_t) + ZSTD_sizeof_DCtx(decoder->dctx);

    if (decoders->nidle >= ZMAP_DECODERS_IDLE
        || decoders->kept > ZMAP_DECODERS_IDLE_BYTES
        || bytes > ZMAP_DECODERS_IDLE_BYTES - decoders->kept)
    {
        zmap_decoder_free(decoder);
        return;
    }

    zmap_decoder_reset(decoder);

    decoder->kept = bytes;
    decoder->next = decoders->idle;

    decoders->idle = decoder;
    decoders->kept += bytes;
    decoders->nidle++;
}


void
zmap_decoder_reset(zmap_decoder_t *decoder)
{
    /* cannot fail: the session ends first, and only then the parameters */

    (void) ZSTD_DCtx_reset(decoder->dctx, ZSTD_reset_session_and_parameters);

    decoder->frames = NULL;
    decoder->size = 0;
    decoder->pos = 0;
    decoder->total = 0;
    decoder->limit = 0;
    decoder->rc = ZMAP_EMPTY;
    decoder->end = 0;
    decoder->inside = 0;
    decoder->sized = 0;
    decoder->tabled = 0;
}


zmap_rc_e
zmap_decode_all(zmap_decoder_t *decoder, uint8_t *dst, size_t dst_size,
    const uint8_t *src, size_t src_size, const zmap_frames_t *frames)
{
    uint8_t  none;

    zmap_decoder_reset(decoder);

    if (src_size == 0) {
        return ZMAP_EMPTY;
    }

    decoder->frames = frames;
    decoder->size = src_size;
    decoder->rc = zmap_decode_frames(decoder, dst_size ? dst : &none,
                                     dst_size, src, src_size);
    return decoder->rc;
}


zmap_rc_e
zmap_decode_begin(zmap_decoder_t *decoder, uint64_t src_size,
    uint64_t window_max, uint64_t limit)
{
    size_t  code;

    zmap_decoder_reset(decoder);

    code = ZSTD_DCtx_setParameter(decoder->dctx, ZSTD_d_windowLogMax,
                                  zmap_decode_window_log(window_max));
    if (ZSTD_isError(code)) {
        return ZMAP_NOMEM;
    }

    decoder->size = src_size;
    decoder->limit = limit;
    decoder->rc = src_size ? ZMAP_AGAIN : ZMAP_EMPTY;

    return ZMAP_OK;
}


void
zmap_decode_seek(zmap_decoder_t *decoder, uint64_t offset)
{
    decoder->pos = offset;
}


void
zmap_decode_follow(zmap_decoder_t *decoder, const zmap_frames_t *frames)
{
    decoder->frames = frames;
}


zmap_rc_e
zmap_decode_step(zmap_decoder_t *decoder, const zmap_piece_t *piece,
    uint8_t *dst, size_t dst_size, size_t *produced)
{
    ZSTD_outBuffer  out;

    *produced = 0;

    /* libzstd must not be called again after an error without a reset */

    if (decoder->rc != ZMAP_AGAIN) {
        return decoder->rc;
    }

    if (!zmap_decode_piece_holds(decoder, piece)) {
        return ZMAP_OVERFLOW;
    }

    out.dst = dst;
    out.size = dst_size;
    out.pos = 0;

    decoder->rc = zmap_decode_run(decoder, piece, &out);

    *produced = out.pos;

    return decoder->rc;
}


uint64_t
zmap_decode_total(const zmap_decoder_t *decoder)
{
    return decoder->total;
}


uint64_t
zmap_decode_consumed(const zmap_decoder_t *decoder)
{
    return decoder->pos;
}


static zmap_decoder_t *
zmap_decoder_create(void)
{
    zmap_decoder_t  *decoder;

    decoder = calloc(1, sizeof(zmap_decoder_t));
    if (decoder == NULL) {
        return NULL;
    }

    decoder->dctx = ZSTD_createDCtx();
    if (decoder->dctx == NULL) {
        free(decoder);
        return NULL;
    }

    zmap_decoder_reset(decoder);

    return decoder;
}


static void
zmap_decoder_free(zmap_decoder_t *decoder)
{
    (void) ZSTD_freeDCtx(decoder->dctx);
    free(decoder);
}


/*
 * One call per frame: over several frames libzstd reports a truncated frame
 * and bytes that begin no frame by the same code, and it may have been built
 * to take frames of formats older than RFC 8878.
 */

static zmap_rc_e
zmap_decode_frames(zmap_decoder_t *decoder, uint8_t *dst, size_t dst_size,
    const uint8_t *src, size_t src_size)
{
    size_t     pos, coded, done;
    zmap_rc_e  rc;

    for ( ;; ) {
        pos = (size_t) decoder->pos;

        rc = zmap_frame_skip(src + pos, src_size - pos, src_size, src_size,
                             &decoder->pos);
        if (rc != ZMAP_OK) {
            return rc;
        }

        pos = (size_t) decoder->pos;
        done = (size_t) decoder->total;

        if (pos == src_size) {
            return done == dst_size ? ZMAP_OK : ZMAP_CONTENT_SIZE;
        }

        coded = ZSTD_findFrameCompressedSize(src + pos, src_size - pos);
        if (ZSTD_isError(coded)) {
            return zmap_decode_error(coded);
        }

        rc = zmap_decode_frame_size(decoder, src + pos, coded);
        if (rc != ZMAP_OK) {
            return rc;
        }

        rc = zmap_decode_whole(decoder, dst + done, dst_size - done,
                               src + pos, coded);
        if (rc != ZMAP_OK) {
            return rc;
        }
    }
}


/* the frame src[0..size) into dst[0..room) at once */

static zmap_rc_e
zmap_decode_whole(zmap_decoder_t *decoder, uint8_t *dst, size_t room,
    const uint8_t *src, size_t size)
{
    size_t     decoded;
    uint64_t   known;
    zmap_rc_e  rc;

    if (decoder->tabled) {
        known = decoder->end - decoder->total;

        if (known > room) {
            return ZMAP_SEEK_TABLE;
        }

        room = (size_t) known;
    }

    decoded = ZSTD_decompressDCtx(decoder->dctx, dst, room, src, size);

    if (ZSTD_isError(decoded)) {
        rc = zmap_decode_error(decoded);

        return (rc == ZMAP_CONTENT_SIZE) ? zmap_decode_wrong_size(decoder)
                                         : rc;
    }

    decoder->pos += size;
    decoder->total += decoded;

    if (zmap_decode_is_too_large(decoder)) {
        return ZMAP_TOO_LARGE;
    }

    if (decoder->tabled && decoded != room) {
        return ZMAP_SEEK_TABLE;
    }

    return ZMAP_OK;
}


/* the piece has the next byte and enough from there on */

static int
zmap_decode_piece_holds(const zmap_decoder_t *decoder,
    const zmap_piece_t *piece)
{
    size_t  held;

    if (piece->offset > decoder->pos
        || decoder->pos - piece->offset > piece->size)
    {
        return 0;
    }

    held = zmap_decode_held(decoder, piece);

    return held >= ZMAP_DECODE_PIECE_MIN
           || held == decoder->size - decoder->pos;
}


static zmap_rc_e
zmap_decode_run(zmap_decoder_t *decoder, const zmap_piece_t *piece,
    ZSTD_outBuffer *out)
{
    size_t          len;
    uint64_t        begun, end;
    zmap_rc_e       rc;
    const uint8_t  *src;

    begun = decoder->pos;
    end = zmap_decode_step_end(decoder);

    for ( ;; ) {

        if (!decoder->inside) {
            rc = zmap_decode_skip(decoder, piece, end);
            if (rc != ZMAP_OK) {
                return rc;
            }

            if (decoder->pos == decoder->size) {
                return ZMAP_OK;
            }
        }

        if (zmap_decode_is_full(decoder, out)) {
            return ZMAP_AGAIN;
        }

        len = zmap_decode_input(decoder, piece, end);

        if (len == 0 && decoder->pos < decoder->size) {
            return ZMAP_AGAIN;
        }

        src = piece->data + (decoder->pos - piece->offset);

        if (decoder->inside) {
            rc = zmap_decode_some(decoder, src, len, out);

        } else {
            rc = zmap_decode_begin_frame(decoder, src, len,
                                         zmap_decode_held(decoder, piece),
                                         decoder->pos == begun, out);
        }

        if (rc != ZMAP_OK) {
            return rc;
        }
    }
}


static uint64_t
zmap_decode_step_end(const zmap_decoder_t *decoder)
{
    if (decoder->size - decoder->pos <= ZMAP_DECODE_STEP_INPUT) {
        return decoder->size;
    }

    return decoder->pos + ZMAP_DECODE_STEP_INPUT;
}


static zmap_rc_e
zmap_decode_skip(zmap_decoder_t *decoder, const zmap_piece_t *piece,
    uint64_t end)
{
    if (decoder->pos >= end) {
        return ZMAP_OK;
    }

    return zmap_frame_skip(piece->data + (decoder->pos - piece->offset),
                           zmap_decode_held(decoder, piece), decoder->size,
                           end, &decoder->pos);
}


/* the coded bytes for libzstd's next call; only a header goes beyond end */

static size_t
zmap_decode_input(const zmap_decoder_t *decoder, const zmap_piece_t *piece,
    uint64_t end)
{
    size_t    held;
    uint64_t  rest;

    if (decoder->pos >= end) {
        return 0;
    }

    rest = end - decoder->pos;
    held = zmap_decode_held(decoder, piece);

    if (!decoder->inside) {

        if (held < ZMAP_DECODE_PIECE_MIN
            && held < decoder->size - decoder->pos)
        {
            return 0;
        }

        if (rest < ZMAP_DECODE_PIECE_MIN) {
            rest = ZMAP_DECODE_PIECE_MIN;
        }
    }

    return held < rest ? held : (size_t) rest;
}


/* bytes of the body that the piece has from the next one on */

static size_t
zmap_decode_held(const zmap_decoder_t *decoder, const zmap_piece_t *piece)
{
    uint64_t  held, left;

    if (decoder->pos - piece->offset > piece->size) {
        return 0;
    }

    held = piece->size - (decoder->pos - piece->offset);
    left = decoder->size - decoder->pos;

    return (size_t) (held < left ? held : left);
}


/*
 * The checksum of a frame needs no room.  Without room the next frame is not
 * begun: it is decoded past the window buffer when all of it fits into dst.
 */

static int
zmap_decode_is_full(const zmap_decoder_t *decoder, const ZSTD_outBuffer *out)
{
    return out->pos == out->size
           && !(decoder->inside && decoder->sized
                && decoder->total == decoder->end);
}


/*
 * Takes no window buffer for a frame that this step or the next one can decode
 * whole.  len: bytes that the step may take of the held ones in the piece; the
 * frame that it begins with may have more, if it fits into dst.
 */

static zmap_rc_e
zmap_decode_begin_frame(zmap_decoder_t *decoder, const uint8_t *src,
    size_t len, size_t held, int first, ZSTD_outBuffer *out)
{
    size_t     coded, room;
    uint64_t   size, before;
    zmap_rc_e  rc;

    rc = zmap_decode_frame_size(decoder, src, len);
    if (rc != ZMAP_OK) {
        return rc;
    }

    room = out->size - out->pos;
    size = decoder->end - decoder->total;

    if (!decoder->sized || size > out->size) {
        return zmap_decode_some(decoder, src, len, out);
    }

    if (size > room) {
        return ZMAP_AGAIN;
    }

    coded = ZSTD_findFrameCompressedSize(src, len);

    if (ZSTD_isError(coded) && len < held) {

        if (!first) {
            return ZMAP_AGAIN;
        }

        coded = ZSTD_findFrameCompressedSize(src,
                                          zmap_decode_frame_most(held, size));
    }

    if (ZSTD_isError(coded)) {
        return zmap_decode_some(decoder, src, len, out);
    }

    if (coded > len) {
        len = coded;
    }

    if (!decoder->tabled) {
        /* libzstd knows the size, too */
        return zmap_decode_some(decoder, src, len, out);
    }

    before = decoder->total;
    rc = zmap_decode_whole(decoder, (uint8_t *) out->dst + out->pos, room,
                           src, coded);
    out->pos += (size_t) (decoder->total - before);

    return rc;
}


/*
 * What a frame of that decoded size can have of held bytes: more than this, by
 * blocks of nothing, is not worth a long step.
 */

static size_t
zmap_decode_frame_most(size_t held, uint64_t size)
{
    size_t  most;

    most = ZSTD_compressBound((size_t) size);

    return (ZSTD_isError(most) || most > held) ? held : most;
}


static zmap_rc_e
zmap_decode_some(zmap_decoder_t *decoder, const uint8_t *src, size_t len,
    ZSTD_outBuffer *out)
{
    size_t          left;
    uint8_t         spare;
    ZSTD_inBuffer   in;
    ZSTD_outBuffer  part;

    in.src = src;
    in.size = len;
    in.pos = 0;

    part.dst = &spare;
    part.size = zmap_decode_room(decoder, out);
    part.pos = 0;

    if (part.size != 0) {
        part.dst = (uint8_t *) out->dst + out->pos;

    } else {
        part.size = 1;
    }

    left = ZSTD_decompressStream(decoder->dctx, &part, &in);

    decoder->pos += in.pos;

    if (part.dst != &spare) {
        out->pos += part.pos;
        decoder->total += part.pos;
    }

    if (ZSTD_isError(left)) {
        return zmap_decode_error(left);
    }

    if (zmap_decode_is_too_large(decoder)) {
        return ZMAP_TOO_LARGE;
    }

    if (part.pos == 0 && in.pos == 0) {
        return len == 0 ? ZMAP_TRUNCATED : ZMAP_CORRUPT;
    }

    decoder->inside = (left != 0);

    /* libzstd lets a frame end short of its content size at an empty block */

    if (decoder->sized
        && ((part.dst == &spare && part.pos != 0)
            || (left == 0 && decoder->total != decoder->end)))
    {
        return zmap_decode_wrong_size(decoder);
    }

    return ZMAP_OK;
}


/* where the frame should end, whatever else fits into dst is not for it */

static size_t
zmap_decode_room(const zmap_decoder_t *decoder, const ZSTD_outBuffer *out)
{
    size_t    room;
    uint64_t  known;

    room = out->size - out->pos;

    if (!decoder->sized) {
        return room;
    }

    known = decoder->end - decoder->total;

    return known < room ? (size_t) known : room;
}


/* a header that is not valid is left to libzstd */

static zmap_rc_e
zmap_decode_frame_size(zmap_decoder_t *decoder, const uint8_t *data,
    size_t len)
{
    uint64_t             size;
    zmap_frame_header_t  header;

    decoder->sized = 0;
    decoder->tabled = 0;

    if (zmap_frame_header(data, len, &header) != ZMAP_OK) {
        return ZMAP_OK;
    }

    size = header.content_size;

    if (!header.sized) {

        if (decoder->frames == NULL) {
            return ZMAP_OK;
        }

        decoder->tabled = 1;

        if (zmap_range_frame_size(decoder->frames, decoder->pos, &size) != 0) {
            return ZMAP_SEEK_TABLE;
        }
    }

    decoder->sized = 1;
    decoder->end = decoder->total + size;

    return ZMAP_OK;
}


static zmap_rc_e
zmap_decode_wrong_size(const zmap_decoder_t *decoder)
{
    return decoder->tabled ? ZMAP_SEEK_TABLE : ZMAP_CONTENT_SIZE;
}


static int
zmap_decode_is_too_large(const zmap_decoder_t *decoder)
{
    return decoder->limit != 0 && decoder->total > decoder->limit;
}


/* the smallest logarithm that allows window_max, where 0 means libzstd's */

static int
zmap_decode_window_log(uint64_t window_max)
{
    int          log;
    ZSTD_bounds  bounds;

    bounds = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);

    log = bounds.lowerBound;

    while (log < bounds.upperBound && (UINT64_C(1) << log) < window_max) {
        log++;
    }

    return log;
}


static zmap_rc_e
zmap_decode_error(size_t code)
{
    switch (ZSTD_getErrorCode(code)) {

    case ZSTD_error_prefix_unknown:
    case ZSTD_error_version_unsupported:
        return ZMAP_MAGIC;

    case ZSTD_error_frameParameter_unsupported:
        return ZMAP_HEADER;

    case ZSTD_error_frameParameter_windowTooLarge:
        return ZMAP_WINDOW;

    case ZSTD_error_checksum_wrong:
        return ZMAP_CHECKSUM;

    case ZSTD_error_dictionary_corrupted:
    case ZSTD_error_dictionary_wrong:
        return ZMAP_DICTIONARY;

    case ZSTD_error_dstSize_tooSmall:
    case ZSTD_error_dstBuffer_null:
        return ZMAP_CONTENT_SIZE;

    case ZSTD_error_srcSize_wrong:
        return ZMAP_TRUNCATED;

    case ZSTD_error_memory_allocation:
        return ZMAP_NOMEM;

    default:
        return ZMAP_CORRUPT;
    }
}
