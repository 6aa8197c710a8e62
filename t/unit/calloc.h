
/*
 * A calloc() that fails when a test wants it to, for the whole program.
 */


#ifndef UNIT_CALLOC_H
#define UNIT_CALLOC_H


#include <stdlib.h>
#include <string.h>


/* so many calls from now, 0: never */

static int  calloc_fails;


void *
calloc(size_t n, size_t size)
{
    void    *data;
    size_t   bytes;

    if (calloc_fails > 0 && --calloc_fails == 0) {
        return NULL;
    }

    if (__builtin_mul_overflow(n, size, &bytes)) {
        return NULL;
    }

    data = malloc(bytes);

    /* gcc makes calloc() of malloc() and memset() */

    if (data != NULL) {
        explicit_bzero(data, bytes);
    }

    return data;
}


#endif /* UNIT_CALLOC_H */
