
/*
 * What the programs here share: a plain HTTP client, and where it runs.
 * Whatever fails ends the program with a message.
 */


#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H


#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>


void die(const char *format, ...);

/* a decimal number above 0 */
size_t number(const char *text);

/* CPUS=A,B in the environment: which 0 runs on A, 1 on B; else anywhere */
void pin(int which);

/* a connection to that port on 127.0.0.1 */
int connect_to(uint16_t port);

void write_all(int fd, const char *p, size_t size);

/* reads up to size bytes, or up to the end; how many */
uint64_t discard(int fd, uint64_t size);

/*
 * GET, and the reply read up to its end: the bytes behind those that came
 * with its head.  headers are whole lines.  A reply that is not 200 with
 * Content-Length is a failure.
 */
uint64_t get(int fd, const char *path, const char *headers);


#endif /* BENCH_CLIENT_H */
