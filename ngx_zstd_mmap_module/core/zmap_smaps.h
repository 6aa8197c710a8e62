
/*
 * What /proc/self/smaps says of a range of addresses.
 */


#ifndef ZMAP_SMAPS_H
#define ZMAP_SMAPS_H


#include "zmap_base.h"


ZMAP_BEGIN


/* of all mappings that overlap the range */

typedef struct {
    uint64_t  rss;             /* bytes in memory, without hugetlb pages */
    uint64_t  thp;             /* of them, in transparent huge pages */
    unsigned  hugetlb:1;       /* one has hugetlb pages, and no others */
    unsigned  eligible:1;      /* one may be given transparent huge pages */
} zmap_smaps_t;


/* ZMAP_OK; ZMAP_SYSERR, with ENOENT also when nothing is mapped there */
zmap_rc_e zmap_smaps_read(zmap_smaps_t *smaps, const void *base, size_t size);


ZMAP_END


#endif /* ZMAP_SMAPS_H */
