
/*
 * The SIGBUS guard: what it catches, what it lets through, what is left after.
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
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zstd.h>

#include "zmap_decode.h"
#include "zmap_guard.h"


#define FAULTS   1000
#define THREADS  4


/* a file of some pages that was cut to its first page under its mapping */

typedef struct {
    uint8_t  *data;
    size_t    page;
    size_t    size;
    int       fd;
} cut_t;


typedef struct {
    const cut_t  *cut;
    size_t        offset;
    unsigned      before;      /* statements that ran */
    unsigned      after;
} touch_t;


static cut_t                  cut_file;
static volatile uint8_t       sink;
static volatile sig_atomic_t  handled;
static void *volatile         handled_addr;


static void
cut_open(cut_t *cut, size_t npages)
{
    cut->page = (size_t) sysconf(_SC_PAGESIZE);
    cut->size = npages * cut->page;
    cut->fd = memfd_create("cut", MFD_CLOEXEC);

    assert_true(cut->fd != -1);
    assert_int_equal(ftruncate(cut->fd, (off_t) cut->size), 0);

    cut->data = mmap(NULL, cut->size, PROT_READ, MAP_PRIVATE, cut->fd, 0);

    assert_ptr_not_equal(cut->data, MAP_FAILED);
    assert_int_equal(ftruncate(cut->fd, (off_t) cut->page), 0);
}


static void
cut_close(cut_t *cut)
{
    assert_int_equal(munmap(cut->data, cut->size), 0);
    assert_int_equal(close(cut->fd), 0);
}


static zmap_rc_e
touch(void *data)
{
    touch_t  *t = data;

    t->before++;
    sink = *(volatile const uint8_t *) (t->cut->data + t->offset);
    t->after++;

    return ZMAP_CHECKSUM;
}


static int
sigbus_blocked(void)
{
    sigset_t  set;

    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);

    return sigismember(&set, SIGBUS);
}


/* runs body in a child; gives its wait status */

static int
in_child(void (*body)(void))
{
    int            status;
    pid_t          pid, rc;
    struct rlimit  none = { 0, 0 };

    pid = fork();
    assert_true(pid != -1);

    if (pid == 0) {
        (void) setrlimit(RLIMIT_CORE, &none);
        body();
        _exit(99);
    }

    do {
        rc = waitpid(pid, &status, 0);
    } while (rc == -1 && errno == EINTR);

    assert_int_equal(rc, pid);

    return status;
}


static void
assert_killed_by_sigbus(void (*body)(void))
{
    int  status;

    status = in_child(body);

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}


static void
assert_exits(void (*body)(void), int code)
{
    int  status;

    status = in_child(body);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}


/* for children, which must not return into cmocka */

static void
need(int condition)
{
    if (!condition) {
        _exit(98);
    }
}


static void
on_signal(int signo, void (*handler)(int), int flags)
{
    struct sigaction  action;

    memset(&action, 0, sizeof(action));
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    action.sa_handler = handler;
    action.sa_flags = flags;

    need(sigaction(signo, &action, NULL) == 0);
}


static void
on_siginfo(void (*handler)(int, siginfo_t *, void *), int flags)
{
    on_signal(SIGBUS, (void (*)(int)) (void *) handler, flags | SA_SIGINFO);
}


/* touches the page behind the end, guarding only [base, base + size) */

static zmap_rc_e
touch_guarding(const void *base, size_t size)
{
    touch_t  t = { &cut_file, cut_file.page, 0, 0 };

    return zmap_guard_call(base, size, touch, &t);
}


static void
no_fault_returns_the_value_of_the_function(void **state)
{
    cut_t    cut;
    touch_t  t = { &cut, 0, 0, 0 };

    (void) state;

    cut_open(&cut, 4);

    assert_int_equal(zmap_guard_install(), ZMAP_OK);
    assert_int_equal(zmap_guard_call(cut.data, cut.size, touch, &t),
                     ZMAP_CHECKSUM);
    assert_int_equal(t.after, 1);

    zmap_guard_uninstall();
    cut_close(&cut);
}


static void
a_fault_in_the_range_is_returned_every_time(void **state)
{
    int      i;
    cut_t    cut;
    touch_t  t = { &cut, 0, 0, 0 };

    (void) state;

    cut_open(&cut, 4);

    assert_int_equal(zmap_guard_install(), ZMAP_OK);

    for (i = 0; i < FAULTS; i++) {
        t.offset = cut.page + (size_t) i * 7 % (cut.size - cut.page);

        assert_int_equal(zmap_guard_call(cut.data, cut.size, touch, &t),
                         ZMAP_FAULT);
        assert_int_equal(sigbus_blocked(), 0);
    }

    assert_int_equal(t.before, FAULTS);
    assert_int_equal(t.after, 0);

    zmap_guard_uninstall();
    cut_close(&cut);
}


static void
the_last_byte_of_the_range_is_guarded(void **state)
{
    cut_t    cut;
    touch_t  t = { &cut, 0, 0, 0 };

    (void) state;

    cut_open(&cut, 2);
    t.offset = cut.size - 1;

    assert_int_equal(zmap_guard_install(), ZMAP_OK);
    assert_int_equal(zmap_guard_call(cut.data + t.offset, 1, touch, &t),
                     ZMAP_FAULT);

    zmap_guard_uninstall();
    cut_close(&cut);
}


static void *
thread_main(void *data)
{
    int        i;
    touch_t   *t = data;
    uintptr_t  wrong;

    wrong = 0;

    for (i = 0; i < FAULTS; i++) {
        t->offset = i % 2 ? 0 : t->cut->page;

        if (zmap_guard_call(t->cut->data, t->cut->size, touch, t)
            != (i % 2 ? ZMAP_CHECKSUM : ZMAP_FAULT))
        {
            wrong++;
        }
    }

    return (void *) wrong;
}


static void
threads_fault_independently(void **state)
{
    int        i;
    void      *wrong;
    cut_t      cut[THREADS];
    touch_t    t[THREADS];
    pthread_t  thread[THREADS];

    (void) state;

    assert_int_equal(zmap_guard_install(), ZMAP_OK);

    for (i = 0; i < THREADS; i++) {
        cut_open(&cut[i], 2);
        t[i] = (touch_t) { &cut[i], 0, 0, 0 };
        assert_int_equal(pthread_create(&thread[i], NULL, thread_main, &t[i]),
                         0);
    }

    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
        assert_int_equal(t[i].before, FAULTS);
        assert_int_equal(t[i].after, FAULTS / 2);
        cut_close(&cut[i]);
    }

    zmap_guard_uninstall();
}


typedef struct {
    touch_t    inner;
    touch_t    outer;
    zmap_rc_e  inner_rc;
} nest_t;


static zmap_rc_e
nest(void *data)
{
    nest_t  *n = data;

    n->inner_rc = zmap_guard_call(n->inner.cut->data, n->inner.cut->size,
                                  touch, &n->inner);
    return touch(&n->outer);
}


static void
calls_nest(void **state)
{
    int     i;
    cut_t   a, b;
    nest_t  n = { { &a, 0, 0, 0 }, { &b, 0, 0, 0 }, ZMAP_OK };

    (void) state;

    cut_open(&a, 2);
    cut_open(&b, 2);
    assert_int_equal(zmap_guard_install(), ZMAP_OK);

    for (i = 0; i < 4; i++) {
        n.inner.offset = i & 1 ? a.page : 0;
        n.outer.offset = i & 2 ? b.page : 0;

        assert_int_equal(zmap_guard_call(b.data, b.size, nest, &n),
                         i & 2 ? ZMAP_FAULT : ZMAP_CHECKSUM);
        assert_int_equal(n.inner_rc, i & 1 ? ZMAP_FAULT : ZMAP_CHECKSUM);
    }

    zmap_guard_uninstall();
    cut_close(&a);
    cut_close(&b);
}


static zmap_rc_e
touch_under_an_inner_guard(void *data)
{
    (void) data;

    return touch_guarding(cut_file.data, cut_file.page);
}


static void
child_touches_the_outer_range_inside(void)
{
    on_signal(SIGBUS, SIG_DFL, 0);
    need(zmap_guard_install() == ZMAP_OK);

    (void) zmap_guard_call(cut_file.data, cut_file.size,
                           touch_under_an_inner_guard, NULL);
}


static void
child_faults_outside(void)
{
    on_signal(SIGBUS, SIG_DFL, 0);
    need(zmap_guard_install() == ZMAP_OK);

    (void) touch_guarding(cut_file.data, cut_file.page);
}


static void
child_faults_without_a_call(void)
{
    touch_t  t = { &cut_file, cut_file.page, 0, 0 };

    on_signal(SIGBUS, SIG_DFL, 0);
    need(zmap_guard_install() == ZMAP_OK);
    need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);

    (void) touch(&t);
}


static void
child_ignores_and_faults(void)
{
    on_signal(SIGBUS, SIG_IGN, 0);
    need(zmap_guard_install() == ZMAP_OK);

    (void) touch_guarding(cut_file.data, cut_file.page);
}


static void
child_is_sent_sigbus(void)
{
    on_signal(SIGBUS, SIG_DFL, 0);
    need(zmap_guard_install() == ZMAP_OK);

    (void) raise(SIGBUS);
}


static void
other_faults_kill_as_before(void **state)
{
    (void) state;

    cut_open(&cut_file, 2);

    assert_killed_by_sigbus(child_faults_outside);
    assert_killed_by_sigbus(child_faults_without_a_call);
    assert_killed_by_sigbus(child_touches_the_outer_range_inside);
    assert_killed_by_sigbus(child_ignores_and_faults);
    assert_killed_by_sigbus(child_is_sent_sigbus);

    cut_close(&cut_file);
}


static void
child_ignores_a_sent_sigbus(void)
{
    on_signal(SIGBUS, SIG_IGN, 0);
    need(zmap_guard_install() == ZMAP_OK);
    need(raise(SIGBUS) == 0);
    need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);

    _exit(10);
}


static void
a_sent_signal_stays_ignored(void **state)
{
    (void) state;

    cut_open(&cut_file, 2);
    assert_exits(child_ignores_a_sent_sigbus, 10);
    cut_close(&cut_file);
}


static int
is_blocked(int signo)
{
    sigset_t  set;

    need(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);

    return sigismember(&set, signo);
}


static void
siginfo_handler(int signo, siginfo_t *info, void *context)
{
    need(signo == SIGBUS && info->si_signo == SIGBUS && context != NULL);
    need(info->si_code == BUS_ADRERR);
    need(info->si_addr == cut_file.data + cut_file.page);
    need(is_blocked(SIGBUS) && is_blocked(SIGUSR1));

    _exit(11);
}


static void
child_has_a_siginfo_handler(void)
{
    on_siginfo(siginfo_handler, 0);
    need(zmap_guard_install() == ZMAP_OK);
    need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);

    (void) touch_guarding(cut_file.data, cut_file.page);
}


static void
plain_handler(int signo)
{
    need(signo == SIGBUS);
    need(!is_blocked(SIGBUS) && is_blocked(SIGUSR1));

    _exit(12);
}


static void
child_has_a_plain_handler(void)
{
    on_signal(SIGBUS, plain_handler, SA_NODEFER);
    need(zmap_guard_install() == ZMAP_OK);

    (void) touch_guarding(cut_file.data, cut_file.page);
}


/* a handler that mends the fault and returns, as others that map files do */

static void
mending_handler(int signo, siginfo_t *info, void *context)
{
    (void) signo;
    (void) context;

    handled++;
    handled_addr = info->si_addr;
    errno = ERANGE;

    need(ftruncate(cut_file.fd, (off_t) cut_file.size) == 0);
}


static void
child_has_a_mending_handler(void)
{
    int  i;

    on_siginfo(mending_handler, 0);
    need(zmap_guard_install() == ZMAP_OK);

    for (i = 1; i <= 3; i++) {
        errno = 0;
        need(touch_guarding(cut_file.data, cut_file.page) == ZMAP_CHECKSUM);
        need(handled == i && errno == 0);
        need(handled_addr == cut_file.data + cut_file.page);
        need(!is_blocked(SIGBUS) && !is_blocked(SIGUSR1));

        need(ftruncate(cut_file.fd, (off_t) cut_file.page) == 0);
        need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);
        need(handled == i);
    }

    _exit(13);
}


static void
child_has_a_handler_for_one_time(void)
{
    on_siginfo(mending_handler, SA_RESETHAND);
    need(zmap_guard_install() == ZMAP_OK);
    need(touch_guarding(cut_file.data, cut_file.page) == ZMAP_CHECKSUM);
    need(handled == 1);
    need(ftruncate(cut_file.fd, (off_t) cut_file.page) == 0);

    (void) touch_guarding(cut_file.data, cut_file.page);
}


static sigjmp_buf  left_by_jump;

static void
jumping_handler(int signo)
{
    (void) signo;

    siglongjmp(left_by_jump, 1);
}


static void
child_leaves_the_handler_by_a_jump(void)
{
    on_signal(SIGBUS, jumping_handler, 0);
    need(zmap_guard_install() == ZMAP_OK);

    if (sigsetjmp(left_by_jump, 1) == 0) {
        (void) touch_guarding(NULL, 0);
        _exit(97);
    }

    need(!is_blocked(SIGBUS));

    _exit(14);
}


static zmap_rc_e
raise_inside(void *data)
{
    (void) data;

    return raise(SIGBUS) == 0 ? ZMAP_OK : ZMAP_SYSERR;
}


static void
counting_handler(int signo)
{
    (void) signo;

    handled++;
}


static void
child_is_sent_sigbus_inside_a_call(void)
{
    on_signal(SIGBUS, counting_handler, 0);
    need(zmap_guard_install() == ZMAP_OK);

    /* si_addr of a sent signal is the sender: any range must not match */

    need(zmap_guard_call(NULL, SIZE_MAX, raise_inside, NULL) == ZMAP_OK);
    need(handled == 1);

    _exit(15);
}


static void
the_previous_handler_is_called(void **state)
{
    (void) state;

    cut_open(&cut_file, 2);

    assert_exits(child_has_a_siginfo_handler, 11);
    assert_exits(child_has_a_plain_handler, 12);
    assert_exits(child_leaves_the_handler_by_a_jump, 14);
    assert_exits(child_is_sent_sigbus_inside_a_call, 15);
    assert_exits(child_has_a_mending_handler, 13);
    assert_int_equal(ftruncate(cut_file.fd, (off_t) cut_file.page), 0);
    assert_killed_by_sigbus(child_has_a_handler_for_one_time);

    cut_close(&cut_file);
}


static uint8_t  *alternate;

static void
stack_handler(int signo)
{
    uint8_t  local;

    (void) signo;

    need((uintptr_t) &local - (uintptr_t) alternate < 256 * 1024);
    _exit(16);
}


static void
child_uses_an_alternate_stack(void)
{
    int      i;
    stack_t  stack;

    alternate = mmap(NULL, 256 * 1024, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(alternate != MAP_FAILED);

    memset(&stack, 0, sizeof(stack));
    stack.ss_sp = alternate;
    stack.ss_size = 256 * 1024;

    need(sigaltstack(&stack, NULL) == 0);
    on_signal(SIGBUS, stack_handler, SA_ONSTACK);
    need(zmap_guard_install() == ZMAP_OK);

    for (i = 0; i < FAULTS; i++) {
        need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);
    }

    (void) touch_guarding(cut_file.data, cut_file.page);
}


static void
an_alternate_stack_is_kept_and_left(void **state)
{
    (void) state;

    cut_open(&cut_file, 2);
    assert_exits(child_uses_an_alternate_stack, 16);
    cut_close(&cut_file);
}


static void
get_action(struct sigaction *action)
{
    assert_int_equal(sigaction(SIGBUS, NULL, action), 0);
}


static void
uninstall_puts_the_old_action_back(void **state)
{
    struct sigaction  before, during, again, after;

    (void) state;

    on_signal(SIGBUS, counting_handler, SA_RESTART);
    get_action(&before);

    assert_int_equal(zmap_guard_install(), ZMAP_OK);
    get_action(&during);
    assert_true(during.sa_handler != before.sa_handler);

    assert_int_equal(zmap_guard_install(), ZMAP_OK);
    get_action(&again);
    assert_true(again.sa_sigaction == during.sa_sigaction);

    zmap_guard_uninstall();
    zmap_guard_uninstall();
    get_action(&after);

    assert_true(after.sa_handler == counting_handler);
    assert_int_equal(after.sa_flags, before.sa_flags);
    assert_int_equal(sigismember(&after.sa_mask, SIGUSR1), 1);
    assert_int_equal(sigismember(&after.sa_mask, SIGUSR2), 0);
}


static struct sigaction  newcomer_previous;

static void
newcomer(int signo, siginfo_t *info, void *context)
{
    handled++;
    newcomer_previous.sa_sigaction(signo, info, context);
}


static void
child_has_a_newcomer(void)
{
    struct sigaction  action;

    on_signal(SIGBUS, SIG_DFL, 0);
    need(zmap_guard_install() == ZMAP_OK);
    need(sigaction(SIGBUS, NULL, &newcomer_previous) == 0);
    on_siginfo(newcomer, SA_NODEFER);

    zmap_guard_uninstall();

    need(sigaction(SIGBUS, NULL, &action) == 0);
    need(action.sa_sigaction == newcomer);
    need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);
    need(handled == 1);

    /* the newcomer goes; once it is gone, all is as at first */

    need(sigaction(SIGBUS, &newcomer_previous, NULL) == 0);
    need(touch_guarding(cut_file.data, cut_file.size) == ZMAP_FAULT);
    zmap_guard_uninstall();

    need(sigaction(SIGBUS, NULL, &action) == 0);
    need(action.sa_handler == SIG_DFL);

    /* our handler put back behind our back must not forward to itself */

    need(sigaction(SIGBUS, &newcomer_previous, NULL) == 0);
    need(zmap_guard_install() == ZMAP_OK);
    (void) touch_guarding(cut_file.data, cut_file.page);
}


static void
a_later_handler_keeps_its_place(void **state)
{
    (void) state;

    cut_open(&cut_file, 2);
    assert_killed_by_sigbus(child_has_a_newcomer);
    cut_close(&cut_file);
}


/* a zstd file that is cut under its mapping at one page after the other */

typedef struct {
    zmap_decoder_t  *decoder;
    const uint8_t   *src;
    size_t           src_size;
    uint8_t         *dst;
    size_t           dst_size;
    size_t           step;
} job_t;


static zmap_rc_e
decode_whole(void *data)
{
    job_t  *job = data;

    return zmap_decode_all(job->decoder, job->dst, job->dst_size, job->src,
                           job->src_size, NULL);
}


static zmap_rc_e
decode_in_steps(void *data)
{
    job_t         *job = data;
    size_t         done, n;
    zmap_rc_e      rc;
    zmap_piece_t   piece = { job->src, 0, job->src_size };

    done = 0;

    do {
        n = job->dst_size - done < job->step ? job->dst_size - done : job->step;
        rc = zmap_decode_step(job->decoder, &piece, job->dst + done, n, &n);
        done += n;
    } while (rc == ZMAP_AGAIN && done < job->dst_size);

    if (rc == ZMAP_AGAIN) {
        rc = zmap_decode_step(job->decoder, &piece, job->dst, 0, &n);
    }

    return rc;
}


static void
fill(uint8_t *data, size_t size)
{
    size_t    i;
    uint32_t  x = 2463534242u;

    for (i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        data[i] = (uint8_t) "etaoin shrdlu"[(x >> 8) % 13];
    }
}


static void
decode_cut(job_t *job, int steps, size_t cut, int fd)
{
    zmap_guard_pt  fn = steps ? decode_in_steps : decode_whole;

    if (steps) {
        assert_int_equal(zmap_decode_begin(job->decoder, job->src_size,
                                           8 << 20, 0), ZMAP_OK);
    }

    assert_int_equal(ftruncate(fd, (off_t) cut), 0);
    assert_int_equal(zmap_guard_call(job->src, job->src_size, fn, job),
                     ZMAP_FAULT);

    zmap_decoder_reset(job->decoder);
    assert_int_equal(zmap_decode_total(job->decoder), 0);
    assert_int_equal(zmap_decode_consumed(job->decoder), 0);
    memset(job->dst, 0, job->dst_size);
}


static void
decode_good(job_t *job, const uint8_t *plain, int steps)
{
    zmap_guard_pt  fn = steps ? decode_in_steps : decode_whole;

    if (steps) {
        assert_int_equal(zmap_decode_begin(job->decoder, job->src_size,
                                           8 << 20, 0), ZMAP_OK);
    }

    assert_int_equal(zmap_guard_call(job->src, job->src_size, fn, job),
                     ZMAP_OK);
    assert_memory_equal(job->dst, plain, job->dst_size);
}


static void
decoding_survives_a_jump(int steps)
{
    int               fd;
    job_t             job;
    size_t            page, cut, bound, faults;
    uint8_t          *plain, *coded;
    zmap_decoders_t  *decoders;

    page = (size_t) sysconf(_SC_PAGESIZE);
    job.dst_size = 600 * 1000;
    job.step = 10 * 1000;
    job.dst = malloc(job.dst_size);
    plain = malloc(job.dst_size);
    bound = ZSTD_compressBound(job.dst_size);
    coded = malloc(bound);
    assert_true(job.dst != NULL && plain != NULL && coded != NULL);

    fill(plain, job.dst_size);
    job.src_size = ZSTD_compress(coded, bound, plain, job.dst_size, 3);
    assert_false(ZSTD_isError(job.src_size));
    assert_true(job.src_size > 20 * page);

    decoders = zmap_decoders_create();
    assert_non_null(decoders);
    job.decoder = zmap_decoder_get(decoders);
    assert_non_null(job.decoder);

    fd = memfd_create("coded", MFD_CLOEXEC);
    assert_true(fd != -1);
    job.src = mmap(NULL, job.src_size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(job.src, MAP_FAILED);

    assert_int_equal(zmap_guard_install(), ZMAP_OK);

    faults = 0;

    for (cut = 0; cut < job.src_size - page; cut += 2 * page) {
        decode_cut(&job, steps, cut, fd);
        assert_int_equal(pwrite(fd, coded, job.src_size, 0), job.src_size);
        decode_good(&job, plain, steps);
        faults++;
    }

    assert_true(faults >= 10);

    zmap_guard_uninstall();
    zmap_decoder_put(decoders, job.decoder);
    zmap_decoders_destroy(decoders);
    assert_int_equal(munmap((void *) job.src, job.src_size), 0);
    assert_int_equal(close(fd), 0);
    free(job.dst);
    free(plain);
    free(coded);
}


static void
one_shot_decoding_survives_a_jump(void **state)
{
    (void) state;

    decoding_survives_a_jump(0);
}


static void
stepwise_decoding_survives_a_jump(void **state)
{
    (void) state;

    decoding_survives_a_jump(1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(no_fault_returns_the_value_of_the_function),
        cmocka_unit_test(a_fault_in_the_range_is_returned_every_time),
        cmocka_unit_test(the_last_byte_of_the_range_is_guarded),
        cmocka_unit_test(threads_fault_independently),
        cmocka_unit_test(calls_nest),
        cmocka_unit_test(other_faults_kill_as_before),
        cmocka_unit_test(a_sent_signal_stays_ignored),
        cmocka_unit_test(the_previous_handler_is_called),
        cmocka_unit_test(an_alternate_stack_is_kept_and_left),
        cmocka_unit_test(uninstall_puts_the_old_action_back),
        cmocka_unit_test(a_later_handler_keeps_its_place),
        cmocka_unit_test(one_shot_decoding_survives_a_jump),
        cmocka_unit_test(stepwise_decoding_survives_a_jump),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);

    return cmocka_run_group_tests_name("guard", tests, NULL, NULL) != 0;
}
