
/*
 * The slots of a pool in the order of their addresses, and the idle ones in
 * the order of their use.
 *
 * Private to zmap_bodies.c and zmap_place.c.
 */


#ifndef ZMAP_SLOTS_H
#define ZMAP_SLOTS_H


#include "zmap_base.h"
#include "zmap_bodies.h"
#include "zmap_map.h"
#include "zmap_pool.h"


ZMAP_BEGIN


typedef struct zmap_slot_s  zmap_slot_t;

/* a search reads no more than the first 64 bytes of most slots */

struct zmap_slot_s {
    zmap_body_t      body;     /* first: what users hold a pointer to */
    zmap_slot_t     *below;    /* in the pool */
    zmap_slot_t     *above;
    zmap_slot_t     *newer;    /* in the list of idle ones */
    zmap_slot_t     *edge;     /* other end of the place that this one ends */
    uint64_t         search;   /* the last one that made it part of a place */
    uint64_t         used;     /* when it became idle, in releases */

    zmap_slot_t     *older;
    zmap_slot_t     *chain;    /* of the bucket */
    uint64_t         hash;
    unsigned         refs;
    unsigned         kept;
    zmap_body_e      kind;
    zmap_version_t   version;
};


typedef struct {
    uint8_t         *base;     /* of the pool */
    size_t           npages;
    zmap_slot_t    **ends;     /* by page: the slot whose last page it is */
    zmap_slot_t     *lowest;   /* in the pool */
    zmap_slot_t     *newest;
    zmap_slot_t     *oldest;
    uint64_t         releases;
    uint64_t         searches;
} zmap_slots_t;


static inline size_t
zmap_slot_page(const zmap_slots_t *slots, const zmap_slot_t *slot)
{
    return (size_t) (slot->body.data - slots->base) / ZMAP_POOL_PAGE;
}


static inline size_t
zmap_slot_pages(const zmap_slot_t *slot)
{
    return (slot->body.size + ZMAP_POOL_PAGE - 1) / ZMAP_POOL_PAGE;
}


/* no slots yet; ZMAP_NOMEM */
zmap_rc_e zmap_slots_init(zmap_slots_t *slots, zmap_pool_t *pool);

/* the slots themselves belong to the caller */
void zmap_slots_free(zmap_slots_t *slots);

/* body.data and body.size of the slot are set */
void zmap_slots_link(zmap_slots_t *slots, zmap_slot_t *slot);
void zmap_slots_unlink(zmap_slots_t *slots, zmap_slot_t *slot);

/* a linked slot goes to the newest end of the idle ones, or leaves them */
void zmap_slots_idle(zmap_slots_t *slots, zmap_slot_t *slot);
void zmap_slots_busy(zmap_slots_t *slots, zmap_slot_t *slot);


ZMAP_END


#endif /* ZMAP_SLOTS_H */
