/*
 * rankings: counts the sales of the ledger on the boards: twice a second, on one worker, so that
 * no hold waits for it. On nodes that share the boards, the lease holder does it.
 */
#ifndef ADMITONE_SERVICE_RANKINGS_H
#define ADMITONE_SERVICE_RANKINGS_H

#include <stdatomic.h>

#include "base/map.h"
#include "port/boards.h"
#include "port/ledger.h"
#include "run/ticker.h"
#include "service/catalogue.h"

#define RANKINGS_BATCH_MAX 256
#define RANKINGS_EVENTS_MAX 256

struct rankings {
    struct ledger *ledger;
    struct boards *boards;
    struct catalogue *catalogue;

    /* Private. */
    struct ticker ticker;
    _Atomic bool busy;
    bool stopping;
    int64_t lease;   /* the last lease that was this node's, */
    uint32_t epoch;  /* in this incarnation */
    int64_t sent_ms; /* steady: when the boards last had all events */
    struct map sent; /* an event's key → struct board_event, as the boards have it */
    struct board_begin_op begin;
    struct board_events_op know;
    struct board_event events[RANKINGS_EVENTS_MAX];
    struct ledger_sales_read read;
    struct board_count_op count;
    struct sale sales[RANKINGS_BATCH_MAX];
};

/* The data about an event that boards use. */
struct board_event rankings_event(const struct event *e);

/* The fields above are filled in. Before the worker starts. */
void rankings_init(struct rankings *r, uv_loop_t *loop);
/* On its worker's thread. */
void rankings_stop(struct rankings *r);
/* From any thread. */
bool rankings_is_busy(struct rankings *r);
/* When it is no longer busy. */
void rankings_deinit(struct rankings *r);

#endif
