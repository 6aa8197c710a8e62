
/*
 * Buffers of any size carved from one region of memory that a worker owns.
 *
 * Fresh pages cost more than decoding does, so the region stays mapped and its
 * pages are used again.  Buffers are runs of ZMAP_POOL_PAGE bytes, placed best
 * fit and merged with their free neighbours when they are given back.
 *
 * Not thread-safe: a pool belongs to one thread.
 */


#ifndef ZMAP_POOL_H
#define ZMAP_POOL_H


#include "zmap_base.h"


ZMAP_BEGIN


#define ZMAP_POOL_PAGE  4096


typedef struct zmap_pool_s  zmap_pool_t;


/*
 * A pool of size bytes, rounded up to whole pages.  The region is reserved at
 * once and takes memory when it is first written.  Transparent huge pages are
 * asked for and not required.  NULL when there is no memory or size is 0.
 */
zmap_pool_t *zmap_pool_create(size_t size);

/* unmaps the region; every buffer of it is gone.  NULL is ignored. */
void zmap_pool_destroy(zmap_pool_t *pool);

/*
 * At least size bytes, aligned to ZMAP_POOL_PAGE, of undefined content; NULL
 * when no run is large enough or size is 0.  The caller owns them.
 */
uint8_t *zmap_pool_alloc(zmap_pool_t *pool, size_t size);

/* gives a buffer back; it must be one that zmap_pool_alloc() returned */
void zmap_pool_free(zmap_pool_t *pool, uint8_t *buffer);

/* bytes of the region, and of the runs that are given out now */
size_t zmap_pool_size(const zmap_pool_t *pool);
size_t zmap_pool_used(const zmap_pool_t *pool);


ZMAP_END


#endif /* ZMAP_POOL_H */
