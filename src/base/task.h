/*
 * task: a piece of work on its way between threads. It is the first field of whatever is sent
 * (a ledger record, a message), so sending allocates nothing.
 *
 * `home` is the mailbox of the worker that the task belongs to; ports fill it in when a task is
 * handed to them, and `run` is then called on that worker, once.
 */
#ifndef ADMITONE_BASE_TASK_H
#define ADMITONE_BASE_TASK_H

#include <assert.h>
#include <stddef.h>

struct mailbox;

struct task {
    struct task *next;
    void (*run)(struct task *);
    struct mailbox *home;
};

/* First in, first out. */
struct task_list {
    struct task *first;
    struct task *last;
    size_t count;
};

static inline void task_list_add(struct task_list *l, struct task *t) {
    assert((l->first == NULL) == (l->last == NULL));
    t->next = NULL;
    if (l->last == NULL)
        l->first = t;
    else
        l->last->next = t;
    l->last = t;
    l->count++;
}

static inline struct task *task_list_take(struct task_list *l) {
    struct task *t = l->first;
    if (t == NULL) return NULL;
    l->first = t->next;
    if (l->first == NULL) l->last = NULL;
    l->count--;
    t->next = NULL;
    return t;
}

#endif
