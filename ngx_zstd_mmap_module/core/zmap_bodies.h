
/*
 * Bodies that stay in a pool after their reply, found again by file version and
 * kind.
 *
 * A body is counted: each holder has one count.  Bodies that are kept and that
 * nobody holds are idle; the least recently used of them make room for new
 * ones.  A body that somebody holds is never moved nor reclaimed.
 *
 * Not thread-safe: bodies and their pool belong to one thread.
 */


#ifndef ZMAP_BODIES_H
#define ZMAP_BODIES_H


#include "zmap_base.h"
#include "zmap_map.h"
#include "zmap_pool.h"


ZMAP_BEGIN


typedef struct {
    uint8_t  *data;            /* aligned to ZMAP_POOL_PAGE */
    size_t    size;            /* bytes, as asked for */
} zmap_body_t;


/* the bodies of one version that live side by side */

typedef enum {
    ZMAP_BODY_DECODED,
    ZMAP_BODY_CODED            /* the bytes of the file */
} zmap_body_e;


typedef struct zmap_bodies_s  zmap_bodies_t;


/*
 * No bodies yet.  The pool is not owned, must outlive them, and must give
 * buffers to nobody else meanwhile; NULL: no memory
 */
zmap_bodies_t *zmap_bodies_create(zmap_pool_t *pool);

/*
 * Gives all memory back to the pool, also that of bodies which are still held:
 * these must not be touched nor released any more.  NULL is ignored.
 */
void zmap_bodies_destroy(zmap_bodies_t *bodies);

/* the body kept for that version and kind with one more count, or NULL */
zmap_body_t *zmap_bodies_find(zmap_bodies_t *bodies,
    const zmap_version_t *version, zmap_body_e kind);

/*
 * A body of undefined content with one count, which cannot be found yet; NULL
 * when size is 0, when there is no memory, or when there is no room.
 *
 * Where no free run is large enough, idle bodies that lie together are given
 * up, with the free space between them: those whose most recently used one was
 * used the longest time ago, and of these no more than the body needs.  Where
 * held bodies leave no such place, none is given up.
 *
 * The search is bounded: when the 1024 least recently used idle bodies make no
 * place, the first one is taken that lies around any of them, whatever else is
 * idle there; this looks at 16384 bodies (a pool of 64 MiB has no more) and as
 * many as the body has pages, and then there is no room.
 */
zmap_body_t *zmap_bodies_alloc(zmap_bodies_t *bodies, size_t size);

/* one more count of a body that the caller holds; returns it */
zmap_body_t *zmap_bodies_hold(zmap_bodies_t *bodies, zmap_body_t *body);

/*
 * From now on a body that the caller holds is found by that version and kind,
 * and by no others.  What was kept for these before is forgotten.  The content
 * must not change any more.
 */
void zmap_bodies_keep(zmap_bodies_t *bodies, zmap_body_t *body,
    const zmap_version_t *version, zmap_body_e kind);

/*
 * What is kept for that version and kind is not found any more; its memory is
 * free at once or with its last count.  Nothing when nothing is kept.
 */
void zmap_bodies_forget(zmap_bodies_t *bodies, const zmap_version_t *version,
    zmap_body_e kind);

/*
 * One count less; the last one makes a kept body idle, as the most recently
 * used one, and frees any other
 */
void zmap_bodies_release(zmap_bodies_t *bodies, zmap_body_t *body);

/* kept bodies, held or idle: how many, and their bytes of the pool */
size_t zmap_bodies_count(const zmap_bodies_t *bodies);
size_t zmap_bodies_kept_bytes(const zmap_bodies_t *bodies);


ZMAP_END


#endif /* ZMAP_BODIES_H */
