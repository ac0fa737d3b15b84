/* The waiting rooms' side of the memory adapter (port/queue.h): each operation is one step of
 * core/queue.h under the event's lock. */
#include <assert.h>

#include "hot/memory_internal.h"

/* Entries that a tick checks for silent users; checking ten million takes about four minutes. */
#define SWEEP_BUDGET 4096
/* How many entries are ended and reported at a time. */
#define ENDED_MAX 256
#define PURGE_ROUNDS 8

static struct memory *memory_of_queues(struct queues *q) {
    return CONTAINER_OF(q, struct memory, queues);
}

static void memory_report_expired(const struct memory *m, const struct memory_event *r,
                                  int64_t now_ms, const struct entry_change *ended, size_t count) {
    if (count > 0) m->listener.expired(m->listener.to, r->event_key, now_ms, ended, count);
}

/* At most PURGE_ROUNDS batches: the entries that are left count as active, so fewer are admitted
 * until the next call, never more. */
void memory_event_purge(const struct memory *m, struct memory_event *r, int64_t now_ms) {
    struct entry_change ended[ENDED_MAX];
    size_t count;
    size_t rounds = PURGE_ROUNDS;
    do {
        count = queue_purge(r->queue, now_ms, ended, ENDED_MAX);
        memory_report_expired(m, r, now_ms, ended, count);
    } while (count == ENDED_MAX && --rounds > 0);
}

static void memory_sweep(const struct memory *m, struct memory_event *r, int64_t now_ms) {
    struct entry_change ended[ENDED_MAX];
    size_t count;
    size_t rounds = SWEEP_BUDGET / ENDED_MAX;
    do {
        count = queue_sweep(r->queue, now_ms, SWEEP_BUDGET, ended, ENDED_MAX);
        memory_report_expired(m, r, now_ms, ended, count);
    } while (count == ENDED_MAX && --rounds > 0);
}

/* Whether the place is ACTIVE, and has a live hold. */
static bool memory_is_reserving(const struct memory_event *r, const struct place *p) {
    return p->status == ENTRY_ACTIVE &&
           claims_is_reserving(r->claims, queue_user(r->queue, p->seq), p->seq);
}

/* The seats that are left, for the queue's next step. */
static void memory_set_stock(struct memory_event *r) {
    struct seat_counts seats = claims_totals(r->claims);
    queue_set_stock(r->queue, &(struct queue_stock){.seats = seat_counts_sum(&seats),
                                                    .available = seats.available,
                                                    .ran_out = claims_ran_out(r->claims)});
}

static bool memory_has_place(const struct memory_event *r, const struct enter_op *e) {
    uint64_t seq = queue_find(r->queue, e->user);
    struct place p;
    return seq != 0 && queue_look(r->queue, seq, e->op.now_ms, &p) && p.status != ENTRY_EXPIRED;
}

static void memory_enter(struct queues *q, struct enter_op *e) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_begin(m, &e->op);
    if (r != NULL && e->section_key != 0 && claims_is_sold(r->claims, e->section_key)) {
        e->outcome = ENTER_SOLD;
        memory_event_unlock(m, r);
    } else if (r != NULL && e->only_there && !memory_has_place(r, e)) {
        e->outcome = ENTER_NONE;
        memory_event_unlock(m, r);
    } else if (r != NULL) {
        uint64_t before = queue_find(r->queue, e->user);
        memory_event_purge(m, r, e->op.now_ms);
        memory_set_stock(r);
        bool needs_none = !memory_has_place(r, e) && claims_has_all(r->claims, e->user);
        e->outcome = needs_none ? ENTER_LIMIT
                                : queue_enter(r->queue, e->user, e->lane, e->op.now_ms, &e->place);
        e->closes = e->outcome == ENTER_TAKEN ? before : 0;
        e->opens_at_ms = r->opens_at_ms;
        bool is_there = e->outcome == ENTER_TAKEN || e->outcome == ENTER_THERE;
        e->seats = claims_totals(r->claims);
        e->has_stock = queue_has_stock(r->queue);
        struct queue_counts counts = queue_counts(r->queue);
        e->stays_ended = queue_stays_ended(&counts);
        e->reserving = is_there && memory_is_reserving(r, &e->place);
        if (e->outcome == ENTER_THERE) queue_seen(r->queue, e->place.seq, e->op.now_ms);
        if (is_there && e->place.pending) e->op.result = e->submit(e);
        if (e->op.result != ERR_OK && e->outcome == ENTER_TAKEN)
            queue_settle_enter(r->queue, e->place.seq, false);
        memory_event_unlock(m, r);
    }
    e->done(e);
}

static void memory_read_place(const struct queue *q, uint64_t seq, int64_t now_ms,
                              struct place *out) {
    if (!queue_look(q, seq, now_ms, out)) *out = (struct place){.status = ENTRY_NONE, .seq = seq};
}

static void memory_settle(struct queues *q, struct settle_op *s) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_begin(m, &s->op);
    for (size_t i = 0; r != NULL && i < s->count; i++) {
        if (s->expiries) continue; /* only this process was notified of them */
        if (s->admissions)
            queue_settle_admit(r->queue, s->seqs[i], s->kept[i]);
        else
            queue_settle_enter(r->queue, s->seqs[i], s->kept[i]);
        if (s->places != NULL) memory_read_place(r->queue, s->seqs[i], s->op.now_ms, &s->places[i]);
    }
    if (r != NULL) memory_event_unlock(m, r);
    s->done(s);
}

static void memory_admit(struct queues *q, struct admit_op *a) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_begin(m, &a->op);
    a->count = 0;
    if (r != NULL) {
        memory_event_purge(m, r, a->op.now_ms);
        memory_sweep(m, r, a->op.now_ms);
        memory_set_stock(r);
        a->count = queue_admit(r->queue, a->op.now_ms, a->entries, ADMIT_MAX);
        if (a->count > 0) a->op.result = a->submit(a);
        for (size_t i = 0; a->op.result != ERR_OK && i < a->count; i++)
            queue_settle_admit(r->queue, a->entries[i].seq, false);
        memory_event_unlock(m, r);
    }
    a->done(a);
}

/* A waiting entry is known by its order alone. Only others need a read of the entry itself, which
 * is not in the CPU's caches when there are ten million. */
static void memory_read_item(const struct memory_event *r, int64_t now_ms, uint64_t waiting,
                             struct look_item *item) {
    const struct queue *q = r->queue;
    uint64_t position = queue_position(q, item->seq);
    item->reserving = false;
    if (position == 0) {
        memory_read_place(q, item->seq, now_ms, &item->place);
        item->reserving = memory_is_reserving(r, &item->place);
        return;
    }
    item->place = (struct place){.status = ENTRY_WAITING,
                                 .seq = item->seq,
                                 .position = position,
                                 .waiting = waiting,
                                 .estimate_s = queue_estimate_s(q, position)};
}

static void memory_look(struct queues *q, struct look_op *l) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_begin(m, &l->op);
    l->user_len = 0;
    if (r != NULL) {
        l->counts = queue_counts(r->queue);
        l->seats = claims_totals(r->claims);
        memory_set_stock(r);
        l->has_stock = queue_has_stock(r->queue);
        l->state = queue_state(r->queue, l->op.now_ms);
        for (size_t i = 0; i < l->count; i++) {
            memory_read_item(r, l->op.now_ms, l->counts.waiting, &l->items[i]);
            if (l->items[i].seen) queue_seen(r->queue, l->items[i].seq, l->op.now_ms);
        }
        if (l->user != NULL && l->count > 0) {
            str user = queue_user(r->queue, l->items[0].seq);
            assert(user.len <= USER_ID_BYTES_MAX);
            if (user.len > 0) memcpy(l->user, user.at, user.len);
            l->user_len = user.len;
        }
        memory_event_unlock(m, r);
    }
    l->done(l);
}

static void memory_end(struct queues *q, struct end_op *e) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_begin(m, &e->op);
    e->ended = r != NULL && queue_end(r->queue, e->seq, e->final);
    if (r != NULL) memory_event_unlock(m, r);
    e->done(e);
}

/* All records of the ledger come from this process, so there is nothing to repair. */
static void memory_sync_entry(struct queues *q, struct entry_sync_op *s) {
    (void)q;
    s->op.result = ERR_OK;
    s->outcome = ENTRY_SYNC_OTHER;
    s->done(s);
}

static void memory_restore_event(struct queues *q, const struct event *e) {
    memory_configure(memory_of_queues(q), e);
}

static void memory_configure_event(struct queues *q, struct configure_op *c) {
    memory_configure(memory_of_queues(q), c->event);
    c->op.result = ERR_OK;
    c->done(c);
}

static void memory_remove_event(struct queues *q, struct remove_op *r) {
    memory_remove(memory_of_queues(q), r->op.event_key, r->version);
    r->op.result = ERR_OK;
    r->done(r);
}

/* Pending operations are settled by this process, so none is ever overdue. */
static void memory_overdue(struct queues *q, struct overdue_op *o) {
    (void)q;
    o->op.result = ERR_OK;
    o->enter_count = 0;
    o->admission_count = 0;
    o->claim_count = 0;
    o->done(o);
}

static void memory_ticks(struct queues *q, struct ticks_op *t) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r;
    pthread_rwlock_rdlock(&m->lock);
    for (size_t at = 0; (r = map_next(&m->events, &at)) != NULL;) {
        pthread_mutex_lock(&r->lock);
        bool needs_it = r->queue != NULL && (queue_needs_tick(r->queue, t->now_ms) ||
                                             claims_needs_tick(r->claims, t->now_ms));
        pthread_mutex_unlock(&r->lock);
        if (needs_it) t->event(t, r->event_key);
    }
    pthread_rwlock_unlock(&m->lock);
    t->result = ERR_OK;
    t->done(t);
}

/* Only queues_configure makes events known here. */
static void memory_register_event(struct queues *q, const struct event *e) {
    (void)q;
    (void)e;
}

static void memory_restore_totals(struct queues *q, int64_t event_key,
                                  const struct queue_counts *totals) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_lock(m, event_key);
    if (r == NULL) return;
    queue_restore_totals(r->queue, totals);
    memory_event_unlock(m, r);
}

static void memory_restore_entry(struct queues *q, const struct ledger_entry *e) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_lock(m, e->event_key);
    if (r == NULL) return; /* the event was deleted */
    uint64_t older = queue_find(r->queue, e->user);
    if (older != 0) {
        queue_end(r->queue, older, ENTRY_EXPIRED);
        memory_report_expired(m, r, e->joined_ms, &(struct entry_change){.seq = older}, 1);
    }
    queue_restore(r->queue, e->seq, e->user, e->lane, e->status, e->joined_ms, e->expires_ms);
    memory_event_unlock(m, r);
}

static void memory_recovered(struct queues *q, int64_t event_key, uint64_t next_seq,
                             int64_t now_ms) {
    struct memory *m = memory_of_queues(q);
    struct memory_event *r = memory_event_lock(m, event_key);
    if (r == NULL) return;
    queue_skip_to(r->queue, next_seq);
    queue_restart_grace(r->queue, now_ms);
    memory_event_unlock(m, r);
}

static void memory_listen(struct queues *q, struct queue_listener listener) {
    memory_of_queues(q)->listener = listener;
}

const struct queue_ops memory_queue_ops = {.enter = memory_enter,
                                           .settle = memory_settle,
                                           .admit = memory_admit,
                                           .look = memory_look,
                                           .end = memory_end,
                                           .sync = memory_sync_entry,
                                           .configure = memory_configure_event,
                                           .remove = memory_remove_event,
                                           .overdue = memory_overdue,
                                           .ticks = memory_ticks,
                                           .register_event = memory_register_event,
                                           .restore_event = memory_restore_event,
                                           .restore_totals = memory_restore_totals,
                                           .restore = memory_restore_entry,
                                           .recovered = memory_recovered,
                                           .listen = memory_listen};
