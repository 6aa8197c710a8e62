
/*
 * LD_PRELOAD: stops or kills the worker at a chosen call of the module.
 *
 * The file that ZMAP_HOLD names has the order: where ('r': before a pread, 'l':
 * before a mutex is unlocked) and what ('S' stop, 'K' kill).  The first worker
 * to come there removes the file and does it.
 *
 * "tK" and the name of a function of nginx: killed where the module calls that
 * function while it has the mutex that it locked first.  The linker would find
 * nginx's own function before one of this file, so its first instruction is
 * replaced by a breakpoint, but only for as long as the mutex is locked.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>


#if (__x86_64__)
static const unsigned char  breakpoint[] = { 0xcc };              /* int3 */
#elif (__aarch64__)
static const unsigned char  breakpoint[] = { 0x00, 0x00, 0x20, 0xd4 };
#else
#error no breakpoint is known for this processor
#endif


static unsigned char    *trap;         /* NULL: none is set */
static unsigned char     trapped[sizeof(breakpoint)];
static pthread_mutex_t  *trap_mutex;


static ssize_t
read_order(char *order, size_t size)
{
    int          fd;
    ssize_t      n;
    const char  *path;

    path = getenv("ZMAP_HOLD");

    if (path == NULL || access(path, R_OK) == -1) {
        return 0;
    }

    fd = open(path, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return 0;
    }

    n = read(fd, order, size);
    (void) close(fd);

    return n;
}


static int
called_by_module(void *caller)
{
    Dl_info  info;

    return dladdr(caller, &info) && info.dli_fname
           && strstr(info.dli_fname, "zstd_mmap");
}


static void
put_code(unsigned char *to, const unsigned char *code)
{
    size_t     page;
    uintptr_t  first, last;

    page = (size_t) sysconf(_SC_PAGESIZE);
    first = (uintptr_t) to / page * page;
    last = (uintptr_t) (to + sizeof(breakpoint));

    if (mprotect((void *) first, last - first,
                 PROT_READ|PROT_WRITE|PROT_EXEC) == -1)
    {
        abort();
    }

    memcpy(to, code, sizeof(breakpoint));
    __builtin___clear_cache((char *) to, (char *) to + sizeof(breakpoint));
}


static void
spring_trap(int signo)
{
    (void) signo;

    (void) unlink(getenv("ZMAP_HOLD"));
    (void) kill(getpid(), SIGKILL);
}


static void
set_trap(pthread_mutex_t *mutex)
{
    char     order[128];
    ssize_t  n;

    if (trap) {
        return;
    }

    n = read_order(order, sizeof(order) - 1);

    if (n < 3 || memcmp(order, "tK", 2) != 0) {
        return;
    }

    order[n] = '\0';

    trap = dlsym(RTLD_DEFAULT, order + 2);
    if (trap == NULL) {
        abort();
    }

    trap_mutex = mutex;
    memcpy(trapped, trap, sizeof(breakpoint));
    (void) signal(SIGTRAP, spring_trap);
    put_code(trap, breakpoint);
}


static void
remove_trap(pthread_mutex_t *mutex)
{
    if (trap && mutex == trap_mutex) {
        put_code(trap, trapped);
        trap = NULL;
    }
}


static void
hold_here(char where, void *caller)
{
    char  order[2];

    if (!called_by_module(caller) || read_order(order, 2) != 2
        || order[0] != where || unlink(getenv("ZMAP_HOLD")) == -1)
    {
        return;
    }

    (void) kill(getpid(), order[1] == 'K' ? SIGKILL : SIGSTOP);
}


ssize_t
pread(int fd, void *buf, size_t size, off_t offset)
{
    static __typeof__(&pread)  real;

    if (real == NULL) {
        *(void **) &real = dlsym(RTLD_NEXT, "pread");
    }

    hold_here('r', __builtin_return_address(0));

    return real(fd, buf, size, offset);
}


int
pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    int                                      rc;
    static __typeof__(&pthread_mutex_trylock)  real;

    if (real == NULL) {
        *(void **) &real = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    }

    rc = real(mutex);

    if (rc != EBUSY && called_by_module(__builtin_return_address(0))) {
        set_trap(mutex);
    }

    return rc;
}


int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static __typeof__(&pthread_mutex_unlock)  real;

    if (real == NULL) {
        *(void **) &real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    }

    remove_trap(mutex);
    hold_here('l', __builtin_return_address(0));

    return real(mutex);
}
