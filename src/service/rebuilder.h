/*
 * rebuilder: makes sure that a hot store which nodes share holds the ledger's state before a node
 * uses it. Each node has one, on a private thread.
 *
 * The ledger stores in which incarnation the store should be: an epoch, and the run of the store
 * that was rebuilt for it. While the store is in that incarnation, this node uses it. If not (it
 * was restarted, emptied or replaced) no node does, until exactly one node has begun the next
 * incarnation and has rebuilt the store: the ledger gives the lease to one node, and refuses
 * records of an earlier incarnation. Data of an earlier incarnation in the store are deleted.
 */
#ifndef ADMITONE_SERVICE_REBUILDER_H
#define ADMITONE_SERVICE_REBUILDER_H

#include <pthread.h>
#include <stdatomic.h>

#include "service/events.h"

struct rebuilder {
    struct events *events; /* with its hot store, which is shared */

    /* Private. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t rebuilt;
    bool suspects; /* under lock: check again at once */
    bool rebuilds; /* under lock */
    bool stopping; /* under lock */
    bool runs;
    struct hot_incarnation incarnation; /* that is open; epoch 0: none */
    _Atomic bool open;
    _Atomic bool reachable;  /* the store answered the last check */
    _Atomic bool has_events; /* the events have been loaded from the ledger */
    _Atomic bool foreign;    /* the store was rebuilt from another ledger */
};

/* `events` is filled in. */
void rebuilder_init(struct rebuilder *r);
void rebuilder_start(struct rebuilder *r);
/* Waits for a rebuild that is under way, which may take seconds. */
void rebuilder_stop(struct rebuilder *r);
/* When rebuilder_suspect is not called any more: the hot store is closed. */
void rebuilder_deinit(struct rebuilder *r);

/* Something may be wrong with the store: it is checked at once. From any thread. For struct
 * hot_listener. */
void rebuilder_suspect(void *rebuilder);
/* Whether this node uses the store, as far as it knows; and whether it has loaded the events. From
 * any thread. */
bool rebuilder_is_open(struct rebuilder *r);
bool rebuilder_has_events(struct rebuilder *r);
/* The store holds the state of another ledger: this node does not use it. */
bool rebuilder_is_foreign(struct rebuilder *r);

#endif
