/*
 * recount: compares shared boards with the ledger: every event, on every board whose period is not
 * over. It is exact also during sales, because a board says up to which watermark it has counted,
 * and the ledger what was sold up to there.
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

    /* Out; `examples` names a few violations. */
    int64_t checked;
    int64_t violations;
    struct buf examples;
    int64_t uncounted; /* sales that boards have not counted yet */

    /* Private. */
    struct recounted_board *of;
    size_t board_count;
    struct recounted_event *events;
    size_t event_count;
    struct recounted_row *rows; /* of each event, those of all boards */
    struct map by_key;          /* struct recounted_event */
    struct sale_mark all;       /* watermark up to which all boards have counted */
    size_t next;
    struct board_find_op find;
};

/* The first fields are filled in, the rest zeroed. Reads which events there are. Blocks. */
enum err recount_begin(struct recount *r);
/* Asks the boards for all events, on a thread where that is allowed; then `done`, on the same
 * thread. find.result says whether all have answered; if not, it may be called again. */
void recount_look(struct recount *r);
/* Reads the ledger and compares. Blocks. */
enum err recount_end(struct recount *r);
void recount_clear(struct recount *r);

#endif
