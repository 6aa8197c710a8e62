
/*
 * Fills a window of a file, unless it holds what is asked for.
 */


#include "zmap_window.h"


static int zmap_window_holds(const zmap_window_t *window,
    const zmap_version_t *version, uint64_t offset);
static zmap_rc_e zmap_window_read(zmap_window_t *window, int fd,
    const zmap_version_t *version, uint64_t offset, size_t want);
static size_t zmap_window_span(const zmap_window_t *window, size_t want);


void
zmap_window_init(zmap_window_t *window, uint8_t *data, size_t room)
{
    *window = (zmap_window_t) { ._data = data, ._room = room };
}


void
zmap_window_drop(zmap_window_t *window)
{
    window->_size = 0;
}


zmap_rc_e
zmap_window_fill(zmap_window_t *window, int fd, const zmap_version_t *version,
    uint64_t offset, size_t want, zmap_piece_t *piece)
{
    zmap_rc_e  rc;

    if (!zmap_window_holds(window, version, offset)) {
        rc = zmap_window_read(window, fd, version, offset, want);

        if (rc != ZMAP_OK) {
            return rc;
        }
    }

    piece->data = window->_data;
    piece->offset = window->_offset;
    piece->size = window->_size;

    return ZMAP_OK;
}


static int
zmap_window_holds(const zmap_window_t *window, const zmap_version_t *version,
    uint64_t offset)
{
    uint64_t  held, rest;

    if (window->_size == 0
        || !zmap_version_equal(&window->_version, version)
        || offset < window->_offset
        || offset - window->_offset > window->_size)
    {
        return 0;
    }

    held = window->_size - (offset - window->_offset);
    rest = version->size - offset;

    return held >= ZMAP_DECODE_PIECE_MIN || held == rest;
}


static zmap_rc_e
zmap_window_read(zmap_window_t *window, int fd, const zmap_version_t *version,
    uint64_t offset, size_t want)
{
    size_t     span, size;
    uint64_t   begin;
    zmap_rc_e  rc;

    zmap_window_drop(window);

    if (offset > version->size || window->_room < ZMAP_WINDOW_MIN) {
        return ZMAP_OVERFLOW;
    }

    begin = offset - offset % ZMAP_READ_BLOCK;
    span = zmap_window_span(window, want);

    /* the least that is asked for may lie across the end of the first block */

    if (span < ZMAP_WINDOW_MIN
        && offset - begin > ZMAP_READ_BLOCK - ZMAP_DECODE_PIECE_MIN)
    {
        span = ZMAP_WINDOW_MIN;
    }

    size = version->size - begin < span ? (size_t) (version->size - begin)
                                        : span;

    rc = zmap_read(fd, window->_data, span, size, begin);

    if (rc != ZMAP_OK) {
        return rc;
    }

    window->_version = *version;
    window->_offset = begin;
    window->_size = size;

    return ZMAP_OK;
}


/* whole blocks, one at least */

static size_t
zmap_window_span(const zmap_window_t *window, size_t want)
{
    size_t  span;

    if (want > window->_room) {
        return window->_room;
    }

    span = want + (ZMAP_READ_BLOCK - want % ZMAP_READ_BLOCK) % ZMAP_READ_BLOCK;

    return span ? span : ZMAP_READ_BLOCK;
}
