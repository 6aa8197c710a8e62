
/*
 * The place for a new body among the idle ones.
 *
 * Private to zmap_bodies.c.
 */


#ifndef ZMAP_PLACE_H
#define ZMAP_PLACE_H


#include "zmap_base.h"
#include "zmap_slots.h"


ZMAP_BEGIN


/* neighbours in the pool, all idle, with the free runs around them */

typedef struct {
    zmap_slot_t  *first;
    zmap_slot_t  *last;
} zmap_place_t;


/*
 * A place of at least so many pages, and no slot more at its ends than needed:
 * which one, and how long it is searched for, is said at zmap_bodies_alloc().
 * ZMAP_NOMEM: none was found.
 */
zmap_rc_e zmap_place_find(zmap_slots_t *slots, zmap_place_t *place,
    size_t npages);


ZMAP_END


#endif /* ZMAP_PLACE_H */
