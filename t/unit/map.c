
/*
 * File versions and mappings, and the copy where a file cannot be mapped.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zmap_hugemem.h"
#include "zmap_map.h"
#include "zmap_smaps.h"


#define BIG  (32 * 1024 * 1024)


const char *__asan_default_options(void);

/* malloc() fails with NULL under the sanitizer, too */

const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}


/* system calls of the program under test, made to fail on demand */

static int     mmap_errno;
static int     mmap_calls;
static int     pread_errno;       /* after pread_good calls */
static int     pread_good;
static int     pread_eintr;       /* calls that are interrupted first */
static size_t  pread_max;         /* most bytes a call gives, 0: any */
static int     pread_calls;
static int     anon_errno;        /* of mmap(2) without a file */
static int     madvise_errno;
static int     madvise_advice;    /* of the last call */
static int     madvise_calls;
static size_t  mapped;            /* bytes, whole pages */

static const char  *smaps_text;   /* instead of the kernel's */


static size_t
whole_pages(size_t len)
{
    size_t  page;

    page = (size_t) sysconf(_SC_PAGESIZE);

    return (len + page - 1) / page * page;
}


void *
mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    void  *data;

    mmap_calls++;

    if (fd == -1 ? anon_errno : mmap_errno) {
        errno = fd == -1 ? anon_errno : mmap_errno;
        return MAP_FAILED;
    }

    data = (void *) syscall(SYS_mmap, addr, len, prot, flags, fd, offset);

    if (data != MAP_FAILED) {
        mapped += whole_pages(len);
    }

    return data;
}


int
munmap(void *addr, size_t len)
{
    mapped -= whole_pages(len);

    return (int) syscall(SYS_munmap, addr, len);
}


int
madvise(void *addr, size_t len, int advice)
{
    madvise_calls++;
    madvise_advice = advice;

    if (madvise_errno) {
        errno = madvise_errno;
        return -1;
    }

    return (int) syscall(SYS_madvise, addr, len, advice);
}


/* the way that the smaps of the process are opened */

FILE *
fopen(const char *path, const char *mode)
{
    int  fd;

    if (smaps_text != NULL) {
        return fmemopen((void *) smaps_text, strlen(smaps_text) + 1, "r");
    }

    fd = open(path, O_RDONLY|O_CLOEXEC);

    return fd == -1 ? NULL : fdopen(fd, mode);
}


ssize_t
pread(int fd, void *data, size_t size, off_t offset)
{
    pread_calls++;

    if (pread_eintr > 0) {
        pread_eintr--;
        errno = EINTR;
        return -1;
    }

    if (pread_errno && pread_good-- <= 0) {
        errno = pread_errno;
        return -1;
    }

    if (pread_max && size > pread_max) {
        size = pread_max;
    }

    return syscall(SYS_pread64, fd, data, size, offset);
}


static int
no_faults(void **state)
{
    (void) state;

    mmap_errno = 0;
    mmap_calls = 0;
    anon_errno = 0;
    madvise_errno = 0;
    madvise_advice = -1;
    madvise_calls = 0;
    mapped = 0;
    smaps_text = NULL;
    pread_errno = 0;
    pread_good = 0;
    pread_eintr = 0;
    pread_max = 0;
    pread_calls = 0;

    return 0;
}


static int
file(const void *data, size_t size)
{
    int  fd;

    fd = memfd_create("map", MFD_CLOEXEC);

    assert_true(fd != -1);
    assert_int_equal(write(fd, data, size), size);

    return fd;
}


static zmap_rc_e
open_map(zmap_map_t *map, int fd, uint64_t size)
{
    return zmap_map_open(map, fd, size, ZMAP_ADVICE_NONE);
}


static void
assert_empty(const zmap_map_t *map)
{
    assert_null(map->data);
    assert_int_equal(map->size, 0);
    assert_int_equal(map->kind, ZMAP_MAP_NONE);
}


/* failing must leave the map as it was */

static void
assert_refused(int fd, uint64_t size, zmap_rc_e rc)
{
    zmap_map_t  map, before;

    memset(&map, 0x5a, sizeof(map));
    before = map;

    assert_int_equal(open_map(&map, fd, size), rc);
    assert_memory_equal(&map, &before, sizeof(map));
}


static void
version_is_what_fstat_says(void **state)
{
    int              fd;
    struct timespec  times[2] = { { 7, 8 }, { 1234567890, 123456789 } };
    zmap_version_t   version, again;

    (void) state;

    fd = file("0123456789", 10);
    assert_int_equal(futimens(fd, times), 0);

    assert_int_equal(zmap_version_read(&version, fd), ZMAP_OK);
    assert_int_equal(version.size, 10);
    assert_int_equal(version.mtime, 1234567890);
    assert_int_equal(version.mtime_ns, 123456789);
    assert_true(version.ctime > 1234567890);
    assert_true(version.ino != 0);

    assert_int_equal(zmap_version_read(&again, fd), ZMAP_OK);
    assert_true(zmap_version_equal(&version, &again));
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_OK);

    assert_int_equal(close(fd), 0);
}


static void
version_of_a_bad_descriptor_is_a_system_error(void **state)
{
    zmap_version_t  version, before;

    (void) state;

    memset(&version, 0x5a, sizeof(version));
    before = version;

    errno = 0;
    assert_int_equal(zmap_version_read(&version, -1), ZMAP_SYSERR);
    assert_int_equal(errno, EBADF);
    assert_memory_equal(&version, &before, sizeof(version));
    assert_int_equal(zmap_version_check(&version, -1), ZMAP_SYSERR);
}


static void
versions_differ_by_every_member(void **state)
{
    int             i;
    zmap_version_t  a, b[7];

    (void) state;

    a = (zmap_version_t) { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };

    for (i = 0; i < 7; i++) {
        b[i] = a;
    }

    b[0].dev++;
    b[1].ino++;
    b[2].size++;
    b[3].mtime++;
    b[4].ctime++;
    b[5].mtime_ns++;
    b[6].ctime_ns++;

    assert_true(zmap_version_equal(&a, &a));

    for (i = 0; i < 7; i++) {
        assert_false(zmap_version_equal(&a, &b[i]));
        assert_false(zmap_version_equal(&b[i], &a));
    }
}


static void
a_changed_file_is_noticed(void **state)
{
    int              fd, other;
    struct timespec  times[2] = { { 7, 8 }, { 9, 10 } };
    zmap_version_t   version;

    (void) state;

    fd = file("0123456789", 10);
    other = file("0123456789", 10);

    assert_int_equal(zmap_version_read(&version, fd), ZMAP_OK);
    assert_int_equal(zmap_version_check(&version, other), ZMAP_CHANGED);

    assert_int_equal(ftruncate(fd, 9), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_CHANGED);

    assert_int_equal(zmap_version_read(&version, fd), ZMAP_OK);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_CHANGED);

    assert_int_equal(close(fd), 0);
    assert_int_equal(close(other), 0);
}


/* what changes the ctime alone: a rename over the file ends in an unlink */

static void
links_mode_and_owner_change_no_byte(void **state)
{
    int              fd;
    char             path[] = "/tmp/zmap-map-XXXXXX", linked[64];
    struct stat      st;
    struct timespec  times[2];
    zmap_version_t   version;

    (void) state;

    fd = mkstemp(path);
    assert_true(fd != -1);
    assert_int_equal(write(fd, "0123456789", 10), 10);
    (void) snprintf(linked, sizeof(linked), "%s.linked", path);

    assert_int_equal(zmap_version_read(&version, fd), ZMAP_OK);
    version.ctime--;

    assert_int_equal(zmap_version_check(&version, fd), ZMAP_TOUCHED);

    assert_int_equal(link(path, linked), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_OK);
    assert_int_equal(unlink(linked), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_TOUCHED);

    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_OK);

    assert_int_equal(zmap_version_read(&version, fd), ZMAP_OK);
    version.ctime--;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_OK);

    /* a write shows whatever else has changed */

    assert_int_equal(fstat(fd, &st), 0);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    times[1].tv_nsec ^= 1;
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(zmap_version_check(&version, fd), ZMAP_CHANGED);

    assert_int_equal(close(fd), 0);
}


static void
young_versions_are_racy(void **state)
{
    size_t          i;
    zmap_version_t  version;

    static const struct {
        int64_t   ctime;
        uint32_t  ctime_ns;
        int64_t   now;
        uint32_t  now_ns;
        int       racy;
    } rows[] = {
        { 100, 0, 100, 0, 1 },
        { 100, 0, 100, 99999999, 1 },
        { 100, 0, 100, 100000000, 0 },
        { 100, 0, 100, 999999999, 0 },
        { 100, 950000000, 101, 49999999, 1 },
        { 100, 950000000, 101, 50000000, 0 },
        { 100, 999999999, 101, 0, 1 },
        { 100, 0, 101, 0, 0 },
        { 100, 999999999, 102, 0, 0 },
        { 100, 5, 100, 4, 1 },
        { 101, 0, 100, 999999999, 1 },
        { INT64_MAX, 0, 100, 0, 1 },
        { INT64_MIN, 0, 100, 0, 0 },
        { INT64_MIN, 0, INT64_MAX, 0, 0 },
        { 0, 0, 1000000000, 0, 0 },
    };

    (void) state;

    memset(&version, 0, sizeof(version));

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        version.ctime = rows[i].ctime;
        version.ctime_ns = rows[i].ctime_ns;

        assert_int_equal(!!zmap_version_racy(&version, rows[i].now,
                                             rows[i].now_ns),
                         rows[i].racy);
    }
}


static void
a_file_is_mapped(void **state)
{
    int          fd;
    zmap_map_t   map;
    static char  data[3 * 4096 + 17];

    (void) state;

    memset(data, 'z', sizeof(data));
    fd = file(data, sizeof(data));

    assert_int_equal(open_map(&map, fd, sizeof(data)), ZMAP_OK);
    assert_int_equal(close(fd), 0);

    assert_int_equal(map.kind, ZMAP_MAP_FILE);
    assert_int_equal(map.size, sizeof(data));
    assert_memory_equal(map.data, data, sizeof(data));
    assert_int_equal(pread_calls, 0);

    zmap_map_close(&map);
    assert_empty(&map);
    zmap_map_close(&map);
    assert_empty(&map);
}


static void
closing_unmaps(void **state)
{
    int             fd;
    void           *data;
    zmap_map_t      map;
    unsigned char   vector;

    (void) state;

    fd = file("0123456789", 10);
    assert_int_equal(open_map(&map, fd, 10), ZMAP_OK);

    data = (void *) map.data;
    assert_int_equal(mincore(data, 1, &vector), 0);

    zmap_map_close(&map);

    assert_int_equal(mincore(data, 1, &vector), -1);
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(close(fd), 0);
}


static const zmap_advice_e  all_advices[] = {
    ZMAP_ADVICE_NONE, ZMAP_ADVICE_SEQUENTIAL, ZMAP_ADVICE_WILLNEED,
    ZMAP_ADVICE_HUGEPAGE
};

#define ADVICES  (sizeof(all_advices) / sizeof(all_advices[0]))


static void
advice_is_given_and_never_an_error(void **state)
{
    int         fd;
    size_t      i;
    zmap_map_t  map;

    static const int  advices[] = {
        -1, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE
    };

    (void) state;

    fd = file("0123456789", 10);

    for (i = 0; i < 2 * ADVICES; i++) {
        madvise_errno = i < ADVICES ? 0 : EINVAL;
        madvise_advice = -1;

        assert_int_equal(zmap_map_open(&map, fd, 10, all_advices[i % ADVICES]),
                         ZMAP_OK);
        assert_int_equal(madvise_advice, advices[i % ADVICES]);
        assert_int_equal(map.kind, ZMAP_MAP_FILE);
        assert_int_equal(map.size, 10);
        assert_memory_equal(map.data, "0123456789", 10);

        zmap_map_close(&map);
        assert_empty(&map);
        assert_int_equal(mapped, 0);
    }

    /* neither for a file that is copied or empty */

    for (i = 0; i < ADVICES; i++) {
        madvise_advice = -1;
        assert_int_equal(zmap_map_open(&map, fd, 0, all_advices[i]), ZMAP_OK);
        assert_empty(&map);

        mmap_errno = ENODEV;
        assert_int_equal(zmap_map_open(&map, fd, 10, all_advices[i]), ZMAP_OK);
        assert_int_equal(map.kind, ZMAP_MAP_COPY);
        zmap_map_close(&map);
        mmap_errno = 0;

        assert_int_equal(madvise_advice, -1);
    }

    assert_int_equal(close(fd), 0);
}


static void
huge_maps_are_aligned_and_unmapped_exactly(void **state)
{
    int            fd;
    size_t         i, page;
    char          *data;
    zmap_map_t     map;
    unsigned char  vector;

    (void) state;

    page = (size_t) sysconf(_SC_PAGESIZE);

    const size_t  sizes[] = {
        1, page, page + 1, ZMAP_HUGE_PAGE - 1, ZMAP_HUGE_PAGE,
        ZMAP_HUGE_PAGE + 1, 3 * ZMAP_HUGE_PAGE + 5 * page + 7
    };

    data = malloc(4 * ZMAP_HUGE_PAGE);
    assert_non_null(data);

    for (i = 0; i < 4 * ZMAP_HUGE_PAGE; i++) {
        data[i] = (char) (i * 131 >> 5);
    }

    fd = file(data, 4 * ZMAP_HUGE_PAGE);

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        mapped = 0;

        assert_int_equal(zmap_map_open(&map, fd, sizes[i],
                                       ZMAP_ADVICE_HUGEPAGE), ZMAP_OK);
        assert_int_equal(map.kind, ZMAP_MAP_FILE);
        assert_int_equal((uintptr_t) map.data % ZMAP_HUGE_PAGE, 0);
        assert_memory_equal(map.data, data, sizes[i]);
        assert_int_equal(mapped, whole_pages(sizes[i]));

        zmap_map_close(&map);
        assert_empty(&map);
        assert_int_equal(mapped, 0);
    }

    /* it takes nothing of its neighbours, and leaves nothing */

    assert_int_equal(zmap_map_open(&map, fd, page + 1, ZMAP_ADVICE_HUGEPAGE),
                     ZMAP_OK);
    free(data);
    data = (char *) map.data;
    assert_int_equal(mincore(data + page, page, &vector), 0);
    zmap_map_close(&map);
    assert_int_equal(mincore(data, page, &vector), -1);
    assert_int_equal(mincore(data + page, page, &vector), -1);

    assert_int_equal(close(fd), 0);
}


static void
without_aligned_addresses_a_file_is_mapped(void **state)
{
    int         fd;
    zmap_map_t  map;

    (void) state;

    fd = file("0123456789", 10);
    anon_errno = ENOMEM;

    assert_int_equal(zmap_map_open(&map, fd, 10, ZMAP_ADVICE_HUGEPAGE),
                     ZMAP_OK);
    assert_int_equal(map.kind, ZMAP_MAP_FILE);
    assert_memory_equal(map.data, "0123456789", 10);
    zmap_map_close(&map);
    assert_int_equal(mapped, 0);

    /* what fails leaves no reservation */

    anon_errno = 0;
    mmap_errno = EIO;
    assert_int_equal(zmap_map_open(&map, fd, 10, ZMAP_ADVICE_HUGEPAGE),
                     ZMAP_SYSERR);
    assert_int_equal(errno, EIO);
    assert_int_equal(mapped, 0);

    mmap_errno = 0;
    assert_int_equal(zmap_map_open(&map, fd, (uint64_t) SIZE_MAX,
                                   ZMAP_ADVICE_HUGEPAGE), ZMAP_SYSERR);
    assert_int_equal(mapped, 0);

    assert_int_equal(close(fd), 0);
}


/* the pages of the map that are in the memory of this process */

static size_t
resident(const zmap_map_t *map)
{
    zmap_smaps_t  smaps;

    assert_int_equal(zmap_smaps_read(&smaps, map->data, map->size), ZMAP_OK);

    return (size_t) smaps.rss / (size_t) sysconf(_SC_PAGESIZE);
}


static void
dropped_pages_come_back(void **state)
{
    int         fd;
    char       *data;
    size_t      i, page, size;
    zmap_map_t  map;

    (void) state;

    page = (size_t) sysconf(_SC_PAGESIZE);
    size = 9 * page + 100;

    const struct {
        size_t  from, to, pages;
    } rows[] = {
        { 0, 0, 0 },
        { 0, page - 1, 0 },
        { 0, page, 1 },
        { 1, page, 0 },
        { 1, 2 * page, 1 },
        { 1, 2 * page - 1, 0 },
        { page, 3 * page + 5, 2 },
        { 2 * page, page, 0 },
        { 5 * page, 5 * page, 0 },
        { 5 * page + 7, 5 * page + 8, 0 },
        { 0, 9 * page, 9 },
        { 0, 9 * page + 99, 9 },
        { 0, size, 10 },
        { 9 * page, size, 1 },
        { 9 * page, SIZE_MAX, 1 },
        { 9 * page + 1, size, 0 },
        { 0, SIZE_MAX, 10 },
        { size, SIZE_MAX, 0 },
        { SIZE_MAX, SIZE_MAX, 0 },
    };

    data = malloc(size);
    assert_non_null(data);
    memset(data, 'd', size);
    fd = file(data, size);

    assert_int_equal(open_map(&map, fd, size), ZMAP_OK);

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_memory_equal(map.data, data, size);
        assert_int_equal(resident(&map), 10);

        zmap_map_drop(&map, rows[i].from, rows[i].to);
        assert_int_equal(resident(&map), 10 - rows[i].pages);
    }

    assert_memory_equal(map.data, data, size);
    zmap_map_close(&map);

    /* nothing is mapped, or it is ours */

    madvise_calls = 0;
    zmap_map_drop(&map, 0, size);

    mmap_errno = ENODEV;
    assert_int_equal(open_map(&map, fd, size), ZMAP_OK);
    assert_int_equal(map.kind, ZMAP_MAP_COPY);
    zmap_map_drop(&map, 0, size);
    assert_int_equal(madvise_calls, 0);
    assert_memory_equal(map.data, data, size);
    assert_int_equal(zmap_map_huge(&map), 0);
    zmap_map_close(&map);
    assert_int_equal(zmap_map_huge(&map), 0);

    assert_int_equal(close(fd), 0);
    free(data);
}


/* a file of whole huge pages that the page cache has, or has no more */

static size_t
huge_of_a_file(int cold, zmap_advice_e advice)
{
    int         fd;
    char        path[64] = "build/zmap-map-XXXXXX";
    char       *data;
    size_t      size, huge;
    zmap_map_t  map;

    size = 4 * ZMAP_HUGE_PAGE;
    data = malloc(size);
    assert_non_null(data);
    memset(data, 'h', size);

    fd = mkstemp(path);

    if (fd == -1) {
        (void) strcpy(path, "/tmp/zmap-map-XXXXXX");
        fd = mkstemp(path);
    }

    assert_true(fd != -1);
    assert_int_equal(unlink(path), 0);

    /* in small writes, as large ones may leave huge pages in the cache */

    for (huge = 0; huge < size; huge += 4096) {
        assert_int_equal(write(fd, data, 4096), 4096);
    }

    assert_int_equal(fsync(fd), 0);

    if (cold) {
        assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    }

    assert_int_equal(zmap_map_open(&map, fd, size, advice), ZMAP_OK);
    assert_int_equal(close(fd), 0);
    assert_memory_equal(map.data, data, size);

    huge = zmap_map_huge(&map);
    assert_true(huge <= size);
    assert_int_equal(huge % ZMAP_HUGE_PAGE, 0);

    zmap_map_drop(&map, 0, size);
    assert_int_equal(zmap_map_huge(&map), 0);

    zmap_map_close(&map);
    free(data);

    return huge;
}


static void
huge_pages_of_all_kinds_count(void **state)
{
    int         fd;
    char        text[512];
    zmap_map_t  map;

    (void) state;

    fd = file("0123456789", 10);
    assert_int_equal(open_map(&map, fd, 10), ZMAP_OK);
    assert_int_equal(zmap_map_huge(&map), 0);

    (void) snprintf(text, sizeof(text),
                    "1000-2000 r--p 00000000 00:00 0\n"
                    "FilePmdMapped:      999 kB\n"
                    "%zx-%zx r--p 00000000 00:01 7\n"
                    "Rss:               9000 kB\n"
                    "AnonHugePages:        0 kB\n"
                    "ShmemPmdMapped:    4096 kB\n"
                    "FilePmdMapped:     2048 kB\n",
                    (size_t) map.data, (size_t) map.data + 4096);
    smaps_text = text;
    assert_int_equal(zmap_map_huge(&map), 3 * ZMAP_HUGE_PAGE);

    smaps_text = "";
    assert_int_equal(zmap_map_huge(&map), 0);

    zmap_map_close(&map);
    assert_int_equal(close(fd), 0);
}


/* what a kernel gives differs: it is told, and only the count is judged */

static void
huge_pages_of_a_file_are_counted(void **state)
{
    int     cold;
    size_t  i;

    static const char *const  names[] = {
        "none", "sequential", "willneed", "hugepage"
    };

    (void) state;

    for (cold = 1; cold >= 0; cold--) {

        for (i = 0; i < ADVICES; i++) {
            print_message("# %s cache, %s: %zu of 4 huge pages\n",
                          cold ? "cold" : "warm", names[i],
                          huge_of_a_file(cold, all_advices[i])
                          / ZMAP_HUGE_PAGE);
        }
    }
}


static void
an_empty_file_is_never_mapped(void **state)
{
    int         fd;
    zmap_map_t  map;

    (void) state;

    fd = file("", 0);
    memset(&map, 0x5a, sizeof(map));

    assert_int_equal(open_map(&map, fd, 0), ZMAP_OK);
    assert_empty(&map);
    assert_int_equal(mmap_calls, 0);
    zmap_map_close(&map);

    assert_int_equal(close(fd), 0);
}


static void
a_file_without_mmap_is_copied(void **state)
{
    int         fd;
    size_t      i;
    uint8_t    *data;
    zmap_map_t  map;

    static const int  errors[] = { ENODEV, EINVAL, EACCES, ENOMEM };

    (void) state;

    data = malloc(100000);
    assert_non_null(data);

    for (i = 0; i < 100000; i++) {
        data[i] = (uint8_t) (i * 131 >> 3);
    }

    fd = file(data, 100000);

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        mmap_errno = errors[i];
        pread_calls = 0;
        pread_eintr = 3;
        pread_max = i % 2 ? 777 : 0;

        assert_int_equal(open_map(&map, fd, 100000), ZMAP_OK);
        assert_int_equal(map.kind, ZMAP_MAP_COPY);
        assert_int_equal(map.size, 100000);
        assert_memory_equal(map.data, data, 100000);
        assert_int_equal(pread_calls, 3 + (i % 2 ? (100000 + 776) / 777 : 1));

        zmap_map_close(&map);
        assert_empty(&map);
    }

    assert_int_equal(close(fd), 0);
    free(data);
}


static void
a_real_file_that_cannot_be_mapped_is_copied(void **state)
{
    int         fd;
    char        line[64];
    ssize_t     len;
    zmap_map_t  map;

    (void) state;

    fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    assert_true(fd != -1);

    len = read(fd, line, sizeof(line));
    assert_true(len > 1);

    assert_int_equal(open_map(&map, fd, (uint64_t) len), ZMAP_OK);
    assert_int_equal(map.kind, ZMAP_MAP_COPY);
    assert_int_equal(map.size, len);
    assert_memory_equal(map.data, line, len);
    zmap_map_close(&map);

    assert_refused(fd, (uint64_t) len + 1, ZMAP_CHANGED);
    assert_int_equal(close(fd), 0);
}


static void
other_mmap_errors_are_not_hidden(void **state)
{
    int     fd;
    size_t  i;

    static const int  errors[] = { EBADF, EAGAIN, ENFILE, EPERM, EIO };

    (void) state;

    fd = file("0123456789", 10);

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        mmap_errno = errors[i];
        assert_refused(fd, 10, ZMAP_SYSERR);
        assert_int_equal(errno, errors[i]);
    }

    assert_int_equal(pread_calls, 0);
    assert_int_equal(close(fd), 0);
}


static void
a_copy_that_fails_says_why(void **state)
{
    int  fd;

    (void) state;

    fd = file("0123456789", 10);
    mmap_errno = ENODEV;

    pread_errno = EIO;
    assert_refused(fd, 10, ZMAP_SYSERR);
    assert_int_equal(errno, EIO);

    pread_max = 3;
    pread_good = 2;
    assert_refused(fd, 10, ZMAP_SYSERR);
    assert_int_equal(errno, EIO);

    pread_errno = 0;
    errno = 0;
    assert_refused(fd, ZMAP_MAP_COPY_MAX + (uint64_t) 1, ZMAP_SYSERR);
    assert_int_equal(errno, mmap_errno);
    assert_refused(fd, UINT64_MAX, ZMAP_SYSERR);

    assert_int_equal(close(fd), 0);
}


static void
a_copy_finds_that_the_file_shrank(void **state)
{
    int  fd;

    (void) state;

    fd = file("0123456789", 10);
    mmap_errno = ENODEV;
    pread_max = 4;

    assert_refused(fd, 11, ZMAP_CHANGED);

    assert_int_equal(ftruncate(fd, 5), 0);
    assert_refused(fd, 10, ZMAP_CHANGED);

    assert_int_equal(ftruncate(fd, 0), 0);
    assert_refused(fd, 10, ZMAP_CHANGED);

    assert_int_equal(close(fd), 0);
}


static void
a_write_only_descriptor_cannot_be_read(void **state)
{
    int   fd, readable;
    char  name[64];

    (void) state;

    readable = file("0123456789", 10);
    (void) snprintf(name, sizeof(name), "/proc/self/fd/%d", readable);

    fd = open(name, O_WRONLY | O_CLOEXEC);
    assert_true(fd != -1);
    assert_int_equal(close(readable), 0);

    assert_refused(fd, 10, ZMAP_SYSERR);
    assert_int_equal(errno, EBADF);
    assert_int_equal(close(fd), 0);
}


static void
a_pipe_cannot_be_read(void **state)
{
    int  fd[2];

    (void) state;

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_refused(fd[0], 10, ZMAP_SYSERR);
    assert_int_equal(errno, ESPIPE);
    assert_int_equal(close(fd[0]), 0);
    assert_int_equal(close(fd[1]), 0);
}


/* a child with no room for BIG bytes more does body; gives its exit code */

static int
without_memory(void (*body)(void))
{
    int            status;
    FILE          *file;
    pid_t          pid;
    size_t         pages;
    struct rlimit  limit;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        file = fopen("/proc/self/statm", "r");

        if (file == NULL || fscanf(file, "%zu", &pages) != 1) {
            _exit(98);
        }

        limit.rlim_cur = pages * (size_t) sysconf(_SC_PAGESIZE) + BIG / 2;
        limit.rlim_max = limit.rlim_cur;

        if (setrlimit(RLIMIT_AS, &limit) == -1) {
            _exit(97);
        }

        body();
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));

    return WEXITSTATUS(status);
}


static int  big_file;

static void
copy_a_big_file(void)
{
    zmap_map_t  map;

    if (open_map(&map, big_file, BIG) != ZMAP_NOMEM) {
        _exit(1);
    }
}


static void
a_copy_without_memory_is_refused(void **state)
{
    zmap_map_t  map;

    (void) state;

    big_file = file("", 0);
    assert_int_equal(ftruncate(big_file, BIG), 0);
    mmap_errno = ENODEV;

    assert_int_equal(without_memory(copy_a_big_file), 0);

    assert_int_equal(open_map(&map, big_file, BIG), ZMAP_OK);
    zmap_map_close(&map);
    assert_int_equal(close(big_file), 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(version_is_what_fstat_says),
        cmocka_unit_test(version_of_a_bad_descriptor_is_a_system_error),
        cmocka_unit_test(versions_differ_by_every_member),
        cmocka_unit_test(a_changed_file_is_noticed),
        cmocka_unit_test(links_mode_and_owner_change_no_byte),
        cmocka_unit_test(young_versions_are_racy),
        cmocka_unit_test_setup(a_file_is_mapped, no_faults),
        cmocka_unit_test_setup(closing_unmaps, no_faults),
        cmocka_unit_test_setup(advice_is_given_and_never_an_error, no_faults),
        cmocka_unit_test_setup(huge_maps_are_aligned_and_unmapped_exactly,
                               no_faults),
        cmocka_unit_test_setup(without_aligned_addresses_a_file_is_mapped,
                               no_faults),
        cmocka_unit_test_setup(dropped_pages_come_back, no_faults),
        cmocka_unit_test_setup(huge_pages_of_all_kinds_count, no_faults),
        cmocka_unit_test_setup(huge_pages_of_a_file_are_counted, no_faults),
        cmocka_unit_test_setup(an_empty_file_is_never_mapped, no_faults),
        cmocka_unit_test_setup(a_file_without_mmap_is_copied, no_faults),
        cmocka_unit_test_setup(a_real_file_that_cannot_be_mapped_is_copied,
                               no_faults),
        cmocka_unit_test_setup(other_mmap_errors_are_not_hidden, no_faults),
        cmocka_unit_test_setup(a_copy_that_fails_says_why, no_faults),
        cmocka_unit_test_setup(a_copy_finds_that_the_file_shrank, no_faults),
        cmocka_unit_test_setup(a_copy_without_memory_is_refused, no_faults),
        cmocka_unit_test_setup(a_write_only_descriptor_cannot_be_read,
                               no_faults),
        cmocka_unit_test_setup(a_pipe_cannot_be_read, no_faults),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("map", tests, NULL, NULL) != 0;
}
