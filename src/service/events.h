/*
 * events: creating, changing and deleting events. The ledger decides; the hot store, the catalogue
 * and the other nodes (service/event_sync.h) follow before the change is answered: so it is in
 * force on every worker of every node that sells. Changes carry versions, so they may arrive in
 * any order.
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

struct event_sync;

struct events {
    struct event_sync *sync; /* NULL: no other node changes events */
    struct hot *hot;         /* NULL: the hot store is private to this process */
    struct ledger *ledger;
    struct catalogue *catalogue;
    struct queues *queues; /* follow the events' rules */
    struct seats *seats;   /* follow them too */
    struct boards *boards; /* NULL: there are no rankings */
    int64_t seats_max;     /* of all events together; 0: no limit */
    /* The hot store could not get a change: event_sync sends it all events. */
    _Atomic bool hot_is_stale;
};

/* Waits for other nodes or for the ledger: service/event_sync.h. `task.run` is called on the worker
 * that began the wait, once. */
struct event_wait {
    struct task task;
    int64_t since_ns; /* steady */
    int64_t version;  /* of a change that every node shall apply; 0: waits for a read */
    uint64_t name;    /* hash of the unknown event's name */
};

/* A put, or an edit of what is there. The caller fills in put.wanted, or put.edit with put.type and
 * put.id; and put.note. put.stored after OK is the caller's to free. */
struct event_change {
    struct ledger_event_put put;
    struct configure_op configure;
    struct event_wait wait;
    struct events *events;
    void (*done)(struct event_change *change, enum err result);
};

struct event_removal {
    struct ledger_event_delete remove; /* type, id, note are the caller's */
    struct remove_op hot_remove;
    struct event_wait wait;
    struct events *events;
    void (*done)(struct event_removal *removal, enum err result);
};

/* Whether this node may sell by its catalogue: no, while it may have missed a change. From any
 * thread. */
bool events_are_current(struct events *ev);
void events_change(struct events *ev, struct event_change *change);
void events_delete(struct events *ev, struct event_removal *removal);

/* A page of the audit trail. page.limit and page.before are the caller's; page.json after OK is the
 * caller's to buf_deinit. */
struct audit_read {
    struct ledger_audit_page page;
    void (*done)(struct audit_read *a, enum err result);
};
void events_read_audit(struct events *ev, struct audit_read *a);

#endif
