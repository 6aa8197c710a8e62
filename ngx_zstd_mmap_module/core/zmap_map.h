
/*
 * The version of an open file, and its read-only mapping.
 */


#ifndef ZMAP_MAP_H
#define ZMAP_MAP_H


#include "zmap_base.h"


ZMAP_BEGIN


/*
 * Two versions with equal members hold the same bytes, unless the file was
 * written twice within the granularity of its timestamps: a version whose
 * ctime is younger than ZMAP_VERSION_RACY_NS must not be kept.
 */

#define ZMAP_VERSION_RACY_NS  100000000


typedef struct {
    uint64_t  dev;
    uint64_t  ino;
    uint64_t  size;            /* bytes */
    int64_t   mtime;           /* seconds */
    int64_t   ctime;           /* seconds */
    uint32_t  mtime_ns;
    uint32_t  ctime_ns;

    /* not compared: they explain why a ctime is another */
    uint64_t  nlink;
    uint32_t  mode;
    uint32_t  uid;
    uint32_t  gid;
} zmap_version_t;


typedef enum {
    ZMAP_MAP_NONE = 0,
    ZMAP_MAP_FILE,             /* a mapping: read it under the guard only */
    ZMAP_MAP_COPY              /* private memory filled by pread(2) */
} zmap_map_e;


typedef struct {
    const uint8_t  *data;      /* NULL when size is 0 */
    size_t          size;      /* bytes */
    zmap_map_e      kind;
} zmap_map_t;


/* madvise(2); whatever the kernel refuses changes nothing else */

typedef enum {
    ZMAP_ADVICE_NONE = 0,
    ZMAP_ADVICE_SEQUENTIAL,    /* more is read ahead */
    ZMAP_ADVICE_WILLNEED,      /* all of it is read ahead now */
    ZMAP_ADVICE_HUGEPAGE       /* read ahead in huge pages where the kernel and
                                  the file system have them for files; what is
                                  in the page cache already stays as it is */
} zmap_advice_e;


/*
 * A file on a file system without mmap is copied instead, up to this size.
 * The copy is not guarded against anything but memory: larger files of such
 * file systems are refused.
 */

#define ZMAP_MAP_COPY_MAX  (64 * 1024 * 1024)


/* fstat(2) of fd; ZMAP_OK or ZMAP_SYSERR */
zmap_rc_e zmap_version_read(zmap_version_t *version, int fd);

/* nonzero when all members that are compared are equal */
int zmap_version_equal(const zmap_version_t *a, const zmap_version_t *b);

/*
 * Nonzero when the ctime lies within ZMAP_VERSION_RACY_NS of the wall clock
 * time now (or in its future): now_ns is the sub-second part.
 */
int zmap_version_racy(const zmap_version_t *version, int64_t now,
    uint32_t now_ns);

/*
 * ZMAP_OK when fd still has the bytes of that version; ZMAP_CHANGED when its
 * inode, size or mtime is another; ZMAP_SYSERR when fstat(2) failed.
 *
 * rename(2), unlink(2), link(2), chmod(2), chown(2) and setxattr(2) change the
 * ctime and no byte: another ctime does not count where the link count, the
 * mode or the owner is another as well.  Where nothing explains it the answer
 * is ZMAP_TOUCHED: somebody may have written and put the mtime back.
 */
zmap_rc_e zmap_version_check(const zmap_version_t *version, int fd);

/*
 * Maps the first size bytes of fd for reading; fd may be closed afterwards.
 * With ZMAP_ADVICE_HUGEPAGE the mapping begins at a multiple of ZMAP_HUGE_PAGE,
 * unless there are no such addresses free: huge pages need that.  The caller
 * owns the map and gives it to zmap_map_close().  A file of 0 bytes is never
 * mapped: kind is ZMAP_MAP_NONE, ZMAP_OK.  Where mmap(2) fails with ENODEV,
 * EINVAL, EACCES or ENOMEM the bytes are copied (ZMAP_MAP_COPY).
 *
 * ZMAP_SYSERR, also when the file is too large to be copied: then errno is that
 * of mmap(2); ZMAP_NOMEM; ZMAP_OVERFLOW for a size above SIZE_MAX;
 * ZMAP_CHANGED, when the copy found fewer bytes than size.
 */
zmap_rc_e zmap_map_open(zmap_map_t *map, int fd, uint64_t size,
    zmap_advice_e advice);

/*
 * Takes the whole pages inside [from, to) of a mapping out of the memory of
 * the process; to at the end of the map or behind it means the last page, too.
 * They stay in the page cache, and are back when they are next read.  A copy is
 * left alone.
 */
void zmap_map_drop(const zmap_map_t *map, size_t from, size_t to);

/*
 * The bytes of the mapping that this process has mapped by huge pages now; 0
 * also when the kernel does not tell.  Costs a walk over all mappings of the
 * process.
 */
size_t zmap_map_huge(const zmap_map_t *map);

/* unmaps or frees, and empties the map; an empty map is left alone */
void zmap_map_close(zmap_map_t *map);


ZMAP_END


#endif /* ZMAP_MAP_H */
