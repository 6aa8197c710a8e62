
/*
 * Return code phrases and checked arithmetic.
 */


#include <ctype.h>

#include "unit.h"
#include "zmap_base.h"


static void
base_phrases_read_well(void **state)
{
    int          rc;
    const char  *p, *phrase;

    (void) state;

    for (rc = ZMAP_OK; rc <= ZMAP_CORRUPT; rc++) {
        phrase = zmap_strerror((zmap_rc_e) rc);

        assert_non_null(phrase);
        assert_in_range(strlen(phrase), 5, 40);
        assert_string_not_equal(phrase, "unknown error");

        for (p = phrase; *p; p++) {
            assert_true(islower((unsigned char) *p) || *p == ' ');
        }
    }
}


static void
base_phrases_differ(void **state)
{
    int  a, b;

    (void) state;

    for (a = ZMAP_OK; a <= ZMAP_CORRUPT; a++) {
        for (b = a + 1; b <= ZMAP_CORRUPT; b++) {
            assert_string_not_equal(zmap_strerror((zmap_rc_e) a),
                                    zmap_strerror((zmap_rc_e) b));
        }
    }
}


static void
base_foreign_code_has_phrase(void **state)
{
    (void) state;

    assert_string_equal(zmap_strerror((zmap_rc_e) (ZMAP_CORRUPT + 1)),
                        "unknown error");
    assert_string_equal(zmap_strerror((zmap_rc_e) 0x7fffffff),
                        "unknown error");
}


static void
base_sum_fits(void **state)
{
    uint64_t  result;

    (void) state;

    assert_int_equal(zmap_add_u64(UINT64_MAX - 1, 1, &result), 0);
    assert_true(result == UINT64_MAX);

    assert_int_equal(zmap_add_u64(0, 0, &result), 0);
    assert_true(result == 0);
}


static void
base_sum_too_large_is_left_alone(void **state)
{
    uint64_t  result;

    (void) state;

    result = 42;

    assert_int_equal(zmap_add_u64(UINT64_MAX, 1, &result), -1);
    assert_int_equal(zmap_add_u64(UINT64_MAX, UINT64_MAX, &result), -1);
    assert_true(result == 42);
}


static void
base_product_fits(void **state)
{
    uint64_t  result;

    (void) state;

    assert_int_equal(zmap_mul_u64(UINT32_MAX, UINT32_MAX, &result), 0);
    assert_true(result == 0xfffffffe00000001u);

    assert_int_equal(zmap_mul_u64(UINT64_MAX, 0, &result), 0);
    assert_true(result == 0);
}


static void
base_product_too_large_is_left_alone(void **state)
{
    uint64_t  result;

    (void) state;

    result = 42;

    assert_int_equal(zmap_mul_u64(1ull << 32, 1ull << 32, &result), -1);
    assert_int_equal(zmap_mul_u64(UINT64_MAX, 2, &result), -1);
    assert_true(result == 42);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(base_phrases_read_well),
        cmocka_unit_test(base_phrases_differ),
        cmocka_unit_test(base_foreign_code_has_phrase),
        cmocka_unit_test(base_sum_fits),
        cmocka_unit_test(base_sum_too_large_is_left_alone),
        cmocka_unit_test(base_product_fits),
        cmocka_unit_test(base_product_too_large_is_left_alone)
    };

    return unit_run("base", tests, UNIT_COUNT(tests));
}
