
/*
 * LD_PRELOAD: holds jobs of the module's threads, lets them run ahead of the
 * event loop, and lets the clock jump.
 *
 * The orders lie in a file that the test writes (ZMAP_GATE names it) and that
 * is mapped shared here.  A call of the module that is not one of the main
 * thread waits before it is made for as long as its kind is closed; those that
 * come first may pass.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>


/* Gate.pm knows the numbers and the layout */

enum {
    GATE_FSTAT = 1,
    GATE_PREAD = 2
};

typedef struct {
    uint32_t  closed;          /* bits */
    int32_t   pass;            /* calls that still pass a closed gate */
    uint32_t  held;            /* threads that wait now */
    uint32_t  seconds;         /* by which the clocks are ahead */
    uint32_t  behind;          /* msec that the main thread waits once it has
                                  woken another one */
} gate_orders_t;


#define GATE_PAGE  4096

#define GATE_NEXT(name)                                                       \
    static __typeof__(&name) real;                                            \
    if (real == NULL) {                                                       \
        *(void **) &real = dlsym(RTLD_NEXT, #name);                           \
    }


static gate_orders_t  *orders;


__attribute__((constructor))
static void
gate_init(void)
{
    int          fd;
    void        *page;
    const char  *path;

    path = getenv("ZMAP_GATE");
    if (path == NULL) {
        return;
    }

    fd = open(path, O_RDWR|O_CLOEXEC);
    if (fd == -1) {
        return;
    }

    page = mmap(NULL, GATE_PAGE, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);

    if (page != MAP_FAILED) {
        orders = page;
    }
}


static int
called_by_module(void *caller)
{
    Dl_info      info;
    const char  *name;

    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL) {
        return 0;
    }

    name = strrchr(info.dli_fname, '/');

    return strstr(name ? name : info.dli_fname, "zstd_mmap") != NULL;
}


static int
is_closed(uint32_t call)
{
    return (__atomic_load_n(&orders->closed, __ATOMIC_SEQ_CST) & call) != 0;
}


static int
may_pass(void)
{
    int32_t  n;

    n = __atomic_load_n(&orders->pass, __ATOMIC_SEQ_CST);

    while (n > 0) {
        if (__atomic_compare_exchange_n(&orders->pass, &n, n - 1, 0,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        {
            return 1;
        }
    }

    return 0;
}


static void
wait_here(uint32_t call, void *caller)
{
    int              err;
    struct timespec  pause = { 0, 1000000 };

    if (orders == NULL || gettid() == getpid() || !is_closed(call)
        || !called_by_module(caller) || may_pass())
    {
        return;
    }

    err = errno;
    __atomic_fetch_add(&orders->held, 1, __ATOMIC_SEQ_CST);

    while (is_closed(call) && !may_pass()) {
        nanosleep(&pause, NULL);
    }

    __atomic_fetch_sub(&orders->held, 1, __ATOMIC_SEQ_CST);
    errno = err;
}


int
fstat(int fd, struct stat *st)
{
    GATE_NEXT(fstat)

    wait_here(GATE_FSTAT, __builtin_return_address(0));

    return real(fd, st);
}


ssize_t
pread(int fd, void *buf, size_t size, off_t offset)
{
    GATE_NEXT(pread)

    wait_here(GATE_PREAD, __builtin_return_address(0));

    return real(fd, buf, size, offset);
}


ssize_t
pread64(int fd, void *buf, size_t size, off64_t offset)
{
    GATE_NEXT(pread64)

    wait_here(GATE_PREAD, __builtin_return_address(0));

    return real(fd, buf, size, offset);
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int  rc;

    GATE_NEXT(clock_gettime)

    rc = real(id, ts);

    if (rc == 0 && orders != NULL) {
        ts->tv_sec += __atomic_load_n(&orders->seconds, __ATOMIC_SEQ_CST);
    }

    return rc;
}


/* how nginx tells its threads of a task */

int
pthread_cond_signal(pthread_cond_t *cond)
{
    int              rc;
    struct timespec  pause = { 0, 0 };

    GATE_NEXT(pthread_cond_signal)

    rc = real(cond);

    if (orders != NULL && gettid() == getpid()) {
        pause.tv_nsec = (long) orders->behind * 1000000;
        nanosleep(&pause, NULL);
    }

    return rc;
}
