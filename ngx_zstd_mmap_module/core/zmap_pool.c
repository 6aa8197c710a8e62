
/*
 * Gives out runs of pages of one region of memory.
 */


#include <assert.h>
#include <stdlib.h>

#include "zmap_pool.h"


#define ZMAP_POOL_NONE   UINT32_MAX

/*
 * Free runs are listed by length: each length below ZMAP_POOL_EXACT has a list
 * of its own, above it each power of two has ZMAP_POOL_STEPS lists.
 */

#define ZMAP_POOL_EXP    6
#define ZMAP_POOL_EXACT  (1 << ZMAP_POOL_EXP)
#define ZMAP_POOL_STEPS  8
#define ZMAP_POOL_LISTS  (ZMAP_POOL_EXACT                                     \
                          + (32 - ZMAP_POOL_EXP) * ZMAP_POOL_STEPS)


typedef enum {
    ZMAP_PAGE_INNER = 0,
    ZMAP_PAGE_FREE,            /* first and last page of a free run */
    ZMAP_PAGE_USED             /* first page of a run that is given out */
} zmap_page_e;


/*
 * The descriptors lie outside the region: looking for a run touches none of
 * its pages, and no overrun of a buffer reaches them.
 */

typedef struct {
    uint32_t     pages;        /* of the run; in its first and last page */
    uint32_t     prev;         /* in the list of free runs; in the first page */
    uint32_t     next;
    zmap_page_e  state;
} zmap_page_t;


struct zmap_pool_s {
    uint8_t      *region;
    zmap_page_t  *pages;
    uint32_t      npages;
    uint32_t      used;        /* pages */
    uint32_t      free[ZMAP_POOL_LISTS];
};


static uint32_t zmap_pool_best(const zmap_pool_t *pool, size_t npages);
static uint32_t zmap_pool_best_of(const zmap_pool_t *pool, uint32_t run,
    uint32_t npages);
static void zmap_pool_insert(zmap_pool_t *pool, uint32_t first,
    uint32_t npages);
static void zmap_pool_remove(zmap_pool_t *pool, uint32_t first);
static uint32_t zmap_pool_used_run(const zmap_pool_t *pool,
    const uint8_t *buffer);
static uint32_t zmap_pool_free_before(const zmap_pool_t *pool,
    uint32_t first);
static uint32_t zmap_pool_free_after(const zmap_pool_t *pool, uint32_t end);
static uint32_t zmap_pool_list(uint32_t npages);
static size_t zmap_pool_pages(size_t size);


zmap_pool_t *
zmap_pool_create_over(void *base, size_t size)
{
    size_t        i, npages;
    zmap_pool_t  *pool;

    npages = size / ZMAP_POOL_PAGE;

    if (base == NULL || (uintptr_t) base % ZMAP_POOL_PAGE != 0
        || npages == 0 || npages >= ZMAP_POOL_NONE)
    {
        return NULL;
    }

    pool = calloc(1, sizeof(zmap_pool_t));
    if (pool == NULL) {
        return NULL;
    }

    pool->pages = calloc(npages, sizeof(zmap_page_t));
    if (pool->pages == NULL) {
        free(pool);
        return NULL;
    }

    for (i = 0; i < ZMAP_POOL_LISTS; i++) {
        pool->free[i] = ZMAP_POOL_NONE;
    }

    pool->region = base;
    pool->npages = (uint32_t) npages;

    zmap_pool_insert(pool, 0, pool->npages);

    return pool;
}


void
zmap_pool_destroy(zmap_pool_t *pool)
{
    if (pool == NULL) {
        return;
    }

    free(pool->pages);
    free(pool);
}


uint8_t *
zmap_pool_alloc(zmap_pool_t *pool, size_t size)
{
    size_t    npages;
    uint32_t  first, rest;

    npages = zmap_pool_pages(size);
    if (npages == 0) {
        return NULL;
    }

    first = zmap_pool_best(pool, npages);
    if (first == ZMAP_POOL_NONE) {
        return NULL;
    }

    rest = pool->pages[first].pages - (uint32_t) npages;

    zmap_pool_remove(pool, first);

    if (rest > 0) {
        zmap_pool_insert(pool, first + (uint32_t) npages, rest);
    }

    pool->pages[first].state = ZMAP_PAGE_USED;
    pool->pages[first].pages = (uint32_t) npages;
    pool->used += (uint32_t) npages;

    return pool->region + (size_t) first * ZMAP_POOL_PAGE;
}


void
zmap_pool_free(zmap_pool_t *pool, uint8_t *buffer)
{
    uint32_t  first, npages, before, after;

    first = zmap_pool_used_run(pool, buffer);
    npages = pool->pages[first].pages;

    pool->pages[first].state = ZMAP_PAGE_INNER;
    pool->used -= npages;

    after = zmap_pool_free_after(pool, first + npages);
    if (after > 0) {
        zmap_pool_remove(pool, first + npages);
    }

    before = zmap_pool_free_before(pool, first);
    if (before > 0) {
        zmap_pool_remove(pool, first - before);
    }

    zmap_pool_insert(pool, first - before, before + npages + after);
}


uint8_t *
zmap_pool_base(const zmap_pool_t *pool)
{
    return pool->region;
}


size_t
zmap_pool_size(const zmap_pool_t *pool)
{
    return (size_t) pool->npages * ZMAP_POOL_PAGE;
}


size_t
zmap_pool_used(const zmap_pool_t *pool)
{
    return (size_t) pool->used * ZMAP_POOL_PAGE;
}


/*
 * In the list of the wanted length runs may be too short; in those after it
 * none is, and all are longer than those before.
 */

static uint32_t
zmap_pool_best(const zmap_pool_t *pool, size_t npages)
{
    size_t    i;
    uint32_t  best;

    if (npages > pool->npages) {
        return ZMAP_POOL_NONE;
    }

    for (i = zmap_pool_list((uint32_t) npages); i < ZMAP_POOL_LISTS; i++) {

        best = zmap_pool_best_of(pool, pool->free[i], (uint32_t) npages);
        if (best != ZMAP_POOL_NONE) {
            return best;
        }
    }

    return ZMAP_POOL_NONE;
}


static uint32_t
zmap_pool_best_of(const zmap_pool_t *pool, uint32_t run, uint32_t npages)
{
    uint32_t            best;
    const zmap_page_t  *pages;

    best = ZMAP_POOL_NONE;
    pages = pool->pages;

    for ( /* void */ ; run != ZMAP_POOL_NONE; run = pages[run].next) {

        if (pages[run].pages == npages) {
            return run;
        }

        if (pages[run].pages > npages
            && (best == ZMAP_POOL_NONE || pages[run].pages < pages[best].pages))
        {
            best = run;
        }
    }

    return best;
}


static void
zmap_pool_insert(zmap_pool_t *pool, uint32_t first, uint32_t npages)
{
    uint32_t     *list;
    zmap_page_t  *head, *tail;

    list = &pool->free[zmap_pool_list(npages)];
    head = &pool->pages[first];
    tail = &pool->pages[first + npages - 1];

    tail->state = ZMAP_PAGE_FREE;
    tail->pages = npages;

    head->state = ZMAP_PAGE_FREE;
    head->pages = npages;
    head->prev = ZMAP_POOL_NONE;
    head->next = *list;

    if (head->next != ZMAP_POOL_NONE) {
        pool->pages[head->next].prev = first;
    }

    *list = first;
}


static void
zmap_pool_remove(zmap_pool_t *pool, uint32_t first)
{
    zmap_page_t  *head, *tail;

    head = &pool->pages[first];
    tail = &pool->pages[first + head->pages - 1];

    if (head->prev == ZMAP_POOL_NONE) {
        pool->free[zmap_pool_list(head->pages)] = head->next;

    } else {
        pool->pages[head->prev].next = head->next;
    }

    if (head->next != ZMAP_POOL_NONE) {
        pool->pages[head->next].prev = head->prev;
    }

    tail->state = ZMAP_PAGE_INNER;
    head->state = ZMAP_PAGE_INNER;
}


static uint32_t
zmap_pool_used_run(const zmap_pool_t *pool, const uint8_t *buffer)
{
    size_t    offset;
    uint32_t  first;

    assert((uintptr_t) buffer >= (uintptr_t) pool->region);

    offset = (uintptr_t) buffer - (uintptr_t) pool->region;

    assert(offset < zmap_pool_size(pool) && offset % ZMAP_POOL_PAGE == 0);

    first = (uint32_t) (offset / ZMAP_POOL_PAGE);

    assert(pool->pages[first].state == ZMAP_PAGE_USED);

    return first;
}


/* pages of the free run that ends before page first */

static uint32_t
zmap_pool_free_before(const zmap_pool_t *pool, uint32_t first)
{
    const zmap_page_t  *page;

    if (first == 0) {
        return 0;
    }

    page = &pool->pages[first - 1];

    return (page->state == ZMAP_PAGE_FREE) ? page->pages : 0;
}


/* pages of the free run that begins at page end */

static uint32_t
zmap_pool_free_after(const zmap_pool_t *pool, uint32_t end)
{
    const zmap_page_t  *page;

    if (end == pool->npages) {
        return 0;
    }

    page = &pool->pages[end];

    return (page->state == ZMAP_PAGE_FREE) ? page->pages : 0;
}


static uint32_t
zmap_pool_list(uint32_t npages)
{
    uint32_t  exp, step;

    if (npages < ZMAP_POOL_EXACT) {
        return npages;
    }

    exp = 31 - (uint32_t) __builtin_clz(npages);
    step = (npages >> (exp - 3)) % ZMAP_POOL_STEPS;

    return ZMAP_POOL_EXACT + (exp - ZMAP_POOL_EXP) * ZMAP_POOL_STEPS + step;
}


static size_t
zmap_pool_pages(size_t size)
{
    return size / ZMAP_POOL_PAGE + (size % ZMAP_POOL_PAGE != 0);
}
