
/*
 * Reading a range of a file, whatever pread(2) makes of it.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "zmap_read.h"


#define BLOCK  ZMAP_READ_BLOCK
#define SIZE   (5 * BLOCK + 1234)
#define ROOM   (6 * BLOCK)


/* pread(2), counted and made to fail on demand */

static int       fail_errno;       /* after good calls */
static int       good;
static int       interrupted;      /* calls first */
static int       direct;           /* as with O_DIRECT on most file systems */
static int       calls;
static size_t    most;             /* bytes a call gives, 0: any */
static size_t    asked;            /* by the last call */

static int       fd;
static uint8_t  *content;
static uint8_t  *data;


ssize_t
pread(int file, void *buf, size_t size, off_t offset)
{
    calls++;
    asked = size;

    if (interrupted > 0) {
        interrupted--;
        errno = EINTR;
        return -1;
    }

    if (fail_errno && good-- <= 0) {
        errno = fail_errno;
        return -1;
    }

    if (direct && (((uintptr_t) buf | size | (uintptr_t) offset) & 511)) {
        errno = EINVAL;
        return -1;
    }

    if (most && size > most) {
        size = most;
    }

    return syscall(SYS_pread64, file, buf, size, offset);
}


static int
setup(void **state)
{
    size_t  i;

    (void) state;

    fail_errno = 0;
    good = 0;
    interrupted = 0;
    direct = 0;
    calls = 0;
    most = 0;

    fd = memfd_create("read", MFD_CLOEXEC);
    content = malloc(SIZE);
    data = aligned_alloc(BLOCK, ROOM);

    if (fd == -1 || content == NULL || data == NULL) {
        return -1;
    }

    for (i = 0; i < SIZE; i++) {
        content[i] = (uint8_t) (i * 131 >> 3);
    }

    memset(data, 0x5a, ROOM);

    return write(fd, content, SIZE) == SIZE ? 0 : -1;
}


static int
teardown(void **state)
{
    (void) state;

    free(content);
    free(data);

    return close(fd);
}


static void
any_range_is_read(void **state)
{
    size_t  i;

    static const struct {
        uint64_t  offset;
        size_t    size;
    } rows[] = {
        { 0, SIZE },
        { 0, 1 },
        { 1, SIZE - 1 },
        { SIZE - 1, 1 },
        { 777, 2 * BLOCK },
        { BLOCK, BLOCK },
    };

    (void) state;

    for (i = 0; i < UNIT_COUNT(rows); i++) {

        for (most = 0; most < 10000; most += 777) {
            memset(data, 0x5a, ROOM);
            calls = 0;
            interrupted = (int) i;

            assert_int_equal(zmap_read(fd, data, rows[i].size, rows[i].size,
                                       rows[i].offset), ZMAP_OK);
            assert_memory_equal(data, content + rows[i].offset, rows[i].size);
            assert_int_equal(data[rows[i].size], 0x5a);
            assert_int_equal(calls, (int) i
                                    + (most ? (rows[i].size + most - 1) / most
                                            : 1));
        }
    }
}


static void
no_byte_is_no_call(void **state)
{
    (void) state;

    assert_int_equal(zmap_read(fd, data, ROOM, 0, 0), ZMAP_OK);
    assert_int_equal(zmap_read(fd, data, 0, 0, 10 * SIZE), ZMAP_OK);
    assert_int_equal(zmap_read(-1, NULL, 0, 0, 0), ZMAP_OK);
    assert_int_equal(calls, 0);
}


static void
a_call_asks_for_all_the_room(void **state)
{
    (void) state;

    assert_int_equal(zmap_read(fd, data, ROOM, SIZE, 0), ZMAP_OK);
    assert_int_equal(asked, ROOM);
    assert_memory_equal(data, content, SIZE);
    assert_int_equal(calls, 1);

    /* bytes that are not asked for may come, but none beyond the room */

    memset(data, 0x5a, ROOM);
    assert_int_equal(zmap_read(fd, data, BLOCK, 100, BLOCK), ZMAP_OK);
    assert_memory_equal(data, content + BLOCK, 100);
    assert_int_equal(data[BLOCK], 0x5a);
}


static void
a_file_that_is_too_short_has_changed(void **state)
{
    size_t  i;

    static const size_t  ends[] = {
        0, 1, 511, 512, BLOCK - 1, BLOCK, BLOCK + 100, SIZE - 1
    };

    (void) state;

    for (direct = 0; direct < 2; direct++) {
        assert_int_equal(ftruncate(fd, SIZE), 0);
        assert_int_equal(zmap_read(fd, data, ROOM, SIZE + 1, 0),
                         ZMAP_CHANGED);
        assert_int_equal(zmap_read(fd, data, BLOCK, 1, 6 * BLOCK),
                         ZMAP_CHANGED);

        for (i = UNIT_COUNT(ends); i-- > 0; ) {
            assert_int_equal(ftruncate(fd, (off_t) ends[i]), 0);

            for (most = 0; most <= 512; most += 512) {
                calls = 0;
                assert_int_equal(zmap_read(fd, data, ROOM, SIZE, 0),
                                 ZMAP_CHANGED);
                assert_true(calls <= (most ? SIZE / 512 : 0) + 3);
            }
        }
    }
}


/* the file grows between two calls: what came first is read again */

static void
a_short_read_may_be_aligned_again(void **state)
{
    (void) state;

    direct = 1;
    most = BLOCK + 100;

    assert_int_equal(zmap_read(fd, data, ROOM, BLOCK + 101, 0), ZMAP_OK);
    assert_memory_equal(data, content, BLOCK + 101);
    assert_int_equal(calls, 3);
}


static void
errors_are_those_of_pread(void **state)
{
    int  fds[2];

    (void) state;

    errno = 0;
    assert_int_equal(zmap_read(-1, data, ROOM, 10, 0), ZMAP_SYSERR);
    assert_int_equal(errno, EBADF);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(zmap_read(fds[0], data, ROOM, 10, 0), ZMAP_SYSERR);
    assert_int_equal(errno, ESPIPE);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);

    /* an offset that is none */

    assert_int_equal(zmap_read(fd, data, ROOM, 10, UINT64_MAX - BLOCK),
                     ZMAP_SYSERR);
    assert_int_equal(errno, EINVAL);

    fail_errno = EIO;
    assert_int_equal(zmap_read(fd, data, ROOM, 10, 0), ZMAP_SYSERR);
    assert_int_equal(errno, EIO);

    most = 3;
    good = 2;
    assert_int_equal(zmap_read(fd, data, ROOM, 10, 0), ZMAP_SYSERR);
    assert_int_equal(errno, EIO);

    fail_errno = EINVAL;
    good = 2;
    assert_int_equal(zmap_read(fd, data, ROOM, 10, 0), ZMAP_SYSERR);
    assert_int_equal(errno, EINVAL);
}


#define READ_TEST(test)                                                       \
    cmocka_unit_test_setup_teardown(test, setup, teardown)


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        READ_TEST(any_range_is_read),
        READ_TEST(no_byte_is_no_call),
        READ_TEST(a_call_asks_for_all_the_room),
        READ_TEST(a_file_that_is_too_short_has_changed),
        READ_TEST(a_short_read_may_be_aligned_again),
        READ_TEST(errors_are_those_of_pread),
    };

    return unit_run("read", tests, UNIT_COUNT(tests));
}
