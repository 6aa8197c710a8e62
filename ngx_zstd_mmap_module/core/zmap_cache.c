
/*
 * Keeps the files that were used last, by path.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "zmap_cache.h"


#define ZMAP_CACHE_EXPIRE   2
#define ZMAP_CACHE_BUCKETS  (1024 * 1024)

/* Fowler/Noll/Vo, 1a, 64 bits */
#define ZMAP_FNV_BASIS      UINT64_C(0xcbf29ce484222325)
#define ZMAP_FNV_PRIME      UINT64_C(0x100000001b3)


typedef struct zmap_entry_s  zmap_entry_t;

struct zmap_entry_s {
    zmap_entry_t  *chain;      /* of the bucket */
    zmap_entry_t  *newer;
    zmap_entry_t  *older;
    zmap_file_t   *file;       /* with a count of the entry's own */
    uint64_t       hash;
    uint64_t       accessed;   /* seconds */
    size_t         len;
    uint8_t        path[];
};


/*
 * The hash is seeded, and a bucket is chosen by bits that depend on every bit
 * of it, but it is not a keyed hash, and need not be: only files that exist get
 * an entry, and the worst chain is max entries, of which all with another hash
 * or length cost one comparison of integers.
 */

struct zmap_cache_s {
    zmap_entry_t  **buckets;
    zmap_entry_t   *newest;
    zmap_entry_t   *oldest;
    size_t          mask;      /* buckets less one */
    size_t          count;
    size_t          max;
    uint64_t        inactive;
    uint64_t        seed;
};


static uint64_t zmap_cache_seed(const zmap_cache_t *cache);
static uint64_t zmap_cache_hash(const zmap_cache_t *cache,
    const uint8_t *path, size_t len);
static zmap_entry_t **zmap_cache_bucket(const zmap_cache_t *cache,
    uint64_t hash);
static zmap_entry_t *zmap_cache_lookup(const zmap_cache_t *cache,
    uint64_t hash, const uint8_t *path, size_t len);
static zmap_entry_t *zmap_entry_create(const uint8_t *path, size_t len);
static void zmap_cache_insert(zmap_cache_t *cache, zmap_entry_t *entry);
static void zmap_cache_drop(zmap_cache_t *cache, zmap_entry_t *entry);
static void zmap_cache_expire(zmap_cache_t *cache, uint64_t now);
static void zmap_cache_use(zmap_cache_t *cache, zmap_entry_t *entry,
    uint64_t now);
static void zmap_lru_link(zmap_cache_t *cache, zmap_entry_t *entry);
static void zmap_lru_unlink(zmap_cache_t *cache, zmap_entry_t *entry);


zmap_file_t *
zmap_file_create(const zmap_version_t *version)
{
    zmap_file_t  *file;

    file = calloc(1, sizeof(zmap_file_t));
    if (file == NULL) {
        return NULL;
    }

    zmap_walk_init(&file->walk, version->size);

    file->version = *version;
    file->map.kind = ZMAP_MAP_NONE;
    file->verdict = ZMAP_AGAIN;
    file->_refs = 1;

    return file;
}


zmap_file_t *
zmap_file_ref(zmap_file_t *file)
{
    assert(file->_refs > 0);

    file->_refs++;

    return file;
}


void
zmap_file_unref(zmap_file_t *file)
{
    assert(file->_refs > 0);

    file->_refs--;

    if (file->_refs > 0) {
        return;
    }

    zmap_walk_free(&file->walk);
    zmap_map_close(&file->map);
    free(file);
}


zmap_cache_t *
zmap_cache_create(size_t max, uint64_t inactive)
{
    size_t         n;
    zmap_cache_t  *cache;

    if (max == 0) {
        return NULL;
    }

    cache = calloc(1, sizeof(zmap_cache_t));
    if (cache == NULL) {
        return NULL;
    }

    for (n = 1; n < max && n < ZMAP_CACHE_BUCKETS; n *= 2) {
        /* void */
    }

    cache->buckets = calloc(n, sizeof(zmap_entry_t *));
    if (cache->buckets == NULL) {
        free(cache);
        return NULL;
    }

    cache->mask = n - 1;
    cache->max = max;
    cache->inactive = inactive;
    cache->seed = zmap_cache_seed(cache);

    return cache;
}


void
zmap_cache_destroy(zmap_cache_t *cache)
{
    if (cache == NULL) {
        return;
    }

    while (cache->oldest != NULL) {
        zmap_cache_drop(cache, cache->oldest);
    }

    free(cache->buckets);
    free(cache);
}


zmap_file_t *
zmap_cache_find(zmap_cache_t *cache, const uint8_t *path, size_t len,
    uint64_t now)
{
    zmap_entry_t  *entry;

    zmap_cache_expire(cache, now);

    entry = zmap_cache_lookup(cache, zmap_cache_hash(cache, path, len), path,
                              len);
    if (entry == NULL) {
        return NULL;
    }

    zmap_cache_use(cache, entry, now);

    return entry->file;
}


zmap_rc_e
zmap_cache_store(zmap_cache_t *cache, const uint8_t *path, size_t len,
    zmap_file_t *file, uint64_t now)
{
    uint64_t       hash;
    zmap_file_t   *old;
    zmap_entry_t  *entry;

    hash = zmap_cache_hash(cache, path, len);
    entry = zmap_cache_lookup(cache, hash, path, len);

    if (entry != NULL) {
        old = entry->file;
        entry->file = zmap_file_ref(file);
        zmap_file_unref(old);

        zmap_cache_use(cache, entry, now);
        zmap_cache_expire(cache, now);

        return ZMAP_OK;
    }

    entry = zmap_entry_create(path, len);
    if (entry == NULL) {
        return ZMAP_NOMEM;
    }

    /* the entry that goes may hold the last count of this file */

    entry->file = zmap_file_ref(file);
    entry->hash = hash;
    entry->accessed = now;

    zmap_cache_expire(cache, now);

    if (cache->count >= cache->max) {
        zmap_cache_drop(cache, cache->oldest);
    }

    zmap_cache_insert(cache, entry);

    return ZMAP_OK;
}


void
zmap_cache_remove(zmap_cache_t *cache, const uint8_t *path, size_t len)
{
    zmap_entry_t  *entry;

    entry = zmap_cache_lookup(cache, zmap_cache_hash(cache, path, len), path,
                              len);
    if (entry != NULL) {
        zmap_cache_drop(cache, entry);
    }
}


size_t
zmap_cache_count(const zmap_cache_t *cache)
{
    return cache->count;
}


/* a weaker seed is better than no table: see struct zmap_cache_s */

static uint64_t
zmap_cache_seed(const zmap_cache_t *cache)
{
    uint64_t         seed;
    struct timespec  ts;

    if (getrandom(&seed, sizeof(uint64_t), GRND_NONBLOCK)
        == (ssize_t) sizeof(uint64_t))
    {
        return seed;
    }

    seed = (uint64_t) (uintptr_t) cache;

    if (clock_gettime(CLOCK_MONOTONIC, &ts) == 0) {
        seed ^= (uint64_t) ts.tv_nsec << 32 ^ (uint64_t) ts.tv_sec;
    }

    return seed;
}


static uint64_t
zmap_cache_hash(const zmap_cache_t *cache, const uint8_t *path, size_t len)
{
    size_t    i;
    uint64_t  hash;

    hash = ZMAP_FNV_BASIS ^ cache->seed;

    for (i = 0; i < len; i++) {
        hash = (hash ^ path[i]) * ZMAP_FNV_PRIME;
    }

    return hash;
}


/*
 * The low bits of this hash depend on the low bits of the bytes only, whatever
 * the seed, so the high ones are mixed in.
 */

static zmap_entry_t **
zmap_cache_bucket(const zmap_cache_t *cache, uint64_t hash)
{
    hash ^= hash >> 32;
    hash *= ZMAP_FNV_PRIME;
    hash ^= hash >> 29;

    return &cache->buckets[hash & cache->mask];
}


static zmap_entry_t *
zmap_cache_lookup(const zmap_cache_t *cache, uint64_t hash,
    const uint8_t *path, size_t len)
{
    zmap_entry_t  *entry;

    entry = *zmap_cache_bucket(cache, hash);

    for ( /* void */ ; entry != NULL; entry = entry->chain) {

        if (entry->hash == hash
            && entry->len == len
            && memcmp(entry->path, path, len) == 0)
        {
            return entry;
        }
    }

    return NULL;
}


static zmap_entry_t *
zmap_entry_create(const uint8_t *path, size_t len)
{
    zmap_entry_t  *entry;

    if (len > SIZE_MAX - sizeof(zmap_entry_t)) {
        return NULL;
    }

    entry = malloc(sizeof(zmap_entry_t) + len);
    if (entry == NULL) {
        return NULL;
    }

    memcpy(entry->path, path, len);
    entry->len = len;

    return entry;
}


static void
zmap_cache_insert(zmap_cache_t *cache, zmap_entry_t *entry)
{
    zmap_entry_t  **bucket;

    bucket = zmap_cache_bucket(cache, entry->hash);

    entry->chain = *bucket;
    *bucket = entry;

    zmap_lru_link(cache, entry);

    cache->count++;
}


static void
zmap_cache_drop(zmap_cache_t *cache, zmap_entry_t *entry)
{
    zmap_entry_t  **link;

    link = zmap_cache_bucket(cache, entry->hash);

    while (*link != entry) {
        link = &(*link)->chain;
    }

    *link = entry->chain;

    zmap_lru_unlink(cache, entry);

    cache->count--;

    zmap_file_unref(entry->file);
    free(entry);
}


static void
zmap_cache_expire(zmap_cache_t *cache, uint64_t now)
{
    int            n;
    zmap_entry_t  *entry;

    for (n = 0; n < ZMAP_CACHE_EXPIRE; n++) {

        entry = cache->oldest;

        if (entry == NULL
            || now <= entry->accessed
            || now - entry->accessed <= cache->inactive)
        {
            return;
        }

        zmap_cache_drop(cache, entry);
    }
}


static void
zmap_cache_use(zmap_cache_t *cache, zmap_entry_t *entry, uint64_t now)
{
    entry->accessed = now;

    if (entry != cache->newest) {
        zmap_lru_unlink(cache, entry);
        zmap_lru_link(cache, entry);
    }
}


static void
zmap_lru_link(zmap_cache_t *cache, zmap_entry_t *entry)
{
    entry->newer = NULL;
    entry->older = cache->newest;

    if (cache->newest != NULL) {
        cache->newest->newer = entry;

    } else {
        cache->oldest = entry;
    }

    cache->newest = entry;
}


static void
zmap_lru_unlink(zmap_cache_t *cache, zmap_entry_t *entry)
{
    if (entry->newer != NULL) {
        entry->newer->older = entry->older;

    } else {
        cache->newest = entry->older;
    }

    if (entry->older != NULL) {
        entry->older->newer = entry->newer;

    } else {
        cache->oldest = entry->newer;
    }
}
