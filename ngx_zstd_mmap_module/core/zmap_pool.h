
/*
 * Buffers of any size carved from one region of memory.
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
 * A pool of the whole pages of size bytes at base, which is aligned to
 * ZMAP_POOL_PAGE.  The memory stays the caller's and must outlive the pool; it
 * is not touched.  NULL when there is no memory for the descriptors, or for a
 * region that has no page or is not aligned.
 */
zmap_pool_t *zmap_pool_create_over(void *base, size_t size);

/* every buffer of it is gone.  NULL is ignored. */
void zmap_pool_destroy(zmap_pool_t *pool);

/*
 * At least size bytes, aligned to ZMAP_POOL_PAGE, of undefined content; NULL
 * when no run is large enough or size is 0.  The caller owns them.  They begin
 * where the free run began: at the base, or where another buffer ends.
 */
uint8_t *zmap_pool_alloc(zmap_pool_t *pool, size_t size);

/* gives a buffer back; it must be one that zmap_pool_alloc() returned */
void zmap_pool_free(zmap_pool_t *pool, uint8_t *buffer);

/* the first byte of the region */
uint8_t *zmap_pool_base(const zmap_pool_t *pool);

/* bytes of the region, and of the runs that are given out now */
size_t zmap_pool_size(const zmap_pool_t *pool);
size_t zmap_pool_used(const zmap_pool_t *pool);


ZMAP_END


#endif /* ZMAP_POOL_H */
