
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

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calloc.h"
#include "zmap_pool.h"


#define PAGE   ((size_t) ZMAP_POOL_PAGE)
#define PAGES  1031
#define STEPS  200000


static uint8_t      *region;
static zmap_pool_t  *pool;


static void
setup(size_t size)
{
    region = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
    assert_non_null(region);

    pool = zmap_pool_create_over(region, size);
    assert_non_null(pool);
    assert_int_equal(zmap_pool_size(pool), size / PAGE * PAGE);
    assert_int_equal(zmap_pool_used(pool), 0);
    assert_ptr_equal(zmap_pool_base(pool), region);
}


static void
teardown(void)
{
    zmap_pool_destroy(pool);
    free(region);
}


/* page i is of the buffer owner[i] (its first page plus one), or of none */

typedef struct {
    uint16_t  owner[PAGES];
    uint16_t  length[PAGES];
    size_t    used;
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
    buffer = zmap_pool_alloc(pool, size);

    if (best == 0) {
        assert_null(buffer);
        return;
    }

    assert_non_null(buffer);
    assert_true(buffer >= region);
    assert_int_equal((buffer - region) % PAGE, 0);

    first = (size_t) (buffer - region) / PAGE;
    assert_true(npages <= PAGES && first <= PAGES - npages);
    assert_true(first == 0 || model->owner[first - 1] != 0);
    assert_int_equal(free_run(model, first), best);

    for (i = first; i < first + npages; i++) {
        assert_int_equal(model->owner[i], 0);
        model->owner[i] = (uint16_t) (first + 1);
        memset(region + i * PAGE, (int) first & 0xff, 64);
        memset(region + i * PAGE + PAGE - 64, (int) first & 0xff, 64);
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
        assert_int_equal(region[i * PAGE], first & 0xff);
        assert_int_equal(region[i * PAGE + PAGE - 1], first & 0xff);
        model->owner[i] = 0;
    }

    zmap_pool_free(pool, region + first * PAGE);
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
    setup(PAGES * PAGE);

    x = 88172645;
    refused = 0;

    for (step = 0; step < STEPS; step++) {
        first = next_random(&x) % PAGES;

        if (model->owner[first] != 0) {
            model_free(model, model->owner[first] - 1u);

        } else {
            size = next_random(&x) % 8 ? 24 * PAGE : 240 * PAGE;
            size = 1 + next_random(&x) % size;
            refused += best_run(model, (size + PAGE - 1) / PAGE) == 0;
            model_alloc(model, size);
        }

        assert_int_equal(zmap_pool_used(pool), model->used * PAGE);
    }

    assert_true(refused > STEPS / 1000);

    for (i = 0; i < PAGES; i++) {
        if (model->owner[i] != 0) {
            model_free(model, model->owner[i] - 1u);
        }
    }

    assert_int_equal(zmap_pool_used(pool), 0);
    assert_ptr_equal(zmap_pool_alloc(pool, PAGES * PAGE), region);

    teardown();
    free(model);
}


/* three neighbours given back in every order are one run again */

static void
neighbours_merge_in_every_order(void **state)
{
    int       i, j;
    uint8_t  *buffer[3], *whole;

    static const int  orders[6][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
        { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 }
    };

    (void) state;

    setup(6 * PAGE);

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
        assert_ptr_equal(whole, region);
        zmap_pool_free(pool, whole);
    }

    teardown();
}


static void
a_full_pool_gives_nothing(void **state)
{
    uint8_t  *a;

    (void) state;

    setup(PAGE);

    assert_null(zmap_pool_alloc(pool, 0));
    assert_null(zmap_pool_alloc(pool, PAGE + 1));
    assert_null(zmap_pool_alloc(pool, SIZE_MAX));
    assert_null(zmap_pool_alloc(pool, SIZE_MAX - PAGE));
    assert_null(zmap_pool_alloc(pool, (size_t) UINT32_MAX * PAGE));
    assert_null(zmap_pool_alloc(pool, ((size_t) UINT32_MAX + 1) * PAGE));
    assert_null(zmap_pool_alloc(pool, ((size_t) UINT32_MAX + 2) * PAGE));

    a = zmap_pool_alloc(pool, 1);
    assert_ptr_equal(a, region);
    assert_int_equal(zmap_pool_used(pool), PAGE);
    memset(a, 1, PAGE);

    assert_null(zmap_pool_alloc(pool, 1));

    zmap_pool_free(pool, a);
    assert_ptr_equal(zmap_pool_alloc(pool, PAGE), a);

    teardown();
}


static void
a_last_page_that_is_not_whole_is_left_out(void **state)
{
    uint8_t  *buffer;

    (void) state;

    setup(3 * PAGE - 1);
    assert_int_equal(zmap_pool_size(pool), 2 * PAGE);

    buffer = zmap_pool_alloc(pool, 2 * PAGE);
    assert_ptr_equal(buffer, region);
    assert_null(zmap_pool_alloc(pool, 1));

    teardown();
}


static void
impossible_pools_are_refused(void **state)
{
    (void) state;

    setup(2 * PAGE);

    assert_null(zmap_pool_create_over(NULL, PAGE));
    assert_null(zmap_pool_create_over(region + 1, PAGE));
    assert_null(zmap_pool_create_over(region, 0));
    assert_null(zmap_pool_create_over(region, PAGE - 1));
    assert_null(zmap_pool_create_over(region, SIZE_MAX));
    assert_null(zmap_pool_create_over(region, (size_t) UINT32_MAX * PAGE));

    zmap_pool_destroy(NULL);

    teardown();
}


static void
no_memory_means_no_pool(void **state)
{
    int  call;

    (void) state;

    setup(2 * PAGE);

    for (call = 1; call <= 2; call++) {
        calloc_fails = call;
        assert_null(zmap_pool_create_over(region, 2 * PAGE));
        assert_int_equal(calloc_fails, 0);
    }

    teardown();
}


/* any access would be fatal, and munmap() fails when it is no longer there */

static void
the_memory_is_neither_touched_nor_unmapped(void **state)
{
    uint8_t        *memory, *a, *b;
    unsigned char   vector[8];

    (void) state;

    memory = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);

    pool = zmap_pool_create_over(memory, 8 * PAGE);
    assert_non_null(pool);

    a = zmap_pool_alloc(pool, 3 * PAGE);
    b = zmap_pool_alloc(pool, 5 * PAGE);
    assert_true(a != NULL && b != NULL);
    zmap_pool_free(pool, a);
    zmap_pool_free(pool, b);
    zmap_pool_destroy(pool);

    assert_int_equal(mincore(memory, 8 * PAGE, vector), 0);
    assert_int_equal(munmap(memory, 8 * PAGE), 0);
}


/* a child that frees what it must not is stopped */

static void
assert_stopped(uint8_t *buffer)
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
    uint8_t  *a, *b, *c;

    (void) state;

    setup(8 * PAGE);

    a = zmap_pool_alloc(pool, 2 * PAGE);
    b = zmap_pool_alloc(pool, 2 * PAGE);
    c = zmap_pool_alloc(pool, 2 * PAGE);
    assert_true(a != NULL && b != NULL && c != NULL);

    assert_stopped(NULL);
    assert_stopped(a + 1);
    assert_stopped(a + PAGE);
    assert_stopped(a + 8 * PAGE);
    assert_stopped((uint8_t *) pool);
    assert_stopped((uint8_t *) UINTPTR_MAX - PAGE + 1);

    zmap_pool_free(pool, b);
    assert_stopped(b);
    assert_stopped(b + PAGE);

    zmap_pool_free(pool, a);
    assert_stopped(a);
    assert_stopped(b);

    zmap_pool_free(pool, c);
    assert_stopped(c);

    teardown();
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(a_soak_agrees_with_the_model),
        cmocka_unit_test(neighbours_merge_in_every_order),
        cmocka_unit_test(a_full_pool_gives_nothing),
        cmocka_unit_test(a_last_page_that_is_not_whole_is_left_out),
        cmocka_unit_test(impossible_pools_are_refused),
        cmocka_unit_test(no_memory_means_no_pool),
        cmocka_unit_test(the_memory_is_neither_touched_nor_unmapped),
        cmocka_unit_test(bugs_of_the_caller_are_stopped),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("pool", tests, NULL, NULL) != 0;
}
