/*
 * mailbox: how other threads hand tasks to a loop. Any thread posts; the loop's own thread runs the
 * tasks in the order of posting. Posting allocates nothing, takes one short lock and wakes the loop
 * at most once, however many tasks are posted before the loop runs them.
 */
#ifndef ADMITONE_RUN_MAILBOX_H
#define ADMITONE_RUN_MAILBOX_H

#include <pthread.h>
#include <uv.h>

#include "base/task.h"

struct mailbox {
    pthread_mutex_t lock;
    struct task_list tasks; /* under lock */
    uv_async_t wake;
};

/* On the loop's thread, or before it runs. */
void mailbox_init(struct mailbox *m, uv_loop_t *loop);
/* On the loop's thread, when no thread posts any more. The loop must run one more iteration after
 * it. */
void mailbox_close(struct mailbox *m);
void mailbox_deinit(struct mailbox *m);

void mailbox_post(struct mailbox *m, struct task *t);
/* Moves the whole list; `tasks` is empty afterwards. */
void mailbox_post_all(struct mailbox *m, struct task_list *tasks);

/* The mailbox of the calling thread, which ports note as a task's home. */
struct mailbox *mailbox_mine(void);
void mailbox_set_mine(struct mailbox *m);

#endif
