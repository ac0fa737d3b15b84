/*
 * acts: notes in the audit trail about acts of administrators that change nothing in the ledger. An
 * act that changes an event is noted with the change (service/events.h).
 */
#ifndef ADMITONE_SERVICE_ACTS_H
#define ADMITONE_SERVICE_ACTS_H

#include "port/ledger.h"

/* In the caller's memory until `done` is called, on the caller's worker: later, or before the
 * function returns when the ledger takes nothing more. */
struct act {
    struct ledger_act record; /* its note is the caller's */
    void (*done)(struct act *a, enum err result);
};

/* OK: the note is on disk. */
void acts_note(struct ledger *ledger, struct act *a);

#endif
