/*
 * worker: one thread with one libuv loop and one mailbox. Whatever is bound to its loop
 * (listeners, connections, timers) stays with it and needs no lock.
 *
 * Order of calls: worker_init, then handles may be put on the loop, worker_start, and from then on
 * only tasks reach it. worker_stop (on its own thread) closes the mailbox; the thread ends when the
 * last handle is closed, and worker_join waits for that.
 */
#ifndef ADMITONE_RUN_WORKER_H
#define ADMITONE_RUN_WORKER_H

#include "run/mailbox.h"

struct worker {
    uv_loop_t loop;
    struct mailbox mailbox;
    uv_thread_t thread;
};

/* 0, or a libuv error (no descriptors left, say). */
int worker_init(struct worker *w);
int worker_start(struct worker *w);
void worker_stop(struct worker *w);
void worker_join(struct worker *w);

#endif
