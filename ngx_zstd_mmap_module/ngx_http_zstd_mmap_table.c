
/*
 * The index of a zone in shared memory: slots, pins, owners, verdicts, room.
 */


#include "ngx_http_zstd_mmap_table.h"

#include "ngx_http_zstd_mmap_stats.h"


#define NGX_HTTP_ZSTD_MMAP_NO_OWNER  NGX_HTTP_ZSTD_MMAP_OWNERS

#define NGX_HTTP_ZSTD_MMAP_LOCK_TRIES  32
#define NGX_HTTP_ZSTD_MMAP_LOCK_SPINS  64

/* between two looks for dead owners or a free entry, milliseconds */
#define NGX_HTTP_ZSTD_MMAP_SWEEP_TIME  100

/* one slot for so many bytes of data */
#define NGX_HTTP_ZSTD_MMAP_SLOT_BYTES  8192
#define NGX_HTTP_ZSTD_MMAP_MIN_SLOTS   1024
#define NGX_HTTP_ZSTD_MMAP_MAX_SLOTS   65536

/* what one attempt to make room may do while it has the lock */
#define NGX_HTTP_ZSTD_MMAP_EVICTIONS   16
#define NGX_HTTP_ZSTD_MMAP_EVICT_SIZE  4
#define NGX_HTTP_ZSTD_MMAP_LOOKS       256

#define NGX_HTTP_ZSTD_MMAP_MAX_BACKOFF  255


static ngx_int_t ngx_http_zstd_mmap_init_mutexes(
    ngx_http_zstd_mmap_shared_t *sh, ngx_log_t *log);
static void ngx_http_zstd_mmap_format_table(ngx_http_zstd_mmap_shared_t *sh);
static void ngx_http_zstd_mmap_init_room(ngx_http_zstd_mmap_shared_t *sh);
static ngx_int_t ngx_http_zstd_mmap_mend_table(
    ngx_http_zstd_mmap_table_t *table, ngx_log_t *log);
static ngx_uint_t ngx_http_zstd_mmap_sweep_due(
    ngx_http_zstd_mmap_shared_t *sh);
static void ngx_http_zstd_mmap_sweep(ngx_http_zstd_mmap_table_t *table);
static ngx_int_t ngx_http_zstd_mmap_claim_owner(
    ngx_http_zstd_mmap_table_t *table);
static ngx_uint_t ngx_http_zstd_mmap_take_owner(
    ngx_http_zstd_mmap_table_t *table);
static ngx_int_t ngx_http_zstd_mmap_lock_owner(
    ngx_http_zstd_mmap_shared_t *sh, ngx_uint_t owner);
static void ngx_http_zstd_mmap_clear_pin(ngx_http_zstd_mmap_slot_t *slot,
    ngx_uint_t owner);
static ngx_uint_t ngx_http_zstd_mmap_is_claimed(
    ngx_http_zstd_mmap_shared_t *sh, ngx_http_zstd_mmap_slot_t *slot);
static uint32_t ngx_http_zstd_mmap_get_epoch(ngx_http_zstd_mmap_shared_t *sh,
    ngx_uint_t owner);
static void ngx_http_zstd_mmap_end_epoch(ngx_http_zstd_mmap_shared_t *sh,
    ngx_uint_t owner);
static void ngx_http_zstd_mmap_set_key(ngx_http_zstd_mmap_key_t *key,
    const zmap_version_t *version);
static u_char *ngx_http_zstd_mmap_alloc_room(ngx_http_zstd_mmap_shared_t *sh,
    size_t size);
static u_char *ngx_http_zstd_mmap_make_room(ngx_http_zstd_mmap_table_t *table,
    size_t size);
static void ngx_http_zstd_mmap_evict_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot);


ngx_int_t
ngx_http_zstd_mmap_create_table(ngx_http_zstd_mmap_table_t *table,
    u_char *data, size_t size, ngx_log_t *log)
{
    size_t                        mapped;
    ngx_shm_t                     shm;
    ngx_uint_t                    n;
    ngx_http_zstd_mmap_shared_t  *sh;

    n = ngx_min(size / NGX_HTTP_ZSTD_MMAP_SLOT_BYTES,
                NGX_HTTP_ZSTD_MMAP_MAX_SLOTS);
    n = ngx_max(n, NGX_HTTP_ZSTD_MMAP_MIN_SLOTS);

    mapped = sizeof(ngx_http_zstd_mmap_shared_t)
             + (n - 1) * sizeof(ngx_http_zstd_mmap_slot_t);

    ngx_memzero(&shm, sizeof(ngx_shm_t));

    shm.size = ngx_align(mapped, ngx_pagesize);
    shm.name = table->name;
    shm.log = log;

    if (ngx_shm_alloc(&shm) != NGX_OK) {
        return NGX_ERROR;
    }

    sh = (ngx_http_zstd_mmap_shared_t *) shm.addr;

    if (ngx_http_zstd_mmap_init_mutexes(sh, log) != NGX_OK) {
        ngx_shm_free(&shm);
        return NGX_ERROR;
    }

    sh->data = data;
    sh->size = size;
    sh->nslots = n;

    ngx_http_zstd_mmap_format_table(sh);

    table->sh = sh;
    table->mapped = shm.size;
    table->counts = NULL;
    table->owner = NGX_HTTP_ZSTD_MMAP_NO_OWNER;
    table->retry = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_zstd_mmap_init_mutexes(ngx_http_zstd_mmap_shared_t *sh,
    ngx_log_t *log)
{
    ngx_err_t            err;
    ngx_uint_t           i;
    pthread_mutexattr_t  attr;

    err = pthread_mutexattr_init(&attr);
    if (err) {
        ngx_log_error(NGX_LOG_EMERG, log, err,
                      "pthread_mutexattr_init() failed");
        return NGX_ERROR;
    }

    err = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);

    if (err == 0) {
        err = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    }

    if (err == 0) {
        err = pthread_mutex_init(&sh->lock, &attr);
    }

    for (i = 0; err == 0 && i < NGX_HTTP_ZSTD_MMAP_OWNERS; i++) {
        err = pthread_mutex_init(&sh->owners[i], &attr);
    }

    (void) pthread_mutexattr_destroy(&attr);

    if (err) {
        ngx_log_error(NGX_LOG_EMERG, log, err,
                      "no robust mutex in shared memory");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* pins are left as they are: all of them are clear */

static void
ngx_http_zstd_mmap_format_table(ngx_http_zstd_mmap_shared_t *sh)
{
    ngx_uint_t                  i;
    ngx_http_zstd_mmap_slot_t  *slot;

    ngx_rbtree_init(&sh->rbtree, &sh->sentinel, ngx_str_rbtree_insert_value);

    ngx_queue_init(&sh->free);
    ngx_queue_init(&sh->counted);
    ngx_queue_init(&sh->loaded);

    sh->nloaded = 0;

    for (i = 0; i < sh->nslots; i++) {
        slot = &sh->slots[i];

        slot->data = NULL;
        slot->_state = NGX_HTTP_ZSTD_MMAP_SLOT_FREE;

        ngx_queue_insert_tail(&sh->free, &slot->queue);
    }

    ngx_http_zstd_mmap_init_room(sh);
}


/*
 * The pool's own mutex stays unused, the table's lock is taken instead; a full
 * pool is ordinary and not worth a line in the log.
 */

static void
ngx_http_zstd_mmap_init_room(ngx_http_zstd_mmap_shared_t *sh)
{
    sh->pool = (ngx_slab_pool_t *) sh->data;

    sh->pool->addr = sh->data;
    sh->pool->end = sh->data + sh->size;
    sh->pool->min_shift = 3;

    ngx_slab_init(sh->pool);

    sh->pool->log_nomem = 0;
}


void
ngx_http_zstd_mmap_destroy_table(ngx_http_zstd_mmap_table_t *table)
{
    ngx_shm_t                     shm;
    ngx_uint_t                    i;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    if (table->counts) {

        for (i = 0; i < sh->nslots; i++) {
            ngx_http_zstd_mmap_clear_pin(&sh->slots[i], table->owner);
        }

        ngx_http_zstd_mmap_end_epoch(sh, table->owner);

        /* a mutex must not be held in memory that goes */

        (void) pthread_mutex_unlock(&sh->owners[table->owner]);

        ngx_free(table->counts);
        table->counts = NULL;
    }

    ngx_memzero(&shm, sizeof(ngx_shm_t));

    shm.addr = (u_char *) sh;
    shm.size = table->mapped;
    shm.name = table->name;
    shm.log = ngx_cycle->log;

    ngx_shm_free(&shm);

    table->sh = NULL;
}


ngx_int_t
ngx_http_zstd_mmap_lock_table(ngx_http_zstd_mmap_table_t *table,
    ngx_log_t *log)
{
    ngx_err_t                     err;
    ngx_uint_t                    i, n;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;
    err = EBUSY;

    for (n = 0; n < NGX_HTTP_ZSTD_MMAP_LOCK_TRIES; n++) {

        err = pthread_mutex_trylock(&sh->lock);

        if (err != EBUSY) {
            break;
        }

        for (i = 0; i < NGX_HTTP_ZSTD_MMAP_LOCK_SPINS; i++) {
            ngx_cpu_pause();
        }

        ngx_sched_yield();
    }

    if (err == EOWNERDEAD) {
        sh->broken = 1;
        (void) pthread_mutex_consistent(&sh->lock);

        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "a process died inside zstd_mmap_zone \"%V\", "
                      "which is emptied when nobody uses it", &table->name);

    } else if (err) {
        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                       "zstd mmap: zone \"%V\" is busy: %i", &table->name,
                       (ngx_int_t) err);
        return NGX_DECLINED;
    }

    if (!sh->broken) {
        return NGX_OK;
    }

    if (ngx_http_zstd_mmap_mend_table(table, log) == NGX_OK) {
        return NGX_OK;
    }

    ngx_http_zstd_mmap_unlock_table(table);

    return NGX_DECLINED;
}


void
ngx_http_zstd_mmap_unlock_table(ngx_http_zstd_mmap_table_t *table)
{
    (void) pthread_mutex_unlock(&table->sh->lock);
}


static ngx_int_t
ngx_http_zstd_mmap_mend_table(ngx_http_zstd_mmap_table_t *table,
    ngx_log_t *log)
{
    ngx_uint_t                    i;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    if (!ngx_http_zstd_mmap_sweep_due(sh)) {
        return NGX_DECLINED;
    }

    ngx_http_zstd_mmap_sweep(table);

    for (i = 0; i < sh->nslots; i++) {
        if (!ngx_http_zstd_mmap_is_unpinned(&sh->slots[i])) {
            return NGX_DECLINED;
        }
    }

    ngx_http_zstd_mmap_format_table(sh);

    /* the last: a death before it is one more inside the lock */

    sh->broken = 0;

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "zstd_mmap_zone \"%V\" was emptied", &table->name);

    return NGX_OK;
}


void
ngx_http_zstd_mmap_sweep_owners(ngx_http_zstd_mmap_table_t *table)
{
    if (ngx_http_zstd_mmap_sweep_due(table->sh)) {
        ngx_http_zstd_mmap_sweep(table);
    }
}


static ngx_uint_t
ngx_http_zstd_mmap_sweep_due(ngx_http_zstd_mmap_shared_t *sh)
{
    ngx_msec_int_t  passed;

    /* negative: another process has a newer idea of the time */

    passed = (ngx_msec_int_t) (ngx_current_msec - sh->checked);

    return passed >= NGX_HTTP_ZSTD_MMAP_SWEEP_TIME;
}


static void
ngx_http_zstd_mmap_sweep(ngx_http_zstd_mmap_table_t *table)
{
    ngx_uint_t                    i;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;
    sh->checked = ngx_current_msec;

    for (i = 0; i < sh->nowners; i++) {

        if (table->counts && i == table->owner) {
            continue;
        }

        if (ngx_http_zstd_mmap_lock_owner(sh, i) == NGX_OK) {
            (void) pthread_mutex_unlock(&sh->owners[i]);
        }
    }
}


static ngx_int_t
ngx_http_zstd_mmap_claim_owner(ngx_http_zstd_mmap_table_t *table)
{
    uint32_t    *counts;
    ngx_uint_t   owner;

    if (table->counts) {
        return NGX_OK;
    }

    if ((ngx_msec_int_t) (table->retry - ngx_current_msec) > 0) {
        return NGX_DECLINED;
    }

    counts = ngx_calloc(table->sh->nslots * sizeof(uint32_t), ngx_cycle->log);
    if (counts == NULL) {
        return NGX_DECLINED;
    }

    owner = ngx_http_zstd_mmap_take_owner(table);

    if (owner == NGX_HTTP_ZSTD_MMAP_NO_OWNER) {
        ngx_free(counts);
        table->retry = ngx_current_msec + NGX_HTTP_ZSTD_MMAP_SWEEP_TIME;
        return NGX_DECLINED;
    }

    table->counts = counts;
    table->owner = owner;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_zstd_mmap_take_owner(ngx_http_zstd_mmap_table_t *table)
{
    ngx_uint_t                    i;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    for (i = 0; i < NGX_HTTP_ZSTD_MMAP_OWNERS; i++) {
        if (ngx_http_zstd_mmap_lock_owner(sh, i) == NGX_OK) {
            sh->nowners = ngx_max(sh->nowners, i + 1);
            return i;
        }
    }

    return NGX_HTTP_ZSTD_MMAP_NO_OWNER;
}


/*
 * NGX_OK: the entry was nobody's and has no pins and no claims, its mutex is
 * taken.  A death before the unlock leaves the mark on the mutex, so the pins
 * of an entry are cleared for certain before anybody else takes it.
 */

static ngx_int_t
ngx_http_zstd_mmap_lock_owner(ngx_http_zstd_mmap_shared_t *sh,
    ngx_uint_t owner)
{
    ngx_err_t   err;
    ngx_uint_t  i;

    err = pthread_mutex_trylock(&sh->owners[owner]);

    if (err == 0) {
        return NGX_OK;
    }

    if (err != EOWNERDEAD) {
        return NGX_DECLINED;
    }

    (void) pthread_mutex_consistent(&sh->owners[owner]);

    for (i = 0; i < sh->nslots; i++) {
        ngx_http_zstd_mmap_clear_pin(&sh->slots[i], owner);
    }

    ngx_http_zstd_mmap_end_epoch(sh, owner);

    return NGX_OK;
}


ngx_http_zstd_mmap_slot_t *
ngx_http_zstd_mmap_find_slot(ngx_http_zstd_mmap_table_t *table,
    const zmap_version_t *version)
{
    ngx_str_t                  value;
    ngx_str_node_t            *node;
    ngx_http_zstd_mmap_key_t   key;

    ngx_http_zstd_mmap_set_key(&key, version);

    value.data = (u_char *) &key;
    value.len = sizeof(ngx_http_zstd_mmap_key_t);

    node = ngx_str_rbtree_lookup(&table->sh->rbtree, &value,
                                 ngx_murmur_hash2(value.data, value.len));

    return (ngx_http_zstd_mmap_slot_t *) node;
}


ngx_http_zstd_mmap_slot_t *
ngx_http_zstd_mmap_add_slot(ngx_http_zstd_mmap_table_t *table,
    const zmap_version_t *version)
{
    ngx_queue_t                  *q;
    ngx_http_zstd_mmap_slot_t    *slot;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    if (ngx_queue_empty(&sh->free)) {

        if (ngx_queue_empty(&sh->counted)) {
            return NULL;
        }

        q = ngx_queue_last(&sh->counted);
        slot = ngx_queue_data(q, ngx_http_zstd_mmap_slot_t, queue);

        ngx_http_zstd_mmap_free_slot(table, slot);
    }

    q = ngx_queue_head(&sh->free);
    slot = ngx_queue_data(q, ngx_http_zstd_mmap_slot_t, queue);

    ngx_http_zstd_mmap_set_key(&slot->key, version);

    slot->node.str.data = (u_char *) &slot->key;
    slot->node.str.len = sizeof(ngx_http_zstd_mmap_key_t);
    slot->node.node.key = ngx_murmur_hash2(slot->node.str.data,
                                           slot->node.str.len);
    slot->uses = 0;
    slot->retry = 0;
    slot->backoff = 0;
    slot->claimed = 0;
    slot->_state = NGX_HTTP_ZSTD_MMAP_SLOT_COUNTED;

    slot->verdict.rc = ZMAP_AGAIN;
    slot->verdict.verified = 0;

    ngx_queue_remove(q);
    ngx_queue_insert_head(&sh->counted, q);
    ngx_rbtree_insert(&sh->rbtree, &slot->node.node);

    return slot;
}


static void
ngx_http_zstd_mmap_set_key(ngx_http_zstd_mmap_key_t *key,
    const zmap_version_t *version)
{
    key->dev = version->dev;
    key->ino = version->ino;
    key->size = version->size;
    key->mtime = version->mtime;
    key->ctime = version->ctime;
    key->mtime_ns = version->mtime_ns;
    key->ctime_ns = version->ctime_ns;
}


void
ngx_http_zstd_mmap_touch_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    ngx_queue_t  *queue;

    queue = slot->data ? &table->sh->loaded : &table->sh->counted;

    ngx_queue_remove(&slot->queue);
    ngx_queue_insert_head(queue, &slot->queue);
}


ngx_int_t
ngx_http_zstd_mmap_load_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    u_char                       *data;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    if (slot->uses < slot->retry) {
        return NGX_DECLINED;
    }

    data = ngx_http_zstd_mmap_alloc_room(sh, slot->key.size);

    if (data == NULL) {
        data = ngx_http_zstd_mmap_make_room(table, slot->key.size);
    }

    if (data == NULL) {
        slot->backoff = ngx_min(slot->backoff * 2 + 1,
                                NGX_HTTP_ZSTD_MMAP_MAX_BACKOFF);
        slot->retry = slot->uses + slot->backoff;
        return NGX_DECLINED;
    }

    slot->data = data;
    slot->_state = NGX_HTTP_ZSTD_MMAP_SLOT_FILLING;
    sh->nloaded++;

    ngx_http_zstd_mmap_touch_slot(table, slot);

    return NGX_OK;
}


/*
 * Whole pages only: smaller pieces would leave pages behind that no eviction
 * of a few slots empties.  A quarter of the slots stays for counting, or files
 * that are asked for could never be told from those that are not.
 */

static u_char *
ngx_http_zstd_mmap_alloc_room(ngx_http_zstd_mmap_shared_t *sh, size_t size)
{
    if (sh->nloaded >= sh->nslots - sh->nslots / 4) {
        return NULL;
    }

    return ngx_slab_alloc_locked(sh->pool, ngx_max(size, ngx_pagesize));
}


static u_char *
ngx_http_zstd_mmap_make_room(ngx_http_zstd_mmap_table_t *table, size_t size)
{
    size_t                        freed;
    u_char                       *data;
    ngx_uint_t                    looks, evictions;
    ngx_queue_t                  *q, *prev;
    ngx_http_zstd_mmap_slot_t    *slot;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;
    freed = 0;
    evictions = 0;

    ngx_http_zstd_mmap_sweep_owners(table);

    q = ngx_queue_last(&sh->loaded);

    for (looks = 0; looks < NGX_HTTP_ZSTD_MMAP_LOOKS; looks++, q = prev) {

        if (q == ngx_queue_sentinel(&sh->loaded)
            || evictions == NGX_HTTP_ZSTD_MMAP_EVICTIONS
            || freed / NGX_HTTP_ZSTD_MMAP_EVICT_SIZE
               >= ngx_max(size, ngx_pagesize))
        {
            break;
        }

        prev = ngx_queue_prev(q);
        slot = ngx_queue_data(q, ngx_http_zstd_mmap_slot_t, queue);

        if (!ngx_http_zstd_mmap_is_unpinned(slot)) {
            continue;
        }

        freed += ngx_align(slot->key.size, ngx_pagesize);
        evictions++;

        ngx_http_zstd_mmap_evict_slot(table, slot);

        data = ngx_http_zstd_mmap_alloc_room(sh, size);
        if (data) {
            return data;
        }
    }

    return NULL;
}


static void
ngx_http_zstd_mmap_evict_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    if (ngx_http_zstd_mmap_get_slot_state(slot)
        == NGX_HTTP_ZSTD_MMAP_SLOT_READY)
    {
        ngx_http_zstd_mmap_count(evicted);
    }

    ngx_http_zstd_mmap_free_slot(table, slot);
}


void
ngx_http_zstd_mmap_free_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    if (slot->data) {
        ngx_slab_free_locked(sh->pool, slot->data);
        slot->data = NULL;
        sh->nloaded--;
    }

    slot->_state = NGX_HTTP_ZSTD_MMAP_SLOT_FREE;

    ngx_rbtree_delete(&sh->rbtree, &slot->node.node);
    ngx_queue_remove(&slot->queue);
    ngx_queue_insert_head(&sh->free, &slot->queue);
}


ngx_uint_t
ngx_http_zstd_mmap_is_unpinned(ngx_http_zstd_mmap_slot_t *slot)
{
    ngx_uint_t  i;

    /* acquire: what the last reader did with the data comes before */

    for (i = 0; i < NGX_HTTP_ZSTD_MMAP_OWNERS / 64; i++) {
        if (__atomic_load_n(&slot->_pins[i], __ATOMIC_ACQUIRE)) {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_http_zstd_mmap_pin_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    uint64_t    bit;
    ngx_uint_t  n;

    if (ngx_http_zstd_mmap_claim_owner(table) != NGX_OK) {
        return NGX_DECLINED;
    }

    n = slot - table->sh->slots;

    if (table->counts[n]++ == 0) {
        bit = (uint64_t) 1 << (table->owner % 64);
        (void) __atomic_fetch_or(&slot->_pins[table->owner / 64], bit,
                                 __ATOMIC_ACQ_REL);
    }

    return NGX_OK;
}


void
ngx_http_zstd_mmap_unpin_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    ngx_uint_t  n;

    n = slot - table->sh->slots;

    if (--table->counts[n] == 0) {
        ngx_http_zstd_mmap_clear_pin(slot, table->owner);
    }
}


static void
ngx_http_zstd_mmap_clear_pin(ngx_http_zstd_mmap_slot_t *slot,
    ngx_uint_t owner)
{
    uint64_t  bit;

    bit = (uint64_t) 1 << (owner % 64);

    (void) __atomic_fetch_and(&slot->_pins[owner / 64], ~bit,
                              __ATOMIC_ACQ_REL);
}


void
ngx_http_zstd_mmap_judge_slot(ngx_http_zstd_mmap_slot_t *slot,
    const ngx_http_zstd_mmap_verdict_t *in)
{
    ngx_http_zstd_mmap_verdict_t  *verdict;

    verdict = &slot->verdict;

    verdict->verified |= in->verified;

    if (verdict->rc != ZMAP_AGAIN && verdict->rc != ZMAP_OK) {
        return;
    }

    verdict->rc = in->rc;
    verdict->frames = in->frames;

    /* memory of the process that walked */

    verdict->frames.index = NULL;
    verdict->frames.nindex = 0;
}


ngx_int_t
ngx_http_zstd_mmap_claim_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;

    if (ngx_http_zstd_mmap_is_claimed(sh, slot)) {
        ngx_http_zstd_mmap_sweep_owners(table);
    }

    if (ngx_http_zstd_mmap_is_claimed(sh, slot)) {
        return NGX_BUSY;
    }

    if (ngx_http_zstd_mmap_claim_owner(table) != NGX_OK) {
        return NGX_DECLINED;
    }

    slot->claimed = table->owner + 1;
    slot->epoch = ngx_http_zstd_mmap_get_epoch(sh, table->owner);

    return NGX_OK;
}


void
ngx_http_zstd_mmap_unclaim_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot)
{
    if (table->counts && slot->claimed == table->owner + 1) {
        slot->claimed = 0;
    }
}


static ngx_uint_t
ngx_http_zstd_mmap_is_claimed(ngx_http_zstd_mmap_shared_t *sh,
    ngx_http_zstd_mmap_slot_t *slot)
{
    return slot->claimed
           && slot->epoch
              == ngx_http_zstd_mmap_get_epoch(sh, slot->claimed - 1);
}


void
ngx_http_zstd_mmap_end_claims(ngx_http_zstd_mmap_table_t *table)
{
    if (table->counts) {
        ngx_http_zstd_mmap_end_epoch(table->sh, table->owner);
    }
}


static uint32_t
ngx_http_zstd_mmap_get_epoch(ngx_http_zstd_mmap_shared_t *sh,
    ngx_uint_t owner)
{
    return __atomic_load_n(&sh->_epochs[owner], __ATOMIC_RELAXED);
}


static void
ngx_http_zstd_mmap_end_epoch(ngx_http_zstd_mmap_shared_t *sh,
    ngx_uint_t owner)
{
    (void) __atomic_fetch_add(&sh->_epochs[owner], 1, __ATOMIC_RELAXED);
}


ngx_http_zstd_mmap_slot_e
ngx_http_zstd_mmap_get_slot_state(ngx_http_zstd_mmap_slot_t *slot)
{
    return __atomic_load_n(&slot->_state, __ATOMIC_ACQUIRE);
}


void
ngx_http_zstd_mmap_set_slot_state(ngx_http_zstd_mmap_slot_t *slot,
    ngx_http_zstd_mmap_slot_e state)
{
    /* release: the data come before */

    __atomic_store_n(&slot->_state, state, __ATOMIC_RELEASE);
}


size_t
ngx_http_zstd_mmap_table_used(ngx_http_zstd_mmap_table_t *table)
{
    ngx_slab_pool_t  *pool;

    pool = table->sh->pool;

    return (pool->last - pool->pages - pool->pfree) << ngx_pagesize_shift;
}


size_t
ngx_http_zstd_mmap_table_room(ngx_http_zstd_mmap_table_t *table)
{
    ngx_slab_pool_t  *pool;

    pool = table->sh->pool;

    return (pool->last - pool->pages) << ngx_pagesize_shift;
}


ngx_uint_t
ngx_http_zstd_mmap_table_ready(ngx_http_zstd_mmap_table_t *table)
{
    ngx_uint_t                    i, n;
    ngx_http_zstd_mmap_shared_t  *sh;

    sh = table->sh;
    n = 0;

    for (i = 0; i < sh->nslots; i++) {
        n += (sh->slots[i]._state == NGX_HTTP_ZSTD_MMAP_SLOT_READY);
    }

    return n;
}
