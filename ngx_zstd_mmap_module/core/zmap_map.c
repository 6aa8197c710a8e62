
/*
 * Reads the version of an open file and maps its bytes.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zmap_hugemem.h"
#include "zmap_map.h"
#include "zmap_read.h"
#include "zmap_smaps.h"


#define ZMAP_NS  1000000000


static int zmap_version_same_bytes(const zmap_version_t *a,
    const zmap_version_t *b);
static int zmap_version_new_attributes(const zmap_version_t *a,
    const zmap_version_t *b);
static void *zmap_map_aligned(size_t size);
static void zmap_map_advise(void *data, size_t size, zmap_advice_e advice);
static int zmap_map_unsupported(int err);
static zmap_rc_e zmap_map_copy(zmap_map_t *map, int fd, size_t size);


zmap_rc_e
zmap_version_read(zmap_version_t *version, int fd)
{
    struct stat  st;

    if (fstat(fd, &st) == -1) {
        return ZMAP_SYSERR;
    }

    version->dev = (uint64_t) st.st_dev;
    version->ino = (uint64_t) st.st_ino;
    version->size = (uint64_t) st.st_size;
    version->mtime = (int64_t) st.st_mtim.tv_sec;
    version->ctime = (int64_t) st.st_ctim.tv_sec;
    version->mtime_ns = (uint32_t) st.st_mtim.tv_nsec;
    version->ctime_ns = (uint32_t) st.st_ctim.tv_nsec;
    version->nlink = (uint64_t) st.st_nlink;
    version->mode = (uint32_t) st.st_mode;
    version->uid = (uint32_t) st.st_uid;
    version->gid = (uint32_t) st.st_gid;

    return ZMAP_OK;
}


int
zmap_version_equal(const zmap_version_t *a, const zmap_version_t *b)
{
    return zmap_version_same_bytes(a, b)
           && a->ctime == b->ctime
           && a->ctime_ns == b->ctime_ns;
}


int
zmap_version_racy(const zmap_version_t *version, int64_t now, uint32_t now_ns)
{
    int64_t   age;
    uint64_t  seconds;

    if (version->ctime > now) {
        return 1;
    }

    seconds = (uint64_t) now - (uint64_t) version->ctime;

    if (seconds > 1) {
        return 0;
    }

    age = (int64_t) seconds * ZMAP_NS + now_ns - version->ctime_ns;

    return age < ZMAP_VERSION_RACY_NS;
}


zmap_rc_e
zmap_version_check(const zmap_version_t *version, int fd)
{
    zmap_rc_e       rc;
    zmap_version_t  current;

    rc = zmap_version_read(&current, fd);
    if (rc != ZMAP_OK) {
        return rc;
    }

    if (zmap_version_equal(version, &current)) {
        return ZMAP_OK;
    }

    if (!zmap_version_same_bytes(version, &current)) {
        return ZMAP_CHANGED;
    }

    return zmap_version_new_attributes(version, &current) ? ZMAP_OK
                                                          : ZMAP_TOUCHED;
}


/* as far as the members tell that a write must change */

static int
zmap_version_same_bytes(const zmap_version_t *a, const zmap_version_t *b)
{
    return a->dev == b->dev
           && a->ino == b->ino
           && a->size == b->size
           && a->mtime == b->mtime
           && a->mtime_ns == b->mtime_ns;
}


static int
zmap_version_new_attributes(const zmap_version_t *a, const zmap_version_t *b)
{
    return a->nlink != b->nlink
           || a->mode != b->mode
           || a->uid != b->uid
           || a->gid != b->gid;
}


zmap_rc_e
zmap_map_open(zmap_map_t *map, int fd, uint64_t size, zmap_advice_e advice)
{
    void  *data;

    if ((uint64_t) (size_t) size != size) {
        return ZMAP_OVERFLOW;
    }

    if (size == 0) {
        map->data = NULL;
        map->size = 0;
        map->kind = ZMAP_MAP_NONE;

        return ZMAP_OK;
    }

    data = advice == ZMAP_ADVICE_HUGEPAGE ? zmap_map_aligned((size_t) size)
                                          : NULL;

    /* MAP_PRIVATE: FUSE with direct_io refuses MAP_SHARED only */

    data = mmap(data, (size_t) size, PROT_READ, MAP_PRIVATE, fd, 0);

    if (data == MAP_FAILED) {
        return zmap_map_unsupported(errno) && size <= ZMAP_MAP_COPY_MAX
               ? zmap_map_copy(map, fd, (size_t) size)
               : ZMAP_SYSERR;
    }

    zmap_map_advise(data, (size_t) size, advice);

    map->data = data;
    map->size = (size_t) size;
    map->kind = ZMAP_MAP_FILE;

    return ZMAP_OK;
}


void
zmap_map_drop(const zmap_map_t *map, size_t from, size_t to)
{
    size_t  page;

    if (map->kind != ZMAP_MAP_FILE || from >= map->size) {
        return;
    }

    page = (size_t) sysconf(_SC_PAGESIZE);

    from += (page - from % page) % page;
    to = to < map->size ? to - to % page : map->size;

    if (from < to) {
        (void) madvise((void *) (map->data + from), to - from, MADV_DONTNEED);
    }
}


size_t
zmap_map_huge(const zmap_map_t *map)
{
    zmap_smaps_t  smaps;

    if (map->kind != ZMAP_MAP_FILE
        || zmap_smaps_read(&smaps, map->data, map->size) != ZMAP_OK)
    {
        return 0;
    }

    return (size_t) smaps.thp;
}


void
zmap_map_close(zmap_map_t *map)
{
    if (map->kind == ZMAP_MAP_FILE) {
        (void) munmap((void *) map->data, map->size);

    } else if (map->kind == ZMAP_MAP_COPY) {
        free((void *) map->data);
    }

    map->data = NULL;
    map->size = 0;
    map->kind = ZMAP_MAP_NONE;
}


/*
 * An address for mmap(2) that is free now, or NULL.  It is only a hint:
 * MAP_FIXED, when it fails, may have unmapped what was there, and then another
 * thread's mapping may be there before ours is undone.
 */

static void *
zmap_map_aligned(size_t size)
{
    size_t    reserved;
    uint8_t  *base;

    if (size > SIZE_MAX - ZMAP_HUGE_PAGE) {
        return NULL;
    }

    reserved = size + ZMAP_HUGE_PAGE;

    base = mmap(NULL, reserved, PROT_NONE,
                MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }

    (void) munmap(base, reserved);

    return base + (ZMAP_HUGE_PAGE - (uintptr_t) base % ZMAP_HUGE_PAGE)
                  % ZMAP_HUGE_PAGE;
}


static void
zmap_map_advise(void *data, size_t size, zmap_advice_e advice)
{
    static const int  advices[] = {
        [ZMAP_ADVICE_NONE]       = MADV_NORMAL,
        [ZMAP_ADVICE_SEQUENTIAL] = MADV_SEQUENTIAL,
        [ZMAP_ADVICE_WILLNEED]   = MADV_WILLNEED,
        [ZMAP_ADVICE_HUGEPAGE]   = MADV_HUGEPAGE
    };

    if (advice != ZMAP_ADVICE_NONE) {
        (void) madvise(data, size, advices[advice]);
    }
}


static int
zmap_map_unsupported(int err)
{
    return err == ENODEV || err == EINVAL || err == EACCES || err == ENOMEM;
}


static zmap_rc_e
zmap_map_copy(zmap_map_t *map, int fd, size_t size)
{
    int         err;
    size_t      room;
    uint8_t    *data;
    zmap_rc_e   rc;

    /* whole blocks, as a descriptor with O_DIRECT takes nothing else */

    room = (size + ZMAP_READ_BLOCK - 1) & ~((size_t) ZMAP_READ_BLOCK - 1);

    data = aligned_alloc(ZMAP_READ_BLOCK, room);
    if (data == NULL) {
        return ZMAP_NOMEM;
    }

    rc = zmap_read(fd, data, room, size, 0);

    if (rc != ZMAP_OK) {
        err = errno;
        free(data);
        errno = err;

        return rc;
    }

    map->data = data;
    map->size = size;
    map->kind = ZMAP_MAP_COPY;

    return ZMAP_OK;
}
