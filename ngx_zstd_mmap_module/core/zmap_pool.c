
/*
 * Gives out runs of pages of one region of memory.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "zmap_pool.h"


#define ZMAP_POOL_ALIGN  (2 * 1024 * 1024)
#define ZMAP_POOL_NONE   UINT32_MAX


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
    uint8_t      *mapping;     /* what mmap() gave and munmap() left */
    size_t        mapped;      /* bytes of it */
    zmap_page_t  *pages;
    uint32_t      npages;
    uint32_t      used;        /* pages */
    uint32_t      free;        /* first free run */
};


static int zmap_pool_map(zmap_pool_t *pool);
static void zmap_pool_trim(zmap_pool_t *pool);
static uint32_t zmap_pool_best(const zmap_pool_t *pool, size_t npages);
static void zmap_pool_insert(zmap_pool_t *pool, uint32_t first,
    uint32_t npages);
static void zmap_pool_remove(zmap_pool_t *pool, uint32_t first);
static size_t zmap_pool_pages(size_t size);


zmap_pool_t *
zmap_pool_create(size_t size)
{
    size_t        npages;
    zmap_pool_t  *pool;

    npages = zmap_pool_pages(size);

    if (npages == 0 || npages >= ZMAP_POOL_NONE
        || npages > (SIZE_MAX - ZMAP_POOL_ALIGN) / ZMAP_POOL_PAGE)
    {
        return NULL;
    }

    pool = calloc(1, sizeof(zmap_pool_t));
    if (pool == NULL) {
        return NULL;
    }

    pool->npages = (uint32_t) npages;
    pool->free = ZMAP_POOL_NONE;
    pool->pages = calloc(npages, sizeof(zmap_page_t));

    if (pool->pages == NULL || zmap_pool_map(pool) != 0) {
        zmap_pool_destroy(pool);
        return NULL;
    }

    zmap_pool_insert(pool, 0, pool->npages);

    return pool;
}


void
zmap_pool_destroy(zmap_pool_t *pool)
{
    if (pool == NULL) {
        return;
    }

    if (pool->mapping != NULL) {
        (void) munmap(pool->mapping, pool->mapped);
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
    size_t        offset;
    uint32_t      first, npages, before;
    zmap_page_t  *pages;

    assert((uintptr_t) buffer >= (uintptr_t) pool->region);

    offset = (uintptr_t) buffer - (uintptr_t) pool->region;

    assert(offset < zmap_pool_size(pool) && offset % ZMAP_POOL_PAGE == 0);

    pages = pool->pages;
    first = (uint32_t) (offset / ZMAP_POOL_PAGE);

    assert(pages[first].state == ZMAP_PAGE_USED);

    npages = pages[first].pages;
    pages[first].state = ZMAP_PAGE_INNER;
    pool->used -= npages;

    if (npages < pool->npages - first
        && pages[first + npages].state == ZMAP_PAGE_FREE)
    {
        before = npages;
        npages += pages[first + before].pages;
        zmap_pool_remove(pool, first + before);
    }

    if (first > 0 && pages[first - 1].state == ZMAP_PAGE_FREE) {
        before = pages[first - 1].pages;
        first -= before;
        npages += before;
        zmap_pool_remove(pool, first);
    }

    zmap_pool_insert(pool, first, npages);
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


/* a transparent huge page needs its 2 MiB of addresses aligned */

static int
zmap_pool_map(zmap_pool_t *pool)
{
    void    *mapping;
    size_t   mapped, over;

    mapped = zmap_pool_size(pool) + ZMAP_POOL_ALIGN;

    mapping = mmap(NULL, mapped, PROT_READ|PROT_WRITE,
                   MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return -1;
    }

    over = (uintptr_t) mapping % ZMAP_POOL_ALIGN;

    pool->mapping = mapping;
    pool->mapped = mapped;
    pool->region = pool->mapping + (over ? ZMAP_POOL_ALIGN - over : 0);

    zmap_pool_trim(pool);

    (void) madvise(pool->region, zmap_pool_size(pool), MADV_HUGEPAGE);

    return 0;
}


/* what cannot be unmapped stays ours until the pool is destroyed */

static void
zmap_pool_trim(zmap_pool_t *pool)
{
    size_t    head, tail;
    uint8_t  *end;

    head = (size_t) (pool->region - pool->mapping);

    if (head > 0 && munmap(pool->mapping, head) == 0) {
        pool->mapping += head;
        pool->mapped -= head;
    }

    end = pool->region + zmap_pool_size(pool);
    tail = (size_t) (pool->mapping + pool->mapped - end);

    if (tail > 0 && munmap(end, tail) == 0) {
        pool->mapped -= tail;
    }
}


static uint32_t
zmap_pool_best(const zmap_pool_t *pool, size_t npages)
{
    uint32_t            best, run;
    const zmap_page_t  *pages;

    best = ZMAP_POOL_NONE;
    pages = pool->pages;

    for (run = pool->free; run != ZMAP_POOL_NONE; run = pages[run].next) {

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
    zmap_page_t  *head, *tail;

    head = &pool->pages[first];
    tail = &pool->pages[first + npages - 1];

    tail->state = ZMAP_PAGE_FREE;
    tail->pages = npages;

    head->state = ZMAP_PAGE_FREE;
    head->pages = npages;
    head->prev = ZMAP_POOL_NONE;
    head->next = pool->free;

    if (head->next != ZMAP_POOL_NONE) {
        pool->pages[head->next].prev = first;
    }

    pool->free = first;
}


static void
zmap_pool_remove(zmap_pool_t *pool, uint32_t first)
{
    zmap_page_t  *head, *tail;

    head = &pool->pages[first];
    tail = &pool->pages[first + head->pages - 1];

    if (head->prev == ZMAP_POOL_NONE) {
        pool->free = head->next;

    } else {
        pool->pages[head->prev].next = head->next;
    }

    if (head->next != ZMAP_POOL_NONE) {
        pool->pages[head->next].prev = head->prev;
    }

    tail->state = ZMAP_PAGE_INNER;
    head->state = ZMAP_PAGE_INNER;
}


static size_t
zmap_pool_pages(size_t size)
{
    return size / ZMAP_POOL_PAGE + (size % ZMAP_POOL_PAGE != 0);
}
