
/*
 * Kept bodies: what is found again, what is given up for room, and a soak
 * against a model that looks at every page.
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
#include "zmap_bodies.h"


#define PAGE      ((size_t) ZMAP_POOL_PAGE)
#define STEPS     200000
#define LOOK      16384

/* of the soaks */
#define LARGEST   60
#define HOLDERS   8
#define VERSIONS  400
#define TIGHT     160
#define ROOMY     (HOLDERS * LARGEST + (HOLDERS + 1) * (LARGEST - 1) + 1)


static uint8_t        *region;
static size_t          region_size;
static zmap_pool_t    *pool;
static zmap_bodies_t  *bodies;


static void
setup(size_t npages)
{
    region_size = npages * PAGE;
    region = mmap(NULL, region_size, PROT_READ|PROT_WRITE,
                  MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    assert_true(region != MAP_FAILED);

    pool = zmap_pool_create_over(region, region_size);
    assert_non_null(pool);
    bodies = zmap_bodies_create(pool);
    assert_non_null(bodies);

    assert_int_equal(zmap_bodies_count(bodies), 0);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), 0);
}


/* what the bodies leave to the pool is one run again */

static void
teardown(void)
{
    uint8_t  *whole;

    zmap_bodies_destroy(bodies);

    assert_int_equal(zmap_pool_used(pool), 0);
    whole = zmap_pool_alloc(pool, region_size);
    assert_ptr_equal(whole, region);

    zmap_pool_destroy(pool);
    assert_int_equal(munmap(region, region_size), 0);
}


static zmap_version_t
version_of(uint64_t ino)
{
    zmap_version_t  version;

    memset(&version, 0, sizeof(zmap_version_t));
    version.dev = 1;
    version.ino = ino;
    version.size = 1000;
    version.mtime = 1700000000;
    version.ctime = 1700000001;

    return version;
}


/* a held body of so many pages that is found by ino */

static zmap_body_t *
held(uint64_t ino, size_t npages)
{
    zmap_body_t     *body;
    zmap_version_t   version;

    version = version_of(ino);
    body = zmap_bodies_alloc(bodies, npages * PAGE);
    assert_non_null(body);
    zmap_bodies_keep(bodies, body, &version, ZMAP_BODY_DECODED);

    return body;
}


static void
idle(uint64_t ino, size_t npages)
{
    zmap_bodies_release(bodies, held(ino, npages));
}


static zmap_body_t *
find(uint64_t ino)
{
    zmap_version_t  version;

    version = version_of(ino);

    return zmap_bodies_find(bodies, &version, ZMAP_BODY_DECODED);
}


static void
forget(uint64_t ino)
{
    zmap_version_t  version;

    version = version_of(ino);
    zmap_bodies_forget(bodies, &version, ZMAP_BODY_DECODED);
}


static void
use(uint64_t ino)
{
    zmap_body_t  *body;

    body = find(ino);
    assert_non_null(body);
    zmap_bodies_release(bodies, body);
}


/* asked at the end of a test: it is a use */

static int
is_kept(uint64_t ino)
{
    zmap_body_t  *body;

    body = find(ino);

    if (body != NULL) {
        zmap_bodies_release(bodies, body);
    }

    return body != NULL;
}


static void
a_finished_reply_leaves_its_body_behind(void **state)
{
    uint8_t      *data;
    zmap_body_t  *body;

    (void) state;

    setup(4);
    assert_null(find(1));

    body = held(1, 2);
    assert_int_equal(body->size, 2 * PAGE);
    data = body->data;
    memset(data, 'x', body->size);

    zmap_bodies_release(bodies, body);
    assert_int_equal(zmap_pool_used(pool), 2 * PAGE);

    body = find(1);
    assert_non_null(body);
    assert_ptr_equal(body->data, data);
    assert_int_equal(body->size, 2 * PAGE);
    assert_int_equal(data[0], 'x');
    assert_int_equal(data[2 * PAGE - 1], 'x');

    zmap_bodies_release(bodies, body);
    teardown();
}


static void
sizes_are_exact_and_counted_in_pages(void **state)
{
    zmap_body_t     *body, *two;
    zmap_version_t   version;

    (void) state;

    setup(4);

    assert_null(zmap_bodies_alloc(bodies, 0));
    assert_null(zmap_bodies_alloc(bodies, 4 * PAGE + 1));
    assert_null(zmap_bodies_alloc(bodies, SIZE_MAX));
    assert_null(zmap_bodies_alloc(bodies, SIZE_MAX - PAGE));

    body = zmap_bodies_alloc(bodies, 1);
    assert_non_null(body);
    assert_int_equal(body->size, 1);
    assert_int_equal((uintptr_t) body->data % PAGE, 0);
    assert_int_equal(zmap_bodies_count(bodies), 0);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), 0);

    version = version_of(1);
    zmap_bodies_keep(bodies, body, &version, ZMAP_BODY_DECODED);
    assert_int_equal(zmap_bodies_count(bodies), 1);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), PAGE);

    two = held(2, 3);
    assert_int_equal(zmap_bodies_count(bodies), 2);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), 4 * PAGE);

    zmap_bodies_release(bodies, two);
    zmap_bodies_release(bodies, body);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), 4 * PAGE);

    forget(2);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), PAGE);

    teardown();
}


static void
a_body_that_is_not_kept_goes_with_its_last_count(void **state)
{
    zmap_body_t  *body;

    (void) state;

    setup(4);

    body = zmap_bodies_alloc(bodies, 3 * PAGE);
    assert_non_null(body);
    assert_ptr_equal(zmap_bodies_hold(bodies, body), body);
    assert_int_equal(zmap_pool_used(pool), 3 * PAGE);

    zmap_bodies_release(bodies, body);
    assert_int_equal(zmap_pool_used(pool), 3 * PAGE);
    zmap_bodies_release(bodies, body);
    assert_int_equal(zmap_pool_used(pool), 0);

    teardown();
}


static void
any_other_version_is_not_found(void **state)
{
    size_t          i;
    zmap_version_t  version, other[8];

    (void) state;

    setup(4);
    idle(1, 1);

    version = version_of(1);

    for (i = 0; i < 8; i++) {
        other[i] = version;
    }

    other[0].dev++;
    other[1].ino++;
    other[2].size++;
    other[3].mtime++;
    other[4].ctime++;
    other[5].mtime_ns++;
    other[6].ctime_ns++;

    for (i = 0; i < 7; i++) {
        assert_null(zmap_bodies_find(bodies, &other[i], ZMAP_BODY_DECODED));
        zmap_bodies_forget(bodies, &other[i], ZMAP_BODY_DECODED);
    }

    /* these members are not compared */

    other[7].nlink++;
    other[7].mode++;
    other[7].uid++;
    other[7].gid++;
    assert_non_null(zmap_bodies_find(bodies, &other[7], ZMAP_BODY_DECODED));

    teardown();
}


/* frames and what they decode to, both of one version */

static void
bodies_of_two_kinds_live_side_by_side(void **state)
{
    zmap_body_t     *decoded, *coded;
    zmap_version_t   version;

    (void) state;

    setup(8);

    version = version_of(1);
    decoded = held(1, 2);

    assert_null(zmap_bodies_find(bodies, &version, ZMAP_BODY_CODED));

    coded = zmap_bodies_alloc(bodies, PAGE);
    assert_non_null(coded);
    zmap_bodies_keep(bodies, coded, &version, ZMAP_BODY_CODED);

    assert_int_equal(zmap_bodies_count(bodies), 2);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), 3 * PAGE);

    zmap_bodies_release(bodies, decoded);
    zmap_bodies_release(bodies, coded);

    assert_ptr_equal(find(1), decoded);
    assert_ptr_equal(zmap_bodies_find(bodies, &version, ZMAP_BODY_CODED),
                     coded);

    zmap_bodies_release(bodies, coded);
    zmap_bodies_forget(bodies, &version, ZMAP_BODY_CODED);

    assert_null(zmap_bodies_find(bodies, &version, ZMAP_BODY_CODED));
    assert_ptr_equal(find(1), decoded);
    assert_int_equal(zmap_bodies_count(bodies), 1);

    /* a body that changes its kind leaves the other's place */

    zmap_bodies_keep(bodies, decoded, &version, ZMAP_BODY_CODED);

    assert_null(find(1));
    assert_ptr_equal(zmap_bodies_find(bodies, &version, ZMAP_BODY_CODED),
                     decoded);
    assert_int_equal(zmap_bodies_count(bodies), 1);

    teardown();
}


static void
a_body_decoded_again_takes_the_place_of_the_old(void **state)
{
    zmap_body_t  *old, *new;

    (void) state;

    setup(4);

    /* idle: its memory is free at once */

    idle(1, 2);
    new = held(1, 1);
    assert_int_equal(zmap_bodies_count(bodies), 1);
    assert_int_equal(zmap_pool_used(pool), PAGE);

    /* held: a reply still sends it */

    old = new;
    memset(old->data, 'o', PAGE);
    new = held(1, 2);
    assert_int_equal(zmap_bodies_count(bodies), 1);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), 2 * PAGE);
    assert_int_equal(zmap_pool_used(pool), 3 * PAGE);
    assert_int_equal(old->data[PAGE - 1], 'o');

    zmap_bodies_release(bodies, old);
    assert_int_equal(zmap_pool_used(pool), 2 * PAGE);

    zmap_bodies_release(bodies, new);
    assert_ptr_equal(find(1), new);

    teardown();
}


static void
a_body_is_kept_for_one_version(void **state)
{
    zmap_body_t     *body;
    zmap_version_t   version;

    (void) state;

    setup(4);

    body = held(1, 1);
    version = version_of(2);
    zmap_bodies_keep(bodies, body, &version, ZMAP_BODY_DECODED);
    zmap_bodies_keep(bodies, body, &version, ZMAP_BODY_DECODED);

    assert_int_equal(zmap_bodies_count(bodies), 1);
    assert_int_equal(zmap_bodies_kept_bytes(bodies), PAGE);
    assert_null(find(1));

    zmap_bodies_release(bodies, body);
    assert_ptr_equal(find(2), body);

    teardown();
}


static void
a_forgotten_body_is_not_found(void **state)
{
    zmap_body_t  *body;

    (void) state;

    setup(4);

    idle(1, 1);
    body = held(2, 1);
    memset(body->data, 'b', PAGE);

    forget(3);
    assert_int_equal(zmap_bodies_count(bodies), 2);

    forget(1);
    assert_null(find(1));
    assert_int_equal(zmap_bodies_count(bodies), 1);
    assert_int_equal(zmap_pool_used(pool), PAGE);

    forget(2);
    assert_null(find(2));
    assert_int_equal(zmap_bodies_count(bodies), 0);
    assert_int_equal(zmap_pool_used(pool), PAGE);
    assert_int_equal(body->data[PAGE - 1], 'b');

    zmap_bodies_release(bodies, body);
    assert_int_equal(zmap_pool_used(pool), 0);

    teardown();
}


/* more versions than buckets, so that chains are long */

static void
versions_that_share_a_bucket_are_told_apart(void **state)
{
    size_t       i;
    zmap_body_t  *body[64];

    (void) state;

    setup(64);

    for (i = 0; i < 64; i++) {
        body[i] = held(i, 1);
    }

    for (i = 0; i < 64; i += 3) {
        forget(i);
    }

    for (i = 0; i < 64; i++) {
        assert_ptr_equal(find(i), i % 3 == 0 ? NULL : body[i]);
    }

    assert_int_equal(zmap_bodies_count(bodies), 42);

    teardown();
}


static void
the_least_recently_used_makes_room(void **state)
{
    (void) state;

    setup(4);

    idle(1, 1);
    idle(2, 1);
    idle(3, 1);
    idle(4, 1);
    use(1);
    idle(5, 1);
    use(3);
    idle(6, 1);

    assert_int_equal(zmap_bodies_count(bodies), 4);
    assert_true(is_kept(1));
    assert_false(is_kept(2));
    assert_true(is_kept(3));
    assert_false(is_kept(4));
    assert_true(is_kept(5));
    assert_true(is_kept(6));

    teardown();
}


/* a body is used until its last holder lets it go */

static void
the_end_of_its_use_counts(void **state)
{
    zmap_body_t  *body;

    (void) state;

    setup(3);

    body = held(1, 1);
    idle(2, 1);
    idle(3, 1);
    zmap_bodies_release(bodies, body);
    idle(4, 1);

    assert_true(is_kept(1));
    assert_false(is_kept(2));
    assert_true(is_kept(3));

    teardown();
}


static void
a_held_body_is_never_given_up(void **state)
{
    zmap_body_t  *body;

    (void) state;

    setup(4);

    idle(1, 3);
    body = find(1);
    assert_non_null(body);
    memset(body->data, 'h', 3 * PAGE);
    idle(2, 1);

    assert_null(zmap_bodies_alloc(bodies, 2 * PAGE));
    assert_true(is_kept(2));

    idle(3, 1);
    assert_false(is_kept(2));
    assert_int_equal(body->data[0], 'h');
    assert_int_equal(body->data[3 * PAGE - 1], 'h');

    zmap_bodies_release(bodies, body);
    teardown();
}


/*
 * Lays bodies of the given pages side by side from the start of the pool, all
 * held, with the versions 0, 1, 2, ...
 */

static void
lay(const size_t *npages, size_t n, zmap_body_t **body)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        body[i] = held(i, npages[i]);
        assert_true(i == 0
                    || body[i]->data
                       == body[i - 1]->data + npages[i - 1] * PAGE);
    }
}


/*
 * Three pages are wanted.  The oldest bodies, two pages on the left and one on
 * the right of the held ones, free three pages and no run of three.
 */

static void
bodies_are_given_up_until_a_run_fits(void **state)
{
    zmap_body_t          *body[5], *new;
    static const size_t   npages[] = { 2, 1, 3, 1, 1 };

    (void) state;

    setup(8);
    lay(npages, 5, body);

    zmap_bodies_release(bodies, body[0]);
    zmap_bodies_release(bodies, body[4]);
    zmap_bodies_release(bodies, body[2]);

    new = held(5, 3);
    assert_ptr_equal(new->data, body[1]->data + PAGE);

    /* and those that are no part of the run stay */

    assert_int_equal(zmap_bodies_count(bodies), 5);
    assert_true(is_kept(0));
    assert_false(is_kept(2));
    assert_true(is_kept(4));

    teardown();
}


static void
nothing_is_given_up_where_no_run_can_fit(void **state)
{
    size_t                i;
    zmap_body_t          *body[7];
    static const size_t   npages[] = { 2, 1, 2, 1, 2, 1, 2 };

    (void) state;

    setup(11);
    lay(npages, 7, body);

    for (i = 0; i < 7; i += 2) {
        zmap_bodies_release(bodies, body[i]);
    }

    assert_null(zmap_bodies_alloc(bodies, 3 * PAGE));
    assert_int_equal(zmap_bodies_count(bodies), 7);

    for (i = 0; i < 7; i++) {
        assert_ptr_equal(find(i), body[i]);
    }

    teardown();
}


/*
 * Eight pages, of which the fifth was used last: the others are a run of four
 * and a run of three
 */

static void
the_place_without_recent_bodies_is_taken(void **state)
{
    size_t                i;
    zmap_body_t          *body[8], *new;
    static const size_t   npages[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const size_t   order[] = { 7, 0, 6, 1, 5, 2, 3, 4 };

    (void) state;

    setup(8);
    lay(npages, 8, body);

    for (i = 0; i < 8; i++) {
        zmap_bodies_release(bodies, body[order[i]]);
    }

    new = held(8, 3);
    assert_ptr_equal(new->data, body[4]->data + PAGE);
    assert_int_equal(zmap_bodies_count(bodies), 6);

    for (i = 0; i < 8; i++) {
        assert_int_equal(is_kept(i), i < 5);
    }

    teardown();
}


/* the body that closes the gap between two places is the last found */

static void
a_place_gives_up_no_more_than_is_needed(void **state)
{
    size_t                i;
    zmap_body_t          *body[7], *new;
    static const size_t   npages[] = { 1, 1, 1, 1, 1, 1, 1 };
    static const size_t   order[] = { 6, 5, 4, 2, 0, 1, 3 };

    (void) state;

    setup(7);
    lay(npages, 7, body);

    for (i = 0; i < 7; i++) {
        zmap_bodies_release(bodies, body[order[i]]);
    }

    new = held(7, 4);
    assert_ptr_equal(new->data, region + 3 * PAGE);
    assert_int_equal(zmap_bodies_count(bodies), 4);

    for (i = 0; i < 7; i++) {
        assert_int_equal(is_kept(i), i < 3);
    }

    teardown();
}


static void
free_pages_beside_idle_bodies_count(void **state)
{
    zmap_body_t          *body[6], *new;
    static const size_t   npages[] = { 1, 2, 1, 2, 1, 1 };

    (void) state;

    setup(8);
    lay(npages, 6, body);

    forget(1);
    forget(3);
    zmap_bodies_release(bodies, body[1]);
    zmap_bodies_release(bodies, body[3]);
    zmap_bodies_release(bodies, body[4]);
    zmap_bodies_release(bodies, body[2]);

    /* H _ _ 2 _ _ 4 H: five pages need 2 alone, six need 4, too */

    new = held(6, 5);
    assert_ptr_equal(new->data, body[0]->data + PAGE);
    assert_int_equal(zmap_bodies_count(bodies), 4);
    assert_true(is_kept(4));

    forget(6);
    zmap_bodies_release(bodies, new);
    new = held(7, 6);
    assert_ptr_equal(new->data, body[0]->data + PAGE);
    assert_false(is_kept(4));

    teardown();
}


static void
destroying_gives_all_memory_back(void **state)
{
    zmap_bodies_t  *none;

    (void) state;

    setup(16);

    idle(1, 3);
    (void) held(2, 1);
    (void) held(3, 4);
    forget(3);
    assert_non_null(zmap_bodies_alloc(bodies, 2 * PAGE));

    none = zmap_bodies_create(pool);
    assert_non_null(none);
    zmap_bodies_destroy(none);
    zmap_bodies_destroy(NULL);
    assert_int_equal(zmap_pool_used(pool), 10 * PAGE);

    teardown();
}


/* more idle bodies than one search looks at */

static void
fill_with_pages(size_t n, zmap_body_t **body)
{
    size_t  i;

    setup(n);

    for (i = 0; i < n; i++) {
        body[i] = held(i, 1);
        assert_ptr_equal(body[i]->data, region + i * PAGE);
    }
}


/*
 * The oldest body lies in the middle and no two of the next oldest side by
 * side, so the place is made around the first, towards the older ones.
 */

static void
a_large_pool_of_small_bodies_has_room_for_a_large_one(void **state)
{
    size_t        i, n, oldest;
    zmap_body_t  *new, **body;

    (void) state;

    n = 3 * LOOK;
    oldest = n / 2;
    body = calloc(n, sizeof(zmap_body_t *));
    assert_non_null(body);
    fill_with_pages(n, body);

    zmap_bodies_release(bodies, body[oldest]);

    for (i = 0; i < n; i += 2) {
        if (i != oldest) {
            zmap_bodies_release(bodies, body[i]);
        }
    }

    for (i = 1; i < n; i += 2) {
        zmap_bodies_release(bodies, body[i]);
    }

    new = held(n, 1000);
    assert_ptr_equal(new->data, region + (oldest - 999) * PAGE);
    assert_int_equal(zmap_bodies_count(bodies), n - 1000 + 1);

    for (i = 0; i < n; i++) {
        assert_int_equal(is_kept(i), i < oldest - 999 || i > oldest);
    }

    teardown();
    free(body);
}


/*
 * Three of four are idle, which is no place for four but at the end, among the
 * newest.  Gives what is served for four pages.
 */

static zmap_body_t *
search_to_the_end(size_t n)
{
    size_t        i;
    zmap_body_t  *new, **body;

    body = calloc(n, sizeof(zmap_body_t *));
    assert_non_null(body);
    fill_with_pages(n, body);

    for (i = 0; i < n; i++) {
        if (i % 4 != 0 || i == n - 4) {
            zmap_bodies_release(bodies, body[i]);
        }
    }

    free(body);

    new = zmap_bodies_alloc(bodies, 4 * PAGE);
    assert_int_equal(zmap_bodies_count(bodies), new ? n - 4 : n);

    return new;
}


static void
the_last_place_of_a_pool_is_found(void **state)
{
    (void) state;

    assert_non_null(search_to_the_end(LOOK));
    teardown();
}


static void
the_search_in_a_larger_pool_ends(void **state)
{
    (void) state;

    assert_null(search_to_the_end(2 * LOOK));
    assert_non_null(zmap_bodies_alloc(bodies, 3 * PAGE));
    assert_int_equal(zmap_bodies_count(bodies), 2 * LOOK - 3);
    teardown();
}


/* a child does body; gives its exit code, or 256 plus the signal */

static int
in_child(void (*body)(void))
{
    int    status;
    pid_t  pid;

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        body();
        _exit(0);
    }

    assert_int_equal(waitpid(pid, &status, 0), pid);

    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}


static void
without_memory_nothing_is_given_up(void **state)
{
    int  call;

    (void) state;

    setup(4);
    idle(1, 4);

    for (call = 1; call <= 3; call++) {
        calloc_fails = call;
        assert_null(zmap_bodies_create(pool));
        assert_int_equal(calloc_fails, 0);
    }

    calloc_fails = 1;
    assert_null(zmap_bodies_alloc(bodies, PAGE));
    assert_int_equal(calloc_fails, 0);

    assert_int_equal(zmap_pool_used(pool), 4 * PAGE);
    assert_true(is_kept(1));

    teardown();
}


/* bugs of the caller */

static zmap_body_t  *wrong;


static void
stop_quietly(void)
{
    int            fd;
    struct rlimit  none = { 0, 0 };

    (void) setrlimit(RLIMIT_CORE, &none);
    (void) signal(SIGABRT, SIG_DFL);

    fd = open("/dev/null", O_WRONLY);
    if (fd == -1 || dup2(fd, STDERR_FILENO) == -1) {
        _exit(98);
    }
}


static void
release_wrong(void)
{
    stop_quietly();
    zmap_bodies_release(bodies, wrong);
}


static void
hold_wrong(void)
{
    stop_quietly();
    (void) zmap_bodies_hold(bodies, wrong);
}


static void
keep_wrong(void)
{
    zmap_version_t  version;

    stop_quietly();
    version = version_of(2);
    zmap_bodies_keep(bodies, wrong, &version, ZMAP_BODY_DECODED);
}


static void
a_body_that_nobody_holds_is_not_to_be_touched(void **state)
{
    (void) state;

    setup(4);

    wrong = held(1, 1);
    zmap_bodies_release(bodies, wrong);

    assert_int_equal(in_child(release_wrong), 256 + SIGABRT);
    assert_int_equal(in_child(hold_wrong), 256 + SIGABRT);
    assert_int_equal(in_child(keep_wrong), 256 + SIGABRT);

    teardown();
}


/*
 * The model: who has each page, and what is held or found.  It finds the place
 * that must be taken by trying every age as the limit, on all pages.
 */

typedef struct {
    zmap_body_t  *body;
    size_t        first;
    size_t        npages;
    size_t        refs;
    int           version;     /* -1: not kept */
    uint64_t      used;
    uint8_t       mark;
} thing_t;


typedef struct {
    size_t        npages;
    thing_t     **owner;       /* by page */
    thing_t      *kept[VERSIONS];
    thing_t      *held[HOLDERS];
    size_t        nheld;
    size_t        count;
    size_t        kept_pages;
    size_t        used_pages;
    uint64_t      clock;
    uint32_t      x;
    size_t        served;
    size_t        refused;
    size_t        hits;
    size_t        evicted;
} model_t;


static uint32_t
next_random(model_t *model)
{
    model->x ^= model->x << 13;
    model->x ^= model->x >> 17;
    model->x ^= model->x << 5;

    return model->x;
}


static void
model_drop(model_t *model, thing_t *thing)
{
    size_t  i;

    for (i = thing->first; i < thing->first + thing->npages; i++) {
        assert_ptr_equal(model->owner[i], thing);
        model->owner[i] = NULL;
    }

    model->used_pages -= thing->npages;
    free(thing);
}


static void
model_unkeep(model_t *model, thing_t *thing)
{
    model->kept[thing->version] = NULL;
    model->count--;
    model->kept_pages -= thing->npages;
    thing->version = -1;

    if (thing->refs == 0) {
        model_drop(model, thing);
    }
}


/* a page that is free, or of an idle body not used after the limit */

static int
available(const model_t *model, size_t page, uint64_t limit)
{
    const thing_t  *thing;

    thing = model->owner[page];

    return thing == NULL || (thing->refs == 0 && thing->used <= limit);
}


/* the first run of at least npages such pages, with its end; or npages */

static size_t
run_within(const model_t *model, size_t npages, uint64_t limit, size_t *end)
{
    size_t  first;

    for (first = 0; first < model->npages; first = *end + 1) {
        *end = first;

        while (*end < model->npages && available(model, *end, limit)) {
            (*end)++;
        }

        if (*end - first >= npages) {
            return first;
        }
    }

    return model->npages;
}


/* the lowest limit that leaves a run; there is one */

static uint64_t
lowest_limit(const model_t *model, size_t npages)
{
    size_t    end;
    uint64_t  low, high, middle;

    low = 0;
    high = model->clock;

    while (low < high) {
        middle = low + (high - low) / 2;

        if (run_within(model, npages, middle, &end) < model->npages) {
            high = middle;

        } else {
            low = middle + 1;
        }
    }

    return low;
}


/* the run without the bodies at its ends that are not needed, newer first */

static void
trim(const model_t *model, size_t npages, size_t *first, size_t *end)
{
    size_t    head, tail, after, before;
    uint64_t  old, new;

    for ( ;; ) {
        head = *first;
        tail = *end - 1;

        while (model->owner[head] == NULL) {
            head++;
        }

        while (model->owner[tail] == NULL) {
            tail--;
        }

        old = model->owner[head]->used;
        new = model->owner[tail]->used;
        after = head + model->owner[head]->npages;
        before = model->owner[tail]->first;

        if (old != new && *end - after >= npages
            && (before - *first < npages || old > new))
        {
            *first = after;

        } else if (old != new && before - *first >= npages) {
            *end = before;

        } else {
            return;
        }
    }
}


/* 1 when there must be room; then the model has given up the same bodies */

static int
model_make_room(model_t *model, size_t npages)
{
    size_t   i, first, end;
    thing_t  *thing;

    if (run_within(model, npages, 0, &end) < model->npages) {
        return 1;
    }

    if (run_within(model, npages, model->clock, &end) == model->npages) {
        return 0;
    }

    first = run_within(model, npages, lowest_limit(model, npages), &end);
    trim(model, npages, &first, &end);

    for (i = first; i < end; i++) {
        thing = model->owner[i];

        if (thing != NULL) {
            model_unkeep(model, thing);
            model->evicted++;
        }
    }

    return 1;
}


static thing_t *
model_add(model_t *model, zmap_body_t *body, size_t npages)
{
    size_t    i;
    uint8_t  *data;
    thing_t  *thing;

    thing = calloc(1, sizeof(thing_t));
    assert_non_null(thing);

    data = body->data;
    assert_true(data >= region);
    assert_int_equal((data - region) % PAGE, 0);

    thing->body = body;
    thing->first = (size_t) (data - region) / PAGE;
    thing->npages = npages;
    thing->refs = 1;
    thing->version = -1;
    thing->mark = (uint8_t) next_random(model);

    assert_true(thing->first < model->npages);
    assert_true(npages <= model->npages - thing->first);

    for (i = thing->first; i < thing->first + npages; i++) {
        assert_null(model->owner[i]);
        model->owner[i] = thing;
        memset(region + i * PAGE, thing->mark, 8);
        memset(region + i * PAGE + PAGE - 8, thing->mark, 8);
    }

    model->used_pages += npages;
    model->held[model->nheld++] = thing;

    return thing;
}


static void
model_alloc(model_t *model, int version)
{
    int              room;
    size_t           size, npages;
    thing_t         *thing;
    zmap_body_t     *body;
    zmap_version_t   key;

    size = next_random(model) % 8 ? 6 * PAGE : LARGEST * PAGE;
    size = 1 + next_random(model) % size;
    npages = (size + PAGE - 1) / PAGE;
    room = model_make_room(model, npages);
    body = zmap_bodies_alloc(bodies, size);
    assert_int_equal(body != NULL, room);

    if (body == NULL) {
        model->refused++;
        return;
    }

    model->served++;
    assert_int_equal(body->size, size);

    thing = model_add(model, body, npages);

    if (next_random(model) % 8 == 0) {
        return;
    }

    if (model->kept[version] != NULL) {
        model_unkeep(model, model->kept[version]);
    }

    key = version_of((uint64_t) version);
    zmap_bodies_keep(bodies, body, &key, ZMAP_BODY_DECODED);

    thing->version = version;
    model->kept[version] = thing;
    model->count++;
    model->kept_pages += npages;
}


static void
model_find(model_t *model, int version)
{
    size_t        i;
    thing_t      *thing;
    zmap_body_t  *body;

    thing = model->kept[version];
    body = find((uint64_t) version);

    if (thing == NULL) {
        assert_null(body);
        model_alloc(model, version);
        return;
    }

    assert_ptr_equal(body, thing->body);
    assert_ptr_equal(body->data, region + thing->first * PAGE);
    model->hits++;

    if (thing->refs++ == 0) {
        model->held[model->nheld++] = thing;
        return;
    }

    for (i = 0; i < model->nheld; i++) {
        if (model->held[i] == thing) {
            return;
        }
    }

    fail();
}


static void
model_release(model_t *model, size_t n)
{
    size_t    i;
    thing_t  *thing;

    thing = model->held[n];

    for (i = thing->first; i < thing->first + thing->npages; i++) {
        assert_int_equal(region[i * PAGE], thing->mark);
        assert_int_equal(region[i * PAGE + PAGE - 1],
                         thing->mark);
    }

    zmap_bodies_release(bodies, thing->body);
    thing->refs--;

    if (thing->refs > 0) {
        return;
    }

    model->held[n] = model->held[--model->nheld];

    if (thing->version == -1) {
        model_drop(model, thing);
        return;
    }

    thing->used = ++model->clock;
}


static void
model_forget(model_t *model, int version)
{
    forget((uint64_t) version);

    if (model->kept[version] != NULL) {
        model_unkeep(model, model->kept[version]);
    }
}


static void
model_step(model_t *model)
{
    int       version;
    uint32_t  action;

    action = next_random(model) % 64;
    version = (int) (next_random(model) % (action % 2 ? 32 : VERSIONS));

    if (action == 0) {
        model_forget(model, version);

    } else if (model->nheld == HOLDERS
               || (action < 16 && model->nheld > 0))
    {
        model_release(model, next_random(model) % model->nheld);

    } else if (action == 16) {
        model_alloc(model, version);

    } else {
        model_find(model, version);
    }
}


static void
run_model(model_t *model, size_t npages)
{
    size_t  step;

    memset(model, 0, sizeof(model_t));
    setup(npages);

    model->npages = npages;
    model->owner = calloc(npages, sizeof(thing_t *));
    assert_non_null(model->owner);
    model->x = 88172645;

    for (step = 0; step < STEPS; step++) {
        model_step(model);

        assert_int_equal(zmap_bodies_count(bodies), model->count);
        assert_int_equal(zmap_bodies_kept_bytes(bodies),
                         model->kept_pages * PAGE);
        assert_int_equal(zmap_pool_used(pool), model->used_pages * PAGE);
    }

    while (model->nheld > 0) {
        model_release(model, 0);
    }

    for (step = 0; step < VERSIONS; step++) {
        model_forget(model, (int) step);
    }

    assert_int_equal(model->used_pages, 0);
    free(model->owner);

    print_message("# %zu pages: %zu found, %zu served, %zu refused, "
                  "%zu given up\n", npages, model->hits, model->served,
                  model->refused, model->evicted);

    teardown();
}


/* refused is only what held bodies leave no run for */

static void
a_soak_in_a_tight_pool_agrees_with_the_model(void **state)
{
    model_t  model;

    (void) state;

    run_model(&model, TIGHT);

    assert_true(model.served > STEPS / 8);
    assert_true(model.evicted > STEPS / 8);
    assert_true(model.refused > STEPS / 1000);
}


/*
 * So many pages hold all that may be held, each of the largest size, and one
 * page less than that size on either side of each: one page more is a run.
 */

static void
a_soak_in_a_roomy_pool_refuses_nothing(void **state)
{
    model_t  model;

    (void) state;

    run_model(&model, ROOMY);

    assert_true(model.served > STEPS / 16);
    assert_true(model.evicted > STEPS / 16);
    assert_int_equal(model.refused, 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(a_finished_reply_leaves_its_body_behind),
        cmocka_unit_test(sizes_are_exact_and_counted_in_pages),
        cmocka_unit_test(a_body_that_is_not_kept_goes_with_its_last_count),
        cmocka_unit_test(any_other_version_is_not_found),
        cmocka_unit_test(bodies_of_two_kinds_live_side_by_side),
        cmocka_unit_test(a_body_decoded_again_takes_the_place_of_the_old),
        cmocka_unit_test(a_body_is_kept_for_one_version),
        cmocka_unit_test(a_forgotten_body_is_not_found),
        cmocka_unit_test(versions_that_share_a_bucket_are_told_apart),
        cmocka_unit_test(the_least_recently_used_makes_room),
        cmocka_unit_test(the_end_of_its_use_counts),
        cmocka_unit_test(a_held_body_is_never_given_up),
        cmocka_unit_test(bodies_are_given_up_until_a_run_fits),
        cmocka_unit_test(nothing_is_given_up_where_no_run_can_fit),
        cmocka_unit_test(the_place_without_recent_bodies_is_taken),
        cmocka_unit_test(a_place_gives_up_no_more_than_is_needed),
        cmocka_unit_test(free_pages_beside_idle_bodies_count),
        cmocka_unit_test(destroying_gives_all_memory_back),
        cmocka_unit_test(a_large_pool_of_small_bodies_has_room_for_a_large_one),
        cmocka_unit_test(the_last_place_of_a_pool_is_found),
        cmocka_unit_test(the_search_in_a_larger_pool_ends),
        cmocka_unit_test(without_memory_nothing_is_given_up),
        cmocka_unit_test(a_body_that_nobody_holds_is_not_to_be_touched),
        cmocka_unit_test(a_soak_in_a_tight_pool_agrees_with_the_model),
        cmocka_unit_test(a_soak_in_a_roomy_pool_refuses_nothing),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("bodies", tests, NULL, NULL) != 0;
}
