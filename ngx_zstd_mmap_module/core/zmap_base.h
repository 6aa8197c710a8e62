
/*
 * Return codes, checked arithmetic, numbers of files and symbol visibility of
 * the core.
 *
 * Core knows nothing of nginx: C11 and POSIX only, no logging, no exit.
 * Functions leave their outputs alone when they fail unless they say otherwise.
 */


#ifndef ZMAP_BASE_H
#define ZMAP_BASE_H


#include <stddef.h>
#include <stdint.h>


/*
 * nginx opens modules with RTLD_GLOBAL: hidden symbols keep two modules that
 * carry the same core apart.  Every core header opens with ZMAP_BEGIN and
 * closes with ZMAP_END.
 */

#define ZMAP_BEGIN  _Pragma("GCC visibility push(hidden)")
#define ZMAP_END    _Pragma("GCC visibility pop")


ZMAP_BEGIN


/* the codes from ZMAP_EMPTY on say what is wrong with the bytes of a file */

typedef enum {
    ZMAP_OK = 0,
    ZMAP_AGAIN,           /* not finished: call again */
    ZMAP_SYSERR,          /* a system call failed, errno says how */
    ZMAP_NOMEM,           /* no memory, or no room in the pool */
    ZMAP_OVERFLOW,        /* a size does not fit its type */
    ZMAP_FAULT,           /* SIGBUS: the file lost pages under its mapping */
    ZMAP_TOUCHED,         /* the ctime alone of the file is another */
    ZMAP_CHANGED,         /* the file is no longer the version it was */
    ZMAP_TOO_LARGE,       /* more decoded bytes than allowed */
    ZMAP_SEEK_TABLE,      /* the seek table contradicts the frames, which may
                             well be good */
    ZMAP_EMPTY,           /* no Zstandard frame in the file */
    ZMAP_MAGIC,           /* bytes that begin no frame */
    ZMAP_TRUNCATED,       /* the file ends inside a frame */
    ZMAP_HEADER,          /* reserved bit or impossible frame header */
    ZMAP_BLOCK,           /* reserved block type or Block_Size too large */
    ZMAP_CONTENT_SIZE,    /* Frame_Content_Size contradicts the frame */
    ZMAP_CHECKSUM,        /* Content_Checksum does not match */
    ZMAP_WINDOW,          /* Window_Size above what may be decoded */
    ZMAP_DICTIONARY,      /* the frame needs a dictionary */
    ZMAP_CORRUPT          /* the decoder refused the data */
} zmap_rc_e;


/* a constant lower case phrase for a log line; never NULL */
const char *zmap_strerror(zmap_rc_e rc);


/*
 * Both store the result and return 0, or leave it alone and return -1 when it
 * does not fit.
 */

static inline int
zmap_add_u64(uint64_t a, uint64_t b, uint64_t *result)
{
    uint64_t  sum;

    if (__builtin_add_overflow(a, b, &sum)) {
        return -1;
    }

    *result = sum;

    return 0;
}


static inline int
zmap_mul_u64(uint64_t a, uint64_t b, uint64_t *result)
{
    uint64_t  product;

    if (__builtin_mul_overflow(a, b, &product)) {
        return -1;
    }

    *result = product;

    return 0;
}


/* the number of n bytes at p, at most 8, little-endian as all in a file */

static inline uint64_t
zmap_le(const uint8_t *p, size_t n)
{
    uint64_t  value;

    value = 0;

    while (n > 0) {
        value = value << 8 | p[--n];
    }

    return value;
}


ZMAP_END


#endif /* ZMAP_BASE_H */
