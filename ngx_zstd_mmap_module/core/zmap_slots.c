
/*
 * Keeps the slots of a pool in the order of their addresses, and the idle ones
 * in the order of their use.
 */


#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "zmap_slots.h"


zmap_rc_e
zmap_slots_init(zmap_slots_t *slots, zmap_pool_t *pool)
{
    memset(slots, 0, sizeof(zmap_slots_t));

    slots->base = zmap_pool_base(pool);
    slots->npages = zmap_pool_size(pool) / ZMAP_POOL_PAGE;
    slots->ends = calloc(slots->npages, sizeof(zmap_slot_t *));

    return slots->ends == NULL ? ZMAP_NOMEM : ZMAP_OK;
}


void
zmap_slots_free(zmap_slots_t *slots)
{
    free(slots->ends);
}


/* a buffer begins where another ended: see zmap_pool_alloc() */

void
zmap_slots_link(zmap_slots_t *slots, zmap_slot_t *slot)
{
    size_t  page;

    page = zmap_slot_page(slots, slot);

    slots->ends[page + zmap_slot_pages(slot) - 1] = slot;

    if (page > 0) {
        slot->below = slots->ends[page - 1];

        assert(slot->below != NULL);

        slot->above = slot->below->above;
        slot->below->above = slot;

    } else {
        slot->above = slots->lowest;
        slots->lowest = slot;
    }

    if (slot->above != NULL) {
        slot->above->below = slot;
    }
}


void
zmap_slots_unlink(zmap_slots_t *slots, zmap_slot_t *slot)
{
    size_t  end;

    end = zmap_slot_page(slots, slot) + zmap_slot_pages(slot);

    slots->ends[end - 1] = NULL;

    if (slot->below != NULL) {
        slot->below->above = slot->above;

    } else {
        slots->lowest = slot->above;
    }

    if (slot->above != NULL) {
        slot->above->below = slot->below;
    }
}


void
zmap_slots_idle(zmap_slots_t *slots, zmap_slot_t *slot)
{
    slot->used = ++slots->releases;

    slot->newer = NULL;
    slot->older = slots->newest;

    if (slots->newest != NULL) {
        slots->newest->newer = slot;

    } else {
        slots->oldest = slot;
    }

    slots->newest = slot;
}


void
zmap_slots_busy(zmap_slots_t *slots, zmap_slot_t *slot)
{
    if (slot->newer != NULL) {
        slot->newer->older = slot->older;

    } else {
        slots->newest = slot->older;
    }

    if (slot->older != NULL) {
        slot->older->newer = slot->newer;

    } else {
        slots->oldest = slot->newer;
    }
}
