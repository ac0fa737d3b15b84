/*
 * health: whether this node can take new work, and why not: for /ready and the metrics. It is read
 * from memory: no store is asked. On any thread.
 */
#ifndef ADMITONE_SERVICE_HEALTH_H
#define ADMITONE_SERVICE_HEALTH_H

#include "port/hot.h"
#include "port/ledger.h"
#include "service/events.h"
#include "service/rebuilder.h"

struct health {
    bool ready; /* all of the below allow new work */
    struct ledger_health ledger;
    enum hot_state hot;   /* OK where the hot store is this process's own */
    bool is_recovering;   /* Redis is being rebuilt, or not reached yet */
    bool events_are_late; /* this node may have missed a change of an event */
};

/* `rebuilder`: NULL where the hot store is this process's own. */
struct health health_read(struct events *ev, struct rebuilder *rebuilder);

/* One word for the state of each store, for answers. */
str health_ledger_word(const struct health *h);
str health_hot_word(const struct health *h);
extern const str hot_state_words[HOT_STATES];

#endif
