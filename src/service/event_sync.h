/*
 * event_sync: keeps this node's catalogue of events, and the hot store's rules, up to date where
 * several nodes change events. On one worker.
 *
 * Reading. The node reads what has changed from the ledger when another node announces a change,
 * and once a second in any case: announcements may be lost, and a node may die between its commit
 * and the announcement.
 *
 * The lease. A node may sell by its catalogue for LEASE_NS from the beginning of its last read;
 * then it refuses until it has read again. After each read it reports in the ledger's table of
 * nodes how far it has got. An administrative change is answered when every node in that table has
 * reported it, or when LEASE_NS have passed since its commit: a node that has not reported it by
 * then began its last read before the commit, so its lease has ended. Such a node is removed from
 * the table; when it continues it inserts its row again, and the lease begins with the next read
 * after that. So a lease never depends on two clocks, and a dead node delays one change, not all.
 *
 * Unknown events. A request for an event that this node does not know waits until the ledger was
 * read, which happens at most every MISS_READ_NS; the answer "there is none" is kept for
 * MISS_KEPT_MS.
 */
#ifndef ADMITONE_SERVICE_EVENT_SYNC_H
#define ADMITONE_SERVICE_EVENT_SYNC_H

#include <pthread.h>
#include <stdatomic.h>

#include "run/mailbox.h"
#include "run/ticker.h"
#include "service/events.h"

#define EVENT_SYNC_MISSES 1024

struct event_miss {
    uint64_t name;
    int64_t until_ms;
};

struct event_sync {
    struct events *events;
    const char *name; /* of this node, for the log of others */

    /* Private. */
    struct ticker ticker;      /* reads once a second */
    struct ticker fast_ticker; /* while requests wait */
    struct mailbox *home;
    struct task nudge;
    _Atomic int64_t lease_until_ns; /* steady; 0: there was none yet */
    _Atomic bool nudged;            /* its task is under way */
    _Atomic bool changed;           /* an event has changed since the last read began */
    _Atomic bool busy;              /* reads, applies or reports */
    _Atomic bool asks_nodes;
    _Atomic int64_t node_count; /* in the table of nodes, at the last read */
    bool again;                 /* an event changed while it was busy */
    bool pushes_all;    /* the hot store gets every event, newer or not, and every removal */
    bool is_registered; /* in the table of nodes, as far as is known */
    bool hot_is_lost;   /* the hot store did not get all changes of this read */
    bool calls_hot;     /* inside a call of the hot store */
    bool has_answered;  /* that call was answered before it returned */
    bool stopping;
    _Atomic bool stopped;

    /* One read, then what it found is applied, then the node reports. */
    int64_t began_ns; /* steady, of the read */
    struct ledger_events_read read;
    size_t events_done;
    size_t removed_done;
    struct configure_op configure;
    struct remove_op remove;
    int64_t applied; /* the mark that was read */
    struct ledger_node_report report;
    struct uuid node; /* in the table of nodes */

    /* How far the nodes are, while changes wait. */
    int64_t asked_ns; /* steady, when that began */
    struct ledger_nodes_read nodes;
    struct ledger_nodes_drop drop;

    pthread_mutex_t lock;
    uint64_t seed;
    struct task_list waits;                      /* under lock */
    struct event_miss misses[EVENT_SYNC_MISSES]; /* under lock, by hash */
};

/* `events` and `name` are filled in. Before the worker starts. */
void event_sync_init(struct event_sync *s, uv_loop_t *loop, struct mailbox *home);
/* On its worker's thread, when all requests are answered. */
void event_sync_stop(struct event_sync *s);
/* When the workers have ended, and the ledger is still there. */
void event_sync_leave(struct event_sync *s);
void event_sync_deinit(struct event_sync *s);

/* True until it is stopped and all operations that it began have ended. From any thread. */
bool event_sync_is_busy(struct event_sync *s);
/* An event has changed. From any thread, while the worker runs. */
void event_sync_nudge(struct event_sync *s);
/* Whether this node may sell by its catalogue now. From any thread. */
bool event_sync_is_current(struct event_sync *s);

/* How many nodes there are, of which one may have died without leaving: from memory, as of the last
 * read. From any thread. */
int64_t event_sync_nodes(struct event_sync *s);

/* Calls `task.run` when every node that may sell has applied the change. On a thread with a
 * mailbox. */
void event_sync_wait_applied(struct event_sync *s, struct event_wait *w, int64_t version);
/* Whether a read of the ledger has not found the event, at most MISS_KEPT_MS ago. From any thread.
 */
bool event_sync_is_absent(struct event_sync *s, str name);
/* Calls `task.run` after the next read of the ledger that begins after this call. On a thread with
 * a mailbox. */
void event_sync_wait_read(struct event_sync *s, struct event_wait *w, str name);

#endif
