
/*
 * LD_PRELOAD: fails a chosen call, or changes the file that the call is about.
 *
 * The two orders lie in a file that the test writes (ZMAP_FAULT names it) and
 * that is mapped shared here, so that a running worker sees them.
 * Only calls of one process count, and only those that come from an object
 * whose name has "zstd" in it, the module and libzstd, unless "any" is set.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>


/* Preload.pm knows the numbers and the layout */

enum {
    FAULT_MMAP = 1,
    FAULT_FSTAT = 2,
    FAULT_PREAD = 4,
    FAULT_ALLOC = 8,
    FAULT_SIGACTION = 16,
    FAULT_MADVISE = 32,
    FAULT_MUNMAP = 64,
    FAULT_SETSOCKOPT = 128,
    FAULT_GETRANDOM = 256
};

enum {
    FAULT_FAIL = 1,            /* the call fails with err and is not made */
    FAULT_TRUNCATE,            /* the call is made, then path gets size */
    FAULT_SHORT,               /* pread: half of it; otherwise made as it is */
    FAULT_END,                 /* pread: 0, as at the end of the file */
    FAULT_LOSE                 /* mmap: the page at offset size is that of
                                  another file, path, whatever it has */
};

typedef struct {
    uint32_t  calls;           /* bits; 0 is off */
    uint32_t  action;
    uint32_t  err;
    uint32_t  left;            /* until the call that is meant; 1 is the next */
    uint32_t  fired;
    uint32_t  always;          /* that call and all later ones */
    uint32_t  any;
    uint32_t  pid;
    uint64_t  size;
    char      path[1024];
} fault_orders_t;


#define FAULT_ORDERS  2

/* seconds by which the clocks are ahead */
#define FAULT_CLOCK   3072
#define FAULT_PAGE    4096

#define FAULT_NEXT(name)                                                      \
    static __typeof__(&name) real;                                            \
    if (real == NULL) {                                                       \
        *(void **) &real = dlsym(RTLD_NEXT, #name);                           \
    }

#define FAULT_DUE(call)  fault_due(call, __builtin_return_address(0))


static fault_orders_t  *fault_orders;


__attribute__((constructor))
static void
fault_init(void)
{
    int          fd;
    void        *page;
    const char  *path;

    path = getenv("ZMAP_FAULT");
    if (path == NULL) {
        return;
    }

    fd = open(path, O_RDWR|O_CLOEXEC);
    if (fd == -1) {
        return;
    }

    page = mmap(NULL, FAULT_PAGE, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);

    if (page != MAP_FAILED) {
        fault_orders = page;
    }
}


static int
fault_counts(const fault_orders_t *orders, void *caller)
{
    Dl_info      info;
    const char  *name;

    if (orders->pid != (uint32_t) getpid()) {
        return 0;
    }

    if (orders->any) {
        return 1;
    }

    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL) {
        return 0;
    }

    name = strrchr(info.dli_fname, '/');

    return strstr(name ? name : info.dli_fname, "zstd") != NULL;
}


static int
fault_is_due(fault_orders_t *orders, uint32_t call, void *caller)
{
    if (!(orders->calls & call) || !fault_counts(orders, caller)) {
        return 0;
    }

    if (orders->left > 1) {
        orders->left--;
        return 0;
    }

    if (orders->fired && !orders->always) {
        return 0;
    }

    orders->fired++;

    return 1;
}


/* the orders for this call, or NULL */

static const fault_orders_t *
fault_due(uint32_t call, void *caller)
{
    int              i, err;
    fault_orders_t  *orders;

    if (fault_orders == NULL) {
        return NULL;
    }

    err = errno;

    for (i = 0; i < FAULT_ORDERS; i++) {
        orders = &fault_orders[i];

        if (fault_is_due(orders, call, caller)) {
            errno = orders->action == FAULT_FAIL ? (int) orders->err : err;
            return orders;
        }
    }

    errno = err;

    return NULL;
}


static int
fault_fails(const fault_orders_t *orders)
{
    return orders != NULL && orders->action == FAULT_FAIL;
}


static void
fault_after(const fault_orders_t *orders)
{
    int  err;

    if (orders == NULL || orders->action != FAULT_TRUNCATE) {
        return;
    }

    err = errno;

    if (truncate(orders->path, (off_t) orders->size) == -1) {
        abort();
    }

    errno = err;
}


/* one that is empty has no page: reading there raises SIGBUS */

static void
fault_lose(const fault_orders_t *orders, char *p)
{
    int  fd;

    fd = open(orders->path, O_RDONLY|O_CLOEXEC);

    if (fd == -1
        || mmap(p + orders->size, FAULT_PAGE, PROT_READ,
                MAP_SHARED|MAP_FIXED, fd, 0) == MAP_FAILED)
    {
        abort();
    }

    close(fd);
}


void *
mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
    void                  *p;
    const fault_orders_t  *orders;

    FAULT_NEXT(mmap)

    orders = FAULT_DUE(FAULT_MMAP);
    if (fault_fails(orders)) {
        return MAP_FAILED;
    }

    p = real(addr, size, prot, flags, fd, offset);
    fault_after(orders);

    if (orders != NULL && orders->action == FAULT_LOSE && p != MAP_FAILED) {
        fault_lose(orders, p);
    }

    return p;
}


int
munmap(void *addr, size_t size)
{
    FAULT_NEXT(munmap)

    return FAULT_DUE(FAULT_MUNMAP) ? -1 : real(addr, size);
}


int
madvise(void *addr, size_t size, int advice)
{
    FAULT_NEXT(madvise)

    return FAULT_DUE(FAULT_MADVISE) ? -1 : real(addr, size, advice);
}


int
fstat(int fd, struct stat *st)
{
    int                    rc;
    const fault_orders_t  *orders;

    FAULT_NEXT(fstat)

    orders = FAULT_DUE(FAULT_FSTAT);
    if (fault_fails(orders)) {
        return -1;
    }

    rc = real(fd, st);
    fault_after(orders);

    return rc;
}


/* open(2), O_DIRECT: what most file systems on disks demand, tmpfs does not */

static int
fault_misaligned(int fd, void *buf, size_t size, off_t offset)
{
    return (fcntl(fd, F_GETFL) & O_DIRECT)
           && (((uintptr_t) buf | size | (uintptr_t) offset) & 511);
}


static ssize_t
fault_pread(const fault_orders_t *orders,
    ssize_t (*real)(int, void *, size_t, off_t), int fd, void *buf,
    size_t size, off_t offset)
{
    ssize_t  n;

    if (fault_fails(orders)) {
        return -1;
    }

    if (orders != NULL && orders->action == FAULT_END) {
        return 0;
    }

    if (orders != NULL && orders->action == FAULT_SHORT) {
        size = (size + 1) / 2;
    }

    if (fault_misaligned(fd, buf, size, offset)) {
        errno = EINVAL;
        return -1;
    }

    n = real(fd, buf, size, offset);
    fault_after(orders);

    return n;
}


ssize_t
pread(int fd, void *buf, size_t size, off_t offset)
{
    FAULT_NEXT(pread)

    return fault_pread(FAULT_DUE(FAULT_PREAD), real, fd, buf, size, offset);
}


/* what pread() is where _FILE_OFFSET_BITS is 64, as in nginx */

ssize_t
pread64(int fd, void *buf, size_t size, off64_t offset)
{
    FAULT_NEXT(pread64)

    return fault_pread(FAULT_DUE(FAULT_PREAD), real, fd, buf, size, offset);
}


int
sigaction(int signo, const struct sigaction *action, struct sigaction *old)
{
    FAULT_NEXT(sigaction)

    return signo == SIGBUS && FAULT_DUE(FAULT_SIGACTION)
           ? -1 : real(signo, action, old);
}


int
setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    FAULT_NEXT(setsockopt)

    return FAULT_DUE(FAULT_SETSOCKOPT) ? -1
           : real(fd, level, name, value, len);
}


ssize_t
getrandom(void *buf, size_t size, unsigned int flags)
{
    FAULT_NEXT(getrandom)

    return FAULT_DUE(FAULT_GETRANDOM) ? -1 : real(buf, size, flags);
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int  rc;

    FAULT_NEXT(clock_gettime)

    rc = real(id, ts);

    if (rc == 0 && fault_orders != NULL) {
        ts->tv_sec += *(volatile uint32_t *) ((char *) fault_orders
                                              + FAULT_CLOCK);
    }

    return rc;
}


void *
malloc(size_t size)
{
    FAULT_NEXT(malloc)

    return FAULT_DUE(FAULT_ALLOC) ? NULL : real(size);
}


void *
calloc(size_t n, size_t size)
{
    FAULT_NEXT(calloc)

    return FAULT_DUE(FAULT_ALLOC) ? NULL : real(n, size);
}


void *
realloc(void *p, size_t size)
{
    FAULT_NEXT(realloc)

    return FAULT_DUE(FAULT_ALLOC) ? NULL : real(p, size);
}


int
posix_memalign(void **p, size_t align, size_t size)
{
    FAULT_NEXT(posix_memalign)

    return FAULT_DUE(FAULT_ALLOC) ? ENOMEM : real(p, align, size);
}
