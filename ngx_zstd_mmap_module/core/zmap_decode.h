
/*
 * Decodes Zstandard frames, in one call or step by step.
 *
 * Stable libzstd API only.  The input may lie in a mapping: run the calls
 * under the guard, and call zmap_decoder_reset() after a fault.  A decoder
 * serves one body at a time; it belongs to whoever took it until it is put
 * back.  Nothing here is thread-safe.
 */


#ifndef ZMAP_DECODE_H
#define ZMAP_DECODE_H


#include "zmap_frame.h"


ZMAP_BEGIN


typedef struct zmap_decoder_s  zmap_decoder_t;

/* coded bytes [offset, offset + size) of a body */

typedef struct {
    const uint8_t  *data;
    uint64_t        offset;
    size_t          size;
} zmap_piece_t;


/* the free list of decoders of a worker */
typedef struct zmap_decoders_s  zmap_decoders_t;


/* coded bytes after which a step may end, so that it ends soon */
#define ZMAP_DECODE_STEP_INPUT    (1024 * 1024)

/*
 * What a piece must hold that does not reach the end of the body: the longest
 * frame header.  libzstd is never given a part of one, since it may then take
 * the rest for a skippable frame: it looks for the size of the frame at the
 * begin of the input of the call that completes the header.
 */
#define ZMAP_DECODE_PIECE_MIN     18

/* idle decoders above either are freed when they are put back */
#define ZMAP_DECODERS_IDLE        16
#define ZMAP_DECODERS_IDLE_BYTES  (32 * 1024 * 1024)


/* NULL when there is no memory */
zmap_decoders_t *zmap_decoders_create(void);

/* frees the idle decoders; none may be taken.  NULL is ignored. */
void zmap_decoders_destroy(zmap_decoders_t *decoders);

/* an idle decoder or a new one, ready for a body; NULL: no memory */
zmap_decoder_t *zmap_decoder_get(zmap_decoders_t *decoders);

/* ends the decoder's body, whatever its state, and makes it idle */
void zmap_decoder_put(zmap_decoders_t *decoders, zmap_decoder_t *decoder);

/* forgets the body, also after a jump out of a call */
void zmap_decoder_reset(zmap_decoder_t *decoder);

/*
 * Decodes all frames of src[0..src_size) into dst[0..dst_size) and requires
 * exactly dst_size decoded bytes.  The window needs no memory here, so only
 * the walker's figure limits it.  frames: as in zmap_decode_follow(), or NULL.
 *
 * ZMAP_OK, or what is wrong: ZMAP_CHECKSUM, ZMAP_CONTENT_SIZE (more or fewer
 * bytes than dst_size), ZMAP_SEEK_TABLE, ZMAP_DICTIONARY, ZMAP_TRUNCATED,
 * ZMAP_MAGIC, ZMAP_HEADER, ZMAP_EMPTY (src_size is 0), ZMAP_WINDOW (above what
 * libzstd can address), ZMAP_NOMEM, ZMAP_CORRUPT.  The content of dst is then
 * undefined.
 */
zmap_rc_e zmap_decode_all(zmap_decoder_t *decoder, uint8_t *dst,
    size_t dst_size, const uint8_t *src, size_t src_size,
    const zmap_frames_t *frames);

/*
 * Begins a body of src_size coded bytes that is decoded step by step.
 * window_max: the largest Window_Size to decode, bytes, rounded up to a power
 * of two (memory of that size is taken; a frame whose size is known, that fits
 * into dst whole and lies whole in the piece and in the step, takes none and is
 * not held to it); limit: the largest decoded size, bytes, 0 for none.
 * ZMAP_OK or ZMAP_NOMEM.
 */
zmap_rc_e zmap_decode_begin(zmap_decoder_t *decoder, uint64_t src_size,
    uint64_t window_max, uint64_t limit);

/*
 * Between zmap_decode_begin() and the first step: the body to decode begins at
 * the coded byte at offset, where a frame begins, and not at the first.
 */
void zmap_decode_seek(zmap_decoder_t *decoder, uint64_t offset);

/*
 * Between zmap_decode_begin() and the first step: frames is what a walk has
 * found of the body, and the size of a frame that does not declare one is what
 * the index says.  Each such frame must decode to exactly that size, else the
 * body ends with ZMAP_SEEK_TABLE: at the latest where the frame should end, so
 * that no byte comes at the place of another.  Only the index and content_size
 * are read; they must stay while the body is decoded.
 */
void zmap_decode_follow(zmap_decoder_t *decoder, const zmap_frames_t *frames);

/*
 * Decodes the next bytes of the body into dst[0..dst_size).  The piece begins
 * at or before zmap_decode_consumed() and holds ZMAP_DECODE_PIECE_MIN bytes
 * from there on, or all up to the end of the body; bytes behind that end do not
 * count.  The whole body is such a piece for every step.  *produced says how
 * many bytes came, also with an error.
 *
 * ZMAP_AGAIN: dst is full, or the most coded bytes of a step were taken
 * (ZMAP_DECODE_STEP_INPUT, or what a frame of dst_size bytes can have), or
 * fewer than ZMAP_DECODE_PIECE_MIN are left in the piece (then *produced may be
 * less than dst_size, even 0), and the body goes on, though it may turn out to
 * have ended.  A step also ends before a frame that it could not decode whole
 * and the next one can: one whose known size is above what is left of dst and
 * not above dst_size, or that does not end within these.
 * The content of skippable frames is not looked at: the next byte
 * to decode may then lie far behind the piece.  ZMAP_OK: the body is complete;
 * the last frame ended exactly at its end.  ZMAP_OVERFLOW: the piece is not as
 * described; nothing was done, and the body may go on with a better one.
 *
 * The last bytes of a frame of known size do not come before what follows them
 * in the frame, its checksum, was read, unless the piece ends before that.
 *
 * Else as zmap_decode_all(), or ZMAP_WINDOW, or ZMAP_TOO_LARGE: more than limit
 * bytes (*produced then counts those beyond it too).  Of a frame with a wrong
 * content size it may depend on the piece and on dst whether it is
 * ZMAP_CONTENT_SIZE, ZMAP_CHECKSUM or ZMAP_CORRUPT.  A call that makes no
 * progress ends with ZMAP_CORRUPT, never with a spin.  Once the body is
 * complete or failed, further calls return the same code and no bytes, whatever
 * the piece.
 */
zmap_rc_e zmap_decode_step(zmap_decoder_t *decoder, const zmap_piece_t *piece,
    uint8_t *dst, size_t dst_size, size_t *produced);

/* decoded bytes of the current body so far */
uint64_t zmap_decode_total(const zmap_decoder_t *decoder);

/* coded bytes of the current body consumed so far */
uint64_t zmap_decode_consumed(const zmap_decoder_t *decoder);


ZMAP_END


#endif /* ZMAP_DECODE_H */
