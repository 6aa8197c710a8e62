
/*
 * LD_PRELOAD: stops or kills the worker at a chosen call of the module.
 *
 * The file that ZMAP_HOLD names has the order: where ('r': before a pread, 'l':
 * before a mutex is unlocked) and what ('S' stop, 'K' kill).  The first worker
 * to come there removes the file and does it.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


static void
hold_here(char where, void *caller)
{
    int          fd;
    char         order[2];
    Dl_info      info;
    ssize_t      n;
    const char  *path;

    path = getenv("ZMAP_HOLD");

    if (path == NULL || access(path, R_OK) == -1
        || dladdr(caller, &info) == 0 || info.dli_fname == NULL
        || strstr(info.dli_fname, "zstd_mmap") == NULL)
    {
        return;
    }

    fd = open(path, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return;
    }

    n = read(fd, order, 2);
    (void) close(fd);

    if (n == 2 && order[0] == where && unlink(path) == 0) {
        (void) kill(getpid(), order[1] == 'K' ? SIGKILL : SIGSTOP);
    }
}


/* nginx is compiled with _FILE_OFFSET_BITS 64 */

ssize_t
pread64(int fd, void *buf, size_t size, off64_t offset)
{
    static __typeof__(&pread64)  real;

    if (real == NULL) {
        *(void **) &real = dlsym(RTLD_NEXT, "pread64");
    }

    hold_here('r', __builtin_return_address(0));

    return real(fd, buf, size, offset);
}


int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static __typeof__(&pthread_mutex_unlock)  real;

    if (real == NULL) {
        *(void **) &real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    }

    hold_here('l', __builtin_return_address(0));

    return real(mutex);
}
