
/*
 * How long small replies take, and a load of large ones beside them.
 *
 *   latency ask   PORT PATH COUNT           so many requests, one by one
 *   latency load  PORT PATH FILES CLIENTS   GET of PATH with # replaced by a
 *                                           number, FILES of them for each
 *                                           client, over and over, until its
 *                                           standard input ends, and then the
 *                                           rest of them
 *
 * "ask" prints the times of the median, the 99th percentile and the slowest,
 * in microseconds; it asks for frames.  "load" prints a line once each client
 * has had a reply, and how many they had when its input ended.  The rest makes
 * sure that what another one begins with was asked for before all others.
 * CPUS=A,B in the environment: both run on CPU B.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"


#define PATH_SIZE  1024


typedef struct {
    uint16_t     port;
    const char  *path;
    size_t       files;
    size_t       first;
    pthread_t    thread;
} load_t;


static atomic_bool           ended;
static atomic_uint_fast64_t  replies, started;


static uint64_t
now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return UINT64_C(1000000000) * (uint64_t) ts.tv_sec + (uint64_t) ts.tv_nsec;
}


static int
compare(const void *one, const void *two)
{
    uint64_t  a = *(const uint64_t *) one, b = *(const uint64_t *) two;

    return (a > b) - (a < b);
}


static void
ask(uint16_t port, const char *path, size_t count)
{
    int        fd;
    size_t     i;
    uint64_t  *times, start;

    times = calloc(count, sizeof(uint64_t));
    if (times == NULL) {
        die("no memory");
    }

    fd = connect_to(port);
    (void) get(fd, path, "Accept-Encoding: zstd\r\n");

    for (i = 0; i < count; i++) {
        start = now();
        (void) get(fd, path, "Accept-Encoding: zstd\r\n");
        times[i] = now() - start;
    }

    qsort(times, count, sizeof(uint64_t), compare);

    (void) printf("%.1f %.1f %.1f\n", (double) times[count / 2] / 1000,
                  (double) times[count * 99 / 100] / 1000,
                  (double) times[count - 1] / 1000);

    free(times);
}


static void *
load_client(void *data)
{
    load_t *load = data;

    int          fd;
    char         path[PATH_SIZE];
    size_t       i;
    const char  *mark;

    fd = connect_to(load->port);
    mark = strchr(load->path, '#');

    for (i = 0; i % load->files != 0 || !atomic_load(&ended); i++) {
        (void) snprintf(path, sizeof(path), "%.*s%zu%s",
                        (int) (mark - load->path), load->path,
                        load->first + i % load->files, mark + 1);
        (void) get(fd, path, "");

        (void) atomic_fetch_add(&replies, 1);

        if (i == 0) {
            (void) atomic_fetch_add(&started, 1);
        }
    }

    return NULL;
}


static void
load_all(uint16_t port, const char *path, size_t files, size_t clients)
{
    char      c;
    size_t    i;
    load_t   *loads;
    uint64_t  count;

    loads = calloc(clients, sizeof(load_t));
    if (loads == NULL || strchr(path, '#') == NULL) {
        die("no memory, or no # in the path");
    }

    for (i = 0; i < clients; i++) {
        loads[i] = (load_t) { port, path, files, i * files, 0 };

        if (pthread_create(&loads[i].thread, NULL, load_client, &loads[i])
            != 0)
        {
            die("no thread");
        }
    }

    while (atomic_load(&started) < clients) {
        (void) poll(NULL, 0, 1);
    }

    (void) puts("started");
    (void) fflush(stdout);

    while (read(STDIN_FILENO, &c, 1) > 0) { /* void */ }

    count = atomic_load(&replies);
    atomic_store(&ended, 1);

    for (i = 0; i < clients; i++) {
        (void) pthread_join(loads[i].thread, NULL);
    }

    (void) printf("%" PRIu64 "\n", count);

    free(loads);
}


int
main(int argc, char **argv)
{
    pin(1);

    if (argc == 5 && strcmp(argv[1], "ask") == 0) {
        ask((uint16_t) number(argv[2]), argv[3], number(argv[4]));

    } else if (argc == 6 && strcmp(argv[1], "load") == 0) {
        load_all((uint16_t) number(argv[2]), argv[3], number(argv[4]),
                 number(argv[5]));

    } else {
        die("see the top of the source");
    }

    return 0;
}
