
/*
 * Maps memory in huge pages, or in the next best ones.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "zmap_hugemem.h"
#include "zmap_smaps.h"


/* log2 of the size, as in linux/mman.h */

#define ZMAP_MAP_HUGE_2MB  (21 << MAP_HUGE_SHIFT)

#define ZMAP_HUGEMEM_SYSFS                                                    \
    "/sys/kernel/mm/hugepages/hugepages-2048kB/%s_hugepages"

#define zmap_round_up(size, unit)                                             \
    (((size) + (unit) - 1) / (unit) * (unit))


static zmap_rc_e zmap_hugemem_hugetlb(zmap_hugemem_t *mem, size_t size,
    int flags);
static uint64_t zmap_hugemem_missing(uint64_t pages);
static zmap_rc_e zmap_hugemem_pages(zmap_hugemem_t *mem, size_t size,
    int flags);
static void *zmap_hugemem_aligned(zmap_hugemem_t *mem, size_t size,
    int flags);
static int zmap_hugemem_thp(const zmap_hugemem_t *mem);
static zmap_rc_e zmap_hugemem_unused(uint64_t *pages);
static zmap_rc_e zmap_hugemem_surplus(uint64_t *pages);
static zmap_rc_e zmap_hugemem_counter(uint64_t *value, const char *name);


zmap_rc_e
zmap_hugemem_reserve(zmap_hugemem_t *mem, size_t size, zmap_huge_e want,
    int shared)
{
    int        flags;
    zmap_rc_e  rc;

    memset(mem, 0, sizeof(zmap_hugemem_t));

    if (size == 0 || size > SIZE_MAX - 3 * ZMAP_HUGE_PAGE) {
        mem->error = EOVERFLOW;
        return ZMAP_OVERFLOW;
    }

    flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
    rc = ZMAP_NOMEM;

    if (want != ZMAP_HUGE_OFF) {
        rc = zmap_hugemem_hugetlb(mem, size, flags);
    }

    if (rc != ZMAP_OK && want != ZMAP_HUGE_ON) {
        rc = zmap_hugemem_pages(mem, size, flags);
    }

    /*
     * A write to a private hugetlb page after fork(2) needs a second page; with
     * none free the child loses its one, and gets a SIGBUS:
     * unmap_ref_private() in mm/hugetlb.c.
     */

    if (rc == ZMAP_OK && !shared) {
        (void) madvise(mem->base, mem->size, MADV_DONTFORK);
    }

    return rc;
}


void
zmap_hugemem_release(zmap_hugemem_t *mem)
{
    if (mem->_mapping != NULL) {
        (void) munmap(mem->_mapping, mem->_mapped);
    }

    memset(mem, 0, sizeof(zmap_hugemem_t));
}


zmap_pages_e
zmap_hugemem_measure(const zmap_hugemem_t *mem)
{
    zmap_smaps_t  smaps;

    if (mem->base == NULL) {
        return ZMAP_PAGES_PLAIN;
    }

    if (zmap_smaps_read(&smaps, mem->base, mem->size) != ZMAP_OK) {
        return mem->pages;
    }

    if (smaps.hugetlb) {
        return ZMAP_PAGES_HUGETLB;
    }

    if (smaps.rss == 0) {
        return smaps.eligible ? ZMAP_PAGES_THP : ZMAP_PAGES_PLAIN;
    }

    return smaps.thp >= smaps.rss / 2 ? ZMAP_PAGES_THP : ZMAP_PAGES_PLAIN;
}


zmap_rc_e
zmap_hugemem_available(uint64_t *pages, size_t *page_size)
{
    uint64_t  unused, surplus;

    if (zmap_hugemem_unused(&unused) != ZMAP_OK
        || zmap_hugemem_surplus(&surplus) != ZMAP_OK)
    {
        return ZMAP_SYSERR;
    }

    *pages = unused + surplus;

    if (page_size != NULL) {
        *page_size = ZMAP_HUGE_PAGE;
    }

    return ZMAP_OK;
}


const char *
zmap_pages_name(zmap_pages_e pages)
{
    switch (pages) {

    case ZMAP_PAGES_HUGETLB:
        return "hugetlb";

    case ZMAP_PAGES_THP:
        return "thp";

    default:
        return "plain";
    }
}


/*
 * Without MAP_NORESERVE a pool that is too small shows here.  What a cgroup, a
 * cpuset or a memory policy withholds shows only when a page is touched, and
 * then as SIGBUS, or as the error of MADV_POPULATE_WRITE.
 */

static zmap_rc_e
zmap_hugemem_hugetlb(zmap_hugemem_t *mem, size_t size, int flags)
{
    void  *base;

    size = zmap_round_up(size, ZMAP_HUGE_PAGE);

    base = mmap(NULL, size, PROT_READ|PROT_WRITE,
                flags|MAP_HUGETLB|ZMAP_MAP_HUGE_2MB, -1, 0);

    if (base == MAP_FAILED) {
        mem->error = errno;

        if (mem->error == ENOMEM) {
            mem->missing = zmap_hugemem_missing(size / ZMAP_HUGE_PAGE);
        }

        return ZMAP_NOMEM;
    }

    if (madvise(base, size, MADV_POPULATE_WRITE) == -1) {
        mem->error = errno;
        (void) munmap(base, size);

        return ZMAP_NOMEM;
    }

    mem->base = base;
    mem->size = size;
    mem->pages = ZMAP_PAGES_HUGETLB;
    mem->_mapping = base;
    mem->_mapped = size;

    return ZMAP_OK;
}


/* the kernel was not able to add pages: only those of the pool count */

static uint64_t
zmap_hugemem_missing(uint64_t pages)
{
    uint64_t  unused;

    if (zmap_hugemem_unused(&unused) != ZMAP_OK) {
        return pages;
    }

    return pages > unused ? pages - unused : 0;
}


static zmap_rc_e
zmap_hugemem_pages(zmap_hugemem_t *mem, size_t size, int flags)
{
    void    *base;
    size_t   page;

    page = (size_t) sysconf(_SC_PAGESIZE);
    size = zmap_round_up(size, page);

    base = zmap_hugemem_aligned(mem, size, flags);

    if (base == NULL) {
        mem->error = errno;
        return ZMAP_NOMEM;
    }

    mem->base = base;
    mem->size = size;
    mem->thp_error = zmap_hugemem_thp(mem);
    mem->pages = mem->thp_error ? ZMAP_PAGES_PLAIN : ZMAP_PAGES_THP;

    if (mem->error == 0) {
        mem->error = mem->thp_error;
    }

    return ZMAP_OK;
}


/*
 * A transparent huge page needs its 2 MiB of addresses aligned, and those of
 * shared memory its offset as well: a mapping that is cut to an aligned
 * address would not do.  The addresses around the region stay taken, so that
 * the kernel merges it with no other mapping and smaps tells of it alone.
 */

static void *
zmap_hugemem_aligned(zmap_hugemem_t *mem, size_t size, int flags)
{
    int       err;
    size_t    mapped;
    uint8_t  *base, *mapping;

    mapped = size + 2 * ZMAP_HUGE_PAGE;

    mapping = mmap(NULL, mapped, PROT_NONE,
                   MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        return NULL;
    }

    base = mapping + ZMAP_HUGE_PAGE - (uintptr_t) mapping % ZMAP_HUGE_PAGE;

    if (mmap(base, size, PROT_READ|PROT_WRITE, flags|MAP_FIXED, -1, 0)
        == MAP_FAILED)
    {
        err = errno;
        (void) munmap(mapping, mapped);
        errno = err;

        return NULL;
    }

    mem->_mapping = mapping;
    mem->_mapped = mapped;

    return base;
}


/*
 * madvise(2) succeeds also where the settings, shmem_enabled above all, leave
 * nothing to give.
 */

static int
zmap_hugemem_thp(const zmap_hugemem_t *mem)
{
    zmap_smaps_t  smaps;

    if (madvise(mem->base, mem->size, MADV_HUGEPAGE) == -1) {
        return errno;
    }

    if (zmap_smaps_read(&smaps, mem->base, mem->size) != ZMAP_OK) {
        return errno;
    }

    return smaps.eligible ? 0 : EPERM;
}


/* pages that a mapping reserved and nobody touched count as free, too */

static zmap_rc_e
zmap_hugemem_unused(uint64_t *pages)
{
    uint64_t  unused, reserved;

    if (zmap_hugemem_counter(&unused, "free") != ZMAP_OK
        || zmap_hugemem_counter(&reserved, "resv") != ZMAP_OK)
    {
        return ZMAP_SYSERR;
    }

    *pages = unused > reserved ? unused - reserved : 0;

    return ZMAP_OK;
}


static zmap_rc_e
zmap_hugemem_surplus(uint64_t *pages)
{
    uint64_t  allowed, added;

    if (zmap_hugemem_counter(&allowed, "nr_overcommit") != ZMAP_OK
        || zmap_hugemem_counter(&added, "surplus") != ZMAP_OK)
    {
        return ZMAP_SYSERR;
    }

    *pages = allowed > added ? allowed - added : 0;

    return ZMAP_OK;
}


static zmap_rc_e
zmap_hugemem_counter(uint64_t *value, const char *name)
{
    int    n;
    char   path[sizeof(ZMAP_HUGEMEM_SYSFS) + 16];
    FILE  *file;

    (void) snprintf(path, sizeof(path), ZMAP_HUGEMEM_SYSFS, name);

    file = fopen(path, "re");
    if (file == NULL) {
        return ZMAP_SYSERR;
    }

    n = fscanf(file, "%" SCNu64, value);

    (void) fclose(file);

    if (n != 1) {
        errno = EIO;
        return ZMAP_SYSERR;
    }

    return ZMAP_OK;
}
