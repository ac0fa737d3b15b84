/*
 * rankings: keeps the boards up with what the ledger says is sold: twice a second, on one worker,
 * beside everything else, so that nobody who buys waits for it.
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

    /* Below: its own. */
    struct ticker ticker;
    _Atomic bool busy;
    bool stopping;
    int64_t turn;    /* the last one that was this node's, */
    uint32_t epoch;  /* in this incarnation */
    int64_t told_ms; /* when they last knew of all events */
    struct map told; /* an event's key → struct board_event, as the boards know it by now */
    struct board_begin_op begin;
    struct board_know_op know;
    struct board_event events[RANKINGS_EVENTS_MAX];
    struct ledger_sales_read read;
    struct board_count_op count;
    struct sale sales[RANKINGS_BATCH_MAX];
};

/* What boards know of an event. */
struct board_event rankings_event(const struct event *e);

/* What is above is filled in. Before the worker starts. */
void rankings_init(struct rankings *r, uv_loop_t *loop);
/* On its worker's thread. */
void rankings_stop(struct rankings *r);
/* From any thread. */
bool rankings_is_busy(struct rankings *r);
/* When it is no longer busy. */
void rankings_deinit(struct rankings *r);

#endif
