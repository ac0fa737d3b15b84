/*
 * keeper: sees to it that a hot store which nodes share holds what the ledger says, before anybody
 * works with it. Each node has one, on a thread of its own.
 *
 * The ledger knows in which life the store should be: an epoch, and the run of the store that was
 * filled for it. While the store is in that life, this node works in it. If not (it was restarted,
 * emptied, or another one has taken its place) nobody does, until exactly one node has begun the
 * next life and has filled it: the ledger lets only one, and refuses what was decided in a life
 * before. Nothing that the store remembers of an earlier life is trusted.
 */
#ifndef ADMITONE_SERVICE_KEEPER_H
#define ADMITONE_SERVICE_KEEPER_H

#include <pthread.h>
#include <stdatomic.h>

#include "service/events.h"

struct keeper {
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
    struct hot_life life; /* that is open; epoch 0: none */
    _Atomic bool open;
    _Atomic bool reachable; /* the store answered when it was last looked at */
    _Atomic bool met;       /* the events are known */
    _Atomic bool foreign;   /* the store was filled from another ledger */
};

/* `events` is filled in. */
void keeper_init(struct keeper *k);
void keeper_start(struct keeper *k);
/* Ends what it does first: filling a store may take seconds. */
void keeper_stop(struct keeper *k);
/* When nobody suspects any more: the hot store is closed. */
void keeper_deinit(struct keeper *k);

/* Something may be wrong: it looks at once. From any thread. For struct hot_listener. */
void keeper_suspect(void *keeper);
/* Whether this node works with the store, as far as it knows; and knows the events. From any
 * thread. */
bool keeper_is_open(struct keeper *k);
bool keeper_has_met(struct keeper *k);
/* The store holds the state of another ledger: this node does not use it. */
bool keeper_is_foreign(struct keeper *k);

#endif
