
/*
 * Which frames a range of decoded bytes needs.
 */


#ifndef ZMAP_RANGE_H
#define ZMAP_RANGE_H


#include "zmap_frame.h"


ZMAP_BEGIN


/*
 * Where decoding begins for the decoded byte at pos: the last frame of the
 * index that begins at or before it, the first byte of the file where there is
 * no index.  Behind the end of the body that is the last frame.
 */
zmap_frame_entry_t zmap_range_begin(const zmap_frames_t *frames, uint64_t pos);


ZMAP_END


#endif /* ZMAP_RANGE_H */
