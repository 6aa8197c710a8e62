
/*
 * A window over a file: which bytes it gives, and when it reads.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "zmap_window.h"


#define BLOCK  ZMAP_READ_BLOCK
#define MIN    ZMAP_DECODE_PIECE_MIN
#define SIZE   (5 * BLOCK + 1234)
#define ROOM   (3 * BLOCK)


static int       fail_errno;
static int       calls;            /* of pread(2) */
static size_t    asked;
static uint64_t  asked_at;

static char            path[64];
static int             fd;
static uint8_t         content[SIZE];
static uint8_t        *data;
static zmap_window_t   window;
static zmap_version_t  version;


ssize_t
pread(int file, void *buf, size_t size, off_t offset)
{
    calls++;
    asked = size;
    asked_at = (uint64_t) offset;

    if (fail_errno) {
        errno = fail_errno;
        return -1;
    }

    return syscall(SYS_pread64, file, buf, size, offset);
}


static int
setup(void **state)
{
    size_t  i;

    (void) state;

    fail_errno = 0;
    calls = 0;

    for (i = 0; i < SIZE; i++) {
        content[i] = (uint8_t) (i * 131 >> 3);
    }

    (void) strcpy(path, "build/zmap-window-XXXXXX");

    fd = mkstemp(path);
    if (fd == -1) {
        (void) strcpy(path, "/tmp/zmap-window-XXXXXX");
        fd = mkstemp(path);
    }

    data = aligned_alloc(BLOCK, ROOM);

    if (fd == -1 || data == NULL || write(fd, content, SIZE) != SIZE) {
        return -1;
    }

    zmap_window_init(&window, data, ROOM);

    return zmap_version_read(&version, fd) == ZMAP_OK ? 0 : -1;
}


static int
teardown(void **state)
{
    (void) state;

    free(data);
    (void) unlink(path);

    return close(fd);
}


/* fills, checks what the contract says of the piece, gives the reads */

static int
fill(uint64_t offset, size_t want)
{
    size_t        rest, least;
    zmap_piece_t  piece;

    calls = 0;
    memset(&piece, 0x5a, sizeof(piece));

    assert_int_equal(zmap_window_fill(&window, fd, &version, offset, want,
                                      &piece), ZMAP_OK);
    rest = SIZE - (size_t) offset;
    least = rest < MIN ? rest : MIN;

    assert_true(piece.offset <= offset);
    assert_true(offset - piece.offset <= piece.size);
    assert_true(piece.size - (offset - piece.offset) >= least);
    assert_true(piece.size <= ROOM);
    assert_true(piece.offset + piece.size <= SIZE);
    assert_memory_equal(piece.data, content + piece.offset, piece.size);

    if (calls) {
        assert_int_equal(piece.offset % BLOCK, 0);
        assert_true(offset - piece.offset < BLOCK);
        assert_int_equal(asked % BLOCK, 0);
        assert_int_equal(asked_at, piece.offset);
        assert_int_equal((uintptr_t) piece.data % BLOCK, 0);
    }

    return calls;
}


static void
assert_empty(void)
{
    fail_errno = 0;
    assert_int_equal(fill(0, BLOCK), 1);
}


static void
assert_refused(uint64_t offset, zmap_rc_e rc)
{
    zmap_piece_t  piece, before;

    memset(&piece, 0x5a, sizeof(piece));
    before = piece;

    assert_int_equal(zmap_window_fill(&window, fd, &version, offset, BLOCK,
                                      &piece), rc);
    assert_memory_equal(&piece, &before, sizeof(piece));
}


static void
every_offset_is_given(void **state)
{
    size_t    i;
    uint64_t  offset;

    static const size_t  wants[] = {
        0, 1, MIN, BLOCK - 1, BLOCK, BLOCK + 1, ROOM, ROOM + 1, SIZE_MAX
    };

    (void) state;

    for (i = 0; i < UNIT_COUNT(wants); i++) {

        for (offset = 0; offset <= SIZE; offset++) {
            zmap_window_drop(&window);
            assert_int_equal(fill(offset, wants[i]), 1);
        }
    }
}


static void
as_much_is_read_as_is_wanted(void **state)
{
    size_t  i;

    static const struct {
        uint64_t  offset;
        size_t    want;
        uint64_t  begin;
        size_t    asked;
    } rows[] = {
        { 0, 0, 0, BLOCK },
        { 0, 1, 0, BLOCK },
        { 0, BLOCK, 0, BLOCK },
        { 0, BLOCK + 1, 0, 2 * BLOCK },
        { 0, SIZE_MAX, 0, ROOM },
        { BLOCK - 1, 2 * BLOCK, 0, 2 * BLOCK },
        { BLOCK - MIN, 1, 0, BLOCK },
        { BLOCK - MIN + 1, 1, 0, 2 * BLOCK },
        { 2 * BLOCK - 1, 1, BLOCK, 2 * BLOCK },
        { 2 * BLOCK, 1, 2 * BLOCK, BLOCK },
        { SIZE - 1, BLOCK, 5 * BLOCK, BLOCK },
    };

    (void) state;

    for (i = 0; i < UNIT_COUNT(rows); i++) {
        zmap_window_drop(&window);
        assert_int_equal(fill(rows[i].offset, rows[i].want), 1);
        assert_int_equal(asked_at, rows[i].begin);
        assert_int_equal(asked, rows[i].asked);
    }
}


static void
what_is_held_is_not_read_again(void **state)
{
    (void) state;

    assert_int_equal(fill(BLOCK, 2 * BLOCK), 1);

    assert_int_equal(fill(BLOCK, ROOM), 0);
    assert_int_equal(fill(BLOCK + 1, 1), 0);
    assert_int_equal(fill(3 * BLOCK - MIN, BLOCK), 0);

    assert_int_equal(fill(3 * BLOCK - MIN + 1, BLOCK), 1);
    assert_int_equal(asked_at, 2 * BLOCK);

    /* nor is the last byte, or the end */

    assert_int_equal(fill(SIZE - 5, BLOCK), 1);
    assert_int_equal(fill(SIZE - 1, BLOCK), 0);
    assert_int_equal(fill(SIZE, BLOCK), 0);

    assert_int_equal(fill(5 * BLOCK - 1, BLOCK), 1);
    assert_int_equal(fill(4 * BLOCK - 1, BLOCK), 1);
    assert_int_equal(fill(0, BLOCK), 1);
    assert_int_equal(fill(0, BLOCK), 0);
}


static void
a_file_is_read_once_from_its_begin_to_its_end(void **state)
{
    int       reads;
    uint64_t  offset;

    (void) state;

    reads = 0;

    for (offset = 0; offset <= SIZE; offset++) {
        reads += fill(offset, ROOM);
    }

    /* the second window begins before the least that is left of the first */

    assert_int_equal(reads, 3);
}


static void
another_version_is_another_file(void **state)
{
    int             i;
    zmap_version_t  first;

    (void) state;

    assert_int_equal(fill(0, BLOCK), 1);
    first = version;

    for (i = 0; i < 6; i++) {
        version = first;
        version.dev += i == 0;
        version.ino += i == 1;
        version.mtime += i == 2;
        version.mtime_ns += i == 3;
        version.ctime += i == 4;
        version.ctime_ns += i == 5;
        assert_int_equal(fill(0, BLOCK), 1);
        assert_int_equal(fill(0, BLOCK), 0);

        version = first;
        assert_int_equal(fill(0, BLOCK), 1);
    }
}


static void
a_dropped_window_holds_nothing(void **state)
{
    (void) state;

    assert_int_equal(fill(0, BLOCK), 1);
    zmap_window_drop(&window);
    assert_int_equal(fill(0, BLOCK), 1);
    zmap_window_drop(&window);
    zmap_window_drop(&window);
    assert_empty();
}


static void
after_a_failure_the_window_holds_nothing(void **state)
{
    (void) state;

    assert_int_equal(fill(0, BLOCK), 1);
    fail_errno = EIO;
    assert_refused(2 * BLOCK, ZMAP_SYSERR);
    assert_int_equal(errno, EIO);
    assert_empty();

    calls = 0;
    assert_refused(SIZE + 1, ZMAP_OVERFLOW);
    assert_refused(UINT64_MAX, ZMAP_OVERFLOW);
    assert_int_equal(calls, 0);
    assert_empty();

    assert_int_equal(ftruncate(fd, SIZE - 1), 0);
    assert_int_equal(fill(0, BLOCK), 0);
    assert_refused(SIZE - 10, ZMAP_CHANGED);
    assert_empty();

    assert_int_equal(ftruncate(fd, BLOCK), 0);
    assert_refused(BLOCK, ZMAP_CHANGED);
    assert_empty();
}


/* what came into the file later is not the version's */

static void
a_file_that_has_grown_gives_its_old_bytes(void **state)
{
    (void) state;

    assert_int_equal(pwrite(fd, content, 100, SIZE), 100);
    assert_int_equal(fill(SIZE - 1, ROOM), 1);
    assert_int_equal(fill(SIZE, ROOM), 0);
}


static void
an_empty_file_has_an_empty_piece(void **state)
{
    zmap_piece_t  piece;

    (void) state;

    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(zmap_version_read(&version, fd), ZMAP_OK);

    assert_int_equal(zmap_window_fill(&window, fd, &version, 0, ROOM, &piece),
                     ZMAP_OK);
    assert_int_equal(piece.offset, 0);
    assert_int_equal(piece.size, 0);
    assert_int_equal(calls, 0);
}


static void
too_little_room_is_refused(void **state)
{
    (void) state;

    zmap_window_init(&window, data, BLOCK);
    assert_refused(0, ZMAP_OVERFLOW);

    zmap_window_init(&window, data, ZMAP_WINDOW_MIN);
    assert_int_equal(fill(BLOCK - 1, SIZE_MAX), 1);
}


static void
a_descriptor_with_o_direct_is_read(void **state)
{
    int       buffered;
    uint64_t  offset;

    (void) state;

    assert_int_equal(fsync(fd), 0);

    buffered = fd;
    fd = open(path, O_RDONLY|O_CLOEXEC|O_DIRECT);

    if (fd == -1 && errno == EINVAL) {
        fd = buffered;
        fprintf(stderr, "# NOT TESTED: no O_DIRECT for %s\n", path);
        skip();
    }

    assert_true(fd != -1);

    for (offset = 0; offset <= SIZE; offset += 97) {
        (void) fill(offset, 2 * BLOCK);
    }

    assert_int_equal(fill(SIZE, BLOCK), 0);
    assert_int_equal(fill(0, ROOM), 1);

    assert_int_equal(ftruncate(buffered, SIZE - 1000), 0);
    assert_refused(5 * BLOCK, ZMAP_CHANGED);

    assert_int_equal(close(fd), 0);
    fd = buffered;
}


#define WINDOW_TEST(test)                                                     \
    cmocka_unit_test_setup_teardown(test, setup, teardown)


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        WINDOW_TEST(every_offset_is_given),
        WINDOW_TEST(as_much_is_read_as_is_wanted),
        WINDOW_TEST(what_is_held_is_not_read_again),
        WINDOW_TEST(a_file_is_read_once_from_its_begin_to_its_end),
        WINDOW_TEST(another_version_is_another_file),
        WINDOW_TEST(a_dropped_window_holds_nothing),
        WINDOW_TEST(after_a_failure_the_window_holds_nothing),
        WINDOW_TEST(a_file_that_has_grown_gives_its_old_bytes),
        WINDOW_TEST(an_empty_file_has_an_empty_piece),
        WINDOW_TEST(too_little_room_is_refused),
        WINDOW_TEST(a_descriptor_with_o_direct_is_read),
    };

    return unit_run("window", tests, UNIT_COUNT(tests));
}
