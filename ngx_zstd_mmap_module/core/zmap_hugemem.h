
/*
 * One region of memory in the largest pages that can be had.
 *
 * hugetlb pages from the pool of the machine, else transparent huge pages
 * where the kernel's settings allow them, else plain pages.
 */


#ifndef ZMAP_HUGEMEM_H
#define ZMAP_HUGEMEM_H


#include "zmap_base.h"


ZMAP_BEGIN


/*
 * Always this size, whatever the default of the machine is: then a region of
 * a few MiB does not cost a page of 1 GiB.
 */

#define ZMAP_HUGE_PAGE  ((size_t) 2 * 1024 * 1024)


typedef enum {
    ZMAP_PAGES_PLAIN = 0,
    ZMAP_PAGES_THP,
    ZMAP_PAGES_HUGETLB
} zmap_pages_e;


typedef enum {
    ZMAP_HUGE_OFF = 0,         /* no hugetlb page, but transparent ones */
    ZMAP_HUGE_AUTO,            /* hugetlb, else as ZMAP_HUGE_OFF */
    ZMAP_HUGE_ON               /* hugetlb or nothing */
} zmap_huge_e;


/*
 * Errors are those of the system call that refused, and three that need words:
 *
 * EFAULT  the pool has the pages, but a cgroup, a cpuset or a memory policy
 *         keeps this process from them (error)
 * EPERM   the kernel gives no transparent huge page to this mapping: its
 *         settings or a prctl(2) exclude that, or it is too small (thp_error)
 * ENOMEM  with missing == 0: the pool has the pages, but RLIMIT_AS or a cgroup
 *         does not let this process have them (error)
 */

typedef struct {
    uint8_t       *base;       /* aligned to ZMAP_HUGE_PAGE; NULL when empty */
    size_t         size;       /* bytes */

    /* hugetlb: it has them; THP: it gets them when it is written to */
    zmap_pages_e   pages;

    int            error;      /* why not the best kind asked for, or 0 */
    int            thp_error;  /* why not THP, or 0; set for plain pages only */
    uint64_t       missing;    /* hugetlb pages that the pool lacked */

    uint8_t       *_mapping;
    size_t         _mapped;    /* bytes */
} zmap_hugemem_t;


/*
 * Maps at least size bytes of zeros for reading and writing: a multiple of
 * ZMAP_HUGE_PAGE in hugetlb pages, else of the page size.  The caller owns
 * them and gives them to zmap_hugemem_release().
 *
 * A hugetlb region is populated, since a later fault could be a SIGBUS; other
 * regions take memory when they are first written to.  shared nonzero: child
 * processes see the same memory.  shared 0: it is not in child processes.
 *
 * ZMAP_OK; ZMAP_OVERFLOW for a size of 0 or near SIZE_MAX; ZMAP_NOMEM, for
 * ZMAP_HUGE_ON also when there is memory but no hugetlb page.  In any failure
 * the region is empty; error and missing say why.
 */
zmap_rc_e zmap_hugemem_reserve(zmap_hugemem_t *mem, size_t size,
    zmap_huge_e want, int shared);

/* unmaps the region and empties it; an empty one is left alone */
void zmap_hugemem_release(zmap_hugemem_t *mem);

/*
 * The kind of pages that this process has in the region now: THP when half of
 * its bytes in memory or more are huge.  With no byte in memory, the kind that
 * it would get; mem->pages when the kernel does not tell.
 *
 * Costs a walk over all mappings of the process.
 */
zmap_pages_e zmap_hugemem_measure(const zmap_hugemem_t *mem);

/*
 * The hugetlb pages of ZMAP_HUGE_PAGE bytes that can be claimed: those of the
 * pool that are free and promised to nobody, and as many as the kernel may
 * still add (vm.nr_overcommit_hugepages), for which memory may be missing.
 * page_size may be NULL.  ZMAP_OK or ZMAP_SYSERR, when the kernel does not
 * tell or has no such pages.
 */
zmap_rc_e zmap_hugemem_available(uint64_t *pages, size_t *page_size);

/* "hugetlb", "thp" or "plain" */
const char *zmap_pages_name(zmap_pages_e pages);


ZMAP_END


#endif /* ZMAP_HUGEMEM_H */
