
/*
 * Finds the place for a new body among the idle ones.
 */


#include "zmap_place.h"


/* idle bodies looked at for the best place, and for any place */
#define ZMAP_PLACE_BEST  1024
#define ZMAP_PLACE_ANY   16384


static zmap_rc_e zmap_place_oldest(zmap_slots_t *slots, zmap_place_t *place,
    size_t npages);
static zmap_rc_e zmap_place_around(zmap_slots_t *slots, zmap_place_t *place,
    size_t npages);
static void zmap_place_join(zmap_slots_t *slots, zmap_place_t *place,
    zmap_slot_t *slot);
static zmap_rc_e zmap_place_grow(zmap_slots_t *slots, zmap_place_t *place);
static zmap_rc_e zmap_place_shrink(const zmap_slots_t *slots,
    zmap_place_t *place, size_t npages);
static size_t zmap_place_pages(const zmap_slots_t *slots,
    const zmap_place_t *place);


zmap_rc_e
zmap_place_find(zmap_slots_t *slots, zmap_place_t *place, size_t npages)
{
    zmap_rc_e  rc;

    rc = zmap_place_oldest(slots, place, npages);

    if (rc == ZMAP_AGAIN) {
        rc = zmap_place_around(slots, place, npages);
    }

    if (rc != ZMAP_OK) {
        return rc;
    }

    while (zmap_place_shrink(slots, place, npages) == ZMAP_OK) {
        /* void */
    }

    return ZMAP_OK;
}


/*
 * The place whose newest body is the oldest: bodies are joined with the ones
 * around them in the order of their use until a place is large enough.
 * ZMAP_NOMEM: there is none.  ZMAP_AGAIN: there was none among the oldest.
 */

static zmap_rc_e
zmap_place_oldest(zmap_slots_t *slots, zmap_place_t *place, size_t npages)
{
    size_t        n;
    zmap_slot_t  *slot;

    slots->searches++;

    slot = slots->oldest;

    for (n = 0; slot != NULL; n++) {

        if (n == ZMAP_PLACE_BEST) {
            return ZMAP_AGAIN;
        }

        zmap_place_join(slots, place, slot);

        if (zmap_place_pages(slots, place) >= npages) {
            return ZMAP_OK;
        }

        slot = slot->newer;
    }

    return ZMAP_NOMEM;
}


/*
 * The first place around one of the oldest: near it bodies of any age go, but
 * a place is found where the oldest ones lie scattered among very many.
 */

static zmap_rc_e
zmap_place_around(zmap_slots_t *slots, zmap_place_t *place, size_t npages)
{
    size_t        look;
    zmap_slot_t  *slot;

    slots->searches++;

    look = ZMAP_PLACE_ANY + npages;

    for (slot = slots->oldest; slot != NULL; slot = slot->newer) {

        if (slot->search == slots->searches) {
            continue;
        }

        if (look == 0) {
            return ZMAP_NOMEM;
        }

        look--;

        zmap_place_join(slots, place, slot);

        while (zmap_place_pages(slots, place) < npages
               && look > 0
               && zmap_place_grow(slots, place) == ZMAP_OK)
        {
            look--;
        }

        if (zmap_place_pages(slots, place) >= npages) {
            return ZMAP_OK;
        }
    }

    return ZMAP_NOMEM;
}


/* the place that slot makes with those which this search found before */

static void
zmap_place_join(zmap_slots_t *slots, zmap_place_t *place, zmap_slot_t *slot)
{
    zmap_slot_t  *before, *after;

    before = slot->below;
    after = slot->above;

    place->first = slot;
    place->last = slot;

    if (before != NULL && before->search == slots->searches) {
        place->first = before->edge;
    }

    if (after != NULL && after->search == slots->searches) {
        place->last = after->edge;
    }

    slot->search = slots->searches;

    place->first->edge = place->last;
    place->last->edge = place->first;
}


/* ZMAP_NOMEM when there is no idle body on either side */

static zmap_rc_e
zmap_place_grow(zmap_slots_t *slots, zmap_place_t *place)
{
    zmap_slot_t  *before, *after;

    before = place->first->below;
    after = place->last->above;

    if (before != NULL && before->refs > 0) {
        before = NULL;
    }

    if (after != NULL && after->refs > 0) {
        after = NULL;
    }

    if (before == NULL && after == NULL) {
        return ZMAP_NOMEM;
    }

    if (after == NULL || (before != NULL && before->used < after->used)) {
        after = before;
    }

    zmap_place_join(slots, place, after);

    return ZMAP_OK;
}


/* the newer end stays where the rest is enough; ZMAP_NOMEM when it is not */

static zmap_rc_e
zmap_place_shrink(const zmap_slots_t *slots, zmap_place_t *place,
    size_t npages)
{
    int           tail, head;
    zmap_place_t  no_head, no_tail;

    if (place->first == place->last) {
        return ZMAP_NOMEM;
    }

    no_head.first = place->first->above;
    no_head.last = place->last;

    no_tail.first = place->first;
    no_tail.last = place->last->below;

    head = zmap_place_pages(slots, &no_head) >= npages;
    tail = zmap_place_pages(slots, &no_tail) >= npages;

    if (!head && !tail) {
        return ZMAP_NOMEM;
    }

    if (!tail || (head && place->first->used > place->last->used)) {
        *place = no_head;

    } else {
        *place = no_tail;
    }

    return ZMAP_OK;
}


/* with the free runs at both ends */

static size_t
zmap_place_pages(const zmap_slots_t *slots, const zmap_place_t *place)
{
    size_t              begin, end;
    const zmap_slot_t  *below, *above;

    below = place->first->below;
    above = place->last->above;

    begin = 0;
    end = slots->npages;

    if (below != NULL) {
        begin = zmap_slot_page(slots, below) + zmap_slot_pages(below);
    }

    if (above != NULL) {
        end = zmap_slot_page(slots, above);
    }

    return end - begin;
}
