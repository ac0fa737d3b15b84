/*
 * strategies: how a hold gets its seats. Private to service/reservations.c, which begins a hold and
 * hears how it ended.
 */
#ifndef ADMITONE_SERVICE_STRATEGIES_H
#define ADMITONE_SERVICE_STRATEGIES_H

#include "service/reservations.h"

/* Whether it was answered as the first request with its key was. */
static inline bool hold_is_replayed(const struct holding *h) {
    return h->idempotency != NULL && h->idempotency->replayed;
}

/* Runs the plan of the hold's strategy; ends with hold_end, every lock given back. */
void strategy_run(struct holding *h);

/* The hold is decided, by h->result. In reservations.c. */
void hold_end(struct holding *h);

/* Asks the ledger whether the hold's key was used; h->ask has the answer. In reservations.c. */
enum err hold_ask_key(struct reservations *r, struct holding *h, void (*run)(struct task *));

/* An adaptive section's load. In reservations.c. */
void load_waited(struct holding *h, int64_t waited_ms);

#endif
