
/*
 * Reads a range of a file by pread(2).
 */


#ifndef ZMAP_READ_H
#define ZMAP_READ_H


#include "zmap_base.h"


ZMAP_BEGIN


/* what O_DIRECT asks for at most; a power of two */
#define ZMAP_READ_BLOCK  4096


/*
 * Fills data[0..size) with the bytes of fd from offset on.  data[0..room) may
 * be written, room >= size: the calls ask for up to room bytes, so that a
 * descriptor with O_DIRECT can be read when data, room and offset are multiples
 * of ZMAP_READ_BLOCK.  Calls that are interrupted are made again.
 *
 * ZMAP_OK; ZMAP_CHANGED: the file ends before offset + size; ZMAP_SYSERR.  The
 * content of data is then undefined.
 */
zmap_rc_e zmap_read(int fd, uint8_t *data, size_t room, size_t size,
    uint64_t offset);


ZMAP_END


#endif /* ZMAP_READ_H */
