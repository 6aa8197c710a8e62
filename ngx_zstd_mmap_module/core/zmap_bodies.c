
/*
 * Keeps bodies in a pool.
 */


#include <assert.h>
#include <stdlib.h>

#include "zmap_bodies.h"
#include "zmap_place.h"
#include "zmap_slots.h"


#define ZMAP_BODIES_BUCKETS  (1024 * 1024)

/* an odd number without a pattern: the golden ratio in 64 bits */
#define ZMAP_BODIES_FACTOR   UINT64_C(0x9e3779b97f4a7c15)


/*
 * The hash is not keyed: versions come from inodes and the kernel's clock, and
 * the worst chain is one comparison of integers for each kept body.
 */

struct zmap_bodies_s {
    zmap_pool_t   *pool;
    zmap_slots_t   slots;
    zmap_slot_t  **buckets;
    size_t         mask;       /* buckets less one */
    size_t         count;      /* kept ones */
    size_t         kept;       /* pages of them */
};


static uint8_t *zmap_bodies_place(zmap_bodies_t *bodies, size_t size);
static void zmap_slot_destroy(zmap_bodies_t *bodies, zmap_slot_t *slot);
static uint64_t zmap_bodies_hash(const zmap_version_t *version);
static uint64_t zmap_hash_add(uint64_t hash, uint64_t word);
static zmap_slot_t **zmap_bodies_lookup(zmap_bodies_t *bodies, uint64_t hash,
    const zmap_version_t *version, zmap_body_e kind);
static void zmap_bodies_unkeep(zmap_bodies_t *bodies, zmap_slot_t *slot);
static void zmap_bodies_drop(zmap_bodies_t *bodies, zmap_slot_t *slot);
static zmap_rc_e zmap_bodies_make_room(zmap_bodies_t *bodies, size_t size);
static void zmap_bodies_clear(zmap_bodies_t *bodies, zmap_place_t *place);


zmap_bodies_t *
zmap_bodies_create(zmap_pool_t *pool)
{
    size_t          n;
    zmap_bodies_t  *bodies;

    bodies = calloc(1, sizeof(zmap_bodies_t));
    if (bodies == NULL) {
        return NULL;
    }

    bodies->pool = pool;

    if (zmap_slots_init(&bodies->slots, pool) != ZMAP_OK) {
        free(bodies);
        return NULL;
    }

    for (n = 1; n < bodies->slots.npages && n < ZMAP_BODIES_BUCKETS; n *= 2) {
        /* void */
    }

    bodies->mask = n - 1;
    bodies->buckets = calloc(n, sizeof(zmap_slot_t *));
    if (bodies->buckets == NULL) {
        zmap_bodies_destroy(bodies);
        return NULL;
    }

    return bodies;
}


void
zmap_bodies_destroy(zmap_bodies_t *bodies)
{
    if (bodies == NULL) {
        return;
    }

    while (bodies->slots.lowest != NULL) {
        zmap_slot_destroy(bodies, bodies->slots.lowest);
    }

    zmap_slots_free(&bodies->slots);
    free(bodies->buckets);
    free(bodies);
}


zmap_body_t *
zmap_bodies_find(zmap_bodies_t *bodies, const zmap_version_t *version,
    zmap_body_e kind)
{
    zmap_slot_t  *slot;

    slot = *zmap_bodies_lookup(bodies, zmap_bodies_hash(version), version,
                               kind);
    if (slot == NULL) {
        return NULL;
    }

    if (slot->refs == 0) {
        zmap_slots_busy(&bodies->slots, slot);
    }

    slot->refs++;

    return &slot->body;
}


zmap_body_t *
zmap_bodies_alloc(zmap_bodies_t *bodies, size_t size)
{
    uint8_t      *data;
    zmap_slot_t  *slot;

    if (size == 0 || size > bodies->slots.npages * ZMAP_POOL_PAGE) {
        return NULL;
    }

    slot = calloc(1, sizeof(zmap_slot_t));
    if (slot == NULL) {
        return NULL;
    }

    data = zmap_bodies_place(bodies, size);
    if (data == NULL) {
        free(slot);
        return NULL;
    }

    slot->body.data = data;
    slot->body.size = size;
    slot->refs = 1;

    zmap_slots_link(&bodies->slots, slot);

    return &slot->body;
}


zmap_body_t *
zmap_bodies_hold(zmap_bodies_t *bodies, zmap_body_t *body)
{
    zmap_slot_t  *slot;

    (void) bodies;

    slot = (zmap_slot_t *) body;

    assert(slot->refs > 0);

    slot->refs++;

    return body;
}


void
zmap_bodies_keep(zmap_bodies_t *bodies, zmap_body_t *body,
    const zmap_version_t *version, zmap_body_e kind)
{
    zmap_slot_t  *slot, **link;

    slot = (zmap_slot_t *) body;

    assert(slot->refs > 0);

    if (slot->kept) {
        zmap_bodies_unkeep(bodies, slot);
    }

    zmap_bodies_forget(bodies, version, kind);

    slot->version = *version;
    slot->hash = zmap_bodies_hash(version);
    slot->kind = kind;
    slot->kept = 1;

    link = &bodies->buckets[slot->hash & bodies->mask];

    slot->chain = *link;
    *link = slot;

    bodies->count++;
    bodies->kept += zmap_slot_pages(slot);
}


void
zmap_bodies_forget(zmap_bodies_t *bodies, const zmap_version_t *version,
    zmap_body_e kind)
{
    zmap_slot_t  *slot;

    slot = *zmap_bodies_lookup(bodies, zmap_bodies_hash(version), version,
                               kind);
    if (slot == NULL) {
        return;
    }

    if (slot->refs == 0) {
        zmap_bodies_drop(bodies, slot);
        return;
    }

    zmap_bodies_unkeep(bodies, slot);
}


void
zmap_bodies_release(zmap_bodies_t *bodies, zmap_body_t *body)
{
    zmap_slot_t  *slot;

    slot = (zmap_slot_t *) body;

    assert(slot->refs > 0);

    slot->refs--;

    if (slot->refs > 0) {
        return;
    }

    if (slot->kept) {
        zmap_slots_idle(&bodies->slots, slot);
        return;
    }

    zmap_slot_destroy(bodies, slot);
}


size_t
zmap_bodies_count(const zmap_bodies_t *bodies)
{
    return bodies->count;
}


size_t
zmap_bodies_kept_bytes(const zmap_bodies_t *bodies)
{
    return bodies->kept * ZMAP_POOL_PAGE;
}


static uint8_t *
zmap_bodies_place(zmap_bodies_t *bodies, size_t size)
{
    uint8_t  *data;

    data = zmap_pool_alloc(bodies->pool, size);

    if (data == NULL && zmap_bodies_make_room(bodies, size) == ZMAP_OK) {
        data = zmap_pool_alloc(bodies->pool, size);
    }

    return data;
}


static void
zmap_slot_destroy(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    zmap_slots_unlink(&bodies->slots, slot);
    zmap_pool_free(bodies->pool, slot->body.data);
    free(slot);
}


static uint64_t
zmap_bodies_hash(const zmap_version_t *version)
{
    uint64_t  hash;

    hash = zmap_hash_add(ZMAP_BODIES_FACTOR, version->ino);
    hash = zmap_hash_add(hash, version->dev);
    hash = zmap_hash_add(hash, version->size);
    hash = zmap_hash_add(hash, (uint64_t) version->mtime);
    hash = zmap_hash_add(hash, (uint64_t) version->ctime);
    hash = zmap_hash_add(hash, (uint64_t) version->mtime_ns << 32
                               | version->ctime_ns);
    return hash;
}


/* a product's low bits depend on low bits only, so the high ones come down */

static uint64_t
zmap_hash_add(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * ZMAP_BODIES_FACTOR;

    return hash ^ hash >> 32;
}


/* the link that points to the slot kept for version and kind, or to NULL */

static zmap_slot_t **
zmap_bodies_lookup(zmap_bodies_t *bodies, uint64_t hash,
    const zmap_version_t *version, zmap_body_e kind)
{
    zmap_slot_t  *slot, **link;

    link = &bodies->buckets[hash & bodies->mask];

    for ( /* void */ ; *link != NULL; link = &slot->chain) {

        slot = *link;

        if (slot->hash == hash
            && slot->kind == kind
            && zmap_version_equal(&slot->version, version))
        {
            break;
        }
    }

    return link;
}


static void
zmap_bodies_unkeep(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    zmap_slot_t  **link;

    link = zmap_bodies_lookup(bodies, slot->hash, &slot->version,
                              slot->kind);

    *link = slot->chain;

    slot->kept = 0;

    bodies->count--;
    bodies->kept -= zmap_slot_pages(slot);
}


static void
zmap_bodies_drop(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    zmap_bodies_unkeep(bodies, slot);
    zmap_slots_busy(&bodies->slots, slot);
    zmap_slot_destroy(bodies, slot);
}


/*
 * Giving up idle bodies in the order of their use until the new one fits would
 * give up many that lie elsewhere, and all of them where held ones leave no
 * place.  So the place is found first.
 */

static zmap_rc_e
zmap_bodies_make_room(zmap_bodies_t *bodies, size_t size)
{
    size_t        npages;
    zmap_rc_e     rc;
    zmap_place_t  place;

    npages = (size + ZMAP_POOL_PAGE - 1) / ZMAP_POOL_PAGE;

    rc = zmap_place_find(&bodies->slots, &place, npages);
    if (rc != ZMAP_OK) {
        return rc;
    }

    zmap_bodies_clear(bodies, &place);

    return ZMAP_OK;
}


static void
zmap_bodies_clear(zmap_bodies_t *bodies, zmap_place_t *place)
{
    zmap_slot_t  *slot, *next;

    for (slot = place->first; slot != place->last; slot = next) {
        next = slot->above;
        zmap_bodies_drop(bodies, slot);
    }

    zmap_bodies_drop(bodies, slot);
}
