
/*
 * Finds the frame that a decoded byte lies in or ends at, or that begins at a
 * coded one.
 */


#include "zmap_range.h"


zmap_frame_entry_t
zmap_range_begin(const zmap_frames_t *frames, uint64_t pos)
{
    size_t              low, high, middle;
    zmap_frame_entry_t  begin;

    begin.coded = 0;
    begin.decoded = 0;

    if (frames->index == NULL || !(frames->sized || frames->tabled)) {
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


uint64_t
zmap_range_end(const zmap_frames_t *frames, uint64_t pos)
{
    size_t  low, high, middle;

    if (frames->index == NULL) {
        return UINT64_MAX;
    }

    low = 0;
    high = frames->nindex;

    while (low < high) {

        middle = low + (high - low) / 2;

        if (frames->index[middle].decoded < pos) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    return (low < frames->nindex) ? frames->index[low].decoded
                                  : frames->content_size;
}


int
zmap_range_frame_size(const zmap_frames_t *frames, uint64_t coded,
    uint64_t *size)
{
    size_t                     low, high, middle;
    const zmap_frame_entry_t  *index;

    index = frames->index;

    low = 0;
    high = frames->nindex;

    while (low < high) {

        middle = low + (high - low) / 2;

        if (index[middle].coded < coded) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    if (low == frames->nindex || index[low].coded != coded) {
        return -1;
    }

    *size = (low + 1 < frames->nindex ? index[low + 1].decoded
                                      : frames->content_size)
            - index[low].decoded;

    return 0;
}
