/*
 * recovery: what a start reads back from the ledger: every event with its rules, every place in
 * every queue, in order, and every live reservation with its seats.
 */
#ifndef ADMITONE_SERVICE_RECOVERY_H
#define ADMITONE_SERVICE_RECOVERY_H

#include "service/events.h"

/* Blocks: for the start, before anybody is served. */
enum err recovery_run(struct events *ev, int64_t now_ms);

#endif
