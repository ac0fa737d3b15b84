/*
 * rankings: keeps the boards up with what the ledger says is sold: twice a second, on one worker,
 * beside everything else, so that nobody who buys waits for it.
 */
#ifndef ADMITONE_SERVICE_RANKINGS_H
#define ADMITONE_SERVICE_RANKINGS_H

#include <stdatomic.h>

#include "port/boards.h"
#include "port/ledger.h"
#include "run/ticker.h"
#include "service/catalogue.h"

#define RANKINGS_BATCH_MAX 1024

struct rankings {
    struct ledger *ledger;
    struct boards *boards;
    struct catalogue *catalogue;

    /* Below: its own. */
    struct ticker ticker;
    _Atomic bool busy;
    bool stopping;
    struct board_begin_op begin;
    struct ledger_sales_read read;
    struct board_count_op count;
    struct sale sales[RANKINGS_BATCH_MAX];
};

/* What is above is filled in. Fills the boards from the ledger. Blocks: for the start. */
enum err rankings_load(struct rankings *r, int64_t now_ms);
/* Before the worker starts. */
void rankings_init(struct rankings *r, uv_loop_t *loop);
/* On its worker's thread. */
void rankings_stop(struct rankings *r);
/* From any thread. */
bool rankings_is_busy(struct rankings *r);

#endif
