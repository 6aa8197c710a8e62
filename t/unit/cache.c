
/*
 * The file table: what it keeps, what it forgets, and when a map is closed.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zmap_cache.h"


#define STEPS  100000
#define NAMES  200
#define BIG    (32 * 1024 * 1024)


const char *__asan_default_options(void);

/* malloc() fails with NULL under the sanitizer, too */

const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}


static const zmap_version_t  version = { .ino = 2, .size = 10 };

static int  random_fails;


ssize_t
getrandom(void *data, size_t size, unsigned flags)
{
    (void) flags;

    if (random_fails) {
        errno = ENOSYS;
        return -1;
    }

    memset(data, 0x5a, size);

    return (ssize_t) size;
}


/* a file object with a real mapping, whose address is given too */

static zmap_file_t *
mapped_file(void **data)
{
    int           fd;
    zmap_file_t  *file;

    fd = memfd_create("cache", MFD_CLOEXEC);
    assert_true(fd != -1);
    assert_int_equal(write(fd, "0123456789", 10), 10);

    file = zmap_file_create(&version);
    assert_non_null(file);
    assert_int_equal(zmap_map_open(&file->map, fd, 10, ZMAP_ADVICE_NONE),
                     ZMAP_OK);
    assert_int_equal(close(fd), 0);

    *data = (void *) file->map.data;

    return file;
}


static int
is_mapped(void *data)
{
    unsigned char  vector;

    if (mincore(data, 1, &vector) == 0) {
        return 1;
    }

    assert_int_equal(errno, ENOMEM);

    return 0;
}


static zmap_file_t *
plain_file(void)
{
    zmap_file_t  *file;

    file = zmap_file_create(&version);
    assert_non_null(file);

    return file;
}


/* stores a new object and leaves the only count to the table */

static zmap_file_t *
store(zmap_cache_t *cache, const char *path, uint64_t now)
{
    zmap_file_t  *file;

    file = plain_file();

    assert_int_equal(zmap_cache_store(cache, (const uint8_t *) path,
                                      strlen(path), file, now),
                     ZMAP_OK);
    zmap_file_unref(file);

    return file;
}


static zmap_file_t *
find(zmap_cache_t *cache, const char *path, uint64_t now)
{
    return zmap_cache_find(cache, (const uint8_t *) path, strlen(path), now);
}


static zmap_cache_t *
table(size_t max, uint64_t inactive)
{
    zmap_cache_t  *cache;

    cache = zmap_cache_create(max, inactive);
    assert_non_null(cache);
    assert_int_equal(zmap_cache_count(cache), 0);

    return cache;
}


static void
a_new_file_object_is_empty(void **state)
{
    zmap_file_t  *file;

    (void) state;

    file = plain_file();

    assert_memory_equal(&file->version, &version, sizeof(version));
    assert_null(file->map.data);
    assert_int_equal(file->map.kind, ZMAP_MAP_NONE);
    assert_int_equal(file->walk.size, version.size);
    assert_int_equal(file->walk.offset, 0);
    assert_int_equal(file->verdict, ZMAP_AGAIN);
    assert_int_equal(file->learnt, 0);
    assert_int_equal(file->has_learnt, 0);
    assert_int_equal(file->checked, 0);
    assert_int_equal(file->reported, 0);

    zmap_file_unref(file);
}


static void
the_last_count_closes_the_map(void **state)
{
    void         *data;
    zmap_file_t  *file;

    (void) state;

    file = mapped_file(&data);

    assert_ptr_equal(zmap_file_ref(file), file);
    assert_ptr_equal(zmap_file_ref(file), file);
    zmap_file_unref(file);
    zmap_file_unref(file);
    assert_true(is_mapped(data));

    zmap_file_unref(file);
    assert_false(is_mapped(data));
}


static void
the_last_count_frees_a_walked_index(void **state)
{
    zmap_file_t     *file;
    zmap_version_t   two;

    static const uint8_t  frames[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x01, 0x09, 0x00, 0x00, 'A',
        0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x01, 0x09, 0x00, 0x00, 'B'
    };

    (void) state;

    two = version;
    two.size = sizeof(frames);

    file = zmap_file_create(&two);
    assert_non_null(file);
    assert_int_equal(zmap_walk_run(&file->walk, frames, 0), ZMAP_OK);
    assert_int_equal(file->walk.frames.frames, 2);
    assert_non_null(file->walk.frames.index);

    zmap_file_unref(file);
}


static void
a_path_finds_its_file(void **state)
{
    zmap_file_t   *a, *b, *c;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(8, 60);

    a = store(cache, "/a", 0);
    b = store(cache, "/ab", 0);
    c = store(cache, "", 0);

    assert_int_equal(zmap_cache_count(cache), 3);
    assert_ptr_equal(find(cache, "/a", 0), a);
    assert_ptr_equal(find(cache, "/ab", 0), b);
    assert_ptr_equal(find(cache, "", 0), c);
    assert_null(find(cache, "/", 0));
    assert_null(find(cache, "/A", 0));
    assert_null(find(cache, "/abc", 0));

    zmap_cache_destroy(cache);
}


static void
the_path_is_copied_and_may_hold_any_byte(void **state)
{
    uint8_t        path[300];
    size_t         i;
    zmap_file_t   *file;
    zmap_cache_t  *cache;

    (void) state;

    for (i = 0; i < sizeof(path); i++) {
        path[i] = (uint8_t) i;
    }

    cache = table(8, 60);
    file = plain_file();

    assert_int_equal(zmap_cache_store(cache, path, sizeof(path), file, 0),
                     ZMAP_OK);
    memset(path, 0, sizeof(path));
    assert_null(zmap_cache_find(cache, path, sizeof(path), 0));

    for (i = 0; i < sizeof(path); i++) {
        path[i] = (uint8_t) i;
    }

    assert_ptr_equal(zmap_cache_find(cache, path, sizeof(path), 0), file);
    assert_null(zmap_cache_find(cache, path, sizeof(path) - 1, 0));

    zmap_file_unref(file);
    zmap_cache_destroy(cache);
}


static void
a_new_version_takes_the_place_of_the_old(void **state)
{
    void          *old_data, *new_data;
    zmap_file_t   *old, *new;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(8, 60);
    old = mapped_file(&old_data);
    new = mapped_file(&new_data);

    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, old, 0),
                     ZMAP_OK);
    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, new, 0),
                     ZMAP_OK);
    zmap_file_unref(new);

    assert_int_equal(zmap_cache_count(cache), 1);
    assert_ptr_equal(find(cache, "/a", 0), new);

    /* a request still reads the old one */

    assert_true(is_mapped(old_data));
    assert_memory_equal(old->map.data, "0123456789", 10);
    zmap_file_unref(old);
    assert_false(is_mapped(old_data));

    assert_true(is_mapped(new_data));
    zmap_cache_destroy(cache);
    assert_false(is_mapped(new_data));
}


static void
the_same_file_may_be_stored_again(void **state)
{
    void          *data;
    zmap_file_t   *file;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(1, 60);
    file = mapped_file(&data);

    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, file, 0),
                     ZMAP_OK);
    zmap_file_unref(file);
    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, file, 0),
                     ZMAP_OK);
    assert_true(is_mapped(data));

    /* and its last count may be that of the entry which it pushes out */

    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/b", 2, file, 0),
                     ZMAP_OK);
    assert_true(is_mapped(data));
    assert_int_equal(zmap_cache_count(cache), 1);

    zmap_cache_destroy(cache);
    assert_false(is_mapped(data));
}


static void
removing_forgets_one_path(void **state)
{
    void          *data;
    zmap_file_t   *file, *other;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(8, 60);
    file = mapped_file(&data);

    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, file, 0),
                     ZMAP_OK);
    zmap_file_unref(file);
    other = store(cache, "/b", 0);

    zmap_cache_remove(cache, (uint8_t *) "/c", 2);
    assert_int_equal(zmap_cache_count(cache), 2);

    zmap_cache_remove(cache, (uint8_t *) "/a", 2);
    assert_int_equal(zmap_cache_count(cache), 1);
    assert_false(is_mapped(data));
    assert_null(find(cache, "/a", 0));
    assert_ptr_equal(find(cache, "/b", 0), other);

    zmap_cache_remove(cache, (uint8_t *) "/a", 2);
    assert_int_equal(zmap_cache_count(cache), 1);

    zmap_cache_destroy(cache);
}


static void
the_least_recently_used_goes_first(void **state)
{
    zmap_file_t   *a, *c;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(3, 1000);

    a = store(cache, "/a", 1);
    (void) store(cache, "/b", 2);
    c = store(cache, "/c", 3);

    assert_ptr_equal(find(cache, "/a", 4), a);
    (void) store(cache, "/d", 5);

    assert_int_equal(zmap_cache_count(cache), 3);
    assert_null(find(cache, "/b", 6));
    assert_ptr_equal(find(cache, "/c", 6), c);

    /* storing again is a use, too */

    a = store(cache, "/a", 7);
    (void) store(cache, "/e", 8);
    (void) store(cache, "/f", 9);

    assert_ptr_equal(find(cache, "/a", 10), a);
    assert_null(find(cache, "/c", 10));
    assert_null(find(cache, "/d", 10));
    assert_int_equal(zmap_cache_count(cache), 3);

    zmap_cache_destroy(cache);
}


static void
inactive_files_are_forgotten_two_at_a_time(void **state)
{
    void          *data;
    zmap_file_t   *file;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(8, 60);
    file = mapped_file(&data);

    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, file, 100),
                     ZMAP_OK);
    zmap_file_unref(file);
    (void) store(cache, "/b", 100);
    (void) store(cache, "/c", 100);
    (void) store(cache, "/d", 130);

    assert_null(find(cache, "/x", 160));
    assert_int_equal(zmap_cache_count(cache), 4);

    assert_null(find(cache, "/x", 161));
    assert_int_equal(zmap_cache_count(cache), 2);
    assert_false(is_mapped(data));

    assert_null(find(cache, "/x", 161));
    assert_int_equal(zmap_cache_count(cache), 1);

    assert_non_null(find(cache, "/d", 190));
    assert_non_null(find(cache, "/d", 250));
    assert_null(find(cache, "/d", 311));
    assert_int_equal(zmap_cache_count(cache), 0);

    zmap_cache_destroy(cache);
}


static void
storing_forgets_inactive_files_too(void **state)
{
    zmap_cache_t  *cache;

    (void) state;

    cache = table(3, 60);

    (void) store(cache, "/a", 0);
    (void) store(cache, "/b", 0);
    (void) store(cache, "/c", 50);
    (void) store(cache, "/d", 61);
    assert_int_equal(zmap_cache_count(cache), 2);

    (void) store(cache, "/d", 111);
    assert_int_equal(zmap_cache_count(cache), 1);

    zmap_cache_destroy(cache);
}


static void
a_clock_that_stands_or_steps_back_expires_nothing(void **state)
{
    zmap_cache_t  *cache;

    (void) state;

    cache = table(8, 0);

    (void) store(cache, "/a", 100);
    assert_non_null(find(cache, "/a", 100));
    assert_non_null(find(cache, "/a", 99));
    assert_null(find(cache, "/b", 0));
    assert_int_equal(zmap_cache_count(cache), 1);

    zmap_cache_destroy(cache);
}


static void
a_file_in_use_outlives_the_table(void **state)
{
    void          *data;
    zmap_file_t   *file;
    zmap_cache_t  *cache;

    (void) state;

    cache = table(8, 60);
    file = mapped_file(&data);

    assert_int_equal(zmap_cache_store(cache, (uint8_t *) "/a", 2, file, 0),
                     ZMAP_OK);
    zmap_cache_destroy(cache);

    assert_true(is_mapped(data));
    zmap_file_unref(file);
    assert_false(is_mapped(data));
}


static void
impossible_tables_are_refused(void **state)
{
    zmap_cache_t  *cache;

    (void) state;

    assert_null(zmap_cache_create(0, 60));
    zmap_cache_destroy(NULL);

    /* a huge limit is a limit, not an allocation */

    cache = table(SIZE_MAX, UINT64_MAX);
    (void) store(cache, "/a", 0);
    assert_non_null(find(cache, "/a", UINT64_MAX));
    zmap_cache_destroy(cache);
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


static zmap_cache_t   *small;
static const uint8_t  *big_path;

static void
store_a_big_path(void)
{
    zmap_file_t  *a, *file;

    a = zmap_cache_find(small, (const uint8_t *) "/a", 2, 0);
    file = zmap_file_create(&version);

    if (file == NULL
        || zmap_cache_store(small, big_path, BIG, file, 1000) != ZMAP_NOMEM)
    {
        _exit(1);
    }

    if (zmap_cache_count(small) != 1
        || zmap_cache_find(small, (const uint8_t *) "/a", 2, 0) != a
        || a == NULL)
    {
        _exit(2);
    }

    zmap_file_unref(file);
}


static void
a_store_without_memory_changes_nothing(void **state)
{
    (void) state;

    big_path = mmap(NULL, BIG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(big_path, MAP_FAILED);

    small = table(1, 60);
    (void) store(small, "/a", 0);

    assert_int_equal(without_memory(store_a_big_path), 0);

    zmap_cache_destroy(small);
    assert_int_equal(munmap((void *) big_path, BIG), 0);
}


static void
no_entropy_is_no_obstacle(void **state)
{
    zmap_file_t   *a;
    zmap_cache_t  *cache;

    (void) state;

    random_fails = 1;
    cache = table(8, 60);
    random_fails = 0;

    a = store(cache, "/a", 0);
    assert_ptr_equal(find(cache, "/a", 0), a);

    zmap_cache_destroy(cache);
}


/* a model: the time of the last use of each name, 0: not kept */

static void
a_soak_agrees_with_the_model(void **state)
{
    size_t         i, oldest, count;
    uint32_t       x, step;
    char           name[NAMES][16];
    uint64_t       used[NAMES];
    zmap_file_t   *files[NAMES];
    zmap_cache_t  *cache;

    (void) state;

    cache = table(NAMES / 2, UINT64_MAX);
    memset(used, 0, sizeof(used));
    count = 0;
    x = 88172645;

    for (i = 0; i < NAMES; i++) {
        (void) snprintf(name[i], sizeof(name[i]), "/%zu.js.zst", i);
    }

    for (step = 1; step <= STEPS; step++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        i = x % NAMES;

        if ((x >> 16) % 16 == 0) {
            zmap_cache_remove(cache, (uint8_t *) name[i], strlen(name[i]));
            count -= used[i] != 0;
            used[i] = 0;

        } else if (used[i] != 0) {
            assert_ptr_equal(find(cache, name[i], step), files[i]);
            used[i] = step;

        } else {
            assert_null(find(cache, name[i], step));

            if (count == NAMES / 2) {
                oldest = NAMES;

                for (i = 0; i < NAMES; i++) {
                    if (used[i] != 0
                        && (oldest == NAMES || used[i] < used[oldest]))
                    {
                        oldest = i;
                    }
                }

                used[oldest] = 0;
                count--;
                i = x % NAMES;
            }

            files[i] = store(cache, name[i], step);
            used[i] = step;
            count++;
        }

        assert_int_equal(zmap_cache_count(cache), count);
    }

    zmap_cache_destroy(cache);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(a_new_file_object_is_empty),
        cmocka_unit_test(the_last_count_closes_the_map),
        cmocka_unit_test(the_last_count_frees_a_walked_index),
        cmocka_unit_test(a_path_finds_its_file),
        cmocka_unit_test(the_path_is_copied_and_may_hold_any_byte),
        cmocka_unit_test(a_new_version_takes_the_place_of_the_old),
        cmocka_unit_test(the_same_file_may_be_stored_again),
        cmocka_unit_test(removing_forgets_one_path),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(inactive_files_are_forgotten_two_at_a_time),
        cmocka_unit_test(storing_forgets_inactive_files_too),
        cmocka_unit_test(a_clock_that_stands_or_steps_back_expires_nothing),
        cmocka_unit_test(a_file_in_use_outlives_the_table),
        cmocka_unit_test(impossible_tables_are_refused),
        cmocka_unit_test(a_store_without_memory_changes_nothing),
        cmocka_unit_test(no_entropy_is_no_obstacle),
        cmocka_unit_test(a_soak_agrees_with_the_model),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("cache", tests, NULL, NULL) != 0;
}
