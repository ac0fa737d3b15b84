/*
 * reconcile_job: reconciles the two stores every interval, on a private thread: compares, waits
 * for as long as a difference must have lasted, and has a worker repair it. Every node has one; a
 * lease in the hot store lets one node do it at a time.
 */
#ifndef ADMITONE_SERVICE_RECONCILE_JOB_H
#define ADMITONE_SERVICE_RECONCILE_JOB_H

#include <pthread.h>

#include "run/mailbox.h"
#include "service/reconcile.h"

struct reconcile_job {
    struct reconcile reconcile; /* its stores and wait_ms are filled in */
    int64_t interval_ms;        /* 0: never */

    /* Private. */
    struct reconcile_repair *repair;
    struct mailbox *home;
    struct task task; /* for the worker: repair what was found */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;  /* under lock */
    bool repairing; /* under lock: the worker does it */
    bool runs;
};

/* `home` is the mailbox of the worker that repairs. */
void reconcile_job_init(struct reconcile_job *s, struct mailbox *home);
void reconcile_job_start(struct reconcile_job *s);
/* Begins no further comparison or repair. From any thread, while the worker runs. */
void reconcile_job_stop(struct reconcile_job *s);
/* Whether the worker still repairs. From any thread. */
bool reconcile_job_is_busy(struct reconcile_job *s);
/* After stop, when it is not busy: waits for its thread, which may be reading the stores. */
void reconcile_job_deinit(struct reconcile_job *s);

#endif
