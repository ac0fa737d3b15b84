/* The list of posted tasks, and waking of the loop that runs them. */
#include "run/mailbox.h"

static _Thread_local struct mailbox *mine;

static void mailbox_on_wake(uv_async_t *wake) {
    struct mailbox *m = wake->data;
    pthread_mutex_lock(&m->lock);
    struct task_list tasks = m->tasks;
    m->tasks = (struct task_list){0};
    pthread_mutex_unlock(&m->lock);
    struct task *t;
    while ((t = task_list_take(&tasks)) != NULL) t->run(t);
}

void mailbox_init(struct mailbox *m, uv_loop_t *loop) {
    *m = (struct mailbox){0};
    pthread_mutex_init(&m->lock, NULL);
    int failed = uv_async_init(loop, &m->wake, mailbox_on_wake);
    assert(failed == 0);
    m->wake.data = m;
}

void mailbox_close(struct mailbox *m) {
    assert(m->tasks.count == 0);
    uv_close((uv_handle_t *)&m->wake, NULL);
}

void mailbox_deinit(struct mailbox *m) {
    pthread_mutex_destroy(&m->lock);
}

void mailbox_post(struct mailbox *m, struct task *t) {
    struct task_list one = {0};
    task_list_add(&one, t);
    mailbox_post_all(m, &one);
}

void mailbox_post_all(struct mailbox *m, struct task_list *tasks) {
    if (tasks->first == NULL) return;
    pthread_mutex_lock(&m->lock);
    if (m->tasks.last == NULL)
        m->tasks = *tasks;
    else {
        m->tasks.last->next = tasks->first;
        m->tasks.last = tasks->last;
        m->tasks.count += tasks->count;
    }
    /* Inside the lock: once it is released the loop may take the tasks and close the mailbox. */
    uv_async_send(&m->wake);
    pthread_mutex_unlock(&m->lock);
    *tasks = (struct task_list){0};
}

struct mailbox *mailbox_mine(void) {
    return mine;
}

void mailbox_set_mine(struct mailbox *m) {
    mine = m;
}
