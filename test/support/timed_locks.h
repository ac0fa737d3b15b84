/*
 * timed_locks: locks in front of real ones, whose time passes only when the test says so, whatever
 * time callers pass. So leases end, or don't, however slow the machine is. It counts renewals, and
 * can delay their answers. One thread at a time.
 */
#ifndef ADMITONE_TEST_TIMED_LOCKS_H
#define ADMITONE_TEST_TIMED_LOCKS_H

#include "ledger_harness.h"
#include "port/locks.h"

struct timed_locks {
    struct locks locks;
    struct locks *real;
    int64_t now_ms;
    int renewals; /* that were asked for */
    bool is_late; /* renewals are not answered before timed_locks_answer */
    struct lock_hold_op *unanswered;
};

void timed_locks_init(struct timed_locks *t, struct locks *real);
/* Turns the loop until that many more renewals were asked for. */
void timed_locks_wait_for_renewals(struct timed_locks *t, struct harness *h, int more);
/* Answers the renewal that waits for it. */
void timed_locks_answer(struct timed_locks *t);

#endif
