
/*
 * Which frames a range of decoded bytes needs, and how long they are.
 */


#ifndef ZMAP_RANGE_H
#define ZMAP_RANGE_H


#include "zmap_frame.h"


ZMAP_BEGIN


/*
 * Where decoding begins for the decoded byte at pos: the last frame of the
 * index that begins at or before it, the first byte of the file where there is
 * no index, or one that is not trusted any more.  Behind the end of the body
 * that is the last frame.
 */
zmap_frame_entry_t zmap_range_begin(const zmap_frames_t *frames, uint64_t pos);

/*
 * Where the frame ends that holds the decoded byte before pos; the size of the
 * body for the last one.  UINT64_MAX where there is no index.
 */
uint64_t zmap_range_end(const zmap_frames_t *frames, uint64_t pos);

/*
 * The decoded size by the index, trusted or not, of the frame whose magic
 * number is at the offset coded of the file.  0, or -1 when none begins there.
 */
int zmap_range_frame_size(const zmap_frames_t *frames, uint64_t coded,
    uint64_t *size);


ZMAP_END


#endif /* ZMAP_RANGE_H */
