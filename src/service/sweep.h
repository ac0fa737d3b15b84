/*
 * sweep: reconciles the two stores now and then, on a thread of its own: compares, waits for as
 * long as a difference must have lasted, and has a worker mend it. Every node has one; whose turn
 * it is, the hot store says, so that one node does it at a time.
 */
#ifndef ADMITONE_SERVICE_SWEEP_H
#define ADMITONE_SERVICE_SWEEP_H

#include <pthread.h>

#include "run/mailbox.h"
#include "service/mend.h"

struct sweep {
    struct reconcile reconcile; /* its stores and wait_ms are filled in */
    int64_t interval_ms;        /* 0: never */

    /* Below: its own. */
    struct mend *mend;
    struct mailbox *home;
    struct task task; /* for the worker: mend what was found */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping; /* under lock */
    bool mending;  /* under lock: the worker does it */
    bool runs;
};

/* `home`: of the worker that mends. */
void sweep_init(struct sweep *s, struct mailbox *home);
void sweep_start(struct sweep *s);
/* Begins nothing any more. From any thread, while the worker runs. */
void sweep_stop(struct sweep *s);
/* Whether the worker still mends. From any thread. */
bool sweep_is_busy(struct sweep *s);
/* After stop, when it is not busy: waits for its thread, which may be reading the stores. */
void sweep_deinit(struct sweep *s);

#endif
