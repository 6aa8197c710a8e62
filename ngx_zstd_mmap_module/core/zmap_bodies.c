
/*
 * Keeps decoded bodies in a pool and finds the place for new ones.
 */


#include <assert.h>
#include <stdlib.h>

#include "zmap_bodies.h"


#define ZMAP_BODIES_BUCKETS  (1024 * 1024)

/* idle bodies looked at for the best place, and for any place */
#define ZMAP_BODIES_BEST     1024
#define ZMAP_BODIES_ANY      16384

/* an odd number without a pattern: the golden ratio in 64 bits */
#define ZMAP_BODIES_FACTOR   UINT64_C(0x9e3779b97f4a7c15)


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
    zmap_version_t   version;
};


/* neighbours in the pool, all idle, with the free runs around them */

typedef struct {
    zmap_slot_t  *first;
    zmap_slot_t  *last;
} zmap_place_t;


/*
 * The hash is not keyed: versions come from inodes and the kernel's clock, and
 * the worst chain is one comparison of integers for each kept body.
 */

struct zmap_bodies_s {
    zmap_pool_t   *pool;
    uint8_t       *base;       /* of the pool */
    size_t         npages;
    zmap_slot_t  **ends;       /* by page: the slot whose last page it is */
    zmap_slot_t   *lowest;     /* in the pool */
    zmap_slot_t   *newest;
    zmap_slot_t   *oldest;
    zmap_slot_t  **buckets;
    size_t         mask;       /* buckets less one */
    size_t         count;      /* kept ones */
    size_t         kept;       /* pages of them */
    uint64_t       releases;
    uint64_t       searches;
};


static uint8_t *zmap_bodies_place(zmap_bodies_t *bodies, size_t size);
static void zmap_slot_destroy(zmap_bodies_t *bodies, zmap_slot_t *slot);
static void zmap_slot_link(zmap_bodies_t *bodies, zmap_slot_t *slot);
static void zmap_slot_unlink(zmap_bodies_t *bodies, zmap_slot_t *slot);
static size_t zmap_slot_page(const zmap_bodies_t *bodies,
    const zmap_slot_t *slot);
static size_t zmap_slot_pages(const zmap_slot_t *slot);
static uint64_t zmap_bodies_hash(const zmap_version_t *version);
static uint64_t zmap_hash_add(uint64_t hash, uint64_t word);
static zmap_slot_t **zmap_bodies_lookup(zmap_bodies_t *bodies, uint64_t hash,
    const zmap_version_t *version);
static void zmap_bodies_unkeep(zmap_bodies_t *bodies, zmap_slot_t *slot);
static void zmap_bodies_drop(zmap_bodies_t *bodies, zmap_slot_t *slot);
static zmap_rc_e zmap_bodies_make_room(zmap_bodies_t *bodies, size_t size);
static zmap_rc_e zmap_place_oldest(zmap_bodies_t *bodies, zmap_place_t *place,
    size_t npages);
static zmap_rc_e zmap_place_around(zmap_bodies_t *bodies, zmap_place_t *place,
    size_t npages);
static void zmap_place_join(zmap_bodies_t *bodies, zmap_place_t *place,
    zmap_slot_t *slot);
static zmap_rc_e zmap_place_grow(zmap_bodies_t *bodies, zmap_place_t *place);
static zmap_rc_e zmap_place_shrink(zmap_bodies_t *bodies, zmap_place_t *place,
    size_t npages);
static void zmap_place_clear(zmap_bodies_t *bodies, zmap_place_t *place);
static size_t zmap_place_pages(const zmap_bodies_t *bodies,
    const zmap_place_t *place);
static void zmap_idle_link(zmap_bodies_t *bodies, zmap_slot_t *slot);
static void zmap_idle_unlink(zmap_bodies_t *bodies, zmap_slot_t *slot);


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
    bodies->base = zmap_pool_base(pool);
    bodies->npages = zmap_pool_size(pool) / ZMAP_POOL_PAGE;

    for (n = 1; n < bodies->npages && n < ZMAP_BODIES_BUCKETS; n *= 2) {
        /* void */
    }

    bodies->mask = n - 1;
    bodies->buckets = calloc(n, sizeof(zmap_slot_t *));
    bodies->ends = calloc(bodies->npages, sizeof(zmap_slot_t *));

    if (bodies->buckets == NULL || bodies->ends == NULL) {
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

    while (bodies->lowest != NULL) {
        zmap_slot_destroy(bodies, bodies->lowest);
    }

    free(bodies->ends);
    free(bodies->buckets);
    free(bodies);
}


zmap_body_t *
zmap_bodies_find(zmap_bodies_t *bodies, const zmap_version_t *version)
{
    zmap_slot_t  *slot;

    slot = *zmap_bodies_lookup(bodies, zmap_bodies_hash(version), version);
    if (slot == NULL) {
        return NULL;
    }

    if (slot->refs == 0) {
        zmap_idle_unlink(bodies, slot);
    }

    slot->refs++;

    return &slot->body;
}


zmap_body_t *
zmap_bodies_alloc(zmap_bodies_t *bodies, size_t size)
{
    uint8_t      *data;
    zmap_slot_t  *slot;

    if (size == 0 || size > bodies->npages * ZMAP_POOL_PAGE) {
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

    zmap_slot_link(bodies, slot);

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
    const zmap_version_t *version)
{
    zmap_slot_t  *slot, **link;

    slot = (zmap_slot_t *) body;

    assert(slot->refs > 0);

    if (slot->kept) {
        zmap_bodies_unkeep(bodies, slot);
    }

    zmap_bodies_forget(bodies, version);

    slot->version = *version;
    slot->hash = zmap_bodies_hash(version);
    slot->kept = 1;

    link = &bodies->buckets[slot->hash & bodies->mask];

    slot->chain = *link;
    *link = slot;

    bodies->count++;
    bodies->kept += zmap_slot_pages(slot);
}


void
zmap_bodies_forget(zmap_bodies_t *bodies, const zmap_version_t *version)
{
    zmap_slot_t  *slot;

    slot = *zmap_bodies_lookup(bodies, zmap_bodies_hash(version), version);
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
        zmap_idle_link(bodies, slot);
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
    zmap_slot_unlink(bodies, slot);
    zmap_pool_free(bodies->pool, slot->body.data);
    free(slot);
}


/* a buffer begins where another ended: see zmap_pool_alloc() */

static void
zmap_slot_link(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    size_t  page;

    page = zmap_slot_page(bodies, slot);

    bodies->ends[page + zmap_slot_pages(slot) - 1] = slot;

    if (page > 0) {
        slot->below = bodies->ends[page - 1];

        assert(slot->below != NULL);

        slot->above = slot->below->above;
        slot->below->above = slot;

    } else {
        slot->above = bodies->lowest;
        bodies->lowest = slot;
    }

    if (slot->above != NULL) {
        slot->above->below = slot;
    }
}


static void
zmap_slot_unlink(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    size_t  end;

    end = zmap_slot_page(bodies, slot) + zmap_slot_pages(slot);

    bodies->ends[end - 1] = NULL;

    if (slot->below != NULL) {
        slot->below->above = slot->above;

    } else {
        bodies->lowest = slot->above;
    }

    if (slot->above != NULL) {
        slot->above->below = slot->below;
    }
}


static size_t
zmap_slot_page(const zmap_bodies_t *bodies, const zmap_slot_t *slot)
{
    return (size_t) (slot->body.data - bodies->base) / ZMAP_POOL_PAGE;
}


static size_t
zmap_slot_pages(const zmap_slot_t *slot)
{
    return (slot->body.size + ZMAP_POOL_PAGE - 1) / ZMAP_POOL_PAGE;
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


/* the link that points to the slot kept for that version, or to NULL */

static zmap_slot_t **
zmap_bodies_lookup(zmap_bodies_t *bodies, uint64_t hash,
    const zmap_version_t *version)
{
    zmap_slot_t  *slot, **link;

    link = &bodies->buckets[hash & bodies->mask];

    for ( /* void */ ; *link != NULL; link = &slot->chain) {

        slot = *link;

        if (slot->hash == hash && zmap_version_equal(&slot->version, version)) {
            break;
        }
    }

    return link;
}


static void
zmap_bodies_unkeep(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    zmap_slot_t  **link;

    link = zmap_bodies_lookup(bodies, slot->hash, &slot->version);

    *link = slot->chain;

    slot->kept = 0;

    bodies->count--;
    bodies->kept -= zmap_slot_pages(slot);
}


static void
zmap_bodies_drop(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    zmap_bodies_unkeep(bodies, slot);
    zmap_idle_unlink(bodies, slot);
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

    rc = zmap_place_oldest(bodies, &place, npages);

    if (rc == ZMAP_AGAIN) {
        rc = zmap_place_around(bodies, &place, npages);
    }

    if (rc != ZMAP_OK) {
        return rc;
    }

    while (zmap_place_shrink(bodies, &place, npages) == ZMAP_OK) {
        /* void */
    }

    zmap_place_clear(bodies, &place);

    return ZMAP_OK;
}


/*
 * The place whose newest body is the oldest: bodies are joined with the ones
 * around them in the order of their use until a place is large enough.
 * ZMAP_NOMEM: there is none.  ZMAP_AGAIN: there was none among the oldest.
 */

static zmap_rc_e
zmap_place_oldest(zmap_bodies_t *bodies, zmap_place_t *place, size_t npages)
{
    size_t        n;
    zmap_slot_t  *slot;

    bodies->searches++;

    slot = bodies->oldest;

    for (n = 0; slot != NULL; n++) {

        if (n == ZMAP_BODIES_BEST) {
            return ZMAP_AGAIN;
        }

        zmap_place_join(bodies, place, slot);

        if (zmap_place_pages(bodies, place) >= npages) {
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
zmap_place_around(zmap_bodies_t *bodies, zmap_place_t *place, size_t npages)
{
    size_t        look;
    zmap_slot_t  *slot;

    bodies->searches++;

    look = ZMAP_BODIES_ANY + npages;

    for (slot = bodies->oldest; slot != NULL; slot = slot->newer) {

        if (slot->search == bodies->searches) {
            continue;
        }

        if (look == 0) {
            return ZMAP_NOMEM;
        }

        look--;

        zmap_place_join(bodies, place, slot);

        while (zmap_place_pages(bodies, place) < npages
               && look > 0
               && zmap_place_grow(bodies, place) == ZMAP_OK)
        {
            look--;
        }

        if (zmap_place_pages(bodies, place) >= npages) {
            return ZMAP_OK;
        }
    }

    return ZMAP_NOMEM;
}


/* the place that slot makes with those which this search found before */

static void
zmap_place_join(zmap_bodies_t *bodies, zmap_place_t *place, zmap_slot_t *slot)
{
    zmap_slot_t  *before, *after;

    before = slot->below;
    after = slot->above;

    place->first = slot;
    place->last = slot;

    if (before != NULL && before->search == bodies->searches) {
        place->first = before->edge;
    }

    if (after != NULL && after->search == bodies->searches) {
        place->last = after->edge;
    }

    slot->search = bodies->searches;

    place->first->edge = place->last;
    place->last->edge = place->first;
}


/* ZMAP_NOMEM when there is no idle body on either side */

static zmap_rc_e
zmap_place_grow(zmap_bodies_t *bodies, zmap_place_t *place)
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

    zmap_place_join(bodies, place, after);

    return ZMAP_OK;
}


/* the newer end stays where the rest is enough; ZMAP_NOMEM when it is not */

static zmap_rc_e
zmap_place_shrink(zmap_bodies_t *bodies, zmap_place_t *place, size_t npages)
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

    head = zmap_place_pages(bodies, &no_head) >= npages;
    tail = zmap_place_pages(bodies, &no_tail) >= npages;

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


static void
zmap_place_clear(zmap_bodies_t *bodies, zmap_place_t *place)
{
    zmap_slot_t  *slot, *next;

    for (slot = place->first; slot != place->last; slot = next) {
        next = slot->above;
        zmap_bodies_drop(bodies, slot);
    }

    zmap_bodies_drop(bodies, slot);
}


/* with the free runs at both ends */

static size_t
zmap_place_pages(const zmap_bodies_t *bodies, const zmap_place_t *place)
{
    size_t              begin, end;
    const zmap_slot_t  *below, *above;

    below = place->first->below;
    above = place->last->above;

    begin = 0;
    end = bodies->npages;

    if (below != NULL) {
        begin = zmap_slot_page(bodies, below) + zmap_slot_pages(below);
    }

    if (above != NULL) {
        end = zmap_slot_page(bodies, above);
    }

    return end - begin;
}


static void
zmap_idle_link(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    slot->used = ++bodies->releases;

    slot->newer = NULL;
    slot->older = bodies->newest;

    if (bodies->newest != NULL) {
        bodies->newest->newer = slot;

    } else {
        bodies->oldest = slot;
    }

    bodies->newest = slot;
}


static void
zmap_idle_unlink(zmap_bodies_t *bodies, zmap_slot_t *slot)
{
    if (slot->newer != NULL) {
        slot->newer->older = slot->older;

    } else {
        bodies->newest = slot->older;
    }

    if (slot->older != NULL) {
        slot->older->newer = slot->newer;

    } else {
        bodies->oldest = slot->newer;
    }
}
