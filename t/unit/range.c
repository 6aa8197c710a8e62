
/*
 * Ranges of decoded bytes: the frame that decoding begins with, the end of the
 * one that it ends with, and the size of any.
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
    assert_true(zmap_range_end(&frames, 12345) == UINT64_MAX);
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
    frames.sized = 1;

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
every_range_has_its_end(void **state)
{
    size_t              i;
    uint64_t            pos, end;
    zmap_frames_t       frames = { 0 };
    zmap_frame_entry_t  index[9];

    static const uint64_t  sizes[9] = { 3, 0, 1, 5, 0, 0, 2, 7, 0 };

    (void) state;

    for (i = 0, pos = 0; i < 9; i++) {
        index[i].coded = 100 * i + 8;
        index[i].decoded = pos;
        pos += sizes[i];
    }

    frames.index = index;
    frames.nindex = 9;
    frames.content_size = pos;

    for (pos = 1; pos <= frames.content_size; pos++) {

        for (i = 0, end = 0; end < pos; i++) {
            end += sizes[i];
        }

        assert_int_equal(zmap_range_end(&frames, pos), end);
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
    frames.tabled = 1;

    begin = zmap_range_begin(&frames, (UINT64_C(1) << 40) - 1);
    assert_int_equal(begin.decoded, 0);

    begin = zmap_range_begin(&frames, UINT64_C(1) << 40);
    assert_int_equal(begin.coded, UINT64_C(1) << 33);

    begin = zmap_range_begin(&frames, UINT64_MAX);
    assert_int_equal(begin.coded, UINT64_MAX - 1);

    assert_true(zmap_range_end(&frames, UINT64_C(1) << 40)
                == UINT64_C(1) << 40);
    assert_true(zmap_range_end(&frames, (UINT64_C(1) << 40) + 1)
                == UINT64_MAX);
}


/* the sizes stay for those who decode by them */

static void
an_index_that_is_not_trusted_finds_no_byte(void **state)
{
    uint64_t            size;
    zmap_frames_t       frames = { 0 };
    zmap_frame_entry_t  index[2] = { { 8, 0 }, { 100, 10 } }, begin;

    (void) state;

    frames.index = index;
    frames.nindex = 2;
    frames.content_size = 25;

    begin = zmap_range_begin(&frames, 12);
    assert_int_equal(begin.coded, 0);
    assert_int_equal(begin.decoded, 0);

    assert_int_equal(zmap_range_frame_size(&frames, 100, &size), 0);
    assert_int_equal(size, 15);
}


static void
every_frame_has_its_size(void **state)
{
    size_t              i, n;
    uint64_t            pos, size;
    zmap_frames_t       frames = { 0 };
    zmap_frame_entry_t  index[9];

    static const uint64_t  sizes[9] = { 3, 0, 1, 5, 0, 0, 2, 7, 0 };

    (void) state;

    frames.index = index;

    assert_int_equal(zmap_range_frame_size(&frames, 0, &size), -1);

    for (n = 1; n <= 9; n++) {
        index[n - 1].coded = 100 * n;
        index[n - 1].decoded = frames.content_size;

        frames.nindex = n;
        frames.content_size += sizes[n - 1];

        for (i = 1; i <= n; i++) {
            assert_int_equal(zmap_range_frame_size(&frames, 100 * i, &size),
                             0);
            assert_int_equal(size, sizes[i - 1]);
        }

        size = 12345;

        for (pos = 0; pos <= 100 * n + 150; pos += 50) {
            if (pos % 100 == 0 && pos >= 100 && pos <= 100 * n) {
                continue;
            }

            assert_int_equal(zmap_range_frame_size(&frames, pos, &size), -1);
        }

        assert_int_equal(size, 12345);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(no_index_begins_at_the_file),
        cmocka_unit_test(every_byte_has_its_frame),
        cmocka_unit_test(every_range_has_its_end),
        cmocka_unit_test(offsets_of_64_bits),
        cmocka_unit_test(an_index_that_is_not_trusted_finds_no_byte),
        cmocka_unit_test(every_frame_has_its_size)
    };

    return unit_run("range", tests, UNIT_COUNT(tests));
}
