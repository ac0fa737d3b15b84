/*
 * fact_feed: pages of facts for other systems that follow the sale, and the wait for the next fact
 * (long poll). The ledger has the facts and their order; a follower keeps the cursor.
 *
 * There is one per worker, and only that worker uses it. A read that finds nothing and may wait is
 * asked again at an interval, one question at a time, until there is a fact, its time is over, the
 * client has gone, or the server stops. The number of waiting reads is bounded.
 */
#ifndef ADMITONE_SERVICE_FACT_FEED_H
#define ADMITONE_SERVICE_FACT_FEED_H

#include "base/json_out.h"
#include "base/list.h"
#include "port/ledger.h"
#include "run/ticker.h"

/* Of the JSON of a fact. Another number when a follower of this one would misunderstand it; a new
 * member alone is no reason. */
#define FACT_JSON_VERSION 1

#define FACT_WAIT_MS_MAX 30000

struct fact_feed {
    struct ledger *ledger;

    /* Private. */
    struct ticker ticker;
    struct list waiting;  /* struct fact_read: those that are not being asked */
    size_t waiting_count; /* with those that are being asked again */
    bool is_draining;
};

/* `ledger` is filled in. Before the worker starts, or on its thread. */
void fact_feed_init(struct fact_feed *f, uv_loop_t *loop);
/* On its thread: every wait ends, with an empty page, and no later read waits. */
void fact_feed_drain(struct fact_feed *f);
/* On its thread, when nothing is under way. */
void fact_feed_close(struct fact_feed *f);

/* One read, in the caller's memory, which stays until `done` is called: later, or before
 * fact_feed_read returns when the ledger takes no question. */
struct fact_read {
    /* `after`, `max` and `facts` are the caller's. After OK the facts are the caller's to free, and
     * page.mark is where the next page begins. */
    struct ledger_facts_page page;
    int64_t wait_ms; /* at most FACT_WAIT_MS_MAX; 0: does not wait */
    /* Whether the client has gone: then the wait ends early. */
    bool (*is_abandoned)(const struct fact_read *read);
    void (*done)(struct fact_read *read, enum err result);
    bool has_waited; /* out */

    /* Private. */
    struct fact_feed *feed;
    struct list link;
    int64_t until_ms; /* steady */
};

/* OVERLOADED: the ledger takes no more questions, or too many reads wait. Otherwise the result is
 * that of LEDGER_FACTS_PAGE. */
void fact_feed_read(struct fact_feed *f, struct fact_read *read);

/* Writes a fact as an object, in the schema of docs/api.md. */
void fact_to_json(struct json_out *j, const struct fact *f);

#endif
