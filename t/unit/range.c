
/*
 * Ranges of decoded bytes: the frame that decoding begins with.
 */


#include "unit.h"
#include "zmap_range.h"


static void
no_index_begins_at_the_file(void **state)
{
    zmap_frames_t       frames = { 0 };
    zmap_frame_entry_t  begin;

    (void) state;

    begin = zmap_range_begin(&frames, 12345);

    assert_int_equal(begin.coded, 0);
    assert_int_equal(begin.decoded, 0);
}


/* against a search from the first entry; empty frames share their offset */

static void
every_byte_has_its_frame(void **state)
{
    size_t              i, n;
    uint64_t            pos;
    zmap_frames_t       frames = { 0 };
    zmap_frame_entry_t  index[9], begin;

    static const uint64_t  sizes[9] = { 3, 0, 1, 5, 0, 0, 2, 7, 0 };

    (void) state;

    for (i = 0, pos = 0; i < 9; i++) {
        index[i].coded = 100 * i + 8;
        index[i].decoded = pos;
        pos += sizes[i];
    }

    frames.index = index;

    for (n = 1; n <= 9; n++) {
        frames.nindex = n;

        for (pos = 0; pos < 25; pos++) {

            for (i = n - 1; index[i].decoded > pos; i--) {
                /* void */
            }

            begin = zmap_range_begin(&frames, pos);

            assert_int_equal(begin.coded, index[i].coded);
            assert_int_equal(begin.decoded, index[i].decoded);
        }
    }
}


static void
offsets_of_64_bits(void **state)
{
    zmap_frames_t       frames = { 0 };
    zmap_frame_entry_t  index[3], begin;

    (void) state;

    index[0].coded = 0;
    index[0].decoded = 0;
    index[1].coded = UINT64_C(1) << 33;
    index[1].decoded = UINT64_C(1) << 40;
    index[2].coded = UINT64_MAX - 1;
    index[2].decoded = UINT64_MAX;

    frames.index = index;
    frames.nindex = 3;

    begin = zmap_range_begin(&frames, (UINT64_C(1) << 40) - 1);
    assert_int_equal(begin.decoded, 0);

    begin = zmap_range_begin(&frames, UINT64_C(1) << 40);
    assert_int_equal(begin.coded, UINT64_C(1) << 33);

    begin = zmap_range_begin(&frames, UINT64_MAX);
    assert_int_equal(begin.coded, UINT64_MAX - 1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(no_index_begins_at_the_file),
        cmocka_unit_test(every_byte_has_its_frame),
        cmocka_unit_test(offsets_of_64_bits)
    };

    return unit_run("range", tests, UNIT_COUNT(tests));
}
