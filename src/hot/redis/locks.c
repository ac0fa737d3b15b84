/*
 * Named locks in Redis (port/locks.h). Redis stores the holder of each lock and its waiters; a
 * worker keeps a list of its own requests that wait, until it is notified of their outcome (the
 * format is in lua/locks.lua):
 *
 *  - in the reply to any of its calls, if that call has decided it,
 *  - else by an announcement, which the store's listening thread passes to the worker,
 *  - else, if that is lost, in the reply to a poll: every tick asks about all waiting requests.
 *
 * So a worker may be notified twice, or before the request's own call is answered. A request that
 * is answered is removed from the list, and later notices about it are ignored.
 *
 * When a connection breaks, requests keep their places in the line: the polls over the next one
 * find them there. When there is no connection for a while, they are answered with an error. They
 * may still be in the line in Redis and would be given the lock for nothing; so they stay in the
 * list as abandoned, and are removed from the line as soon as Redis can be reached. Redis skips the
 * waiters of a worker that does not call, abandoned ones too; so every call of the worker is
 * preceded by the removal, because it may be the worker's last call.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hot/redis/internal.h"

#define KEYS_SHARED 3
#define KEYS_OF_LOCK 4
/* Requests in one poll. */
#define POLL_MAX 200
/* When Redis does not know a waiting request and no notice has come for so long, the notice is
 * lost. When polls fail for so long, waiting requests are answered with an error. */
#define MISSED_NS INT64_C(1000000000)

struct locks_worker {
    struct redis_store *store;
    struct link *link;
    struct locks_worker *next; /* in the store */
    char name[40];             /* NODE:WORKER */
    uint64_t last_number;      /* of a request */
    struct list waiting;       /* struct lock_wait: not answered yet, or abandoned */
    struct map by_number;      /* the same */
    size_t calls;              /* that are under way */
    size_t polls;              /* of these */
    size_t leaves;             /* of the polls: those that remove waiters from lines */
    size_t abandoned;
    int64_t failing_ns; /* since when polls fail; 0: the last one was answered */
    int64_t ticked_ms;  /* the time of the latest tick, which never goes back */
    uv_async_t notify;
    pthread_mutex_t lock;
    struct buf announcements; /* under lock: one per line */
    bool closed;              /* it is freed when no call is under way */
};

/* One request for a lock. */
struct lock_wait {
    struct call call;
    struct locks_worker *worker;
    struct list link;
    int64_t number;
    struct lock_op *op; /* NULL: answered, but its call is under way; or abandoned */
    bool calling;       /* its own call is under way */
    bool leaving;       /* it is being removed from the line: other notices are ignored */
    int64_t missing_ns; /* since when Redis does not know it; 0: it does */
    int64_t ends_ns;    /* the end of its wait */
    int64_t over_ns;    /* from then on it can neither be in the line nor hold the lock */
    str name;           /* behind the struct */
};

/* About waiting requests for locks of one event. */
struct lock_poll {
    struct call call;
    struct list link; /* until it is sent */
    struct locks_worker *worker;
    bool leaves;                      /* they are to be removed from the line */
    char event[EVENT_PATH_BYTES + 1]; /* "TYPE/ID/" */
};

static struct locks_worker *locks_worker_mine(struct locks *l) {
    struct redis_worker *w = redis_worker_mine();
    assert(w != NULL && &w->store->locks == l);
    return w->locks;
}

/* ---- names and keys ---- */

/* "TYPE/ID/", which every name begins with. */
static str lock_event(str name) {
    size_t slashes = 0;
    for (size_t i = 0; i < name.len; i++)
        if (name.at[i] == '/' && ++slashes == 2) return (str){name.at, i + 1};
    assert(false && "a lock's name begins with its event");
    return name;
}

/* "FAMILY:{TYPE:ID}:" */
static void lock_write_tag(struct buf *key, const char *family, str event) {
    str type = {0};
    str_split(&event, '/', &type);
    buf_addf(key, "%s:{%.*s:%.*s}:", family, (int)type.len, type.at, (int)event.len - 1, event.at);
}

static void lock_add_shared_keys(struct call *c, str event) {
    static const char *const names[KEYS_SHARED][2] = {
        {"queue", "meta"}, {"lock", "workers"}, {"lock", "fence"}};
    struct buf key = {0};
    for (size_t i = 0; i < KEYS_SHARED; i++) {
        buf_clear(&key);
        lock_write_tag(&key, names[i][0], event);
        buf_add(&key, str_of(names[i][1]));
        call_add(c, buf_str(&key));
    }
    buf_deinit(&key);
}

static void lock_add_keys(struct call *c, str name) {
    static const char *const parts[KEYS_OF_LOCK] = {":holder", ":line", ":ends", ":waiters"};
    struct buf key = {0};
    str event = lock_event(name);
    lock_write_tag(&key, "lock", event);
    buf_add(&key, str_skip(name, event.len));
    size_t len = key.len;
    for (size_t i = 0; i < KEYS_OF_LOCK; i++) {
        key.len = len;
        buf_add(&key, str_of(parts[i]));
        call_add(c, buf_str(&key));
    }
    buf_deinit(&key);
}

/* The arguments that all functions have after the epoch. */
static void lock_add_shared_arguments(struct call *c, const struct locks_worker *w,
                                      int64_t now_ms) {
    call_add_now(c, now_ms > w->ticked_ms ? now_ms : w->ticked_ms);
    call_add(c, str_of(w->name));
}

static void lock_begin(struct call *c, const struct locks_worker *w, const char *function, str name,
                       int64_t now_ms) {
    call_begin(c, function, KEYS_SHARED + KEYS_OF_LOCK);
    lock_add_shared_keys(c, lock_event(name));
    lock_add_keys(c, name);
    lock_add_shared_arguments(c, w, now_ms);
}

/* ---- the worker is kept while calls are under way ---- */

static void locks_send(struct locks_worker *w, struct call *c, call_done *done) {
    w->calls++;
    call_send(c, done); /* repeated safely: a waiter has a number, a holder its fence */
}

static void locks_worker_free_if_over(struct locks_worker *w) {
    if (!w->closed || w->calls > 0) return;
    pthread_mutex_destroy(&w->lock);
    buf_deinit(&w->announcements);
    map_deinit(&w->by_number);
    mem_free(w);
}

static void locks_call_ended(struct locks_worker *w) {
    w->calls--;
    locks_worker_free_if_over(w);
}

/* ---- waiting requests ---- */

static void lock_wait_add(struct locks_worker *w, struct lock_wait *a) {
    a->worker = w;
    a->number = (int64_t)++w->last_number;
    list_init(&a->link);
    list_move_last(&w->waiting, &a->link);
    map_put(&w->by_number, map_key(&a->number), a);
}

static void lock_wait_remove(struct lock_wait *a) {
    list_remove(&a->link);
    map_remove(&a->worker->by_number, map_key(&a->number));
    if (a->op == NULL) a->worker->abandoned--;
    a->op = NULL;
    if (!a->calling) mem_free(a);
}

/* The caller may ask for a lock again at once, or close the worker. */
static void lock_wait_answer(struct lock_wait *a, enum err result) {
    struct lock_op *op = a->op;
    assert(op != NULL);
    lock_wait_remove(a);
    op->result = result;
    op->done(op);
}

/* As lock_wait_answer, of a request that may still be in the line. */
static void lock_wait_abandon(struct lock_wait *a, enum err result) {
    struct lock_op *op = a->op;
    assert(op != NULL && !a->calling);
    a->op = NULL;
    a->leaving = true;
    a->worker->abandoned++;
    list_move_last(&a->worker->waiting, &a->link);
    op->result = result;
    op->done(op);
}

static void lock_wait_acquired(struct lock_wait *a, uint64_t fence, int64_t until_ms,
                               int64_t waited_ms) {
    a->op->outcome = LOCK_ACQUIRED;
    a->op->fence = fence;
    a->op->until_ms = until_ms;
    a->op->waited_ms = waited_ms;
    lock_wait_answer(a, ERR_OK);
}

static void lock_wait_timed_out(struct lock_wait *a, int64_t waited_ms) {
    a->op->outcome = LOCK_TIMED_OUT;
    a->op->waited_ms = waited_ms;
    lock_wait_answer(a, ERR_OK);
}

static void lock_wait_leave(struct lock_wait *a) {
    if (a->op != NULL)
        lock_wait_timed_out(a, 0);
    else
        lock_wait_remove(a);
}

/* Another node's call may have decided it, and the announcement may be on its way. */
static void lock_wait_missing(struct lock_wait *a) {
    if (a->calling) return;
    int64_t now_ns = clock_steady_ns();
    if (a->missing_ns == 0) a->missing_ns = now_ns;
    if (now_ns - a->missing_ns >= MISSED_NS) lock_wait_timed_out(a, a->op->wait_ms_max);
}

/* ---- notices about their outcome ---- */

/* NULL: no request of this worker. */
static struct lock_wait *locks_find_wait(struct locks_worker *w, str waiter) {
    str name = str_of(w->name);
    int64_t number = 0;
    if (!str_starts(waiter, name) || !str_to_i64(str_skip(waiter, name.len + 1), &number))
        return NULL;
    return map_get(&w->by_number, map_key(&number));
}

static void locks_read_notice(struct locks_worker *w, str notice) {
    str waiter = {0};
    str outcome = {0};
    str_split(&notice, ' ', &waiter);
    str_split(&notice, ' ', &outcome);
    struct lock_wait *a = locks_find_wait(w, waiter);
    if (a == NULL || outcome.len != 1) return;
    if (a->leaving != (outcome.at[0] == 'L')) return;
    if (outcome.at[0] == 'A') {
        int64_t epoch = text_next_i64(&notice);
        int64_t number = text_next_i64(&notice);
        int64_t until_ms = text_next_i64(&notice);
        int64_t waited_ms = text_next_i64(&notice);
        /* A number that cannot be a fence: the notice is ignored. */
        bool fits = epoch > 0 && epoch <= EPOCH_MAX && number > 0 &&
                    number < INT64_C(1) << EPOCH_COUNT_BITS;
        uint64_t fence = (uint64_t)epoch << EPOCH_COUNT_BITS | (uint64_t)number;
        if (fits) lock_wait_acquired(a, fence, until_ms, waited_ms);
    } else if (outcome.at[0] == 'T') {
        lock_wait_timed_out(a, text_next_i64(&notice));
    } else if (outcome.at[0] == 'L') {
        lock_wait_leave(a);
    } else if (outcome.at[0] == 'G') {
        lock_wait_missing(a);
    }
}

static void locks_read_notices(struct locks_worker *w, const redisReply *notices) {
    const redisReply *one;
    for (size_t i = 0; (one = reply_at(notices, i)) != NULL; i++)
        locks_read_notice(w, reply_str(one));
}

/* On the worker's thread. */
static void locks_on_notify(uv_async_t *notify) {
    struct locks_worker *w = CONTAINER_OF(notify, struct locks_worker, notify);
    pthread_mutex_lock(&w->lock);
    struct buf lines = w->announcements;
    w->announcements = (struct buf){0};
    pthread_mutex_unlock(&w->lock);
    str rest = buf_str(&lines);
    str line;
    while (str_split(&rest, '\n', &line)) locks_read_notice(w, line);
    buf_deinit(&lines);
}

static void locks_worker_notify(struct locks_worker *w, str announcement) {
    pthread_mutex_lock(&w->lock);
    buf_add(&w->announcements, announcement);
    buf_add_char(&w->announcements, '\n');
    uv_async_send(&w->notify);
    pthread_mutex_unlock(&w->lock);
}

void locks_on_announcement(struct redis_store *s, str announcement) {
    pthread_rwlock_rdlock(&s->lock);
    for (struct locks_worker *w = s->lock_workers; w != NULL; w = w->next) {
        str name = str_of(w->name);
        bool is_its = str_starts(announcement, name) && announcement.len > name.len &&
                      announcement.at[name.len] == ':';
        if (is_its) locks_worker_notify(w, announcement);
    }
    pthread_rwlock_unlock(&s->lock);
}

/* ---- acquire ---- */

static void redis_on_lock_answered(struct call *c, enum err result, const redisReply *reply) {
    struct lock_wait *a = CONTAINER_OF(c, struct lock_wait, call);
    struct locks_worker *w = a->worker;
    if (result == ERR_OK) {
        w->failing_ns = 0;
        locks_read_notices(w, reply);
    }
    a->calling = false;
    if (a->op == NULL)
        mem_free(a);
    else if (result == ERR_HOT_UNKNOWN)
        lock_wait_abandon(a, result);
    else if (result != ERR_OK)
        lock_wait_answer(a, result);
    locks_call_ended(w);
}

static void locks_remove_abandoned(struct locks_worker *w, int64_t now_ms);

static void redis_lock_acquire(struct locks *l, struct lock_op *op) {
    assert(op->name.len > 0 && op->name.len <= LOCK_NAME_BYTES_MAX && op->lease_ms > 0);
    struct locks_worker *w = locks_worker_mine(l);
    locks_remove_abandoned(w, op->now_ms);
    struct lock_wait *a = mem_new(sizeof *a + op->name.len);
    a->call.store = w->store;
    a->op = op;
    a->name = (str){memcpy(a + 1, op->name.at, op->name.len), op->name.len};
    a->ends_ns = clock_steady_ns() + op->wait_ms_max * 1000000;
    a->over_ns = a->ends_ns + op->lease_ms * 1000000;
    op->waited_ms = 0;
    lock_wait_add(w, a);
    lock_begin(&a->call, w, "lock_acquire", op->name, op->now_ms);
    call_add_i64(&a->call, a->number);
    call_add_i64(&a->call, op->wait_ms_max);
    call_add_i64(&a->call, op->lease_ms);
    a->calling = true;
    locks_send(w, &a->call, redis_on_lock_answered);
}

/* ---- renew, release ---- */

static void lock_hold_end(struct call *c, enum err result, const redisReply *reply,
                          enum lock_outcome kept) {
    struct locks_worker *w = redis_worker_mine()->locks;
    struct lock_hold_op *op = call_free(c);
    op->result = result;
    op->outcome = reply_i64(reply_at(reply, 0)) == 1 ? kept : LOCK_LOST;
    op->done(op);
    if (result == ERR_OK) locks_read_notices(w, reply_at(reply, 1));
    locks_call_ended(w);
}

static void lock_hold_call(struct locks *l, struct lock_hold_op *op, const char *function,
                           call_done *done) {
    struct locks_worker *w = locks_worker_mine(l);
    locks_remove_abandoned(w, op->now_ms);
    struct call *c = call_new(w->store, op);
    lock_begin(c, w, function, op->name, op->now_ms);
    call_add_u64(c, op->fence >> EPOCH_COUNT_BITS);
    call_add_u64(c, op->fence & ((UINT64_C(1) << EPOCH_COUNT_BITS) - 1));
    call_add_i64(c, op->lease_ms);
    locks_send(w, c, done);
}

static void redis_on_lock_renewed(struct call *c, enum err result, const redisReply *reply) {
    lock_hold_end(c, result, reply, LOCK_KEPT);
}

static void redis_lock_renew(struct locks *l, struct lock_hold_op *op) {
    lock_hold_call(l, op, "lock_renew", redis_on_lock_renewed);
}

static void redis_on_lock_released(struct call *c, enum err result, const redisReply *reply) {
    lock_hold_end(c, result, reply, LOCK_RELEASED);
}

/* A release that is repeated because its answer was lost may be answered LOST though it has
 * released the lock. That is true as well: the caller does not hold it, and the ledger has checked
 * the fence of what was written under it. */
static void redis_lock_release(struct locks *l, struct lock_hold_op *op) {
    lock_hold_call(l, op, "lock_release", redis_on_lock_released);
}

/* ---- polls ---- */

static bool lock_poll_concerns(const struct lock_poll *p, const struct lock_wait *a) {
    return !a->calling && a->leaving == p->leaves && str_starts(a->name, str_of(p->event));
}

/* A request that leaves because its worker stops is answered: Redis will skip the waiters of the
 * stopped worker. An abandoned one of a worker that goes on is tried again. */
static void lock_wait_leaving_failed(struct lock_wait *a) {
    if (a->op != NULL || clock_steady_ns() >= a->over_ns) lock_wait_leave(a);
}

/* Whether requests may go on waiting, because the next poll may succeed. */
static bool locks_may_keep_waiting(struct locks_worker *w, enum err result) {
    if (result != ERR_HOT_UNAVAILABLE && result != ERR_HOT_UNKNOWN) return false;
    int64_t now_ns = clock_steady_ns();
    if (w->failing_ns == 0) w->failing_ns = now_ns;
    return now_ns - w->failing_ns < MISSED_NS;
}

/* Ends the requests that the poll was about. Their callers may ask for locks again at once, so the
 * requests are collected first. */
static void lock_poll_failed(struct locks_worker *w, const struct lock_poll *p, enum err result) {
    bool all = p->leaves || !locks_may_keep_waiting(w, result);
    int64_t now_ns = clock_steady_ns();
    struct list ended;
    list_init(&ended);
    for (struct list *at = w->waiting.next, *next; at != &w->waiting; at = next) {
        struct lock_wait *a = CONTAINER_OF(at, struct lock_wait, link);
        next = at->next;
        if (lock_poll_concerns(p, a) && (all || a->ends_ns <= now_ns)) list_move_last(&ended, at);
    }
    while (!list_empty(&ended)) {
        struct lock_wait *a = CONTAINER_OF(ended.next, struct lock_wait, link);
        list_move_last(&w->waiting, &a->link);
        if (p->leaves)
            lock_wait_leaving_failed(a);
        else
            lock_wait_abandon(a, result);
    }
}

static void redis_on_lock_polled(struct call *c, enum err result, const redisReply *reply) {
    struct lock_poll *p = CONTAINER_OF(c, struct lock_poll, call);
    struct locks_worker *w = p->worker;
    w->polls--;
    if (p->leaves) w->leaves--;
    if (result == ERR_OK) {
        w->failing_ns = 0;
        locks_read_notices(w, reply);
    } else {
        lock_poll_failed(w, p, result);
    }
    mem_free(p);
    locks_call_ended(w);
}

static int lock_wait_compare(const void *a, const void *b) {
    const struct lock_wait *const *one = a;
    const struct lock_wait *const *other = b;
    int order = str_compare((*one)->name, (*other)->name);
    if (order != 0) return order;
    return (*one)->number < (*other)->number ? -1 : (*one)->number > (*other)->number;
}

/* How many from the first on have the same name. */
static size_t lock_waits_same_name(struct lock_wait **some, size_t count) {
    size_t n = 1;
    while (n < count && str_eq(some[n]->name, some[0]->name)) n++;
    return n;
}

/* How many from the first on fit into one poll: all of one event. */
static size_t lock_waits_for_poll(struct lock_wait **some, size_t count) {
    str event = lock_event(some[0]->name);
    size_t n = 1;
    while (n < count && n < POLL_MAX && str_starts(some[n]->name, event)) n++;
    return n;
}

static size_t lock_waits_names(struct lock_wait **some, size_t count) {
    size_t names = 0;
    for (size_t i = 0; i < count; i += lock_waits_same_name(some + i, count - i)) names++;
    return names;
}

static struct lock_poll *lock_poll_new(struct locks_worker *w, struct lock_wait **some,
                                       size_t count, bool leaves, int64_t now_ms) {
    struct lock_poll *p = mem_new(sizeof *p);
    str event = lock_event(some[0]->name);
    bool fits = str_copy(event, p->event, sizeof p->event);
    assert(fits);
    list_init(&p->link);
    p->call.store = w->store;
    p->worker = w;
    p->leaves = leaves;
    size_t keys = KEYS_SHARED + KEYS_OF_LOCK * lock_waits_names(some, count);
    call_begin(&p->call, leaves ? "lock_leave" : "lock_tick", keys);
    lock_add_shared_keys(&p->call, event);
    for (size_t i = 0; i < count; i += lock_waits_same_name(some + i, count - i))
        lock_add_keys(&p->call, some[i]->name);
    lock_add_shared_arguments(&p->call, w, now_ms);
    for (size_t i = 0; i < count;) {
        size_t end = i + lock_waits_same_name(some + i, count - i);
        call_add_u64(&p->call, end - i);
        for (; i < end; i++) call_add_i64(&p->call, some[i]->number);
    }
    return p;
}

/* All requests that wait, or that leave, by name and number. Returns how many there are. */
static size_t locks_gather(struct locks_worker *w, struct lock_wait **all, bool leaves) {
    size_t count = 0;
    for (struct list *at = w->waiting.next; at != &w->waiting; at = at->next) {
        struct lock_wait *a = CONTAINER_OF(at, struct lock_wait, link);
        if (a->leaving == leaves) all[count++] = a;
    }
    qsort(all, count, sizeof *all, lock_wait_compare);
    return count;
}

/* Polls about all requests that wait, or that leave. */
static void locks_add_polls(struct list *polls, struct locks_worker *w, bool leaves,
                            int64_t now_ms) {
    struct lock_wait **all = mem_new(w->by_number.count * sizeof(struct lock_wait *));
    size_t count = locks_gather(w, all, leaves);
    for (size_t i = 0; i < count;) {
        size_t n = lock_waits_for_poll(all + i, count - i);
        list_move_last(polls, &lock_poll_new(w, all + i, n, leaves, now_ms)->link);
        i += n;
    }
    mem_free(all);
}

/* All are built before the first is sent: it may fail at once and end requests of the others. */
static void locks_send_polls(struct locks_worker *w, struct list *polls) {
    while (!list_empty(polls)) {
        struct lock_poll *p = CONTAINER_OF(polls->next, struct lock_poll, link);
        list_remove(&p->link);
        w->polls++;
        if (p->leaves) w->leaves++;
        locks_send(w, &p->call, redis_on_lock_polled);
    }
}

static void locks_remove_leaving(struct locks_worker *w, int64_t now_ms) {
    struct list polls;
    list_init(&polls);
    locks_add_polls(&polls, w, true, now_ms);
    locks_send_polls(w, &polls);
}

static void locks_remove_abandoned(struct locks_worker *w, int64_t now_ms) {
    if (w->abandoned > 0 && w->leaves == 0 && link_is_up(w->link)) locks_remove_leaving(w, now_ms);
}

/* With the clock of Redis, a tick before the answer to the last polls has nothing to ask. */
static void redis_lock_tick(struct locks *l, int64_t now_ms) {
    struct locks_worker *w = locks_worker_mine(l);
    if (now_ms > w->ticked_ms) w->ticked_ms = now_ms;
    if (w->by_number.count == 0 || (w->store->options.redis_clock && w->polls > 0)) return;
    struct list polls;
    list_init(&polls);
    if (w->abandoned > 0) locks_add_polls(&polls, w, true, now_ms);
    locks_add_polls(&polls, w, false, now_ms);
    locks_send_polls(w, &polls);
}

/* If a leaving request has been given the lock, `lock_leave` releases it in the same step; so other
 * notices about it are ignored from now on. */
static void redis_lock_give_up(struct locks *l) {
    struct locks_worker *w = locks_worker_mine(l);
    if (w->by_number.count == 0) return;
    int64_t now_ms = 0;
    for (struct list *at = w->waiting.next; at != &w->waiting; at = at->next) {
        struct lock_wait *a = CONTAINER_OF(at, struct lock_wait, link);
        a->leaving = true;
        if (a->op != NULL && a->op->now_ms > now_ms) now_ms = a->op->now_ms;
    }
    locks_remove_leaving(w, now_ms);
}

const struct locks_ops redis_locks_ops = {.acquire = redis_lock_acquire,
                                          .renew = redis_lock_renew,
                                          .release = redis_lock_release,
                                          .tick = redis_lock_tick,
                                          .give_up = redis_lock_give_up};

/* ---- start and stop ---- */

struct locks_worker *locks_worker_new(struct redis_worker *of, uv_loop_t *loop) {
    struct redis_store *s = of->store;
    struct locks_worker *w = mem_new(sizeof *w);
    w->store = s;
    w->link = of->link;
    list_init(&w->waiting);
    map_init(&w->by_number);
    pthread_mutex_init(&w->lock, NULL);
    int failed = uv_async_init(loop, &w->notify, locks_on_notify);
    assert(failed == 0);
    pthread_rwlock_wrlock(&s->lock);
    snprintf(w->name, sizeof w->name, "%s:%zu", s->node, s->lock_worker_count++);
    w->next = s->lock_workers;
    s->lock_workers = w;
    pthread_rwlock_unlock(&s->lock);
    return w;
}

static void locks_forget_worker(struct redis_store *s, struct locks_worker *w) {
    pthread_rwlock_wrlock(&s->lock);
    struct locks_worker **at = &s->lock_workers;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    pthread_rwlock_unlock(&s->lock);
}

static void locks_worker_on_closed(uv_handle_t *notify) {
    struct locks_worker *w = CONTAINER_OF(notify, struct locks_worker, notify);
    w->closed = true;
    locks_worker_free_if_over(w);
}

void locks_worker_close(struct locks_worker *w) {
    locks_forget_worker(w->store, w); /* it gets no more announcements */
    while (!list_empty(&w->waiting)) {
        struct lock_wait *a = CONTAINER_OF(w->waiting.next, struct lock_wait, link);
        if (a->op != NULL)
            lock_wait_answer(a, ERR_HOT_UNKNOWN);
        else
            lock_wait_remove(a);
    }
    uv_close((uv_handle_t *)&w->notify, locks_worker_on_closed);
}
