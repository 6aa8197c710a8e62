
/*
 * Finds the frame that a decoded byte lies in.
 */


#include "zmap_range.h"


zmap_frame_entry_t
zmap_range_begin(const zmap_frames_t *frames, uint64_t pos)
{
    size_t              low, high, middle;
    zmap_frame_entry_t  begin;

    begin.coded = 0;
    begin.decoded = 0;

    if (frames->index == NULL) {
        return begin;
    }

    low = 0;
    high = frames->nindex;

    while (low < high) {

        middle = low + (high - low) / 2;

        if (frames->index[middle].decoded <= pos) {
            begin = frames->index[middle];
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    return begin;
}
