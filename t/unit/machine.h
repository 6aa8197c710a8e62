
/*
 * Settings of the machine that a test changes, and that are put back however
 * the test ends; and child processes.
 */


#ifndef MACHINE_H
#define MACHINE_H


#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>


#define MACHINE_POOL  "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define MACHINE_THP   "/sys/kernel/mm/transparent_hugepage/"

/* an exit status: what the child was to do cannot be done here */
#define MACHINE_CANNOT  77


/* in a child process, where cmocka's assertions have nowhere to go */

#define child_check(condition)                                                \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "# line %d: not %s (errno %d)\n", __LINE__,       \
                    #condition, errno);                                       \
            return 1;                                                         \
        }                                                                     \
    } while (0)


enum {
    MACHINE_PAGES,
    MACHINE_OVERCOMMIT,
    MACHINE_ENABLED,
    MACHINE_SHMEM,
    MACHINE_SETTINGS
};


static const char  *machine_paths[MACHINE_SETTINGS] = {
    [MACHINE_PAGES]      = MACHINE_POOL "nr_hugepages",
    [MACHINE_OVERCOMMIT] = MACHINE_POOL "nr_overcommit_hugepages",
    [MACHINE_ENABLED]    = MACHINE_THP "enabled",
    [MACHINE_SHMEM]      = MACHINE_THP "shmem_enabled"
};

static char   machine_before[MACHINE_SETTINGS][64];
static pid_t  machine_tests;


/* not through stdio: a test may make that fail */

static inline int
machine_read(const char *path, char *text, size_t size)
{
    int      fd;
    ssize_t  n;

    fd = open(path, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    n = read(fd, text, size - 1);
    (void) close(fd);

    if (n == -1) {
        return -1;
    }

    text[n] = '\0';

    return 0;
}


static inline int
machine_write(const char *path, const char *text)
{
    int      fd;
    size_t   len;
    ssize_t  n;

    fd = open(path, O_WRONLY|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    len = strlen(text);
    n = write(fd, text, len);
    (void) close(fd);

    return n == (ssize_t) len ? 0 : -1;
}


static inline int
machine_set(int setting, const char *text)
{
    return machine_write(machine_paths[setting], text);
}


/* the one in brackets of several words, else the whole line */

static inline int
machine_get(int setting, char *word)
{
    char  text[256], *first, *last;

    if (machine_read(machine_paths[setting], text, sizeof(text)) != 0) {
        return -1;
    }

    first = strchr(text, '[');
    first = first ? first + 1 : text;
    last = strpbrk(first, "]\n");

    if (last == NULL || last - first > 63) {
        return -1;
    }

    *last = '\0';
    strcpy(word, first);

    return 0;
}


static inline long
machine_counter(const char *name)
{
    char  path[128], text[64];

    (void) snprintf(path, sizeof(path), MACHINE_POOL "%s_hugepages", name);

    return machine_read(path, text, sizeof(text)) == 0 ? atol(text) : -1;
}


static inline long
machine_claimable(void)
{
    return machine_counter("free") - machine_counter("resv");
}


/* makes a pool of which n pages are free, whoever holds some */

static inline int
machine_pool(long n)
{
    int   i;
    char  text[32];
    long  used;

    used = machine_counter("nr") - machine_claimable();
    (void) snprintf(text, sizeof(text), "%ld", used + n);

    /* the kernel moves pages about to make room: not always at once */

    for (i = 0; i < 10 && machine_claimable() != n; i++) {

        if (machine_set(MACHINE_PAGES, text) != 0) {
            return -1;
        }
    }

    return machine_claimable() == n ? 0 : -1;
}


static inline pid_t
machine_fork(int (*body)(void *data), void *data)
{
    pid_t  pid;

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        _exit(body(data));
    }

    return pid;
}


static inline int
machine_wait(pid_t pid)
{
    int    status;
    pid_t  rc;

    do {
        rc = waitpid(pid, &status, 0);
    } while (rc == -1 && errno == EINTR);

    if (rc == -1) {
        return 255;
    }

    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}


static inline int
machine_child(int (*body)(void *data), void *data)
{
    return machine_wait(machine_fork(body, data));
}


static inline void
machine_put_back(void)
{
    int   i;
    char  now[64];

    for (i = 0; i < MACHINE_SETTINGS; i++) {

        if (machine_before[i][0] == '\0'
            || (machine_get(i, now) == 0 && strcmp(now, machine_before[i]) == 0)
            || machine_set(i, machine_before[i]) == 0)
        {
            continue;
        }

        fprintf(stderr, "# %s is not %s again\n", machine_paths[i],
                machine_before[i]);
    }
}


static inline void
machine_signal(int signo)
{
    (void) kill(machine_tests, signo);
}


/*
 * Runs the tests in a child process and puts the settings back after it.  One
 * such program at a time: the lock is on a file that every machine has.
 */

static inline int
machine_run(int (*tests)(void *data))
{
    int  i, fd, status;

    fd = open("/proc/sys/vm/nr_hugepages", O_RDONLY|O_CLOEXEC);

    if (fd != -1) {
        (void) flock(fd, LOCK_EX);
    }

    for (i = 0; i < MACHINE_SETTINGS; i++) {

        if (machine_get(i, machine_before[i]) != 0) {
            machine_before[i][0] = '\0';
        }
    }

    machine_tests = machine_fork(tests, NULL);

    (void) signal(SIGINT, machine_signal);
    (void) signal(SIGTERM, machine_signal);
    (void) signal(SIGHUP, machine_signal);

    status = machine_wait(machine_tests);
    machine_put_back();

    return status;
}


#endif /* MACHINE_H */
