
/*
 * A buffer that slides over a file, filled by pread(2).
 *
 * It remembers which bytes of which version it holds, so that the replies of a
 * process can share one: a fill costs no read when another had the bytes.
 * Nothing here is thread-safe, and a piece is good until the next fill.
 */


#ifndef ZMAP_WINDOW_H
#define ZMAP_WINDOW_H


#include "zmap_decode.h"
#include "zmap_map.h"
#include "zmap_read.h"


ZMAP_BEGIN


/* the least room: a piece may lie across the border of two blocks */
#define ZMAP_WINDOW_MIN  (2 * ZMAP_READ_BLOCK)


typedef struct {
    uint8_t         *_data;
    size_t           _room;
    size_t           _size;    /* bytes held */
    uint64_t         _offset;  /* of the first of them */
    zmap_version_t   _version;
} zmap_window_t;


/*
 * An empty window in the caller's memory data[0..room), which is aligned to
 * ZMAP_READ_BLOCK and outlives it; room is a multiple of ZMAP_READ_BLOCK and
 * ZMAP_WINDOW_MIN at least.
 */
void zmap_window_init(zmap_window_t *window, uint8_t *data, size_t room);

/* forgets the bytes */
void zmap_window_drop(zmap_window_t *window);

/*
 * Gives what the window holds of fd, a file of that version: a piece with
 * offset in it and with ZMAP_DECODE_PIECE_MIN bytes or more from there on, or
 * all up to the end of the file, none where offset is the end.  Only when the
 * window does not hold that it reads, from a multiple of ZMAP_READ_BLOCK on,
 * want bytes, rounded up to such multiples and down to the room and the end of
 * the file.
 *
 * Nothing is asked of the file but its bytes: whether they were those of that
 * version tells zmap_version_check() afterwards, and when it says no the caller
 * must drop them, since the next fill would take them for the version's.  For
 * the same reason the bytes of a version that is zmap_version_racy() are to be
 * dropped; the piece is good until the next fill all the same.
 *
 * ZMAP_OK; ZMAP_CHANGED: the file is shorter than its version; ZMAP_SYSERR;
 * ZMAP_OVERFLOW: offset is behind the end of the file, or the room is below
 * ZMAP_WINDOW_MIN.  After a failure the window holds nothing.
 */
zmap_rc_e zmap_window_fill(zmap_window_t *window, int fd,
    const zmap_version_t *version, uint64_t offset, size_t want,
    zmap_piece_t *piece);


ZMAP_END


#endif /* ZMAP_WINDOW_H */
