
/*
 * Files copied once into a zone and served from there by every worker, and what
 * one worker found out about a file and all others need to know.
 */


#include "ngx_http_zstd_mmap_stage.h"

#include "ngx_http_zstd_mmap_stats.h"

#include "core/zmap_read.h"


static ngx_http_zstd_mmap_table_t *ngx_http_zstd_mmap_enter_zone(
    ngx_http_zstd_mmap_zone_t *zone, const zmap_version_t *version,
    ngx_log_t *log);
static ngx_http_zstd_mmap_table_t *ngx_http_zstd_mmap_lock_zone(
    ngx_http_zstd_mmap_zone_t *zone, ngx_log_t *log);
static ngx_int_t ngx_http_zstd_mmap_find_locked(
    ngx_http_zstd_mmap_table_t *table, const zmap_version_t *version,
    ngx_uint_t min_uses, ngx_http_zstd_mmap_slot_t **found);
static ngx_int_t ngx_http_zstd_mmap_reserve_locked(
    ngx_http_zstd_mmap_table_t *table, const zmap_version_t *version,
    ngx_http_zstd_mmap_slot_t **found);
static ngx_http_zstd_mmap_slot_t *ngx_http_zstd_mmap_get_slot(
    ngx_http_zstd_mmap_table_t *table, const zmap_version_t *version);
static ngx_uint_t ngx_http_zstd_mmap_is_abandoned(
    ngx_http_zstd_mmap_slot_t *slot);
static ngx_int_t ngx_http_zstd_mmap_copy_file(u_char *data,
    const zmap_version_t *version, ngx_fd_t fd, ngx_log_t *log);
static void ngx_http_zstd_mmap_discard_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot, const zmap_version_t *version,
    ngx_log_t *log);
static void ngx_http_zstd_mmap_set_segment(
    ngx_http_zstd_mmap_segment_t *segment, ngx_http_zstd_mmap_zone_t *zone,
    ngx_http_zstd_mmap_slot_t *slot);
static ngx_http_zstd_mmap_table_t *ngx_http_zstd_mmap_lock_claims(
    ngx_http_zstd_mmap_zone_t *zone, ngx_log_t *log);
static ngx_int_t ngx_http_zstd_mmap_claim_locked(
    ngx_http_zstd_mmap_table_t *table, const zmap_version_t *version);


ngx_int_t
ngx_http_zstd_mmap_find_segment(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_uint_t min_uses,
    ngx_http_zstd_mmap_segment_t *segment, ngx_log_t *log)
{
    ngx_int_t                    rc;
    ngx_http_zstd_mmap_slot_t   *slot;
    ngx_http_zstd_mmap_table_t  *table;

    table = ngx_http_zstd_mmap_enter_zone(zone, version, log);
    if (table == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_zstd_mmap_find_locked(table, version, min_uses, &slot);

    ngx_http_zstd_mmap_unlock_table(table);

    if (rc == NGX_OK) {
        ngx_http_zstd_mmap_set_segment(segment, zone, slot);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: find in zone \"%V\": %i", &zone->name, rc);

    return rc;
}


/* the locked table of a zone in which that version may have a slot, or NULL */

static ngx_http_zstd_mmap_table_t *
ngx_http_zstd_mmap_enter_zone(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_log_t *log)
{
    if (zone->region == NULL
        || version->size == 0
        || version->size > ngx_http_zstd_mmap_table_room(&zone->region->table))
    {
        return NULL;
    }

    return ngx_http_zstd_mmap_lock_zone(zone, log);
}


static ngx_http_zstd_mmap_table_t *
ngx_http_zstd_mmap_lock_zone(ngx_http_zstd_mmap_zone_t *zone, ngx_log_t *log)
{
    ngx_http_zstd_mmap_table_t  *table;

    if (zone->region == NULL) {
        return NULL;
    }

    table = &zone->region->table;

    return (ngx_http_zstd_mmap_lock_table(table, log) == NGX_OK) ? table
                                                                 : NULL;
}


static ngx_int_t
ngx_http_zstd_mmap_find_locked(ngx_http_zstd_mmap_table_t *table,
    const zmap_version_t *version, ngx_uint_t min_uses,
    ngx_http_zstd_mmap_slot_t **found)
{
    ngx_http_zstd_mmap_slot_t  *slot;

    slot = ngx_http_zstd_mmap_get_slot(table, version);
    if (slot == NULL) {
        return NGX_DECLINED;
    }

    slot->uses++;
    ngx_http_zstd_mmap_touch_slot(table, slot);

    *found = slot;

    switch (ngx_http_zstd_mmap_get_slot_state(slot)) {

    case NGX_HTTP_ZSTD_MMAP_SLOT_READY:
        return ngx_http_zstd_mmap_pin_slot(table, slot);

    case NGX_HTTP_ZSTD_MMAP_SLOT_COUNTED:

        if (slot->uses < min_uses || slot->uses < slot->retry
            || ngx_http_zstd_mmap_is_racy(version))
        {
            return NGX_DECLINED;
        }

        return NGX_AGAIN;

    default:
        return NGX_DECLINED;
    }
}


ngx_int_t
ngx_http_zstd_mmap_fill_segment(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_fd_t fd,
    ngx_http_zstd_mmap_segment_t *segment, ngx_log_t *log)
{
    ngx_int_t                    rc;
    ngx_http_zstd_mmap_slot_t   *slot;
    ngx_http_zstd_mmap_table_t  *table;

    table = ngx_http_zstd_mmap_enter_zone(zone, version, log);
    if (table == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_zstd_mmap_reserve_locked(table, version, &slot);

    ngx_http_zstd_mmap_unlock_table(table);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: room in zone \"%V\": %i", &zone->name, rc);

    if (rc == NGX_DECLINED) {
        return NGX_DECLINED;
    }

    if (rc == NGX_AGAIN) {

        if (ngx_http_zstd_mmap_copy_file(slot->data, version, fd, log)
            != NGX_OK)
        {
            ngx_http_zstd_mmap_discard_slot(table, slot, version, log);
            return NGX_DECLINED;
        }

        ngx_http_zstd_mmap_set_slot_state(slot,
                                          NGX_HTTP_ZSTD_MMAP_SLOT_READY);
        ngx_http_zstd_mmap_count(staged);
    }

    ngx_http_zstd_mmap_set_segment(segment, zone, slot);

    return NGX_OK;
}


/*
 * NGX_OK: ready and pinned.  NGX_AGAIN: pinned, to be filled by the caller.
 */

static ngx_int_t
ngx_http_zstd_mmap_reserve_locked(ngx_http_zstd_mmap_table_t *table,
    const zmap_version_t *version, ngx_http_zstd_mmap_slot_t **found)
{
    ngx_http_zstd_mmap_slot_t  *slot;
    ngx_http_zstd_mmap_slot_e   state;

    slot = ngx_http_zstd_mmap_get_slot(table, version);
    if (slot == NULL) {
        return NGX_DECLINED;
    }

    *found = slot;

    state = ngx_http_zstd_mmap_get_slot_state(slot);

    if (state == NGX_HTTP_ZSTD_MMAP_SLOT_READY) {
        return ngx_http_zstd_mmap_pin_slot(table, slot);
    }

    if (state != NGX_HTTP_ZSTD_MMAP_SLOT_COUNTED) {
        return NGX_DECLINED;
    }

    if (ngx_http_zstd_mmap_pin_slot(table, slot) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (ngx_http_zstd_mmap_load_slot(table, slot) != NGX_OK) {
        ngx_http_zstd_mmap_unpin_slot(table, slot);
        return NGX_DECLINED;
    }

    return NGX_AGAIN;
}


/* a slot in which the copy failed, or whose filler has died, starts anew */

static ngx_http_zstd_mmap_slot_t *
ngx_http_zstd_mmap_get_slot(ngx_http_zstd_mmap_table_t *table,
    const zmap_version_t *version)
{
    ngx_http_zstd_mmap_slot_t  *slot;

    slot = ngx_http_zstd_mmap_find_slot(table, version);

    if (slot == NULL) {
        return ngx_http_zstd_mmap_add_slot(table, version);
    }

    if (ngx_http_zstd_mmap_get_slot_state(slot)
        == NGX_HTTP_ZSTD_MMAP_SLOT_FILLING)
    {
        ngx_http_zstd_mmap_sweep_owners(table);
    }

    if (!ngx_http_zstd_mmap_is_abandoned(slot)) {
        return slot;
    }

    ngx_http_zstd_mmap_free_slot(table, slot);

    return ngx_http_zstd_mmap_add_slot(table, version);
}


/*
 * The pins are read before the state: a filler stores the state first and
 * takes its pin back later.
 */

static ngx_uint_t
ngx_http_zstd_mmap_is_abandoned(ngx_http_zstd_mmap_slot_t *slot)
{
    ngx_http_zstd_mmap_slot_e  state;

    if (!ngx_http_zstd_mmap_is_unpinned(slot)) {
        return 0;
    }

    state = ngx_http_zstd_mmap_get_slot_state(slot);

    return state == NGX_HTTP_ZSTD_MMAP_SLOT_FILLING
           || state == NGX_HTTP_ZSTD_MMAP_SLOT_FAILED;
}


/*
 * Room is given out in whole pages, so the last read may ask for all of the
 * last one: O_DIRECT wants aligned lengths.
 */

static ngx_int_t
ngx_http_zstd_mmap_copy_file(u_char *data, const zmap_version_t *version,
    ngx_fd_t fd, ngx_log_t *log)
{
    zmap_rc_e  rc;

    rc = zmap_read(fd, data, ngx_align(version->size, ngx_pagesize),
                   version->size, 0);

    if (rc == ZMAP_SYSERR) {
        ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                      "pread() of a file to be staged failed");
        return NGX_ERROR;
    }

    if (rc != ZMAP_OK || zmap_version_check(version, fd) != ZMAP_OK) {
        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, log, 0,
                       "zstd mmap: file changed while it was staged");
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_zstd_mmap_discard_slot(ngx_http_zstd_mmap_table_t *table,
    ngx_http_zstd_mmap_slot_t *slot, const zmap_version_t *version,
    ngx_log_t *log)
{
    ngx_http_zstd_mmap_set_slot_state(slot, NGX_HTTP_ZSTD_MMAP_SLOT_FAILED);
    ngx_http_zstd_mmap_unpin_slot(table, slot);

    /*
     * Without the pin the slot may be another's now.  If the table is busy,
     * whoever meets the failed slot frees it.
     */

    if (ngx_http_zstd_mmap_lock_table(table, log) != NGX_OK) {
        return;
    }

    slot = ngx_http_zstd_mmap_find_slot(table, version);

    if (slot && ngx_http_zstd_mmap_is_abandoned(slot)) {
        ngx_http_zstd_mmap_free_slot(table, slot);
    }

    ngx_http_zstd_mmap_unlock_table(table);
}


void
ngx_http_zstd_mmap_release_segment(ngx_http_zstd_mmap_segment_t *segment)
{
    ngx_http_zstd_mmap_table_t  *table;

    if (segment->data == NULL) {
        return;
    }

    table = &segment->zone->region->table;

    ngx_http_zstd_mmap_unpin_slot(table, &table->sh->slots[segment->slot]);

    segment->data = NULL;
}


void
ngx_http_zstd_mmap_hold_segment(ngx_http_zstd_mmap_segment_t *to,
    const ngx_http_zstd_mmap_segment_t *from)
{
    ngx_http_zstd_mmap_table_t  *table;

    table = &from->zone->region->table;

    /* a process that has a pin has its owner entry */

    (void) ngx_http_zstd_mmap_pin_slot(table,
                                       &table->sh->slots[from->slot]);
    *to = *from;
}


ngx_int_t
ngx_http_zstd_mmap_get_verdict(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_http_zstd_mmap_verdict_t *out,
    ngx_log_t *log)
{
    ngx_int_t                    rc;
    ngx_http_zstd_mmap_slot_t   *slot;
    ngx_http_zstd_mmap_table_t  *table;

    if (ngx_http_zstd_mmap_is_racy(version)) {
        return NGX_DECLINED;
    }

    table = ngx_http_zstd_mmap_lock_zone(zone, log);
    if (table == NULL) {
        return NGX_DECLINED;
    }

    rc = NGX_DECLINED;
    slot = ngx_http_zstd_mmap_find_slot(table, version);

    if (slot && slot->verdict.rc != ZMAP_AGAIN) {
        *out = slot->verdict;
        ngx_http_zstd_mmap_touch_slot(table, slot);
        rc = NGX_OK;
    }

    ngx_http_zstd_mmap_unlock_table(table);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: verdict in zone \"%V\": %i", &zone->name, rc);

    return rc;
}


void
ngx_http_zstd_mmap_put_verdict(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, const ngx_http_zstd_mmap_verdict_t *in,
    ngx_log_t *log)
{
    ngx_http_zstd_mmap_slot_t   *slot;
    ngx_http_zstd_mmap_table_t  *table;

    table = ngx_http_zstd_mmap_lock_claims(zone, log);
    if (table == NULL) {
        return;
    }

    slot = ngx_http_zstd_mmap_get_slot(table, version);

    if (slot) {
        ngx_http_zstd_mmap_touch_slot(table, slot);
        ngx_http_zstd_mmap_unclaim_slot(table, slot);

        if (!ngx_http_zstd_mmap_is_racy(version)) {
            ngx_http_zstd_mmap_judge_slot(slot, in);
        }
    }

    ngx_http_zstd_mmap_unlock_table(table);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: verdict rc:%d put into zone \"%V\": %p",
                   in->rc, &zone->name, slot);
}


ngx_int_t
ngx_http_zstd_mmap_claim_verify(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_log_t *log)
{
    ngx_int_t                    rc;
    ngx_http_zstd_mmap_table_t  *table;

    if (ngx_http_zstd_mmap_is_racy(version)) {
        return NGX_DECLINED;
    }

    table = ngx_http_zstd_mmap_lock_zone(zone, log);
    if (table == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_zstd_mmap_claim_locked(table, version);

    ngx_http_zstd_mmap_unlock_table(table);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                   "zstd mmap: claim in zone \"%V\": %i", &zone->name, rc);

    return rc;
}


static ngx_int_t
ngx_http_zstd_mmap_claim_locked(ngx_http_zstd_mmap_table_t *table,
    const zmap_version_t *version)
{
    ngx_http_zstd_mmap_slot_t     *slot;
    ngx_http_zstd_mmap_verdict_t  *verdict;

    slot = ngx_http_zstd_mmap_get_slot(table, version);
    if (slot == NULL) {
        return NGX_DECLINED;
    }

    ngx_http_zstd_mmap_touch_slot(table, slot);

    verdict = &slot->verdict;

    if (verdict->rc != ZMAP_AGAIN
        && (verdict->rc != ZMAP_OK || verdict->verified))
    {
        return NGX_BUSY;
    }

    return ngx_http_zstd_mmap_claim_slot(table, slot);
}


void
ngx_http_zstd_mmap_release_verify(ngx_http_zstd_mmap_zone_t *zone,
    const zmap_version_t *version, ngx_log_t *log)
{
    ngx_http_zstd_mmap_slot_t   *slot;
    ngx_http_zstd_mmap_table_t  *table;

    table = ngx_http_zstd_mmap_lock_claims(zone, log);
    if (table == NULL) {
        return;
    }

    slot = ngx_http_zstd_mmap_find_slot(table, version);

    if (slot) {
        ngx_http_zstd_mmap_unclaim_slot(table, slot);
    }

    ngx_http_zstd_mmap_unlock_table(table);
}


/*
 * A claim that cannot be ended alone must not bar the others for the life of
 * this process: then all of its claims end.
 */

static ngx_http_zstd_mmap_table_t *
ngx_http_zstd_mmap_lock_claims(ngx_http_zstd_mmap_zone_t *zone,
    ngx_log_t *log)
{
    ngx_http_zstd_mmap_table_t  *table;

    table = ngx_http_zstd_mmap_lock_zone(zone, log);

    if (table == NULL && zone->region) {
        ngx_http_zstd_mmap_end_claims(&zone->region->table);
    }

    return table;
}


ngx_uint_t
ngx_http_zstd_mmap_is_racy(const zmap_version_t *version)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return zmap_version_racy(version, tp->sec, tp->msec * 1000000);
}


static void
ngx_http_zstd_mmap_set_segment(ngx_http_zstd_mmap_segment_t *segment,
    ngx_http_zstd_mmap_zone_t *zone, ngx_http_zstd_mmap_slot_t *slot)
{
    segment->data = slot->data;
    segment->size = slot->key.size;
    segment->zone = zone;
    segment->slot = slot - zone->region->table.sh->slots;
}
