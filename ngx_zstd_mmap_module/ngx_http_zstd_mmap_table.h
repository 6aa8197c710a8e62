
/*
 * The index of a zone in shared memory: slots, pins, owners, verdicts, room.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_TABLE_H
#define NGX_HTTP_ZSTD_MMAP_TABLE_H


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/zmap_frame.h"
#include "core/zmap_map.h"

#include <pthread.h>


/*
 * Slots are made once and never freed, so that whoever still has a slot's
 * number can corrupt nothing.  A slot is changed under the lock, with two
 * exceptions: a process clears its own pin, and the process that fills a slot
 * ends this by one store to its state.
 *
 * A process pins a slot at most once, by its own bit, and counts its requests
 * in memory of its own.  The bit's number is the owner entry whose robust mutex
 * the process holds for life: the kernel marks it when the process ends, by
 * whatever death, so a pid that was given out anew misleads nobody.  The
 * table's lock is such a mutex too: it tells a death inside the lock, after
 * which nothing is looked up until no living process has a pin, and then the
 * table is made anew.
 *
 * A claim on a slot is the number of its owner and that owner's epoch: another
 * epoch ends all claims of the owner at once, without the lock, when it dies,
 * leaves, or finds the table busy when it wants to end one.  A claim pins
 * nothing: it goes with the slot.
 *
 * None of this lives in a zone of nginx: in single-process mode nginx unmaps a
 * zone that the new cycle lacks while requests of the old cycle still run.
 */

#define NGX_HTTP_ZSTD_MMAP_OWNERS  256


typedef enum {
    NGX_HTTP_ZSTD_MMAP_SLOT_FREE = 0,
    NGX_HTTP_ZSTD_MMAP_SLOT_COUNTED,   /* asked for, no data */
    NGX_HTTP_ZSTD_MMAP_SLOT_FILLING,   /* unpinned: the filler has died */
    NGX_HTTP_ZSTD_MMAP_SLOT_FAILED,    /* has data that is no good */
    NGX_HTTP_ZSTD_MMAP_SLOT_READY
} ngx_http_zstd_mmap_slot_e;


/* the members of zmap_version_t that are compared; no padding */

typedef struct {
    uint64_t  dev;
    uint64_t  ino;
    uint64_t  size;
    int64_t   mtime;
    int64_t   ctime;
    uint32_t  mtime_ns;
    uint32_t  ctime_ns;
} ngx_http_zstd_mmap_key_t;


/* what workers tell each other of the bytes of a version */

typedef struct {
    zmap_frames_t                  frames;   /* of the whole walk, without its
                                                index; valid with ZMAP_OK */
    zmap_rc_e                      rc;       /* ZMAP_OK, or what is wrong with
                                                the bytes for every reader */
    unsigned                       verified; /* they were all decoded, and the
                                                checksums compared */
} ngx_http_zstd_mmap_verdict_t;


typedef struct {
    ngx_str_node_t                 node;     /* must be first */
    ngx_queue_t                    queue;
    ngx_http_zstd_mmap_key_t       key;
    u_char                        *data;
    ngx_uint_t                     uses;
    ngx_uint_t                     retry;    /* uses before room is sought
                                                again */
    ngx_uint_t                     backoff;
    ngx_http_zstd_mmap_verdict_t   verdict;  /* ZMAP_AGAIN: not known */
    uint32_t                       claimed;  /* owner + 1; 0: by nobody */
    uint32_t                       epoch;    /* of the claim */
    ngx_atomic_t                   _state;   /* ngx_http_zstd_mmap_slot_e */
    uint64_t                       _pins[NGX_HTTP_ZSTD_MMAP_OWNERS / 64];
} ngx_http_zstd_mmap_slot_t;


typedef struct {
    pthread_mutex_t            lock;
    ngx_uint_t                 broken;     /* a process died in the lock */
    ngx_msec_t                 checked;    /* when owners were last swept */

    ngx_rbtree_t               rbtree;
    ngx_rbtree_node_t          sentinel;
    ngx_queue_t                free;
    ngx_queue_t                counted;    /* most recently used first */
    ngx_queue_t                loaded;     /* filling, failed, ready */
    ngx_uint_t                 nloaded;

    u_char                    *data;
    size_t                     size;
    ngx_slab_pool_t           *pool;       /* at the beginning of data */

    pthread_mutex_t            owners[NGX_HTTP_ZSTD_MMAP_OWNERS];
    uint32_t                   _epochs[NGX_HTTP_ZSTD_MMAP_OWNERS];
    ngx_uint_t                 nowners;    /* entries ever used */

    ngx_uint_t                 nslots;
    ngx_http_zstd_mmap_slot_t  slots[1];
} ngx_http_zstd_mmap_shared_t;


/* what one process has of a table */

typedef struct {
    ngx_http_zstd_mmap_shared_t  *sh;
    size_t                        mapped;  /* bytes at sh */
    uint32_t                     *counts;  /* pins of requests, by slot */
    ngx_uint_t                    owner;   /* valid with counts */
    ngx_msec_t                    retry;   /* no look for an entry before */
    ngx_str_t                     name;    /* for the log */
} ngx_http_zstd_mmap_table_t;


/*
 * Makes an empty table for size bytes of shared memory at data, for this
 * process and its children; it is to be destroyed in each.  NGX_ERROR is
 * logged.  destroy gives up all pins of this process.
 */
ngx_int_t ngx_http_zstd_mmap_create_table(ngx_http_zstd_mmap_table_t *table,
    u_char *data, size_t size, ngx_log_t *log);
void ngx_http_zstd_mmap_destroy_table(ngx_http_zstd_mmap_table_t *table);

/*
 * NGX_OK: locked, the table is sound.  NGX_DECLINED: another process has it,
 * or it waits to be made anew; not locked.
 */
ngx_int_t ngx_http_zstd_mmap_lock_table(ngx_http_zstd_mmap_table_t *table,
    ngx_log_t *log);
void ngx_http_zstd_mmap_unlock_table(ngx_http_zstd_mmap_table_t *table);


/* under the lock: */

/* the slot of a version, or NULL */
ngx_http_zstd_mmap_slot_t *ngx_http_zstd_mmap_find_slot(
    ngx_http_zstd_mmap_table_t *table, const zmap_version_t *version);

/*
 * A new slot for a version that has none: counted, no uses.  A slot that is
 * only counted makes room; NULL when there is none.
 */
ngx_http_zstd_mmap_slot_t *ngx_http_zstd_mmap_add_slot(
    ngx_http_zstd_mmap_table_t *table, const zmap_version_t *version);

/* marks a slot as the most recently used of its kind */
void ngx_http_zstd_mmap_touch_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);

/*
 * Takes the pins of dead processes away, unless that was tried a moment ago:
 * a process that waits for a slot may call it again and again.
 */
void ngx_http_zstd_mmap_sweep_owners(ngx_http_zstd_mmap_table_t *table);

/*
 * Gives a counted slot its data and makes it filling.  Unpinned slots are
 * evicted for it, least recently used first, but few at a time.  NGX_DECLINED
 * when that did not make room, and for as many further uses as doubles with
 * each failure: a file that never fits must not empty the zone.
 */
ngx_int_t ngx_http_zstd_mmap_load_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);

/*
 * Adds what a process found out: a bad verdict is never replaced, and verified
 * stays.  The index of in is not looked at.
 */
void ngx_http_zstd_mmap_judge_slot(ngx_http_zstd_mmap_slot_t *slot,
    const ngx_http_zstd_mmap_verdict_t *in);

/*
 * NGX_OK: this process has the only claim on the slot.  NGX_BUSY: somebody has
 * it, this process included; the claims of the dead go as their pins do.
 * NGX_DECLINED: the owner table is full.
 */
ngx_int_t ngx_http_zstd_mmap_claim_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);

/* gives a claim of this process back; any other is left alone */
void ngx_http_zstd_mmap_unclaim_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);

/* takes data and version from an unpinned slot */
void ngx_http_zstd_mmap_free_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);

/* nonzero when no living process has it, as far as is known */
ngx_uint_t ngx_http_zstd_mmap_is_unpinned(ngx_http_zstd_mmap_slot_t *slot);

/*
 * Adds a pin of this process.  NGX_DECLINED when the owner table is full.
 */
ngx_int_t ngx_http_zstd_mmap_pin_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);


/* without the lock: */

/* data may be read by who has seen a slot ready and pins it */
ngx_http_zstd_mmap_slot_e ngx_http_zstd_mmap_get_slot_state(
    ngx_http_zstd_mmap_slot_t *slot);

/* takes back a pin of this process */
void ngx_http_zstd_mmap_unpin_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);

/* gives all claims of this process back */
void ngx_http_zstd_mmap_end_claims(ngx_http_zstd_mmap_table_t *table);

/* ends the filling of a slot that this process pins and fills */
void ngx_http_zstd_mmap_set_slot_state(ngx_http_zstd_mmap_slot_t *slot,
    ngx_http_zstd_mmap_slot_e state);

/* bytes of the pages given out; bytes that all pages together have */
size_t ngx_http_zstd_mmap_table_used(ngx_http_zstd_mmap_table_t *table);
size_t ngx_http_zstd_mmap_table_room(ngx_http_zstd_mmap_table_t *table);

/* slots that are ready */
ngx_uint_t ngx_http_zstd_mmap_table_ready(ngx_http_zstd_mmap_table_t *table);


#endif /* NGX_HTTP_ZSTD_MMAP_TABLE_H */
