
/*
 * Turns a SIGBUS inside the guarded range into a return code.
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "zmap_guard.h"


typedef struct zmap_guard_record_s  zmap_guard_record_t;

struct zmap_guard_record_s {
    uintptr_t             lo;
    uintptr_t             hi;
    zmap_guard_record_t  *previous;
    sigjmp_buf            jump;
};


static int zmap_guard_is_ours(const struct sigaction *action);
static void zmap_guard_handler(int signo, siginfo_t *info, void *context);
static int zmap_guard_covers(const zmap_guard_record_t *record,
    const siginfo_t *info);
static void zmap_guard_forward(int signo, siginfo_t *info, void *context);
static void zmap_guard_chain(const struct sigaction *action, int signo,
    siginfo_t *info, void *context);
static void zmap_guard_die(int signo, const siginfo_t *info);
static int zmap_guard_sent(const siginfo_t *info);


static __thread zmap_guard_record_t *volatile  zmap_guard_current
    __attribute__((tls_model("initial-exec")));

static int               zmap_guard_installed;
static struct sigaction  zmap_guard_previous;


zmap_rc_e
zmap_guard_install(void)
{
    struct sigaction  action, previous;

    if (zmap_guard_installed) {
        return ZMAP_OK;
    }

    if (sigaction(SIGBUS, NULL, &previous) == -1) {
        return ZMAP_SYSERR;
    }

    /* somebody put our handler back after zmap_guard_uninstall() */

    if (zmap_guard_is_ours(&previous)) {
        zmap_guard_installed = 1;
        return ZMAP_OK;
    }

    /*
     * SA_NODEFER, because a jump that does not restore the signal mask would
     * leave SIGBUS blocked, and a blocked synchronous SIGBUS kills.  A previous
     * handler that wants the alternate stack still gets it through us.
     */

    memset(&action, 0, sizeof(struct sigaction));
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = zmap_guard_handler;
    action.sa_flags = SA_SIGINFO|SA_NODEFER
                      |(previous.sa_flags & (SA_ONSTACK|SA_RESTART));

    zmap_guard_previous = previous;

    if (sigaction(SIGBUS, &action, NULL) == -1) {
        return ZMAP_SYSERR;
    }

    zmap_guard_installed = 1;

    return ZMAP_OK;
}


void
zmap_guard_uninstall(void)
{
    struct sigaction  action;

    if (!zmap_guard_installed) {
        return;
    }

    if (sigaction(SIGBUS, NULL, &action) == -1
        || !zmap_guard_is_ours(&action))
    {
        return;
    }

    if (sigaction(SIGBUS, &zmap_guard_previous, NULL) == 0) {
        zmap_guard_installed = 0;
    }
}


zmap_rc_e
zmap_guard_call(const void *base, size_t size, zmap_guard_pt fn, void *data)
{
    zmap_rc_e            rc;
    zmap_guard_record_t  record;

    record.lo = (uintptr_t) base;
    record.hi = (uintptr_t) base + size;
    record.previous = zmap_guard_current;

    /* the handler has popped the record when it jumps */

    if (sigsetjmp(record.jump, 0) != 0) {
        return ZMAP_FAULT;
    }

    zmap_guard_current = &record;
    atomic_signal_fence(memory_order_seq_cst);

    rc = fn(data);

    atomic_signal_fence(memory_order_seq_cst);
    zmap_guard_current = record.previous;

    return rc;
}


static int
zmap_guard_is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO)
           && action->sa_sigaction == zmap_guard_handler;
}


static void
zmap_guard_handler(int signo, siginfo_t *info, void *context)
{
    zmap_guard_record_t  *record;

    record = zmap_guard_current;

    if (record != NULL && zmap_guard_covers(record, info)) {
        zmap_guard_current = record->previous;
        siglongjmp(record->jump, 1);
    }

    zmap_guard_forward(signo, info, context);
}


static int
zmap_guard_covers(const zmap_guard_record_t *record, const siginfo_t *info)
{
    uintptr_t  addr;

    if (info->si_code != BUS_ADRERR && info->si_code != BUS_MCEERR_AR) {
        return 0;
    }

    addr = (uintptr_t) info->si_addr;

    return addr >= record->lo && addr < record->hi;
}


static void
zmap_guard_forward(int signo, siginfo_t *info, void *context)
{
    int               err;
    struct sigaction  action;

    err = errno;
    action = zmap_guard_previous;

    if (action.sa_handler == SIG_DFL) {
        zmap_guard_die(signo, info);

    } else if (action.sa_handler != SIG_IGN) {
        zmap_guard_chain(&action, signo, info, context);

    } else if (!zmap_guard_sent(info)) {
        /* the kernel does not let a process ignore a fault: force_sig() */
        zmap_guard_die(signo, info);
    }

    errno = err;
}


static void
zmap_guard_chain(const struct sigaction *action, int signo, siginfo_t *info,
    void *context)
{
    sigset_t  mask;

    /* the return from our own handler undoes the change: sigreturn(2) */

    mask = action->sa_mask;

    if (!(action->sa_flags & SA_NODEFER)) {
        sigaddset(&mask, signo);
    }

    if (action->sa_flags & SA_RESETHAND) {
        zmap_guard_previous.sa_handler = SIG_DFL;
    }

    (void) pthread_sigmask(SIG_BLOCK, &mask, NULL);

    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(signo, info, context);

    } else {
        action->sa_handler(signo);
    }
}


/* a fault repeats once the handler returns, so that the core dump shows it */

static void
zmap_guard_die(int signo, const siginfo_t *info)
{
    struct sigaction  action;

    memset(&action, 0, sizeof(struct sigaction));
    sigemptyset(&action.sa_mask);
    action.sa_handler = SIG_DFL;

    if (sigaction(signo, &action, NULL) == -1 || zmap_guard_sent(info)) {
        (void) raise(signo);
    }
}


/* nonzero when no instruction of this thread faulted: nothing would repeat */

static int
zmap_guard_sent(const siginfo_t *info)
{
    return info->si_code <= 0 || info->si_code == BUS_MCEERR_AO;
}
