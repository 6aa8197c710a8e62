
/*
 * Memory in huge pages: with the pool, the settings and the limits of the
 * kernel that runs the test.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "unit.h"
#include "machine.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "zmap_hugemem.h"
#include "zmap_smaps.h"


#define HUGE        ZMAP_HUGE_PAGE
#define PAGES       8
#define SIZE        (PAGES * HUGE)
#define page_size() ((size_t) sysconf(_SC_PAGESIZE))

#define POOL_2MB    (MAP_HUGETLB | 21 << MAP_HUGE_SHIFT)


static int     refuse_flag;    /* of mmap() */
static int     refuse_advice;  /* of madvise() */
static int     refuse_errno;
static size_t  mapped;
static long    pool;           /* claimable pages, -1: no test has set them */

static const char  *refuse_path;


void *
mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    void  *data;

    if (flags & refuse_flag) {
        errno = refuse_errno;
        return MAP_FAILED;
    }

    data = (void *) syscall(SYS_mmap, addr, len, prot, flags, fd, offset);

    if (data != MAP_FAILED && !(flags & MAP_FIXED)) {
        mapped += len;
    }

    return data;
}


int
munmap(void *addr, size_t len)
{
    if (syscall(SYS_munmap, addr, len) == -1) {
        return -1;
    }

    mapped -= len;

    return 0;
}


int
madvise(void *addr, size_t len, int advice)
{
    if (advice == refuse_advice) {
        errno = refuse_errno;
        return -1;
    }

    return (int) syscall(SYS_madvise, addr, len, advice);
}


FILE *
fopen(const char *path, const char *mode)
{
    int  fd;

    (void) mode;

    if (refuse_path != NULL && strstr(path, refuse_path) != NULL) {
        errno = EACCES;
        return NULL;
    }

    fd = open(path, O_RDONLY|O_CLOEXEC);

    return fd == -1 ? NULL : fdopen(fd, "r");
}


/* the settings that most tests want; who may not write them is told later */

static int
usual_settings(void **state)
{
    (void) state;

    refuse_flag = 0;
    refuse_advice = -1;
    refuse_path = NULL;
    mapped = 0;
    pool = -1;

    (void) machine_set(MACHINE_OVERCOMMIT, "0");
    (void) machine_set(MACHINE_ENABLED, "madvise");
    (void) machine_set(MACHINE_SHMEM, "never");

    return 0;
}


static int
nothing_mapped(void **state)
{
    (void) state;

    if (mapped != 0) {
        fprintf(stderr, "# %zu bytes are still mapped\n", mapped);
        return -1;
    }

    return 0;
}


static void
not_tested(const char *what)
{
    fprintf(stderr, "# NOT TESTED: %s\n", what);
    print_message("# NOT TESTED: %s\n", what);
    skip();
}


static void
set(int setting, const char *word)
{
    char  now[64];

    if (machine_get(setting, now) == 0 && strcmp(now, word) == 0) {
        return;
    }

    if (machine_set(setting, word) != 0) {
        not_tested("a setting of the kernel that cannot be changed: not root,"
                   " or a kernel without it");
    }
}


static void
set_pool(long n)
{
    pool = n;

    if (machine_pool(n) != 0) {
        not_tested("a pool of huge pages that cannot be had: not root, or no"
                   " contiguous memory");
    }
}


static void
release(zmap_hugemem_t *mem)
{
    zmap_hugemem_release(mem);

    assert_null(mem->base);
    assert_int_equal(mem->size, 0);
    assert_int_equal(mapped, 0);

    if (pool != -1) {
        assert_int_equal(machine_claimable(), pool);
        assert_int_equal(machine_counter("resv"), 0);
    }
}


static void
fill(const zmap_hugemem_t *mem, size_t size, int byte)
{
    size_t  i;

    for (i = 0; i < size; i += page_size()) {
        assert_int_equal(mem->base[i], 0);
        mem->base[i] = (uint8_t) byte;
    }

    mem->base[size - 1] = (uint8_t) byte;
}


static int
has(const zmap_hugemem_t *mem, int byte)
{
    size_t  i;

    for (i = 0; i < mem->size; i += page_size()) {
        if (mem->base[i] != byte) {
            return 0;
        }
    }

    return mem->base[mem->size - 1] == byte;
}


/*
 * The sum of a field over the mapping that begins at base, read another way
 * than the core does: /proc/self/smaps as a whole, searched for the address.
 */

static long
smaps_kb(const void *base, const char *field)
{
    int          fd;
    char        *text, *at, *next, address[40];
    long         kb;
    ssize_t      n;
    size_t       len;
    const size_t size = 4 * 1024 * 1024;

    text = malloc(size);
    fd = open("/proc/self/smaps", O_RDONLY|O_CLOEXEC);

    if (text == NULL || fd == -1) {
        abort();
    }

    len = 0;

    while ((n = read(fd, text + len, size - 1 - len)) > 0) {
        len += (size_t) n;
    }

    text[len] = '\0';
    (void) close(fd);

    (void) snprintf(address, sizeof(address), "\n%lx-", (unsigned long) base);

    at = strstr(text, address);
    kb = -1;

    if (at != NULL) {
        next = strstr(at, "\nVmFlags:");
        at = strstr(at, field);

        if (at != NULL && next != NULL && at < next) {
            kb = atol(at + strlen(field));
        }
    }

    free(text);

    return kb;
}


static long
huge_kb(const zmap_hugemem_t *mem)
{
    return smaps_kb(mem->base, "\nAnonHugePages:")
           + smaps_kb(mem->base, "\nShmemPmdMapped:");
}


static long
hugetlb_kb(const zmap_hugemem_t *mem)
{
    return smaps_kb(mem->base, "\nPrivate_Hugetlb:")
           + smaps_kb(mem->base, "\nShared_Hugetlb:");
}


/* the pool */

typedef struct {
    const char    *name;
    long           claimable;
    zmap_huge_e    want;
    int            shared;
    zmap_rc_e      rc;
    zmap_pages_e   pages;
    int            error;
    uint64_t       missing;
} pool_row_t;


static pool_row_t  pool_rows[] = {

    { "exactly enough pages, private, on", PAGES, ZMAP_HUGE_ON, 0,
      ZMAP_OK, ZMAP_PAGES_HUGETLB, 0, 0 },
    { "exactly enough pages, shared, on", PAGES, ZMAP_HUGE_ON, 1,
      ZMAP_OK, ZMAP_PAGES_HUGETLB, 0, 0 },
    { "exactly enough pages, private, auto", PAGES, ZMAP_HUGE_AUTO, 0,
      ZMAP_OK, ZMAP_PAGES_HUGETLB, 0, 0 },
    { "more than enough pages, shared, auto", PAGES + 3, ZMAP_HUGE_AUTO, 1,
      ZMAP_OK, ZMAP_PAGES_HUGETLB, 0, 0 },

    { "one page too few, private, on", PAGES - 1, ZMAP_HUGE_ON, 0,
      ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 1 },
    { "one page too few, shared, on", PAGES - 1, ZMAP_HUGE_ON, 1,
      ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 1 },
    { "one page too few, private, auto", PAGES - 1, ZMAP_HUGE_AUTO, 0,
      ZMAP_OK, ZMAP_PAGES_THP, ENOMEM, 1 },
    { "one page too few, shared, auto", PAGES - 1, ZMAP_HUGE_AUTO, 1,
      ZMAP_OK, ZMAP_PAGES_PLAIN, ENOMEM, 1 },

    { "no pages, private, on", 0, ZMAP_HUGE_ON, 0,
      ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, PAGES },
    { "no pages, shared, on", 0, ZMAP_HUGE_ON, 1,
      ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, PAGES },
    { "no pages, private, auto", 0, ZMAP_HUGE_AUTO, 0,
      ZMAP_OK, ZMAP_PAGES_THP, ENOMEM, PAGES },
    { "no pages, shared, auto", 0, ZMAP_HUGE_AUTO, 1,
      ZMAP_OK, ZMAP_PAGES_PLAIN, ENOMEM, PAGES },

    { "enough pages that are not wanted, private", PAGES, ZMAP_HUGE_OFF, 0,
      ZMAP_OK, ZMAP_PAGES_THP, 0, 0 },
    { "enough pages that are not wanted, shared", PAGES, ZMAP_HUGE_OFF, 1,
      ZMAP_OK, ZMAP_PAGES_PLAIN, EPERM, 0 }
};


static void
check_empty(const zmap_hugemem_t *mem)
{
    assert_null(mem->base);
    assert_int_equal(mem->size, 0);
    assert_int_equal(mem->pages, ZMAP_PAGES_PLAIN);
    assert_int_equal(zmap_hugemem_measure(mem), ZMAP_PAGES_PLAIN);
}


/* what it has is what was promised, and what the kernel says */

static void
check_pages(const zmap_hugemem_t *mem, long claimable)
{
    int  huge;

    huge = mem->pages == ZMAP_PAGES_HUGETLB;

    assert_non_null(mem->base);
    assert_int_equal((uintptr_t) mem->base % HUGE, 0);
    assert_int_equal(mem->size, SIZE);
    assert_int_equal(zmap_hugemem_measure(mem), mem->pages);

    assert_int_equal(machine_claimable(), claimable - (huge ? PAGES : 0));
    assert_int_equal(machine_counter("resv"), 0);
    assert_int_equal(hugetlb_kb(mem), huge ? SIZE / 1024 : 0);
    assert_int_equal(smaps_kb(mem->base, "\nRss:"), 0);

    fill(mem, mem->size, 0x5a);

    assert_int_equal(zmap_hugemem_measure(mem), mem->pages);
    assert_int_equal(huge_kb(mem),
                     mem->pages == ZMAP_PAGES_THP ? SIZE / 1024 : 0);
    assert_int_equal(hugetlb_kb(mem), huge ? SIZE / 1024 : 0);
    assert_int_equal(machine_claimable(), claimable - (huge ? PAGES : 0));
}


static void
a_pool(void **state)
{
    pool_row_t      *row;
    zmap_hugemem_t   mem;

    row = *state;

    set_pool(row->claimable);
    memset(&mem, 0xff, sizeof(mem));

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, row->want, row->shared),
                     row->rc);
    assert_int_equal(mem.pages, row->pages);
    assert_int_equal(mem.error, row->error);
    assert_int_equal(mem.missing, row->missing);

    if (row->rc == ZMAP_OK) {
        assert_int_equal(mem.thp_error,
                         row->pages == ZMAP_PAGES_PLAIN ? EPERM : 0);
        check_pages(&mem, row->claimable);

    } else {
        check_empty(&mem);
    }

    release(&mem);
}


/* transparent huge pages, by the settings of the kernel */

typedef struct {
    const char    *name;
    int            setting;
    const char    *word;
    int            shared;
    zmap_pages_e   pages;
} thp_row_t;


static thp_row_t  thp_rows[] = {

    { "enabled always, private", MACHINE_ENABLED, "always", 0,
      ZMAP_PAGES_THP },
    { "enabled madvise, private", MACHINE_ENABLED, "madvise", 0,
      ZMAP_PAGES_THP },
    { "enabled never, private", MACHINE_ENABLED, "never", 0,
      ZMAP_PAGES_PLAIN },

    { "shmem_enabled always, shared", MACHINE_SHMEM, "always", 1,
      ZMAP_PAGES_THP },
    { "shmem_enabled within_size, shared", MACHINE_SHMEM, "within_size", 1,
      ZMAP_PAGES_THP },
    { "shmem_enabled advise, shared", MACHINE_SHMEM, "advise", 1,
      ZMAP_PAGES_THP },
    { "shmem_enabled never, shared", MACHINE_SHMEM, "never", 1,
      ZMAP_PAGES_PLAIN },
    { "shmem_enabled deny, shared", MACHINE_SHMEM, "deny", 1,
      ZMAP_PAGES_PLAIN },
    { "shmem_enabled force, shared", MACHINE_SHMEM, "force", 1,
      ZMAP_PAGES_THP }
};


static void
a_setting(void **state)
{
    int              error;
    thp_row_t       *row;
    zmap_hugemem_t   mem;

    row = *state;
    error = row->pages == ZMAP_PAGES_PLAIN ? EPERM : 0;

    set(row->setting, row->word);

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_OFF,
                                          row->shared),
                     ZMAP_OK);

    assert_int_equal(mem.pages, row->pages);
    assert_int_equal(mem.error, error);
    assert_int_equal(mem.thp_error, error);
    assert_int_equal(mem.missing, 0);

    check_pages(&mem, machine_claimable());
    release(&mem);
}


/* the truth of now, not that of the start */

static void
a_setting_that_changes_later_is_measured(void **state)
{
    zmap_hugemem_t  mem;

    (void) state;

    /* who cannot set it is to find out with nothing mapped */

    set(MACHINE_ENABLED, "never");
    set(MACHINE_ENABLED, "madvise");

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_OFF, 0),
                     ZMAP_OK);
    assert_int_equal(mem.pages, ZMAP_PAGES_THP);
    assert_int_equal(zmap_hugemem_measure(&mem), ZMAP_PAGES_THP);

    set(MACHINE_ENABLED, "never");
    assert_int_equal(zmap_hugemem_measure(&mem), ZMAP_PAGES_PLAIN);

    fill(&mem, mem.size, 1);
    assert_int_equal(huge_kb(&mem), 0);
    assert_int_equal(zmap_hugemem_measure(&mem), ZMAP_PAGES_PLAIN);

    release(&mem);
}


static void
half_of_the_bytes_in_memory_decide(void **state)
{
    size_t          plain, written;
    zmap_pages_e    pages;
    zmap_hugemem_t  mem;

    (void) state;

    set(MACHINE_ENABLED, "madvise");

    for (plain = 0; plain <= 4; plain++) {
        assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_OFF, 0),
                         ZMAP_OK);

        /* two mappings from here on, of which the sum counts */

        if (plain > 0) {
            assert_int_equal(madvise(mem.base, plain * HUGE,
                                     MADV_NOHUGEPAGE), 0);
        }

        written = 4 * HUGE;
        fill(&mem, written, 1);

        pages = plain <= 2 ? ZMAP_PAGES_THP : ZMAP_PAGES_PLAIN;
        assert_int_equal(zmap_hugemem_measure(&mem), pages);

        release(&mem);
    }
}


static int
without_thp(void *data)
{
    zmap_hugemem_t  mem;

    (void) data;

    child_check(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_AUTO, 0)
                == ZMAP_OK);
    child_check(mem.pages == ZMAP_PAGES_PLAIN);
    child_check(mem.error == ENOMEM && mem.missing == PAGES);
    child_check(mem.thp_error == EPERM);
    child_check(zmap_hugemem_measure(&mem) == ZMAP_PAGES_PLAIN);

    memset(mem.base, 1, mem.size);
    child_check(huge_kb(&mem) == 0);
    child_check(zmap_hugemem_measure(&mem) == ZMAP_PAGES_PLAIN);

    zmap_hugemem_release(&mem);
    child_check(mapped == 0);

    return 0;
}


static void
a_process_without_thp_gets_plain_pages(void **state)
{
    (void) state;

    set_pool(0);
    assert_int_equal(machine_child(without_thp, NULL), 0);
}


static void
regions_do_not_merge(void **state)
{
    size_t          i;
    zmap_smaps_t    smaps;
    zmap_hugemem_t  mem[6];

    (void) state;

    set(MACHINE_ENABLED, "madvise");

    for (i = 0; i < 6; i++) {
        assert_int_equal(zmap_hugemem_reserve(&mem[i], SIZE, ZMAP_HUGE_OFF, 0),
                         ZMAP_OK);
    }

    for (i = 0; i < 6; i += 2) {
        fill(&mem[i], SIZE, 1);
    }

    for (i = 0; i < 6; i++) {
        assert_int_equal(zmap_smaps_read(&smaps, mem[i].base, SIZE), ZMAP_OK);
        assert_int_equal(smaps.rss, i % 2 ? 0 : SIZE);
        assert_int_equal(smaps.thp, i % 2 ? 0 : SIZE);
        assert_int_equal(smaps_kb(mem[i].base, "\nSize:"), SIZE / 1024);
    }

    for (i = 0; i < 6; i++) {
        zmap_hugemem_release(&mem[i]);
    }

    assert_int_equal(mapped, 0);
}


/* a line of smaps is cut by the reader where the name says "1-ffff..." */

static void
a_file_name_is_no_mapping(void **state)
{
    int           fd;
    char          dir[32], path[256];
    void         *data;
    zmap_smaps_t  smaps;

    (void) state;

    strcpy(dir, "/tmp/zmap-smaps-XXXXXX");
    assert_non_null(mkdtemp(dir));

    memset(path, 'a', sizeof(path));
    memcpy(path, dir, strlen(dir));
    path[strlen(dir)] = '/';
    strcpy(path + 255 - 73, "1-fffffffffffff r--p");

    fd = open(path, O_RDWR|O_CREAT|O_CLOEXEC, 0600);
    assert_true(fd != -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);

    data = mmap(NULL, page_size(), PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(data != MAP_FAILED);

    assert_int_equal(zmap_smaps_read(&smaps, data, page_size()), ZMAP_OK);

    /* above the addresses of any process */

    assert_int_equal(zmap_smaps_read(&smaps, (void *) (1ULL << 47),
                                     page_size()),
                     ZMAP_SYSERR);
    assert_int_equal(errno, ENOENT);

    assert_int_equal(munmap(data, page_size()), 0);
    (void) close(fd);
}


/* sizes */

typedef struct {
    const char    *name;
    size_t         size;
    zmap_huge_e    want;
    zmap_rc_e      rc;
    zmap_pages_e   pages;
    size_t         pages_mapped;   /* whole huge pages */
    size_t         rest;           /* plain pages */
} size_row_t;


static size_row_t  size_rows[] = {

    { "size 0, off", 0, ZMAP_HUGE_OFF, ZMAP_OVERFLOW,
      ZMAP_PAGES_PLAIN, 0, 0 },
    { "size 0, on", 0, ZMAP_HUGE_ON, ZMAP_OVERFLOW,
      ZMAP_PAGES_PLAIN, 0, 0 },
    { "largest size, auto", SIZE_MAX, ZMAP_HUGE_AUTO, ZMAP_OVERFLOW,
      ZMAP_PAGES_PLAIN, 0, 0 },
    { "a size that no rounding fits, auto", SIZE_MAX - 3 * HUGE + 1,
      ZMAP_HUGE_AUTO, ZMAP_OVERFLOW, ZMAP_PAGES_PLAIN, 0, 0 },
    { "a size that no machine has, auto", SIZE_MAX - 3 * HUGE,
      ZMAP_HUGE_AUTO, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, 0, 0 },

    { "1 byte, on", 1, ZMAP_HUGE_ON, ZMAP_OK, ZMAP_PAGES_HUGETLB, 1, 0 },
    { "2 MiB, on", HUGE, ZMAP_HUGE_ON, ZMAP_OK, ZMAP_PAGES_HUGETLB, 1, 0 },
    { "2 MiB and a byte, on", HUGE + 1, ZMAP_HUGE_ON, ZMAP_OK,
      ZMAP_PAGES_HUGETLB, 2, 0 },

    { "1 byte, off", 1, ZMAP_HUGE_OFF, ZMAP_OK, ZMAP_PAGES_PLAIN, 0, 1 },
    { "2 MiB less a byte, off", HUGE - 1, ZMAP_HUGE_OFF, ZMAP_OK,
      ZMAP_PAGES_THP, 1, 0 },
    { "2 MiB, off", HUGE, ZMAP_HUGE_OFF, ZMAP_OK, ZMAP_PAGES_THP, 1, 0 },
    { "2 MiB and a byte, off", HUGE + 1, ZMAP_HUGE_OFF, ZMAP_OK,
      ZMAP_PAGES_THP, 1, 1 }
};


static void
a_size(void **state)
{
    size_row_t      *row;
    zmap_hugemem_t   mem;

    row = *state;

    set_pool(2);

    assert_int_equal(zmap_hugemem_reserve(&mem, row->size, row->want, 0),
                     row->rc);

    if (row->rc == ZMAP_OK) {
        assert_int_equal(mem.pages, row->pages);
        assert_int_equal(mem.size,
                         row->pages_mapped * HUGE + row->rest * page_size());
        assert_int_equal((uintptr_t) mem.base % HUGE, 0);

        if (row->pages != ZMAP_PAGES_HUGETLB) {
            assert_true(mem._mapping < mem.base);
            assert_true(mem._mapping + mem._mapped > mem.base + mem.size);
        }

        fill(&mem, mem.size, 7);
        assert_true(has(&mem, 7));
        assert_int_equal(zmap_hugemem_measure(&mem), row->pages);

    } else {
        check_empty(&mem);
        assert_int_equal(mem.error,
                         row->rc == ZMAP_NOMEM ? ENOMEM : EOVERFLOW);
    }

    release(&mem);
}


/* system calls that fail */

typedef struct {
    const char    *name;
    int            flag;           /* refused by mmap() */
    int            advice;         /* refused by madvise() */
    const char    *path;           /* refused by fopen() */
    int            err;
    zmap_huge_e    want;
    zmap_rc_e      rc;
    zmap_pages_e   pages;
    int            error;
    int            thp_error;
    uint64_t       missing;
} refusal_row_t;


static refusal_row_t  refusal_rows[] = {

    { "populate fails, a limit, auto", 0, MADV_POPULATE_WRITE, NULL, EFAULT,
      ZMAP_HUGE_AUTO, ZMAP_OK, ZMAP_PAGES_THP, EFAULT, 0, 0 },
    { "populate fails, a limit, on", 0, MADV_POPULATE_WRITE, NULL, EFAULT,
      ZMAP_HUGE_ON, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, EFAULT, 0, 0 },
    { "populate fails, no memory, on", 0, MADV_POPULATE_WRITE, NULL, ENOMEM,
      ZMAP_HUGE_ON, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 0, 0 },
    { "populate fails, old kernel, auto", 0, MADV_POPULATE_WRITE, NULL, EINVAL,
      ZMAP_HUGE_AUTO, ZMAP_OK, ZMAP_PAGES_THP, EINVAL, 0, 0 },
    { "populate fails, broken memory, auto", 0, MADV_POPULATE_WRITE, NULL,
      EHWPOISON, ZMAP_HUGE_AUTO, ZMAP_OK, ZMAP_PAGES_THP, EHWPOISON, 0, 0 },

    { "kernel without hugetlb, auto", MAP_HUGETLB, -1, NULL, ENOSYS,
      ZMAP_HUGE_AUTO, ZMAP_OK, ZMAP_PAGES_THP, ENOSYS, 0, 0 },
    { "kernel without hugetlb, on", MAP_HUGETLB, -1, NULL, EINVAL,
      ZMAP_HUGE_ON, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, EINVAL, 0, 0 },
    { "mapping refused by a limit, on", MAP_HUGETLB, -1, NULL, ENOMEM,
      ZMAP_HUGE_ON, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 0, 0 },
    { "no state of the pool to read, on", MAP_HUGETLB, -1, "/hugepages/",
      ENOMEM, ZMAP_HUGE_ON, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 0, PAGES },

    { "no addresses, off", MAP_NORESERVE, -1, NULL, ENOMEM,
      ZMAP_HUGE_OFF, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 0, 0 },
    { "no memory for the region, off", MAP_FIXED, -1, NULL, EAGAIN,
      ZMAP_HUGE_OFF, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, EAGAIN, 0, 0 },
    { "no memory of any kind, auto", MAP_ANONYMOUS, -1, NULL, ENOMEM,
      ZMAP_HUGE_AUTO, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 0, 0 },
    { "no memory of any kind, on", MAP_ANONYMOUS, -1, NULL, ENOMEM,
      ZMAP_HUGE_ON, ZMAP_NOMEM, ZMAP_PAGES_PLAIN, ENOMEM, 0, 0 },

    { "kernel without THP, off", 0, MADV_HUGEPAGE, NULL, EINVAL,
      ZMAP_HUGE_OFF, ZMAP_OK, ZMAP_PAGES_PLAIN, EINVAL, EINVAL, 0 },
    { "no smaps to read, off", 0, -1, "/smaps", EACCES,
      ZMAP_HUGE_OFF, ZMAP_OK, ZMAP_PAGES_PLAIN, EACCES, EACCES, 0 },
    { "no smaps to read, on", 0, -1, "/smaps", EACCES,
      ZMAP_HUGE_ON, ZMAP_OK, ZMAP_PAGES_HUGETLB, 0, 0, 0 },
    { "no fork advice, on", 0, MADV_DONTFORK, NULL, EINVAL,
      ZMAP_HUGE_ON, ZMAP_OK, ZMAP_PAGES_HUGETLB, 0, 0, 0 }
};


static void
a_refusal(void **state)
{
    refusal_row_t   *row;
    zmap_hugemem_t   mem;

    row = *state;

    set_pool(PAGES);

    refuse_flag = row->flag;
    refuse_advice = row->advice;
    refuse_path = row->path;
    refuse_errno = row->err;

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, row->want, 0), row->rc);

    assert_int_equal(mem.pages, row->pages);
    assert_int_equal(mem.error, row->error);
    assert_int_equal(mem.thp_error, row->thp_error);
    assert_int_equal(mem.missing, row->missing);
    assert_int_equal(zmap_hugemem_measure(&mem), row->pages);

    if (row->rc == ZMAP_OK) {
        fill(&mem, mem.size, 3);
        assert_int_equal(zmap_hugemem_measure(&mem), row->pages);

    } else {
        check_empty(&mem);
    }

    release(&mem);
}


/* neighbours */

typedef struct {
    size_t  size;
    int     touch;
    int     ready;             /* written when it has the pages */
    int     go;                /* at its end the neighbour ends */
} neighbour_t;


static int
neighbour(void *data)
{
    char           byte;
    void          *base;
    neighbour_t   *it;

    it = data;

    base = mmap(NULL, it->size, PROT_READ|PROT_WRITE,
                MAP_PRIVATE|MAP_ANONYMOUS|POOL_2MB, -1, 0);
    child_check(base != MAP_FAILED);

    if (it->touch) {
        memset(base, 1, it->size);
    }

    child_check(write(it->ready, "x", 1) == 1);
    child_check(read(it->go, &byte, 1) == 0);

    return 0;
}


static void
a_neighbour(int touch)
{
    int              ready[2], go[2];
    char             byte;
    pid_t            pid;
    uint64_t         pages;
    neighbour_t      it;
    zmap_hugemem_t   mem;

    set_pool(PAGES);

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);

    it = (neighbour_t) { 3 * HUGE, touch, ready[1], go[0] };

    /* the writing end must be in this process alone */

    pid = fork();

    if (pid == 0) {
        (void) close(go[1]);
        _exit(neighbour(&it));
    }

    (void) close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);

    assert_int_equal(zmap_hugemem_available(&pages, NULL), ZMAP_OK);
    assert_int_equal(pages, PAGES - 3);

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, 1),
                     ZMAP_NOMEM);
    assert_int_equal(mem.error, ENOMEM);
    assert_int_equal(mem.missing, 3);
    check_empty(&mem);

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_AUTO, 0),
                     ZMAP_OK);
    assert_int_equal(mem.pages, ZMAP_PAGES_THP);
    assert_int_equal(mem.error, ENOMEM);
    assert_int_equal(mem.missing, 3);
    zmap_hugemem_release(&mem);

    (void) close(go[1]);
    assert_int_equal(machine_wait(pid), 0);
    (void) close(go[0]);
    (void) close(ready[0]);

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, 0),
                     ZMAP_OK);
    release(&mem);
}


static void
a_neighbour_that_uses_pages(void **state)
{
    (void) state;

    a_neighbour(1);
}


/* its pages are free in HugePages_Free, and nobody can have them */

static void
a_neighbour_that_only_reserved_pages(void **state)
{
    (void) state;

    a_neighbour(0);
}


static long
meminfo(const char *field)
{
    char  text[8192], *at;

    assert_int_equal(machine_read("/proc/meminfo", text, sizeof(text)), 0);

    at = strstr(text, field);
    assert_non_null(at);

    return atol(at + strlen(field));
}


static void
available_pages_are_counted(void **state)
{
    size_t    size;
    uint64_t  pages;

    (void) state;

    set_pool(PAGES);
    size = 0;

    assert_int_equal(zmap_hugemem_available(&pages, &size), ZMAP_OK);
    assert_int_equal(pages, PAGES);
    assert_int_equal(size, HUGE);

    if (meminfo("\nHugepagesize:") == HUGE / 1024) {
        assert_int_equal(pages, meminfo("\nHugePages_Free:")
                                - meminfo("\nHugePages_Rsvd:"));
    }

    set(MACHINE_OVERCOMMIT, "5");
    assert_int_equal(zmap_hugemem_available(&pages, &size), ZMAP_OK);
    assert_int_equal(pages, PAGES + 5);

    pages = 77;
    refuse_path = "/hugepages/";
    assert_int_equal(zmap_hugemem_available(&pages, &size), ZMAP_SYSERR);
    assert_int_equal(errno, EACCES);

    refuse_path = "/surplus_";
    assert_int_equal(zmap_hugemem_available(&pages, &size), ZMAP_SYSERR);
    assert_int_equal(pages, 77);
}


static void
pages_that_the_kernel_adds_are_given_back(void **state)
{
    uint64_t        pages;
    zmap_hugemem_t  mem;

    (void) state;

    set_pool(2);
    set(MACHINE_OVERCOMMIT, "6");

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, 1),
                     ZMAP_OK);
    assert_int_equal(mem.pages, ZMAP_PAGES_HUGETLB);
    assert_int_equal(hugetlb_kb(&mem), SIZE / 1024);
    assert_int_equal(machine_counter("surplus"), PAGES - 2);

    assert_int_equal(zmap_hugemem_available(&pages, NULL), ZMAP_OK);
    assert_int_equal(pages, 0);

    release(&mem);
    assert_int_equal(machine_counter("surplus"), 0);
}


/* child processes */

static int
writes_shared(void *data)
{
    zmap_hugemem_t  *mem;

    mem = data;

    /* before this process has touched any page */

    child_check(zmap_hugemem_measure(mem) == mem->pages);

    child_check(has(mem, 0x11));
    child_check(zmap_hugemem_measure(mem) == mem->pages);
    memset(mem->base, 0x22, mem->size);

    return 0;
}


static int
has_no_private(void *data)
{
    zmap_smaps_t     smaps;
    zmap_hugemem_t  *mem;

    mem = data;

    child_check(zmap_smaps_read(&smaps, mem->base, mem->size) == ZMAP_SYSERR);
    child_check(errno == ENOENT);

    return 0;
}


typedef struct {
    const char    *name;
    long           claimable;
    const char    *shmem;
    zmap_pages_e   pages;
} fork_row_t;


static fork_row_t  fork_rows[] = {
    { "children, hugetlb", PAGES, "never", ZMAP_PAGES_HUGETLB },
    { "children, thp", 0, "advise", ZMAP_PAGES_THP },
    { "children, plain", 0, "never", ZMAP_PAGES_PLAIN }
};


static void
a_fork(void **state)
{
    fork_row_t      *row;
    zmap_hugemem_t   mem;

    row = *state;

    set_pool(row->claimable);
    set(MACHINE_SHMEM, row->shmem);

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_AUTO, 1),
                     ZMAP_OK);
    assert_int_equal(mem.pages, row->pages);
    fill(&mem, mem.size, 0x11);

    assert_int_equal(machine_child(writes_shared, &mem), 0);
    assert_true(has(&mem, 0x22));
    release(&mem);

    assert_int_equal(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_AUTO, 0),
                     ZMAP_OK);
    memset(mem.base, 0x11, mem.size);
    assert_int_equal(machine_child(has_no_private, &mem), 0);
    assert_true(has(&mem, 0x11));
    release(&mem);
}


static int
holds_and_dies(void *data)
{
    zmap_hugemem_t  mem;

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, data != NULL)
                == ZMAP_OK);
    child_check(machine_claimable() == 0);

    return raise(SIGKILL);
}


static void
a_killed_process_gives_its_pages_back(void **state)
{
    (void) state;

    set_pool(PAGES);

    assert_int_equal(machine_child(holds_and_dies, NULL), 128 + SIGKILL);
    assert_int_equal(machine_claimable(), PAGES);
    assert_int_equal(machine_child(holds_and_dies, &pool), 128 + SIGKILL);
    assert_int_equal(machine_claimable(), PAGES);
}


/* nginx workers are nobody's, and may lock no memory */

static int
as_nobody(void *data)
{
    struct rlimit   limit;
    zmap_hugemem_t  mem;

    (void) data;

    limit = (struct rlimit) { 0, 0 };
    child_check(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    child_check(setresgid(65534, 65534, 65534) == 0);
    child_check(setresuid(65534, 65534, 65534) == 0);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, 0) == ZMAP_OK);
    child_check(zmap_hugemem_measure(&mem) == ZMAP_PAGES_HUGETLB);
    zmap_hugemem_release(&mem);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_OFF, 0) == ZMAP_OK);
    child_check(mem.pages == ZMAP_PAGES_THP);
    memset(mem.base, 1, mem.size);
    child_check(zmap_hugemem_measure(&mem) == ZMAP_PAGES_THP);
    zmap_hugemem_release(&mem);

    return 0;
}


static void
a_process_of_nobody_gets_pages(void **state)
{
    (void) state;

    set_pool(PAGES);
    assert_int_equal(machine_child(as_nobody, NULL), 0);
    assert_int_equal(machine_claimable(), PAGES);
}


/*
 * Limits by a cgroup.  Version 2 first: to mount version 1 takes a controller
 * that version 2 does not use at the moment.
 */

typedef struct {
    const char    *type;
    const char    *options;
    const char    *parent;     /* where children get the controller, or NULL */
    const char    *limit[2];   /* when touched, when reserved */
} cgroup_kind_t;


static const cgroup_kind_t  cgroup_kinds[] = {
    { "cgroup2", NULL, "cgroup.subtree_control",
      { "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max" } },
    { "cgroup", "hugetlb", NULL,
      { "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.rsvd.limit_in_bytes" } }
};


typedef struct {
    const cgroup_kind_t  *kind;
    size_t                which;
    int                   added;       /* the controller, to the children */
    char                  root[64];
    char                  group[96];
} cgroup_t;


static int
cgroup_write(const char *dir, const char *name, const char *text)
{
    char  path[256];

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);

    return machine_write(path, text);
}


static int
limited(void *data)
{
    int              err;
    cgroup_t        *cgroup;
    zmap_hugemem_t   mem;

    cgroup = data;
    err = cgroup->which ? ENOMEM : EFAULT;

    child_check(cgroup_write(cgroup->group, "cgroup.procs", "0") == 0);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, 1)
                == ZMAP_NOMEM);
    child_check(mem.error == err && mem.missing == 0);
    child_check(machine_claimable() == PAGES);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_AUTO, 0)
                == ZMAP_OK);
    child_check(mem.pages == ZMAP_PAGES_THP);
    child_check(mem.error == err && mem.missing == 0);
    memset(mem.base, 1, mem.size);
    child_check(zmap_hugemem_measure(&mem) == ZMAP_PAGES_THP);
    zmap_hugemem_release(&mem);

    child_check(zmap_hugemem_reserve(&mem, SIZE - HUGE, ZMAP_HUGE_ON, 0)
                == ZMAP_OK);
    child_check(zmap_hugemem_measure(&mem) == ZMAP_PAGES_HUGETLB);
    memset(mem.base, 1, mem.size);
    zmap_hugemem_release(&mem);
    child_check(machine_claimable() == PAGES);

    return 0;
}


static int
cgroup_make(cgroup_t *cgroup)
{
    char  limit[32], text[1024], path[128];

    if (mount("none", cgroup->root, cgroup->kind->type, 0,
              cgroup->kind->options) != 0)
    {
        return -1;
    }

    if (cgroup->kind->parent != NULL) {
        (void) snprintf(path, sizeof(path), "%s/%s", cgroup->root,
                        cgroup->kind->parent);

        if (machine_read(path, text, sizeof(text)) == 0
            && strstr(text, "hugetlb") == NULL)
        {
            cgroup->added = machine_write(path, "+hugetlb") == 0;
        }
    }

    (void) snprintf(limit, sizeof(limit), "%zu", SIZE - HUGE);

    if (mkdir(cgroup->group, 0700) != 0) {
        return -1;
    }

    return cgroup_write(cgroup->group, cgroup->kind->limit[cgroup->which],
                        limit);
}


static void
cgroup_remove(cgroup_t *cgroup)
{
    int  i;

    /* a process that has just ended may still be in it */

    for (i = 0; i < 1000000; i++) {

        if (rmdir(cgroup->group) == 0 || errno != EBUSY) {
            break;
        }

        (void) sched_yield();
    }

    if (cgroup->added) {
        (void) cgroup_write(cgroup->root, cgroup->kind->parent, "-hugetlb");
    }

    (void) umount2(cgroup->root, MNT_DETACH);
}


/*
 * In a mount namespace of its own: the mount ends with it.  Where "/" is not
 * the top of a mount, as in a chroot, that is EINVAL, and others see the mount
 * until it is removed.
 */

static int
in_namespace(void *data)
{
    int        status;
    cgroup_t  *cgroup;

    cgroup = data;

    if (unshare(CLONE_NEWNS) != 0
        || (mount("none", "/", NULL, MS_REC|MS_PRIVATE, NULL) != 0
            && errno != EINVAL))
    {
        return MACHINE_CANNOT;
    }

    status = MACHINE_CANNOT;

    if (cgroup_make(cgroup) == 0) {
        status = machine_child(limited, cgroup);
    }

    cgroup_remove(cgroup);

    return status;
}


static void
a_cgroup(size_t which)
{
    int        status;
    size_t     i;
    cgroup_t   cgroup;

    set_pool(PAGES);
    status = MACHINE_CANNOT;

    for (i = 0; i < UNIT_COUNT(cgroup_kinds); i++) {
        memset(&cgroup, 0, sizeof(cgroup));
        cgroup.kind = &cgroup_kinds[i];
        cgroup.which = which;

        (void) snprintf(cgroup.root, sizeof(cgroup.root),
                        "/tmp/zmap-cgroup-XXXXXX");
        assert_non_null(mkdtemp(cgroup.root));

        (void) snprintf(cgroup.group, sizeof(cgroup.group), "%s/zmap-%ld",
                        cgroup.root, (long) getpid());

        status = machine_child(in_namespace, &cgroup);
        assert_int_equal(rmdir(cgroup.root), 0);

        if (status != MACHINE_CANNOT) {
            break;
        }
    }

    if (status == MACHINE_CANNOT) {
        not_tested("a cgroup with the hugetlb controller that cannot be made");
    }

    assert_int_equal(status, 0);
    assert_int_equal(machine_claimable(), PAGES);
}


static void
a_cgroup_that_limits_use(void **state)
{
    (void) state;

    a_cgroup(0);
}


static void
a_cgroup_that_limits_reservations(void **state)
{
    (void) state;

    a_cgroup(1);
}


/* addresses for half of it */

static int
without_addresses(void *data)
{
    char            text[64];
    struct rlimit   limit;
    zmap_hugemem_t  mem;

    (void) data;

    child_check(machine_read("/proc/self/statm", text, sizeof(text)) == 0);

    limit.rlim_cur = strtoul(text, NULL, 10) * page_size() + SIZE / 2;
    limit.rlim_max = RLIM_INFINITY;
    child_check(setrlimit(RLIMIT_AS, &limit) == 0);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_ON, 1)
                == ZMAP_NOMEM);
    child_check(mem.error == ENOMEM && mem.missing == 0);

    child_check(zmap_hugemem_reserve(&mem, SIZE, ZMAP_HUGE_AUTO, 0)
                == ZMAP_NOMEM);
    child_check(mem.error == ENOMEM && mem.base == NULL && mapped == 0);

    return 0;
}


static void
a_process_without_addresses_gets_nothing(void **state)
{
    (void) state;

    set_pool(PAGES);
    assert_int_equal(machine_child(without_addresses, NULL), 0);
    assert_int_equal(machine_claimable(), PAGES);
}


static int
soak(void *data)
{
    int             i, fd;
    size_t          size;
    zmap_hugemem_t  mem;

    (void) data;

    fd = open("/dev/null", O_RDONLY|O_CLOEXEC);

    for (i = 0; i < 1000; i++) {
        size = (size_t) (1 + i % (PAGES + 3)) * HUGE - (size_t) (i % 5);

        child_check(zmap_hugemem_reserve(&mem, size, ZMAP_HUGE_AUTO, i & 1)
                    == ZMAP_OK);
        child_check((mem.pages == ZMAP_PAGES_HUGETLB)
                    == (i % (PAGES + 3) < PAGES));

        mem.base[0] = 1;
        mem.base[size - 1] = 1;
        zmap_hugemem_release(&mem);

        child_check(mapped == 0);
    }

    child_check(open("/dev/null", O_RDONLY|O_CLOEXEC) == fd + 1);

    return 0;
}


static void
a_thousand_regions_leave_nothing(void **state)
{
    (void) state;

    set_pool(PAGES);
    assert_int_equal(machine_child(soak, NULL), 0);
    assert_int_equal(machine_claimable(), PAGES);
}


static void
an_empty_region_is_left_alone(void **state)
{
    zmap_hugemem_t  mem;

    (void) state;

    memset(&mem, 0, sizeof(mem));
    zmap_hugemem_release(&mem);
    zmap_hugemem_release(&mem);
    check_empty(&mem);
}


static void
kinds_have_names(void **state)
{
    (void) state;

    assert_string_equal(zmap_pages_name(ZMAP_PAGES_HUGETLB), "hugetlb");
    assert_string_equal(zmap_pages_name(ZMAP_PAGES_THP), "thp");
    assert_string_equal(zmap_pages_name(ZMAP_PAGES_PLAIN), "plain");
}


static struct CMUnitTest  tests[128];


static int
run(void *data)
{
    size_t  i, n;

    static const struct CMUnitTest  singles[] = {
        cmocka_unit_test(a_setting_that_changes_later_is_measured),
        cmocka_unit_test(half_of_the_bytes_in_memory_decide),
        cmocka_unit_test(a_process_without_thp_gets_plain_pages),
        cmocka_unit_test(regions_do_not_merge),
        cmocka_unit_test(a_file_name_is_no_mapping),
        cmocka_unit_test(a_neighbour_that_uses_pages),
        cmocka_unit_test(a_neighbour_that_only_reserved_pages),
        cmocka_unit_test(available_pages_are_counted),
        cmocka_unit_test(pages_that_the_kernel_adds_are_given_back),
        cmocka_unit_test(a_killed_process_gives_its_pages_back),
        cmocka_unit_test(a_process_of_nobody_gets_pages),
        cmocka_unit_test(a_process_without_addresses_gets_nothing),
        cmocka_unit_test(a_cgroup_that_limits_use),
        cmocka_unit_test(a_cgroup_that_limits_reservations),
        cmocka_unit_test(a_thousand_regions_leave_nothing),
        cmocka_unit_test(an_empty_region_is_left_alone),
        cmocka_unit_test(kinds_have_names)
    };

    (void) data;

    n = UNIT_ROWS(tests, pool_rows, a_pool);
    n += UNIT_ROWS(tests + n, thp_rows, a_setting);
    n += UNIT_ROWS(tests + n, size_rows, a_size);
    n += UNIT_ROWS(tests + n, refusal_rows, a_refusal);
    n += UNIT_ROWS(tests + n, fork_rows, a_fork);

    memcpy(tests + n, singles, sizeof(singles));
    n += UNIT_COUNT(singles);

    for (i = 0; i < n; i++) {
        tests[i].setup_func = usual_settings;
        tests[i].teardown_func = nothing_mapped;
    }

    return unit_run("hugemem", tests, n);
}


int
main(void)
{
    return machine_run(run);
}
