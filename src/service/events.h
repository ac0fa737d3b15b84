/*
 * events: creating, changing and deleting what is sold. The ledger decides; the hot store and the
 * catalogue follow before anybody is told, so whoever was answered sees the change on every worker.
 * Both know the versions, so it does not matter in which order news of several changes comes.
 *
 * Each use case is one struct in the caller's memory (the request's arena), which stays until
 * `done` is called, on the caller's worker: later, or before the function returns when the ledger
 * takes nothing more.
 */
#ifndef ADMITONE_SERVICE_EVENTS_H
#define ADMITONE_SERVICE_EVENTS_H

#include <stdatomic.h>

#include "port/boards.h"
#include "port/queue.h"
#include "port/seats.h"
#include "service/catalogue.h"

struct events {
    struct hot *hot; /* NULL: the hot store is this process's own */
    struct ledger *ledger;
    struct catalogue *catalogue;
    struct queues *queues; /* follow the events' rules */
    struct seats *seats;   /* follow them too */
    struct boards *boards; /* NULL: nobody counts what is sold */
    /* The hot store could not be told of a change: the roster tells it of everything. */
    _Atomic bool untold;
};

/* A put, or an edit of what is there. The caller fills in put.wanted, or put.edit with put.type and
 * put.id; and put.note. put.stored after OK is the caller's to free. */
struct event_change {
    struct ledger_event_put put;
    struct configure_op configure;
    struct events *events;
    void (*done)(struct event_change *change, enum err result);
};

struct event_removal {
    struct ledger_event_delete remove; /* type, id, note are the caller's */
    struct remove_op hot_remove;
    struct events *events;
    void (*done)(struct event_removal *removal, enum err result);
};

void events_change(struct events *ev, struct event_change *change);
void events_delete(struct events *ev, struct event_removal *removal);

#endif
