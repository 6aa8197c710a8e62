
/*
 * Staging zones: their declaration, their memory and its life.
 */


#include "ngx_http_zstd_mmap_zone.h"

#include "ngx_http_zstd_mmap_conf.h"


/*
 * nginx's zone of this size only carries what is mapped from one cycle to the
 * next and has no content.
 */

#define NGX_HTTP_ZSTD_MMAP_SHM_PAGES  8

#define NGX_HTTP_ZSTD_MMAP_HUGE_MB                                            \
    ((ngx_uint_t) (ZMAP_HUGE_PAGE / (1024 * 1024)))


static ngx_http_zstd_mmap_zone_t *ngx_http_zstd_mmap_find_zone(ngx_conf_t *cf,
    ngx_str_t *name);
static ngx_int_t ngx_http_zstd_mmap_add_shm_zone(ngx_conf_t *cf,
    ngx_http_zstd_mmap_zone_t *zone);
static ngx_int_t ngx_http_zstd_mmap_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_zstd_mmap_test_zone(ngx_http_zstd_mmap_zone_t *zone,
    ngx_log_t *log);
static ngx_http_zstd_mmap_region_t *ngx_http_zstd_mmap_create_region(
    ngx_http_zstd_mmap_zone_t *zone, ngx_log_t *log);
static ngx_int_t ngx_http_zstd_mmap_reserve_region(
    ngx_http_zstd_mmap_region_t *region, ngx_http_zstd_mmap_zone_t *zone,
    ngx_log_t *log);
static void ngx_http_zstd_mmap_log_refusal(ngx_http_zstd_mmap_zone_t *zone,
    zmap_hugemem_t *memory, ngx_log_t *log);
static void ngx_http_zstd_mmap_log_pages(ngx_http_zstd_mmap_zone_t *zone,
    zmap_hugemem_t *memory, ngx_log_t *log);
static void ngx_http_zstd_mmap_leave_zone(void *data);


static char  *ngx_http_zstd_mmap_zone_modes[] = {
    "off",                             /* ZMAP_HUGE_OFF */
    "auto",                            /* ZMAP_HUGE_AUTO */
    "on"                               /* ZMAP_HUGE_ON */
};


ngx_http_zstd_mmap_zone_t *
ngx_http_zstd_mmap_add_zone(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    zmap_huge_e mode)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_zstd_mmap_zone_t  *zone;

    if (ngx_http_zstd_mmap_find_zone(cf, name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate zstd_mmap_zone \"%V\"", name);
        return NULL;
    }

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_zstd_mmap_zone_t));
    if (zone == NULL) {
        return NULL;
    }

    zone->name = *name;
    zone->size = size;
    zone->mode = mode;

    if (ngx_http_zstd_mmap_add_shm_zone(cf, zone) != NGX_OK) {
        return NULL;
    }

    cln->data = zone;
    cln->handler = ngx_http_zstd_mmap_leave_zone;

    return zone;
}


static ngx_http_zstd_mmap_zone_t *
ngx_http_zstd_mmap_find_zone(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_shm_zone_t             *shm_zone;
    ngx_list_part_t            *part;
    ngx_http_zstd_mmap_zone_t  *zone;

    part = &cf->cycle->shared_memory.part;
    shm_zone = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }
            part = part->next;
            shm_zone = part->elts;
            i = 0;
        }

        if (shm_zone[i].init != ngx_http_zstd_mmap_init_zone) {
            continue;
        }

        zone = shm_zone[i].data;

        if (zone->name.len == name->len
            && ngx_strncmp(zone->name.data, name->data, name->len) == 0)
        {
            return zone;
        }
    }

    return NULL;
}


/* another size or mode is another zone for nginx */

static ngx_int_t
ngx_http_zstd_mmap_add_shm_zone(ngx_conf_t *cf,
    ngx_http_zstd_mmap_zone_t *zone)
{
    ngx_str_t        name;
    ngx_shm_zone_t  *shm_zone;

    name.len = zone->name.len + sizeof("##auto") + NGX_SIZE_T_LEN;
    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    name.len = ngx_snprintf(name.data, name.len, "%V#%uz#%s", &zone->name,
                            zone->size,
                            ngx_http_zstd_mmap_zone_modes[zone->mode])
               - name.data;

    shm_zone = ngx_shared_memory_add(cf, &name,
                                     NGX_HTTP_ZSTD_MMAP_SHM_PAGES
                                     * ngx_pagesize,
                                     &ngx_http_zstd_mmap_module);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    shm_zone->init = ngx_http_zstd_mmap_init_zone;
    shm_zone->data = zone;

    zone->shm_zone = shm_zone;

    return NGX_OK;
}


/* what the old cycle has is not changed: the new one may still fail */

static ngx_int_t
ngx_http_zstd_mmap_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_zstd_mmap_zone_t  *old = data;

    ngx_http_zstd_mmap_zone_t  *zone;

    zone = shm_zone->data;

    if (ngx_test_config) {
        return ngx_http_zstd_mmap_test_zone(zone, shm_zone->shm.log);
    }

    if (old) {
        zone->region = old->region;
        zone->region->refs++;
        return NGX_OK;
    }

    zone->region = ngx_http_zstd_mmap_create_region(zone, shm_zone->shm.log);

    return zone->region ? NGX_OK : NGX_ERROR;
}


/*
 * A running server may hold the pages that this configuration would keep, so
 * that too few are free now is no reason to refuse it.
 */

static ngx_int_t
ngx_http_zstd_mmap_test_zone(ngx_http_zstd_mmap_zone_t *zone, ngx_log_t *log)
{
    uint64_t  needed, pages;

    if (zone->mode != ZMAP_HUGE_ON) {
        return NGX_OK;
    }

    pages = 0;
    needed = zone->size / ZMAP_HUGE_PAGE + (zone->size % ZMAP_HUGE_PAGE != 0);

    (void) zmap_hugemem_available(&pages, NULL);

    if (pages < needed) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "zstd_mmap_zone \"%V\" needs %uL huge pages of %ui MB, "
                      "%uL are free now",
                      &zone->name, needed, NGX_HTTP_ZSTD_MMAP_HUGE_MB, pages);
    }

    return NGX_OK;
}


static ngx_http_zstd_mmap_region_t *
ngx_http_zstd_mmap_create_region(ngx_http_zstd_mmap_zone_t *zone,
    ngx_log_t *log)
{
    ngx_str_t                    *name;
    ngx_http_zstd_mmap_region_t  *region;

    /* cycles come and go: neither region nor name may be of their pools */

    region = ngx_calloc(sizeof(ngx_http_zstd_mmap_region_t) + zone->name.len,
                        log);
    if (region == NULL) {
        return NULL;
    }

    name = &region->table.name;

    name->len = zone->name.len;
    name->data = (u_char *) (region + 1);
    ngx_memcpy(name->data, zone->name.data, name->len);

    region->refs = 1;

    if (ngx_http_zstd_mmap_reserve_region(region, zone, log) != NGX_OK) {
        ngx_free(region);
        return NULL;
    }

    /* pages beyond the size of the directive stay unused */

    if (ngx_http_zstd_mmap_create_table(&region->table, region->memory.base,
                                        zone->size, log)
        != NGX_OK)
    {
        zmap_hugemem_release(&region->memory);
        ngx_free(region);
        return NULL;
    }

    return region;
}


static ngx_int_t
ngx_http_zstd_mmap_reserve_region(ngx_http_zstd_mmap_region_t *region,
    ngx_http_zstd_mmap_zone_t *zone, ngx_log_t *log)
{
    zmap_rc_e  rc;

    rc = zmap_hugemem_reserve(&region->memory, zone->size, zone->mode, 1);

    if (rc != ZMAP_OK) {
        ngx_http_zstd_mmap_log_refusal(zone, &region->memory, log);
        return NGX_ERROR;
    }

    ngx_http_zstd_mmap_log_pages(zone, &region->memory, log);

    return NGX_OK;
}


static void
ngx_http_zstd_mmap_log_refusal(ngx_http_zstd_mmap_zone_t *zone,
    zmap_hugemem_t *memory, ngx_log_t *log)
{
    if (memory->missing) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "zstd_mmap_zone \"%V\" lacks %uL huge pages of %ui MB: "
                      "raise sysctl vm.nr_hugepages by %uL, or use "
                      "\"hugepages=auto\"",
                      &zone->name, memory->missing,
                      NGX_HTTP_ZSTD_MMAP_HUGE_MB, memory->missing);
        return;
    }

    if (zone->mode == ZMAP_HUGE_ON) {
        ngx_log_error(NGX_LOG_EMERG, log, memory->error,
                      "zstd_mmap_zone \"%V\" may not have huge pages of "
                      "%ui MB: a limit of a cgroup or cpuset or the kernel "
                      "forbids it",
                      &zone->name, NGX_HTTP_ZSTD_MMAP_HUGE_MB);
        return;
    }

    ngx_log_error(NGX_LOG_EMERG, log, memory->error,
                  "no memory for %uz bytes of zstd_mmap_zone \"%V\"",
                  zone->size, &zone->name);
}


static void
ngx_http_zstd_mmap_log_pages(ngx_http_zstd_mmap_zone_t *zone,
    zmap_hugemem_t *memory, ngx_log_t *log)
{
    if (zone->mode == ZMAP_HUGE_OFF || memory->pages == ZMAP_PAGES_HUGETLB) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "zstd_mmap_zone \"%V\" of %uz bytes has %s pages",
                      &zone->name, zone->size,
                      zmap_pages_name(memory->pages));
        return;
    }

    if (memory->missing) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "zstd_mmap_zone \"%V\" of %uz bytes has %s pages, since "
                      "%uL huge pages of %ui MB are missing: raise sysctl "
                      "vm.nr_hugepages by %uL",
                      &zone->name, zone->size, zmap_pages_name(memory->pages),
                      memory->missing, NGX_HTTP_ZSTD_MMAP_HUGE_MB,
                      memory->missing);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, log, memory->error,
                  "zstd_mmap_zone \"%V\" of %uz bytes has %s pages, since "
                  "the kernel gives it no huge pages of %ui MB",
                  &zone->name, zone->size, zmap_pages_name(memory->pages),
                  NGX_HTTP_ZSTD_MMAP_HUGE_MB);
}


static void
ngx_http_zstd_mmap_leave_zone(void *data)
{
    ngx_http_zstd_mmap_zone_t  *zone = data;

    ngx_http_zstd_mmap_region_t  *region;

    region = zone->region;

    if (region == NULL || --region->refs) {
        return;
    }

    ngx_http_zstd_mmap_destroy_table(&region->table);
    zmap_hugemem_release(&region->memory);
    ngx_free(region);
}


void
ngx_http_zstd_mmap_zone_status(ngx_http_zstd_mmap_zone_t *zone,
    ngx_http_zstd_mmap_zone_status_t *status)
{
    ngx_http_zstd_mmap_region_t  *region;

    ngx_memzero(status, sizeof(ngx_http_zstd_mmap_zone_status_t));

    region = zone->region;

    if (region == NULL) {
        return;
    }

    status->used = ngx_http_zstd_mmap_table_used(&region->table);
    status->segments = ngx_http_zstd_mmap_table_ready(&region->table);
    status->pages = zmap_hugemem_measure(&region->memory);
}
