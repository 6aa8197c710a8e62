
/*
 * What every fuzz target needs: its entry, input of an exact size, a check.
 */


#ifndef FUZZ_H
#define FUZZ_H


#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define FUZZ_CHECK(condition)                                                 \
    ((condition) ? (void) 0 : fuzz_disagree(__FILE__, __LINE__, #condition))


int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);


static inline void
fuzz_disagree(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}


/* no byte follows the copy, not even a NUL */

static inline uint8_t *
fuzz_copy(const uint8_t *data, size_t size)
{
    uint8_t  *copy;

    copy = malloc(size);

    if (copy == NULL && size != 0) {
        abort();
    }

    if (size != 0) {
        memcpy(copy, data, size);
    }

    return copy;
}


#endif /* FUZZ_H */
