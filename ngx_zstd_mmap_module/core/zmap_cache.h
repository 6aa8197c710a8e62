
/*
 * The table of opened files of one worker: path to file version, with its
 * mapping, walk and verdict.
 *
 * A zmap_file_t is one version of one file.  It is reference-counted: the
 * table holds one count, each request that uses it another; the mapping lives
 * as long as the last of them.  A changed file gets a new object.
 *
 * The time is an argument (seconds of any monotone clock), so that expiry can
 * be tested.  Not thread-safe: a table belongs to one thread.
 */


#ifndef ZMAP_CACHE_H
#define ZMAP_CACHE_H


#include "zmap_base.h"
#include "zmap_frame.h"
#include "zmap_map.h"


ZMAP_BEGIN


typedef struct {
    zmap_version_t  version;
    zmap_map_t      map;       /* owned; ZMAP_MAP_NONE until it is needed */
    zmap_walk_t     walk;      /* owned; its progress and what it found */
    zmap_rc_e       verdict;   /* of the walk; ZMAP_AGAIN: not complete */
    uint64_t        learnt;    /* decoded size found by a full decode */
    uint64_t        left;      /* bytes that replies left mapped since all of
                                  the map was last dropped */
    uint64_t        checked;   /* when version was last compared, for the user
                                  of the table */
    unsigned        reported;  /* bits of what was logged of this version, for
                                  the user of the table */
    uint8_t         has_learnt;
    uint8_t         verified;  /* all of it was decoded, without an error */
    uint8_t         told;      /* the verdict and what the walk found, without
                                  its index, are somebody else's */

    /* private */
    unsigned        _refs;
} zmap_file_t;


typedef struct zmap_cache_s  zmap_cache_t;


/*
 * A file object with one count, which the caller owns, an empty map and an
 * initialised walk; NULL: no memory
 */
zmap_file_t *zmap_file_create(const zmap_version_t *version);

/* one more count */
zmap_file_t *zmap_file_ref(zmap_file_t *file);

/* one count less; the last one closes the map and frees the walk */
void zmap_file_unref(zmap_file_t *file);


/*
 * A table of at most max files that forgets what was not asked for during
 * inactive seconds; NULL: no memory, or max is 0
 */
zmap_cache_t *zmap_cache_create(size_t max, uint64_t inactive);

/* drops every entry.  NULL is ignored. */
void zmap_cache_destroy(zmap_cache_t *cache);

/*
 * The file kept for that path, or NULL.  The entry becomes the most recently
 * used one; the count stays the table's (take one with zmap_file_ref()).
 * At most two entries that were inactive for too long are dropped on the way.
 */
zmap_file_t *zmap_cache_find(zmap_cache_t *cache, const uint8_t *path,
    size_t len, uint64_t now);

/*
 * Keeps file for that path with a count of the table's own, in place of what
 * was kept there before; when the table is full the least recently used entry
 * goes.  The path is copied.  ZMAP_OK or ZMAP_NOMEM (then nothing changed).
 */
zmap_rc_e zmap_cache_store(zmap_cache_t *cache, const uint8_t *path,
    size_t len, zmap_file_t *file, uint64_t now);

/* forgets the path; nothing when it is not there */
void zmap_cache_remove(zmap_cache_t *cache, const uint8_t *path, size_t len);

/* how many files are kept */
size_t zmap_cache_count(const zmap_cache_t *cache);


ZMAP_END


#endif /* ZMAP_CACHE_H */
