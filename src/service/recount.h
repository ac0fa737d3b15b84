/*
 * recount: compares boards that are shared with what the ledger has: of every event, on every board
 * that is not over. Exact also while things are sold, for a board says up to which mark it has
 * counted, and the ledger what was sold up to there.
 */
#ifndef ADMITONE_SERVICE_RECOUNT_H
#define ADMITONE_SERVICE_RECOUNT_H

#include "port/boards.h"
#include "port/ledger.h"

struct recount {
    struct ledger *ledger;
    struct boards *boards;
    int64_t now_ms;
    void (*done)(struct recount *r);

    /* What it found; `examples` names a few. */
    int64_t checked;
    int64_t violations;
    struct buf examples;
    int64_t uncounted; /* sales that are still to be told to all boards */

    /* Below: its own. */
    struct recounted_board *of;
    size_t board_count;
    struct recounted_event *events;
    size_t event_count;
    struct recounted_row *rows; /* of each event, those of all boards */
    struct map by_key;          /* struct recounted_event */
    struct sale_mark all;       /* up to which all boards have counted */
    size_t next;
    struct board_find_op find;
};

/* What is above is filled in, the rest zeroed. Which events there are. Blocks. */
enum err recount_begin(struct recount *r);
/* Asks the boards for all of them, where these may be asked; then `done`, on the same thread.
 * find.result says whether all have answered; if not, it may be called again. */
void recount_look(struct recount *r);
/* The rest. Blocks. */
enum err recount_end(struct recount *r);
void recount_clear(struct recount *r);

#endif
