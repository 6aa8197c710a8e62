
/*
 * Reads the mappings of a range of addresses from /proc/self/smaps.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "zmap_smaps.h"


/* what is longer is the name of a mapped file */

#define ZMAP_SMAPS_LINE  256


typedef struct {
    uintptr_t     lo;
    uintptr_t     hi;
    size_t        found;       /* mappings that overlap the range */
    unsigned      inside:1;    /* the lines at hand are of such a one */
    zmap_smaps_t  smaps;
} zmap_smaps_scan_t;


static zmap_rc_e zmap_smaps_scan(zmap_smaps_scan_t *scan, FILE *file);
static int zmap_smaps_line(char *line, FILE *file);
static int zmap_smaps_take(zmap_smaps_scan_t *scan, const char *line);
static void zmap_smaps_field(zmap_smaps_t *smaps, const char *line);
static uint64_t zmap_smaps_bytes(const char *line, const char *name);


zmap_rc_e
zmap_smaps_read(zmap_smaps_t *smaps, const void *base, size_t size)
{
    int                 err;
    FILE               *file;
    zmap_rc_e           rc;
    zmap_smaps_scan_t   scan;

    file = fopen("/proc/self/smaps", "re");
    if (file == NULL) {
        return ZMAP_SYSERR;
    }

    memset(&scan, 0, sizeof(zmap_smaps_scan_t));
    scan.lo = (uintptr_t) base;
    scan.hi = (uintptr_t) base + size;

    rc = zmap_smaps_scan(&scan, file);

    err = errno;
    (void) fclose(file);
    errno = err;

    if (rc == ZMAP_OK) {
        *smaps = scan.smaps;
    }

    return rc;
}


static zmap_rc_e
zmap_smaps_scan(zmap_smaps_scan_t *scan, FILE *file)
{
    char  line[ZMAP_SMAPS_LINE];

    while (zmap_smaps_line(line, file)) {

        if (!zmap_smaps_take(scan, line)) {
            break;
        }
    }

    if (ferror(file)) {
        return ZMAP_SYSERR;
    }

    if (scan->found == 0) {
        errno = ENOENT;
        return ZMAP_SYSERR;
    }

    return ZMAP_OK;
}


/* the rest of a longer line is dropped: it must not look like a line */

static int
zmap_smaps_line(char *line, FILE *file)
{
    int  c;

    if (fgets(line, ZMAP_SMAPS_LINE, file) == NULL) {
        return 0;
    }

    if (strchr(line, '\n') != NULL) {
        return 1;
    }

    do {
        c = getc(file);
    } while (c != '\n' && c != EOF);

    return 1;
}


/* 0 when the mappings that follow lie behind the range */

static int
zmap_smaps_take(zmap_smaps_scan_t *scan, const char *line)
{
    uintptr_t  first, last;

    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &last) != 2) {

        if (scan->inside) {
            zmap_smaps_field(&scan->smaps, line);
        }

        return 1;
    }

    if (first >= scan->hi) {
        return 0;
    }

    scan->inside = last > scan->lo;
    scan->found += scan->inside;

    return 1;
}


static void
zmap_smaps_field(zmap_smaps_t *smaps, const char *line)
{
    int  eligible;

    smaps->rss += zmap_smaps_bytes(line, "Rss:");
    smaps->thp += zmap_smaps_bytes(line, "AnonHugePages:");
    smaps->thp += zmap_smaps_bytes(line, "ShmemPmdMapped:");
    smaps->thp += zmap_smaps_bytes(line, "FilePmdMapped:");

    if (sscanf(line, "THPeligible: %d", &eligible) == 1 && eligible) {
        smaps->eligible = 1;
    }

    /* a process that has touched none of them yet has the flag, too */

    if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " ht ") != NULL) {
        smaps->hugetlb = 1;
    }
}


static uint64_t
zmap_smaps_bytes(const char *line, const char *name)
{
    size_t    len;
    uint64_t  kb;

    len = strlen(name);

    if (strncmp(line, name, len) != 0
        || sscanf(line + len, "%" SCNu64 " kB", &kb) != 1)
    {
        return 0;
    }

    return kb * 1024;
}
