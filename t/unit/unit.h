
/*
 * What every unit test needs: cmocka, tests made from the rows of a table,
 * memory of an exact size.
 */


#ifndef UNIT_H
#define UNIT_H


#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>


#define UNIT_COUNT(array)  (sizeof(array) / sizeof((array)[0]))


/* a copy that a sanitizer or valgrind sees a read beyond of */

static inline uint8_t *
unit_copy(const void *data, size_t len)
{
    uint8_t  *copy;

    copy = malloc(len);

    if (copy == NULL && len != 0) {
        abort();
    }

    if (len != 0) {
        memcpy(copy, data, len);
    }

    return copy;
}


/* one test per row, named by the first member of the row, a const char * */

static inline size_t
unit_rows(struct CMUnitTest *tests, void *rows, size_t nrows, size_t size,
    CMUnitTestFunction function)
{
    char    *row;
    size_t   i;

    for (i = 0; i < nrows; i++) {
        row = (char *) rows + i * size;

        tests[i] = (struct CMUnitTest) {
            .name = *(const char **) row,
            .test_func = function,
            .initial_state = row
        };
    }

    return nrows;
}


#define UNIT_ROWS(tests, rows, function)                                      \
    unit_rows(tests, (void *) (rows), UNIT_COUNT(rows), sizeof((rows)[0]),    \
              function)


/* runs the only group of a program and gives its exit status */

static inline int
unit_run(const char *name, const struct CMUnitTest *tests, size_t ntests)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);

    return _cmocka_run_group_tests(name, tests, ntests, NULL, NULL) != 0;
}


#endif /* UNIT_H */
