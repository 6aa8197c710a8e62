
/*
 * The buffer pool against a model of its pages.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zmap_pool.h"


#define PAGE   ((size_t) ZMAP_POOL_PAGE)
#define PAGES  257
#define STEPS  200000
#define HUGE   (2 * 1024 * 1024)
#define BIG    ((size_t) 32 * 1024 * 1024)


const char *__asan_default_options(void);

/* malloc() fails with NULL under the sanitizer, too */

const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}


static int     mmap_fails;
static int     munmap_fails;
static int     madvise_fails;
static int     madvised;
static size_t  mapped;


void *
mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    void  *data;

    if (mmap_fails) {
        errno = ENOMEM;
        return MAP_FAILED;
    }

    data = (void *) syscall(SYS_mmap, addr, len, prot, flags, fd, offset);

    if (data != MAP_FAILED) {
        mapped += len;
    }

    return data;
}


int
munmap(void *addr, size_t len)
{
    if (munmap_fails > 0) {
        munmap_fails--;
        errno = ENOMEM;
        return -1;
    }

    mapped -= len;

    return (int) syscall(SYS_munmap, addr, len);
}


int
madvise(void *addr, size_t len, int advice)
{
    madvised = advice;

    if (madvise_fails) {
        errno = EINVAL;
        return -1;
    }

    return (int) syscall(SYS_madvise, addr, len, advice);
}


static int
no_faults(void **state)
{
    (void) state;

    mmap_fails = 0;
    munmap_fails = 0;
    madvise_fails = 0;
    madvised = -1;
    mapped = 0;

    return 0;
}


/* page i is of the buffer owner[i] (its first page plus one), or of none */

typedef struct {
    zmap_pool_t  *pool;
    uint8_t      *base;
    uint16_t      owner[PAGES];
    uint16_t      length[PAGES];
    size_t        used;
} model_t;


static uint32_t
next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;

    return *x;
}


static size_t
free_run(const model_t *model, size_t first)
{
    size_t  n;

    for (n = 0; first + n < PAGES && model->owner[first + n] == 0; n++) {
        /* void */
    }

    return n;
}


/* pages of the smallest free run of at least npages, 0: none */

static size_t
best_run(const model_t *model, size_t npages)
{
    size_t  i, n, best;

    best = 0;

    for (i = 0; i < PAGES; i += n ? n : 1) {
        n = free_run(model, i);

        if (n >= npages && (best == 0 || n < best)) {
            best = n;
        }
    }

    return best;
}


static void
model_alloc(model_t *model, size_t size)
{
    size_t    i, first, npages, best;
    uint8_t  *buffer;

    npages = (size + PAGE - 1) / PAGE;
    best = best_run(model, npages);
    buffer = zmap_pool_alloc(model->pool, size);

    if (best == 0) {
        assert_null(buffer);
        return;
    }

    assert_non_null(buffer);
    assert_true(buffer >= model->base);
    assert_int_equal((buffer - model->base) % PAGE, 0);

    first = (size_t) (buffer - model->base) / PAGE;
    assert_true(npages <= PAGES && first <= PAGES - npages);
    assert_true(first == 0 || model->owner[first - 1] != 0);
    assert_int_equal(free_run(model, first), best);

    for (i = first; i < first + npages; i++) {
        assert_int_equal(model->owner[i], 0);
        model->owner[i] = (uint16_t) (first + 1);
        memset(model->base + i * PAGE, (int) first & 0xff, 64);
        memset(model->base + i * PAGE + PAGE - 64, (int) first & 0xff, 64);
    }

    model->length[first] = (uint16_t) npages;
    model->used += npages;
}


static void
model_free(model_t *model, size_t first)
{
    size_t  i, npages;

    npages = model->length[first];

    for (i = first; i < first + npages; i++) {
        assert_int_equal(model->base[i * PAGE], first & 0xff);
        assert_int_equal(model->base[i * PAGE + PAGE - 1], first & 0xff);
        model->owner[i] = 0;
    }

    zmap_pool_free(model->pool, model->base + first * PAGE);
    model->used -= npages;
}


static void
a_soak_agrees_with_the_model(void **state)
{
    size_t     size, first, i;
    model_t   *model;
    uint32_t   x, step, refused;

    (void) state;

    model = calloc(1, sizeof(model_t));
    assert_non_null(model);
    model->pool = zmap_pool_create((PAGES - 1) * PAGE + 1);
    assert_non_null(model->pool);
    assert_int_equal(zmap_pool_size(model->pool), PAGES * PAGE);

    model->base = zmap_pool_alloc(model->pool, PAGES * PAGE);
    assert_non_null(model->base);
    zmap_pool_free(model->pool, model->base);

    x = 88172645;
    refused = 0;

    for (step = 0; step < STEPS; step++) {
        first = next_random(&x) % PAGES;

        if (model->owner[first] != 0) {
            model_free(model, model->owner[first] - 1u);

        } else {
            size = 1 + next_random(&x) % (next_random(&x) % 8 ? 6 * PAGE
                                                              : 60 * PAGE);
            refused += best_run(model, (size + PAGE - 1) / PAGE) == 0;
            model_alloc(model, size);
        }

        assert_int_equal(zmap_pool_used(model->pool), model->used * PAGE);
    }

    assert_true(refused > STEPS / 1000);

    for (i = 0; i < PAGES; i++) {
        if (model->owner[i] != 0) {
            model_free(model, model->owner[i] - 1u);
        }
    }

    assert_int_equal(zmap_pool_used(model->pool), 0);
    assert_ptr_equal(zmap_pool_alloc(model->pool, PAGES * PAGE), model->base);

    zmap_pool_destroy(model->pool);
    free(model);
}


/* three neighbours given back in every order are one run again */

static void
neighbours_merge_in_every_order(void **state)
{
    int           i, j;
    uint8_t      *buffer[3], *whole;
    zmap_pool_t  *pool;

    static const int  orders[6][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
        { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 }
    };

    (void) state;

    pool = zmap_pool_create(6 * PAGE);
    assert_non_null(pool);

    for (i = 0; i < 6; i++) {
        for (j = 0; j < 3; j++) {
            buffer[j] = zmap_pool_alloc(pool, 2 * PAGE);
            assert_non_null(buffer[j]);
        }

        assert_null(zmap_pool_alloc(pool, 1));

        for (j = 0; j < 3; j++) {
            zmap_pool_free(pool, buffer[orders[i][j]]);
        }

        whole = zmap_pool_alloc(pool, 6 * PAGE);
        assert_non_null(whole);
        zmap_pool_free(pool, whole);
    }

    zmap_pool_destroy(pool);
}


static void
a_full_pool_gives_nothing(void **state)
{
    uint8_t      *a;
    zmap_pool_t  *pool;

    (void) state;

    pool = zmap_pool_create(1);
    assert_non_null(pool);
    assert_int_equal(zmap_pool_size(pool), PAGE);
    assert_int_equal(zmap_pool_used(pool), 0);

    assert_null(zmap_pool_alloc(pool, 0));
    assert_null(zmap_pool_alloc(pool, PAGE + 1));
    assert_null(zmap_pool_alloc(pool, SIZE_MAX));
    assert_null(zmap_pool_alloc(pool, SIZE_MAX - PAGE));
    assert_null(zmap_pool_alloc(pool, ((size_t) UINT32_MAX + 2) * PAGE));

    a = zmap_pool_alloc(pool, 1);
    assert_non_null(a);
    assert_int_equal(zmap_pool_used(pool), PAGE);
    memset(a, 1, PAGE);

    assert_null(zmap_pool_alloc(pool, 1));

    zmap_pool_free(pool, a);
    assert_ptr_equal(zmap_pool_alloc(pool, PAGE), a);

    zmap_pool_destroy(pool);
}


static void
impossible_pools_are_refused(void **state)
{
    (void) state;

    assert_null(zmap_pool_create(0));
    assert_null(zmap_pool_create(SIZE_MAX));
    assert_null(zmap_pool_create(SIZE_MAX - HUGE));
    assert_null(zmap_pool_create((size_t) UINT32_MAX * PAGE));

    zmap_pool_destroy(NULL);
}


static void
the_region_is_aligned_trimmed_and_unmapped(void **state)
{
    size_t        i;
    uint8_t      *base;
    zmap_pool_t  *pool;

    static const size_t  sizes[] = { 1, HUGE, HUGE + 1, 5 * HUGE - PAGE };

    (void) state;

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        madvised = -1;
        pool = zmap_pool_create(sizes[i]);
        assert_non_null(pool);
        assert_int_equal(mapped, zmap_pool_size(pool));
        assert_int_equal(madvised, MADV_HUGEPAGE);

        base = zmap_pool_alloc(pool, sizes[i]);
        assert_non_null(base);
        assert_int_equal((uintptr_t) base % HUGE, 0);
        memset(base, 0x5a, zmap_pool_size(pool));

        zmap_pool_destroy(pool);
        assert_int_equal(mapped, 0);
    }
}


/* a child with no room for BIG bytes more does body; gives its exit code */

static int
without_memory(void (*body)(void))
{
    int            status;
    FILE          *file;
    pid_t          pid;
    size_t         pages;
    struct rlimit  limit;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        file = fopen("/proc/self/statm", "r");

        if (file == NULL || fscanf(file, "%zu", &pages) != 1) {
            _exit(98);
        }

        limit.rlim_cur = pages * (size_t) sysconf(_SC_PAGESIZE) + BIG / 2;
        limit.rlim_max = limit.rlim_cur;

        if (setrlimit(RLIMIT_AS, &limit) == -1) {
            _exit(97);
        }

        body();
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));

    return WEXITSTATUS(status);
}


/* first the region, then the descriptors find no room */

static void
create_big_pools(void)
{
    if (zmap_pool_create(BIG) != NULL || mapped != 0) {
        _exit(1);
    }

    if (zmap_pool_create(BIG * 1024) != NULL || mapped != 0) {
        _exit(2);
    }
}


static void
no_memory_means_no_pool(void **state)
{
    (void) state;

    mmap_fails = 1;
    assert_null(zmap_pool_create(HUGE));
    assert_int_equal(mapped, 0);
    mmap_fails = 0;

    assert_int_equal(without_memory(create_big_pools), 0);
}


static void
huge_pages_are_not_required(void **state)
{
    uint8_t      *buffer;
    zmap_pool_t  *pool;

    (void) state;

    madvise_fails = 1;
    pool = zmap_pool_create(HUGE);
    assert_non_null(pool);

    buffer = zmap_pool_alloc(pool, HUGE);
    assert_non_null(buffer);
    memset(buffer, 0x5a, HUGE);

    zmap_pool_destroy(pool);
    assert_int_equal(mapped, 0);
}


static void
what_cannot_be_trimmed_is_unmapped_at_the_end(void **state)
{
    int           fails;
    uint8_t      *buffer;
    zmap_pool_t  *pool;

    (void) state;

    for (fails = 1; fails <= 2; fails++) {
        munmap_fails = fails;
        pool = zmap_pool_create(HUGE + 3 * PAGE);
        assert_non_null(pool);
        munmap_fails = 0;

        buffer = zmap_pool_alloc(pool, HUGE + 3 * PAGE);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t) buffer % HUGE, 0);
        memset(buffer, 0x5a, HUGE + 3 * PAGE);

        zmap_pool_destroy(pool);
        assert_int_equal(mapped, 0);
    }
}


/* a child that frees what it must not is stopped */

static void
assert_stopped(zmap_pool_t *pool, uint8_t *buffer)
{
    int            fd, status;
    pid_t          pid;
    struct rlimit  none = { 0, 0 };

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        (void) setrlimit(RLIMIT_CORE, &none);
        (void) signal(SIGABRT, SIG_DFL);

        fd = open("/dev/null", O_WRONLY);
        if (fd == -1 || dup2(fd, STDERR_FILENO) == -1) {
            _exit(98);
        }

        zmap_pool_free(pool, buffer);
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}


static void
bugs_of_the_caller_are_stopped(void **state)
{
    uint8_t      *a, *b, *c;
    zmap_pool_t  *pool;

    (void) state;

    pool = zmap_pool_create(8 * PAGE);
    assert_non_null(pool);

    a = zmap_pool_alloc(pool, 2 * PAGE);
    b = zmap_pool_alloc(pool, 2 * PAGE);
    c = zmap_pool_alloc(pool, 2 * PAGE);
    assert_true(a != NULL && b != NULL && c != NULL);

    assert_stopped(pool, NULL);
    assert_stopped(pool, a + 1);
    assert_stopped(pool, a + PAGE);
    assert_stopped(pool, a + 8 * PAGE);
    assert_stopped(pool, (uint8_t *) pool);
    assert_stopped(pool, (uint8_t *) UINTPTR_MAX - PAGE + 1);

    zmap_pool_free(pool, b);
    assert_stopped(pool, b);
    assert_stopped(pool, b + PAGE);

    zmap_pool_free(pool, a);
    assert_stopped(pool, a);
    assert_stopped(pool, b);

    zmap_pool_free(pool, c);
    assert_stopped(pool, c);

    zmap_pool_destroy(pool);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup(a_soak_agrees_with_the_model, no_faults),
        cmocka_unit_test_setup(neighbours_merge_in_every_order, no_faults),
        cmocka_unit_test_setup(a_full_pool_gives_nothing, no_faults),
        cmocka_unit_test_setup(impossible_pools_are_refused, no_faults),
        cmocka_unit_test_setup(the_region_is_aligned_trimmed_and_unmapped,
                               no_faults),
        cmocka_unit_test_setup(no_memory_means_no_pool, no_faults),
        cmocka_unit_test_setup(huge_pages_are_not_required, no_faults),
        cmocka_unit_test_setup(what_cannot_be_trimmed_is_unmapped_at_the_end,
                               no_faults),
        cmocka_unit_test_setup(bugs_of_the_caller_are_stopped, no_faults),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("pool", tests, NULL, NULL) != 0;
}
