
/*
 * Survives SIGBUS while a file mapping is read.
 *
 * A file that is truncated under its mapping raises SIGBUS at the first access
 * behind its new end (mmap(2)).  zmap_guard_call() runs a function that reads
 * one range; an access fault inside that range ends the function by a jump and
 * becomes ZMAP_FAULT.  Every other SIGBUS goes to the action that was
 * installed before, so the guard hides no bug.
 *
 * Works on any thread.  The record of the running call is one initial-exec
 * thread-local pointer: dynamic TLS of a dlopen()ed object may be allocated at
 * its first touch, which in a signal handler would be malloc().
 *
 * A fault is not the only sign of truncation: the rest of the last page reads
 * as zeros without any signal.  The caller compares the file's version
 * afterwards (zmap_version_read()).
 */


#ifndef ZMAP_GUARD_H
#define ZMAP_GUARD_H


#include "zmap_base.h"


ZMAP_BEGIN


/*
 * Reads the guarded range.  It must not hold a lock and must not own memory
 * that only its own locals know: a fault never returns to it.
 */
typedef zmap_rc_e (*zmap_guard_pt)(void *data);


/*
 * Installs the process-wide handler; once, further calls do nothing.
 * ZMAP_OK or ZMAP_SYSERR.  Not async-signal-safe; call it before threads run.
 */
zmap_rc_e zmap_guard_install(void);

/*
 * Puts the previous action back, if the handler is still ours; otherwise does
 * nothing (who came later may call us).
 */
void zmap_guard_uninstall(void);

/*
 * Returns fn(data), or ZMAP_FAULT when it faulted in [base, base + size).
 * Calls nest; the inner range is the only one guarded while it runs.
 * The handler must be installed.  A call costs a sigsetjmp() that does not
 * save the signal mask.
 */
zmap_rc_e zmap_guard_call(const void *base, size_t size, zmap_guard_pt fn,
    void *data);


ZMAP_END


#endif /* ZMAP_GUARD_H */
