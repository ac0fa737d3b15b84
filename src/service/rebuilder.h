/*
 * rebuilder: sees to it that a hot store which nodes share holds what the ledger says, before
 * anybody works with it. Each node has one, on a thread of its own.
 *
 * The ledger knows in which incarnation the store should be: an epoch, and the run of the store
 * that was filled for it. While the store is in that incarnation, this node works in it. If not (it
 * was restarted, emptied, or another one has taken its place) nobody does, until exactly one node
 * has begun the next incarnation and has filled it: the ledger lets only one, and refuses what was
 * decided in a incarnation before. Nothing that the store remembers of an earlier incarnation is
 * trusted.
 */
#ifndef ADMITONE_SERVICE_REBUILDER_H
#define ADMITONE_SERVICE_REBUILDER_H

#include <pthread.h>
#include <stdatomic.h>

#include "service/events.h"

struct rebuilder {
    struct events *events; /* with its hot store, which is shared */

    /* Below: its own. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_cond_t filled;
    bool suspects; /* under lock: look again, soon */
    bool fills;    /* under lock */
    bool stopping; /* under lock */
    bool runs;
    struct hot_incarnation incarnation; /* that is open; epoch 0: none */
    _Atomic bool open;
    _Atomic bool reachable; /* the store answered when it was last looked at */
    _Atomic bool met;       /* the events are known */
    _Atomic bool foreign;   /* the store was filled from another ledger */
};

/* `events` is filled in. */
void rebuilder_init(struct rebuilder *k);
void rebuilder_start(struct rebuilder *k);
/* Ends what it does first: filling a store may take seconds. */
void rebuilder_stop(struct rebuilder *k);
/* When nobody suspects any more: the hot store is closed. */
void rebuilder_deinit(struct rebuilder *k);

/* Something may be wrong: it looks at once. From any thread. For struct hot_listener. */
void rebuilder_suspect(void *rebuilder);
/* Whether this node works with the store, as far as it knows; and knows the events. From any
 * thread. */
bool rebuilder_is_open(struct rebuilder *k);
bool rebuilder_has_met(struct rebuilder *k);
/* The store holds the state of another ledger: this node does not use it. */
bool rebuilder_is_foreign(struct rebuilder *k);

#endif
