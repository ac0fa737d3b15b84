/*
 * Named locks. Redis keeps who holds and who waits; a worker keeps its own who wait, until it hears
 * what has become of them (lua/locks.lua says how that is told):
 *
 *  - in the reply to whichever call of its own has decided it,
 *  - else by an announcement, which comes to the store's own thread and from there to the worker,
 *  - else, should that be lost, in the reply to a poll: every tick asks about all who wait.
 *
 * So one may hear twice, or hear of one whose own call is still unanswered. Whoever is answered is
 * no longer among those who wait, and what else is heard of it is nothing.
 *
 * A connection that breaks costs nobody its place: the polls of the next one find all as they were.
 * When there is none for a while, those who wait are answered with an error. They may still be in
 * the line, where each would be given the lock, for nobody; so they are kept as abandoned, and sent
 * away from there as soon as Redis can be told. A worker that is not heard of is passed over, its
 * abandoned too; so whatever it says, it sends them away first, for it may never tick again.
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
/* One poll asks about so many; whoever else waits is in the next. */
#define POLL_MAX 200
/* One that Redis does not know any more, and of which nothing is heard for so long: what was said
 * about it got lost. And so long polls may fail before nobody waits any more. */
#define MISSED_NS INT64_C(1000000000)

struct locks_worker {
    struct redis_store *store;
    struct link *link;
    struct locks_worker *next; /* in the store */
    char name[40];             /* NODE:WORKER */
    uint64_t asked;            /* how many ever did */
    struct list waiting;       /* struct waiting: who have not been answered, and abandoned */
    struct map by_number;      /* the same */
    size_t calls;              /* that are under way */
    size_t polls;              /* of these */
    size_t leaves;             /* of these: by which somebody leaves */
    size_t abandoned;
    int64_t failing_ns; /* since when polls fail; 0: Redis has answered since */
    int64_t ticked_ms;  /* the latest; its time does not go back */
    uv_async_t heard;
    pthread_mutex_t lock;
    struct buf news; /* under lock: announcements, one per line */
    bool closed;     /* it stays until nothing is under way */
};

/* One who has asked for a lock. */
struct waiting {
    struct call call;
    struct locks_worker *worker;
    struct list link;
    int64_t number;
    struct lock_op *op; /* NULL: it was answered, but its call is under way; or it is a ghost */
    bool calling;
    bool leaving;       /* it will be out of the line, whatever else is heard */
    int64_t missing_ns; /* since when Redis does not know it; 0: it does */
    int64_t ends_ns;    /* when its wait does */
    int64_t over_ns; /* when it is neither waiting nor holding any more, whatever becomes of it */
    str name;        /* its own copy */
};

/* One who renews or releases. */
struct keeping {
    struct call call;
    struct locks_worker *worker;
    struct lock_hold_op *op;
    enum lock_outcome kept;
};

/* About some who wait for locks of one event. */
struct poll {
    struct call call;
    struct list link; /* until it is sent */
    struct locks_worker *worker;
    bool leaves;
    char event[EVENT_PATH_BYTES + 1]; /* "TYPE/ID/" */
};

static struct locks_worker *worker_mine(struct locks *l) {
    struct redis_worker *w = redis_worker_mine();
    assert(w != NULL && &w->store->locks == l);
    return w->locks;
}

/* ---- names and keys ---- */

/* "TYPE/ID/", which every name begins with. */
static str event_of(str name) {
    size_t slashes = 0;
    for (size_t i = 0; i < name.len; i++)
        if (name.at[i] == '/' && ++slashes == 2) return (str){name.at, i + 1};
    assert(false && "a lock's name begins with its event");
    return name;
}

/* "FAMILY:{TYPE:ID}:" */
static void write_tag(struct buf *key, const char *family, str event) {
    str type = {0};
    str_split(&event, '/', &type);
    buf_addf(key, "%s:{%.*s:%.*s}:", family, (int)type.len, type.at, (int)event.len - 1, event.at);
}

static void add_shared_keys(struct call *c, str event) {
    static const char *const names[KEYS_SHARED][2] = {
        {"queue", "meta"}, {"lock", "workers"}, {"lock", "fence"}};
    struct buf key = {0};
    for (size_t i = 0; i < KEYS_SHARED; i++) {
        buf_clear(&key);
        write_tag(&key, names[i][0], event);
        buf_add(&key, str_of(names[i][1]));
        call_add(c, buf_str(&key));
    }
    buf_deinit(&key);
}

static void add_lock_keys(struct call *c, str name) {
    static const char *const parts[KEYS_OF_LOCK] = {":holder", ":line", ":ends", ":waiters"};
    struct buf key = {0};
    str event = event_of(name);
    write_tag(&key, "lock", event);
    buf_add(&key, str_skip(name, event.len));
    size_t len = key.len;
    for (size_t i = 0; i < KEYS_OF_LOCK; i++) {
        key.len = len;
        buf_add(&key, str_of(parts[i]));
        call_add(c, buf_str(&key));
    }
    buf_deinit(&key);
}

/* What all functions are told behind the epoch. */
static void add_shared_arguments(struct call *c, const struct locks_worker *w, int64_t now_ms) {
    call_add_now(c, w->store, now_ms > w->ticked_ms ? now_ms : w->ticked_ms);
    call_add(c, str_of(w->name));
}

static void begin(struct call *c, const struct locks_worker *w, const char *function, str name,
                  int64_t now_ms) {
    call_begin(c, function, KEYS_SHARED + KEYS_OF_LOCK);
    add_shared_keys(c, event_of(name));
    add_lock_keys(c, name);
    add_shared_arguments(c, w, now_ms);
}

/* ---- calls keep their worker ---- */

static void send_call(struct locks_worker *w, struct call *c) {
    w->calls++;
    c->repeats = true; /* a waiter has a number, a holder its fence */
    link_send(w->link, c);
}

static void free_if_over(struct locks_worker *w) {
    if (!w->closed || w->calls > 0) return;
    pthread_mutex_destroy(&w->lock);
    buf_deinit(&w->news);
    map_deinit(&w->by_number);
    mem_free(w);
}

static void call_is_over(struct locks_worker *w) {
    w->calls--;
    free_if_over(w);
}

/* ---- those who wait ---- */

static void waiting_add(struct locks_worker *w, struct waiting *a) {
    a->worker = w;
    a->number = (int64_t)++w->asked;
    list_init(&a->link);
    list_move_last(&w->waiting, &a->link);
    map_put(&w->by_number, map_key(&a->number), a);
}

static void waiting_remove(struct waiting *a) {
    list_remove(&a->link);
    map_remove(&a->worker->by_number, map_key(&a->number));
    if (a->op == NULL) a->worker->abandoned--;
    a->op = NULL;
    if (!a->calling) mem_free(a);
}

/* Its caller may ask anew at once, or end the worker's last wait. */
static void answer(struct waiting *a, enum err result) {
    struct lock_op *op = a->op;
    assert(op != NULL);
    waiting_remove(a);
    op->result = result;
    op->done(op);
}

/* As `answer`, of one who may be in the line. */
static void answer_abandoned(struct waiting *a, enum err result) {
    struct lock_op *op = a->op;
    assert(op != NULL && !a->calling);
    a->op = NULL;
    a->leaving = true;
    a->worker->abandoned++;
    list_move_last(&a->worker->waiting, &a->link);
    op->result = result;
    op->done(op);
}

static void answer_acquired(struct waiting *a, uint64_t fence, int64_t until_ms,
                            int64_t waited_ms) {
    a->op->outcome = LOCK_ACQUIRED;
    a->op->fence = fence;
    a->op->until_ms = until_ms;
    a->op->waited_ms = waited_ms;
    answer(a, ERR_OK);
}

static void answer_timed_out(struct waiting *a, int64_t waited_ms) {
    a->op->outcome = LOCK_TIMED_OUT;
    a->op->waited_ms = waited_ms;
    answer(a, ERR_OK);
}

static void leave(struct waiting *a) {
    if (a->op != NULL)
        answer_timed_out(a, 0);
    else
        waiting_remove(a);
}

/* It may have been decided about by another's call, and the announcement be on its way. */
static void is_missing(struct waiting *a) {
    if (a->calling) return;
    int64_t now_ns = clock_steady_ns();
    if (a->missing_ns == 0) a->missing_ns = now_ns;
    if (now_ns - a->missing_ns >= MISSED_NS) answer_timed_out(a, a->op->wait_ms_max);
}

/* ---- what is heard of them ---- */

/* Whose it is, by its number; NULL: it is nobody who waits here. */
static struct waiting *find(struct locks_worker *w, str waiter) {
    str name = str_of(w->name);
    int64_t number = 0;
    if (!str_starts(waiter, name) || !str_to_i64(str_skip(waiter, name.len + 1), &number))
        return NULL;
    return map_get(&w->by_number, map_key(&number));
}

static void hear(struct locks_worker *w, str news) {
    str waiter = {0};
    str fate = {0};
    str_split(&news, ' ', &waiter);
    str_split(&news, ' ', &fate);
    struct waiting *a = find(w, waiter);
    if (a == NULL || fate.len != 1) return;
    if (a->leaving != (fate.at[0] == 'L')) return;
    if (fate.at[0] == 'A') {
        int64_t epoch = text_next_i64(&news);
        int64_t number = text_next_i64(&news);
        int64_t until_ms = text_next_i64(&news);
        int64_t waited_ms = text_next_i64(&news);
        /* Any other is no fence of ours: it is as if nothing had been heard. */
        bool fits = epoch > 0 && epoch <= EPOCH_MAX && number > 0 &&
                    number < INT64_C(1) << EPOCH_COUNT_BITS;
        uint64_t fence = (uint64_t)epoch << EPOCH_COUNT_BITS | (uint64_t)number;
        if (fits) answer_acquired(a, fence, until_ms, waited_ms);
    } else if (fate.at[0] == 'T') {
        answer_timed_out(a, text_next_i64(&news));
    } else if (fate.at[0] == 'L') {
        leave(a);
    } else if (fate.at[0] == 'G') {
        is_missing(a);
    }
}

static void hear_all(struct locks_worker *w, const redisReply *news) {
    const redisReply *one;
    for (size_t i = 0; (one = reply_at(news, i)) != NULL; i++) hear(w, reply_str(one));
}

/* On the worker's thread. */
static void on_heard(uv_async_t *heard) {
    struct locks_worker *w = CONTAINER_OF(heard, struct locks_worker, heard);
    pthread_mutex_lock(&w->lock);
    struct buf news = w->news;
    w->news = (struct buf){0};
    pthread_mutex_unlock(&w->lock);
    str rest = buf_str(&news);
    str line;
    while (str_split(&rest, '\n', &line)) hear(w, line);
    buf_deinit(&news);
}

static void pass_to(struct locks_worker *w, str news) {
    pthread_mutex_lock(&w->lock);
    buf_add(&w->news, news);
    buf_add_char(&w->news, '\n');
    uv_async_send(&w->heard);
    pthread_mutex_unlock(&w->lock);
}

void locks_heard(struct redis_store *s, str news) {
    pthread_rwlock_rdlock(&s->lock);
    for (struct locks_worker *w = s->lock_workers; w != NULL; w = w->next) {
        str name = str_of(w->name);
        bool is_its = str_starts(news, name) && news.len > name.len && news.at[name.len] == ':';
        if (is_its) pass_to(w, news);
    }
    pthread_rwlock_unlock(&s->lock);
}

/* ---- acquire ---- */

static void on_asked(struct call *c, enum err result, const redisReply *reply) {
    struct waiting *a = CONTAINER_OF(c, struct waiting, call);
    struct locks_worker *w = a->worker;
    if (result == ERR_OK) {
        w->failing_ns = 0;
        hear_all(w, reply);
    }
    a->calling = false;
    if (a->op == NULL)
        mem_free(a);
    else if (result == ERR_HOT_UNKNOWN)
        answer_abandoned(a, result);
    else if (result != ERR_OK)
        answer(a, result);
    call_is_over(w);
}

static void remove_abandoned_waiters(struct locks_worker *w, int64_t now_ms);

static void acquire(struct locks *l, struct lock_op *op) {
    assert(op->name.len > 0 && op->name.len <= LOCK_NAME_BYTES_MAX && op->lease_ms > 0);
    struct locks_worker *w = worker_mine(l);
    remove_abandoned_waiters(w, op->now_ms);
    struct waiting *a = mem_new(sizeof *a + op->name.len);
    a->op = op;
    a->name = (str){memcpy(a + 1, op->name.at, op->name.len), op->name.len};
    a->ends_ns = clock_steady_ns() + op->wait_ms_max * 1000000;
    a->over_ns = a->ends_ns + op->lease_ms * 1000000;
    op->waited_ms = 0;
    waiting_add(w, a);
    begin(&a->call, w, "lock_acquire", op->name, op->now_ms);
    call_add_i64(&a->call, a->number);
    call_add_i64(&a->call, op->wait_ms_max);
    call_add_i64(&a->call, op->lease_ms);
    a->call.done = on_asked;
    a->calling = true;
    send_call(w, &a->call);
}

/* ---- renew, release ---- */

static void on_kept(struct call *c, enum err result, const redisReply *reply) {
    struct keeping *k = CONTAINER_OF(c, struct keeping, call);
    struct locks_worker *w = k->worker;
    struct lock_hold_op *op = k->op;
    op->result = result;
    op->outcome = reply_i64(reply_at(reply, 0)) == 1 ? k->kept : LOCK_LOST;
    mem_free(k);
    op->done(op);
    if (result == ERR_OK) hear_all(w, reply_at(reply, 1));
    call_is_over(w);
}

static void keep(struct locks *l, struct lock_hold_op *op, const char *function,
                 enum lock_outcome kept) {
    struct locks_worker *w = worker_mine(l);
    remove_abandoned_waiters(w, op->now_ms);
    struct keeping *k = mem_new(sizeof *k);
    k->worker = w;
    k->op = op;
    k->kept = kept;
    begin(&k->call, w, function, op->name, op->now_ms);
    call_add_u64(&k->call, op->fence >> EPOCH_COUNT_BITS);
    call_add_u64(&k->call, op->fence & ((UINT64_C(1) << EPOCH_COUNT_BITS) - 1));
    call_add_i64(&k->call, op->lease_ms);
    k->call.done = on_kept;
    send_call(w, &k->call);
}

static void renew(struct locks *l, struct lock_hold_op *op) {
    keep(l, op, "lock_renew", LOCK_KEPT);
}

/* One that is repeated because its answer got lost may hear LOST though it has released: that it
 * no longer has the lock is true, and what was written under it the fence has judged. */
static void release(struct locks *l, struct lock_hold_op *op) {
    keep(l, op, "lock_release", LOCK_RELEASED);
}

/* ---- polls ---- */

static bool is_about(const struct poll *p, const struct waiting *a) {
    return !a->calling && a->leaving == p->leaves && str_starts(a->name, str_of(p->event));
}

/* Who leaves is gone in any case when its worker is: nobody hears of that one any more. Ghosts of a
 * worker that goes on try again. */
static void leaving_failed(struct waiting *a) {
    if (a->op != NULL || clock_steady_ns() >= a->over_ns) leave(a);
}

/* Whether they may go on waiting, because the next poll may succeed. */
static bool may_wait_on(struct locks_worker *w, enum err result) {
    if (result != ERR_HOT_UNAVAILABLE && result != ERR_HOT_UNKNOWN) return false;
    int64_t now_ns = clock_steady_ns();
    if (w->failing_ns == 0) w->failing_ns = now_ns;
    return now_ns - w->failing_ns < MISSED_NS;
}

/* Whoever this was about, and is not asking itself: their callers may ask anew meanwhile. */
static void poll_failed(struct locks_worker *w, const struct poll *p, enum err result) {
    bool all = p->leaves || !may_wait_on(w, result);
    int64_t now_ns = clock_steady_ns();
    struct list ended;
    list_init(&ended);
    for (struct list *at = w->waiting.next, *next; at != &w->waiting; at = next) {
        struct waiting *a = CONTAINER_OF(at, struct waiting, link);
        next = at->next;
        if (is_about(p, a) && (all || a->ends_ns <= now_ns)) list_move_last(&ended, at);
    }
    while (!list_empty(&ended)) {
        struct waiting *a = CONTAINER_OF(ended.next, struct waiting, link);
        list_move_last(&w->waiting, &a->link);
        if (p->leaves)
            leaving_failed(a);
        else
            answer_abandoned(a, result);
    }
}

static void on_polled(struct call *c, enum err result, const redisReply *reply) {
    struct poll *p = CONTAINER_OF(c, struct poll, call);
    struct locks_worker *w = p->worker;
    w->polls--;
    if (p->leaves) w->leaves--;
    if (result == ERR_OK) {
        w->failing_ns = 0;
        hear_all(w, reply);
    } else {
        poll_failed(w, p, result);
    }
    mem_free(p);
    call_is_over(w);
}

static int compare_waiting(const void *a, const void *b) {
    const struct waiting *const *one = a;
    const struct waiting *const *other = b;
    int order = str_compare((*one)->name, (*other)->name);
    if (order != 0) return order;
    return (*one)->number < (*other)->number ? -1 : (*one)->number > (*other)->number;
}

/* How many from here on have the same name. */
static size_t count_same(struct waiting **some, size_t count) {
    size_t n = 1;
    while (n < count && str_eq(some[n]->name, some[0]->name)) n++;
    return n;
}

/* How many from here on fit into one poll: all of one event. */
static size_t count_for_poll(struct waiting **some, size_t count) {
    str event = event_of(some[0]->name);
    size_t n = 1;
    while (n < count && n < POLL_MAX && str_starts(some[n]->name, event)) n++;
    return n;
}

static size_t count_names(struct waiting **some, size_t count) {
    size_t names = 0;
    for (size_t i = 0; i < count; i += count_same(some + i, count - i)) names++;
    return names;
}

static struct poll *poll_new(struct locks_worker *w, struct waiting **some, size_t count,
                             bool leaves, int64_t now_ms) {
    struct poll *p = mem_new(sizeof *p);
    str event = event_of(some[0]->name);
    bool fits = str_copy(event, p->event, sizeof p->event);
    assert(fits);
    list_init(&p->link);
    p->worker = w;
    p->leaves = leaves;
    p->call.done = on_polled;
    size_t keys = KEYS_SHARED + KEYS_OF_LOCK * count_names(some, count);
    call_begin(&p->call, leaves ? "lock_leave" : "lock_tick", keys);
    add_shared_keys(&p->call, event);
    for (size_t i = 0; i < count; i += count_same(some + i, count - i))
        add_lock_keys(&p->call, some[i]->name);
    add_shared_arguments(&p->call, w, now_ms);
    for (size_t i = 0; i < count;) {
        size_t end = i + count_same(some + i, count - i);
        call_add_u64(&p->call, end - i);
        for (; i < end; i++) call_add_i64(&p->call, some[i]->number);
    }
    return p;
}

/* Everybody who waits, or who leaves, by name and number; how many there are. */
static size_t gather(struct locks_worker *w, struct waiting **all, bool leaves) {
    size_t count = 0;
    for (struct list *at = w->waiting.next; at != &w->waiting; at = at->next) {
        struct waiting *a = CONTAINER_OF(at, struct waiting, link);
        if (a->leaving == leaves) all[count++] = a;
    }
    qsort(all, count, sizeof *all, compare_waiting);
    return count;
}

/* About everybody who waits, or who leaves. */
static void add_polls(struct list *polls, struct locks_worker *w, bool leaves, int64_t now_ms) {
    struct waiting **all = mem_new(w->by_number.count * sizeof(struct waiting *));
    size_t count = gather(w, all, leaves);
    for (size_t i = 0; i < count;) {
        size_t n = count_for_poll(all + i, count - i);
        list_move_last(polls, &poll_new(w, all + i, n, leaves, now_ms)->link);
        i += n;
    }
    mem_free(all);
}

/* All are written before the first is sent: it may fail at once, and end whom others are about. */
static void send_polls(struct locks_worker *w, struct list *polls) {
    while (!list_empty(polls)) {
        struct poll *p = CONTAINER_OF(polls->next, struct poll, link);
        list_remove(&p->link);
        w->polls++;
        if (p->leaves) w->leaves++;
        send_call(w, &p->call);
    }
}

static void send_away(struct locks_worker *w, int64_t now_ms) {
    struct list polls;
    list_init(&polls);
    add_polls(&polls, w, true, now_ms);
    send_polls(w, &polls);
}

static void remove_abandoned_waiters(struct locks_worker *w, int64_t now_ms) {
    if (w->abandoned > 0 && w->leaves == 0 && link_is_up(w->link)) send_away(w, now_ms);
}

/* By the store's own clock, a tick that comes before the last one's answer has nothing to ask. */
static void tick(struct locks *l, int64_t now_ms) {
    struct locks_worker *w = worker_mine(l);
    if (now_ms > w->ticked_ms) w->ticked_ms = now_ms;
    if (w->by_number.count == 0 || (w->store->options.own_clock && w->polls > 0)) return;
    struct list polls;
    list_init(&polls);
    if (w->abandoned > 0) add_polls(&polls, w, true, now_ms);
    add_polls(&polls, w, false, now_ms);
    send_polls(w, &polls);
}

/* Whoever acquires a lock before it has left gives it back in that very step; so from now on it
 * hears of nothing else. */
static void give_up(struct locks *l) {
    struct locks_worker *w = worker_mine(l);
    if (w->by_number.count == 0) return;
    int64_t now_ms = 0;
    for (struct list *at = w->waiting.next; at != &w->waiting; at = at->next) {
        struct waiting *a = CONTAINER_OF(at, struct waiting, link);
        a->leaving = true;
        if (a->op != NULL && a->op->now_ms > now_ms) now_ms = a->op->now_ms;
    }
    send_away(w, now_ms);
}

const struct locks_ops redis_locks_ops = {
    .acquire = acquire, .renew = renew, .release = release, .tick = tick, .give_up = give_up};

/* ---- start and stop ---- */

struct locks_worker *locks_worker_new(struct redis_worker *of, uv_loop_t *loop) {
    struct redis_store *s = of->store;
    struct locks_worker *w = mem_new(sizeof *w);
    w->store = s;
    w->link = of->link;
    list_init(&w->waiting);
    map_init(&w->by_number);
    pthread_mutex_init(&w->lock, NULL);
    int failed = uv_async_init(loop, &w->heard, on_heard);
    assert(failed == 0);
    pthread_rwlock_wrlock(&s->lock);
    snprintf(w->name, sizeof w->name, "%s:%zu", s->node, s->lock_worker_count++);
    w->next = s->lock_workers;
    s->lock_workers = w;
    pthread_rwlock_unlock(&s->lock);
    return w;
}

static void forget(struct redis_store *s, struct locks_worker *w) {
    pthread_rwlock_wrlock(&s->lock);
    struct locks_worker **at = &s->lock_workers;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    pthread_rwlock_unlock(&s->lock);
}

static void on_closed(uv_handle_t *heard) {
    struct locks_worker *w = CONTAINER_OF(heard, struct locks_worker, heard);
    w->closed = true;
    free_if_over(w);
}

void locks_worker_close(struct locks_worker *w) {
    forget(w->store, w); /* nothing is passed to it any more */
    while (!list_empty(&w->waiting)) {
        struct waiting *a = CONTAINER_OF(w->waiting.next, struct waiting, link);
        if (a->op != NULL)
            answer(a, ERR_HOT_UNKNOWN);
        else
            waiting_remove(a);
    }
    uv_close((uv_handle_t *)&w->heard, on_closed);
}
