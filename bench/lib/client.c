
/*
 * What the programs here share: a plain HTTP client, and where it runs.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"


#define READER_SIZE  (256 * 1024)
#define HEAD_SIZE    4096


static uint64_t read_head(int fd);


void
die(const char *format, ...)
{
    va_list  args;

    va_start(args, format);
    (void) vfprintf(stderr, format, args);
    va_end(args);

    (void) fputc('\n', stderr);
    exit(1);
}


size_t
number(const char *text)
{
    char                *end;
    unsigned long long   n;

    n = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || n == 0
        || n > (unsigned long long) 1 << 40)
    {
        die("not a number: %s", text);
    }

    return (size_t) n;
}


void
pin(int which)
{
    int          cpu[2];
    cpu_set_t    set;
    const char  *text;

    text = getenv("CPUS");
    if (text == NULL) {
        return;
    }

    if (sscanf(text, "%d,%d", &cpu[0], &cpu[1]) != 2
        || cpu[which] < 0 || cpu[which] >= CPU_SETSIZE)
    {
        die("CPUS: two numbers, not %s", text);
    }

    CPU_ZERO(&set);
    CPU_SET((size_t) cpu[which], &set);

    if (sched_setaffinity(0, sizeof(set), &set) == -1) {
        die("sched_setaffinity: %s", strerror(errno));
    }
}


void
write_all(int fd, const char *p, size_t size)
{
    ssize_t  n;

    while (size) {
        n = write(fd, p, size);

        if (n == -1 && errno != EINTR) {
            die("write: %s", strerror(errno));
        }

        if (n > 0) {
            p += n;
            size -= (size_t) n;
        }
    }
}


int
connect_to(uint16_t port)
{
    int                 fd;
    struct sockaddr_in  addr;

    memset(&addr, 0, sizeof(addr));
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addr.sin_port = htons(port);

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd == -1
        || connect(fd, (struct sockaddr *) &addr, sizeof(addr)) == -1)
    {
        die("connect: %s", strerror(errno));
    }

    return fd;
}


/* up to size bytes, or up to the end */

uint64_t
discard(int fd, uint64_t size)
{
    size_t       room;
    ssize_t      n;
    uint64_t     got;
    static char  buffer[READER_SIZE];

    for (got = 0; got < size; got += (uint64_t) n) {
        room = size - got < sizeof(buffer) ? (size_t) (size - got)
                                           : sizeof(buffer);
        n = read(fd, buffer, room);
        if (n == -1) {
            die("read: %s", strerror(errno));
        }

        if (n == 0) {
            break;
        }
    }

    return got;
}


uint64_t
get(int fd, const char *path, const char *headers)
{
    int       len;
    char      request[HEAD_SIZE];
    uint64_t  left;

    len = snprintf(request, sizeof(request),
                   "GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", path,
                   headers);
    if (len < 0 || (size_t) len >= sizeof(request)) {
        die("the path is too long");
    }

    write_all(fd, request, (size_t) len);
    left = read_head(fd);

    if (discard(fd, left) != left) {
        die("a reply is too short");
    }

    return left;
}


static uint64_t
read_head(int fd)
{
    char     *end, *field, head[HEAD_SIZE];
    size_t    size;
    ssize_t   n;

    for (size = 0; ; size += (size_t) n) {
        head[size] = '\0';

        end = strstr(head, "\r\n\r\n");
        if (end) {
            break;
        }

        n = read(fd, head + size, HEAD_SIZE - 1 - size);
        if (n <= 0) {
            die("no head of a reply");
        }
    }

    field = strcasestr(head, "\r\nContent-Length: ");

    if (strncmp(head, "HTTP/1.1 200 ", 13) != 0 || field == NULL
        || field > end)
    {
        die("not a reply that can be used: %.*s", (int) (end - head), head);
    }

    return strtoull(field + 18, NULL, 10) - (size - (size_t) (end + 4 - head));
}
