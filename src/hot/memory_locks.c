/* Named locks in this process (memory_locks.h): tables of locks, their waiters, and the operations
 * of port/locks.h. */
#include "hot/memory_locks.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "run/mailbox.h"

#define TABLES 64

/* A lock that is held, and the requests that wait for it. */
struct lock {
    struct list link; /* in its table */
    str name;         /* behind the struct */
    uint64_t fence;
    int64_t until_ms;
    struct lock_op *first; /* in order of arrival */
    struct lock_op **last; /* where the next one goes */
};

struct table {
    pthread_mutex_t lock;
    struct map by_name; /* → struct lock */
    struct list locks;
    _Atomic uint64_t *last_fence; /* shared by all tables */
};

struct memory_locks {
    struct locks locks;
    uint64_t seed;
    _Atomic uint64_t last_fence; /* the last that was given, of all names */
    struct table tables[TABLES];
};

static struct table *memory_lock_table(struct locks *l, str name) {
    struct memory_locks *m = CONTAINER_OF(l, struct memory_locks, locks);
    return &m->tables[str_hash(name, m->seed) % TABLES];
}

static uint64_t memory_lock_next_fence(struct table *t) {
    uint64_t fence = atomic_fetch_add(t->last_fence, 1) + 1;
    assert(fence >> EPOCH_COUNT_BITS == (fence - 1) >> EPOCH_COUNT_BITS);
    return fence;
}

/* ---- reporting the outcome to waiting requests, without the table's mutex ---- */

static void memory_lock_run_done(struct task *task) {
    struct lock_op *op = CONTAINER_OF(task, struct lock_op, task);
    op->done(op);
}

static void memory_lock_post_ended(struct task_list *ended) {
    struct task *task;
    while ((task = task_list_take(ended)) != NULL) mailbox_post(task->home, task);
}

/* ---- one lock; its table's mutex is held ---- */

static void memory_lock_grant(struct table *t, struct lock *k, struct lock_op *op, int64_t now_ms) {
    k->fence = memory_lock_next_fence(t);
    k->until_ms = now_ms + op->lease_ms;
    op->outcome = LOCK_ACQUIRED;
    op->fence = k->fence;
    op->until_ms = k->until_ms;
    op->waited_ms = now_ms > op->now_ms ? now_ms - op->now_ms : 0;
}

static struct lock_op *memory_lock_take_waiter(struct lock *k, struct lock_op **at) {
    struct lock_op *op = *at;
    *at = op->next;
    if (k->last == &op->next) k->last = at;
    return op;
}

static void memory_lock_end_wait(struct lock *k, struct lock_op **at, int64_t waited_ms,
                                 struct task_list *ended) {
    struct lock_op *op = memory_lock_take_waiter(k, at);
    op->outcome = LOCK_TIMED_OUT;
    op->waited_ms = waited_ms;
    task_list_add(ended, &op->task);
}

/* Ends the waits whose time is over. */
static void memory_lock_expire_waits(struct lock *k, int64_t now_ms, struct task_list *ended) {
    for (struct lock_op **at = &k->first; *at != NULL;) {
        int64_t waited_ms = now_ms - (*at)->now_ms;
        if (waited_ms < (*at)->wait_ms_max)
            at = &(*at)->next;
        else
            memory_lock_end_wait(k, at, waited_ms, ended);
    }
}

/* Ends the waits of this worker. */
static void memory_lock_end_waits_of(struct lock *k, const struct mailbox *home,
                                     struct task_list *ended) {
    for (struct lock_op **at = &k->first; *at != NULL;) {
        if ((*at)->task.home != home)
            at = &(*at)->next;
        else
            memory_lock_end_wait(k, at, 0, ended);
    }
}

static void memory_lock_free(struct table *t, struct lock *k) {
    map_remove(&t->by_name, k->name);
    list_remove(&k->link);
    mem_free(k);
}

/* Gives the lock, which has no holder now, to the first waiting request. False: there is none, and
 * the lock is freed. */
static bool memory_lock_pass_on(struct table *t, struct lock *k, int64_t now_ms,
                                struct task_list *ended) {
    memory_lock_expire_waits(k, now_ms, ended);
    if (k->first == NULL) {
        memory_lock_free(t, k);
        return false;
    }
    struct lock_op *op = memory_lock_take_waiter(k, &k->first);
    memory_lock_grant(t, k, op, now_ms);
    task_list_add(ended, &op->task);
    return true;
}

/* The lock as it is at that time; NULL: it is not held. */
static struct lock *memory_lock_find(struct table *t, str name, int64_t now_ms,
                                     struct task_list *ended) {
    struct lock *k = map_get(&t->by_name, name);
    if (k == NULL || now_ms < k->until_ms) return k;
    return memory_lock_pass_on(t, k, now_ms, ended) ? k : NULL;
}

static struct lock *memory_lock_new(struct table *t, str name) {
    struct lock *k = mem_new(sizeof *k + name.len);
    char *copy = (char *)(k + 1);
    memcpy(copy, name.at, name.len);
    k->name = (str){copy, name.len};
    k->last = &k->first;
    list_init(&k->link);
    list_move_last(&t->locks, &k->link);
    map_put(&t->by_name, k->name, k);
    return k;
}

/* ---- the operations ---- */

/* False: it waits. */
static bool memory_lock_acquire_in(struct table *t, struct lock_op *op, struct task_list *ended) {
    struct lock *k = memory_lock_find(t, op->name, op->now_ms, ended);
    if (k == NULL) {
        memory_lock_grant(t, memory_lock_new(t, op->name), op, op->now_ms);
        return true;
    }
    if (op->wait_ms_max <= 0) {
        op->outcome = LOCK_TIMED_OUT;
        return true;
    }
    assert(mailbox_mine() != NULL);
    op->task = (struct task){.run = memory_lock_run_done, .home = mailbox_mine()};
    *k->last = op;
    k->last = &op->next;
    return false;
}

static void memory_lock_acquire(struct locks *l, struct lock_op *op) {
    assert(op->name.len > 0 && op->name.len <= LOCK_NAME_BYTES_MAX && op->lease_ms > 0);
    struct table *t = memory_lock_table(l, op->name);
    struct task_list ended = {0};
    op->result = ERR_OK;
    op->next = NULL;
    op->waited_ms = 0;
    pthread_mutex_lock(&t->lock);
    bool is_decided = memory_lock_acquire_in(t, op, &ended);
    pthread_mutex_unlock(&t->lock);
    memory_lock_post_ended(&ended);
    if (is_decided) op->done(op); /* else it may be done already, on this worker or not */
}

static void memory_lock_renew(struct locks *l, struct lock_hold_op *op) {
    struct table *t = memory_lock_table(l, op->name);
    struct task_list ended = {0};
    pthread_mutex_lock(&t->lock);
    struct lock *k = memory_lock_find(t, op->name, op->now_ms, &ended);
    bool is_holder = k != NULL && k->fence == op->fence;
    if (is_holder) k->until_ms = op->now_ms + op->lease_ms;
    pthread_mutex_unlock(&t->lock);
    memory_lock_post_ended(&ended);
    op->result = ERR_OK;
    op->outcome = is_holder ? LOCK_KEPT : LOCK_LOST;
    op->done(op);
}

static void memory_lock_release(struct locks *l, struct lock_hold_op *op) {
    struct table *t = memory_lock_table(l, op->name);
    struct task_list ended = {0};
    pthread_mutex_lock(&t->lock);
    struct lock *k = memory_lock_find(t, op->name, op->now_ms, &ended);
    bool is_holder = k != NULL && k->fence == op->fence;
    if (is_holder) memory_lock_pass_on(t, k, op->now_ms, &ended);
    pthread_mutex_unlock(&t->lock);
    memory_lock_post_ended(&ended);
    op->result = ERR_OK;
    op->outcome = is_holder ? LOCK_RELEASED : LOCK_LOST;
    op->done(op);
}

static void memory_lock_tick_table(struct table *t, int64_t now_ms) {
    struct task_list ended = {0};
    pthread_mutex_lock(&t->lock);
    for (struct list *at = t->locks.next; at != &t->locks;) {
        struct lock *k = CONTAINER_OF(at, struct lock, link);
        at = at->next;
        if (now_ms >= k->until_ms)
            memory_lock_pass_on(t, k, now_ms, &ended);
        else
            memory_lock_expire_waits(k, now_ms, &ended);
    }
    pthread_mutex_unlock(&t->lock);
    memory_lock_post_ended(&ended);
}

static void memory_lock_tick(struct locks *l, int64_t now_ms) {
    struct memory_locks *m = CONTAINER_OF(l, struct memory_locks, locks);
    for (int i = 0; i < TABLES; i++) memory_lock_tick_table(&m->tables[i], now_ms);
}

static void memory_lock_give_up_table(struct table *t, const struct mailbox *home) {
    struct task_list ended = {0};
    pthread_mutex_lock(&t->lock);
    for (struct list *at = t->locks.next; at != &t->locks; at = at->next)
        memory_lock_end_waits_of(CONTAINER_OF(at, struct lock, link), home, &ended);
    pthread_mutex_unlock(&t->lock);
    memory_lock_post_ended(&ended);
}

static void memory_lock_give_up(struct locks *l) {
    struct memory_locks *m = CONTAINER_OF(l, struct memory_locks, locks);
    assert(mailbox_mine() != NULL);
    for (int i = 0; i < TABLES; i++) memory_lock_give_up_table(&m->tables[i], mailbox_mine());
}

static const struct locks_ops memory_locks_ops = {.acquire = memory_lock_acquire,
                                                  .renew = memory_lock_renew,
                                                  .release = memory_lock_release,
                                                  .tick = memory_lock_tick,
                                                  .give_up = memory_lock_give_up};

/* ---- start and stop ---- */

struct memory_locks *memory_locks_new(uint32_t epoch) {
    assert(epoch <= EPOCH_MAX);
    struct memory_locks *m = mem_new(sizeof *m);
    m->locks.ops = &memory_locks_ops;
    m->last_fence = (uint64_t)epoch << EPOCH_COUNT_BITS;
    for (int i = 0; i < TABLES; i++) {
        struct table *t = &m->tables[i];
        pthread_mutex_init(&t->lock, NULL);
        map_init(&t->by_name);
        list_init(&t->locks);
        t->last_fence = &m->last_fence;
    }
    m->seed = m->tables[0].by_name.seed; /* random */
    return m;
}

void memory_locks_free(struct memory_locks *m) {
    for (int i = 0; i < TABLES; i++) {
        struct table *t = &m->tables[i];
        while (t->locks.next != &t->locks) {
            struct lock *k = CONTAINER_OF(t->locks.next, struct lock, link);
            assert(k->first == NULL);
            memory_lock_free(t, k);
        }
        map_deinit(&t->by_name);
        pthread_mutex_destroy(&t->lock);
    }
    mem_free(m);
}

struct locks *memory_locks_port(struct memory_locks *m) {
    return &m->locks;
}
