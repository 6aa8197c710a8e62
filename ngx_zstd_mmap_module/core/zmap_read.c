
/*
 * Reads a range of a file by pread(2).
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <unistd.h>

#include "zmap_read.h"


static ssize_t zmap_read_some(int fd, uint8_t *data, size_t size,
    uint64_t offset);


zmap_rc_e
zmap_read(int fd, uint8_t *data, size_t room, size_t size, uint64_t offset)
{
    size_t   done, from;
    ssize_t  n;

    for (done = 0; done < size; done = from + (size_t) n) {
        from = done;
        n = zmap_read_some(fd, data + from, room - from, offset + from);

        /*
         * A read with O_DIRECT that came short at the end of the file is not
         * followed by one of 0 bytes, as the offset is none that it takes.
         */

        if (n == -1 && errno == EINVAL && from % ZMAP_READ_BLOCK != 0) {
            from -= from % ZMAP_READ_BLOCK;
            n = zmap_read_some(fd, data + from, room - from, offset + from);
        }

        if (n == -1) {
            return ZMAP_SYSERR;
        }

        if ((size_t) n <= done - from) {
            return ZMAP_CHANGED;
        }
    }

    return ZMAP_OK;
}


static ssize_t
zmap_read_some(int fd, uint8_t *data, size_t size, uint64_t offset)
{
    ssize_t  n;

    do {
        n = pread(fd, data, size, (off_t) offset);
    } while (n == -1 && errno == EINTR);

    return n;
}
