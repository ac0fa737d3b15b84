/* The waiting rooms' side of the Redis adapter (port/queue.h): each operation is one call of a
 * function of lua/queue.lua, which documents arguments and replies. Looks are in queue_look.c. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hot/redis/internal.h"

/* How many expired entries the listener is given at a time. */
#define EXPIRED_MAX 256

static const str enter_words[] = {
    [ENTER_TAKEN] = STR_INIT("TAKEN"),
    [ENTER_THERE] = STR_INIT("THERE"),
    [ENTER_FULL] = STR_INIT("FULL"),
    [ENTER_NOT_OPEN] = STR_INIT("NOT_OPEN"),
    [ENTER_CLOSED] = STR_INIT("CLOSED"),
    [ENTER_SOLD] = STR_INIT("SOLD"),
    [ENTER_LIMIT] = STR_INIT("LIMIT"),
    [ENTER_NONE] = STR_INIT("NONE"),
    {NULL, 0},
};

static const str sync_words[] = {
    [ENTRY_SYNC_DONE] = STR_INIT("DONE"),
    [ENTRY_SYNC_THERE] = STR_INIT("THERE"),
    [ENTRY_SYNC_OTHER] = STR_INIT("OTHER"),
    [ENTRY_SYNC_EXPIRED] = STR_INIT("EXPIRED"),
    {NULL, 0},
};

static struct redis_store *queue_store(struct queues *q) {
    return CONTAINER_OF(q, struct redis_store, queues);
}

/* ---- keys and arguments ---- */

void queue_add_keys(struct call *c) {
    static const char *const parts[] = {"meta",   "seq",     "user", "entry", "waiting",
                                        "active", "pending", "seen", "ended", "offers"};
    const struct redis_event *e = c->event;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) call_add_key(c, "queue", e, parts[i]);
    call_add_key(c, "section", e, "counts");
    call_add_key(c, "limit", e, NULL);
    call_add_key(c, "limit", e, "reserving");
    call_add_key(c, "claim", e, "pending");
    call_add_key(c, "claim", e, "due");
    call_add(c, STR(TICKS_KEY));
    call_add(c, STR(TICKED_KEY));
}

void queue_add_arguments(struct call *c, int64_t now_ms) {
    call_add_event(c);
    call_add_now(c, now_ms);
    call_add(c, str_of(c->store->node));
}

void queue_begin(struct call *c, const char *function, int64_t now_ms) {
    call_begin(c, function, QUEUE_KEYS);
    queue_add_keys(c);
    queue_add_arguments(c, now_ms);
}

static struct call *queue_call(struct queues *q, struct hot_op *op, const char *function) {
    struct call *c = call_new_for_event(queue_store(q), op);
    queue_begin(c, function, op->now_ms);
    return c;
}

static void queue_add_entry(struct call *c, const struct ledger_entry *e) {
    call_add_u64(c, e->seq);
    call_add(c, e->user);
    call_add_u64(c, e->lane);
    call_add(c, entry_status_words[e->status]);
    call_add_i64(c, e->joined_ms);
    call_add_i64(c, e->expires_ms);
}

/* ---- replies ---- */

/* Whether a token can be made for it. */
static bool queue_place_is_valid(const struct place *p) {
    return p->lane < LANES && p->joined_ms >= 0 && p->joined_ms < ENTRY_TIME_MS_END;
}

void queue_read_place(const redisReply *r, uint64_t seq, struct place *out) {
    int status = word_index(entry_status_words, reply_str(reply_at(r, 0)));
    *out = (struct place){.status = status < 0 ? ENTRY_NONE : (enum entry_status)status,
                          .seq = seq,
                          .position = reply_u64(reply_at(r, 1)),
                          .estimate_s = reply_i64(reply_at(r, 2)),
                          .lane = (unsigned)reply_u64(reply_at(r, 3)),
                          .joined_ms = reply_i64(reply_at(r, 4)),
                          .expires_ms = reply_i64(reply_at(r, 5)),
                          .pending = reply_i64(reply_at(r, 6)) != 0,
                          .waiting = reply_u64(reply_at(r, 7))};
    if (!queue_place_is_valid(out)) *out = (struct place){.status = ENTRY_NONE, .seq = seq};
}

/* Whether the ledger can store it. */
static bool queue_place_is_live(const struct place *p) {
    return (p->status == ENTRY_WAITING || p->status == ENTRY_ACTIVE) && p->seq > 0 &&
           p->seq <= ENTRY_SEQ_MAX;
}

void queue_report_expired(const struct redis_store *s, const struct hot_op *op,
                          const redisReply *r) {
    struct entry_change ended[EXPIRED_MAX];
    const struct queue_listener *l = &s->expired;
    size_t total = r == NULL || r->type != REDIS_REPLY_ARRAY ? 0 : r->elements / 3;
    for (size_t at = 0; at < total;) {
        size_t count = 0;
        for (; count < EXPIRED_MAX && at < total; count++, at++)
            ended[count] = (struct entry_change){.seq = reply_u64(reply_at(r, at * 3)),
                                                 .expires_ms = reply_i64(reply_at(r, at * 3 + 1)),
                                                 .waited_ms = reply_i64(reply_at(r, at * 3 + 2))};
        l->expired(l->to, op->event_key, op->now_ms, ended, count);
    }
}

/* ---- settling ---- */

static void settle_add(struct call *c, uint64_t seq, bool kept) {
    call_add_u64(c, seq);
    call_add(c, kept ? STR("kept") : STR("undone"));
}

static void settle_begin(struct call *c, int64_t now_ms, str what, bool with_places) {
    queue_begin(c, "settle", now_ms);
    call_add(c, what);
    call_add(c, with_places ? STR("1") : STR("0"));
}

static void redis_on_settled(struct call *c, enum err result, const redisReply *reply) {
    struct settle_op *t = call_end(c, result);
    for (size_t i = 0; result == ERR_OK && t->places != NULL && i < t->count; i++)
        queue_read_place(reply_at(reply, i), t->seqs[i], &t->places[i]);
    t->done(t);
}

static void redis_settle(struct queues *q, struct settle_op *t) {
    struct call *c = call_new_for_event(queue_store(q), &t->op);
    str what = t->expiries ? STR("expiries") : t->admissions ? STR("admissions") : STR("enters");
    settle_begin(c, t->op.now_ms, what, t->places != NULL);
    for (size_t i = 0; i < t->count; i++) settle_add(c, t->seqs[i], t->expiries || t->kept[i]);
    call_send(c, redis_on_settled);
}

/* ---- entering ---- */

static void redis_enter_end(struct call *c) {
    struct enter_op *e = call_free(c);
    e->done(e);
}

/* The result of the undoing does not matter: an entry that is still pending becomes overdue. */
static void redis_on_enter_undone(struct call *c, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    redis_enter_end(c);
}

/* False: the reply is not one of `enter`. */
static bool redis_read_entered(const redisReply *r, struct enter_op *e) {
    int outcome = word_index(enter_words, reply_str(reply_at(r, 0)));
    if (outcome < 0 || (outcome == ENTER_SOLD && e->section_key == 0)) return false;
    if (outcome == ENTER_NONE && !e->only_there) return false;
    e->outcome = (enum enter_outcome)outcome;
    e->closes = reply_u64(reply_at(r, 2));
    str opens_at = reply_str(reply_at(r, 3));
    e->opens_at_ms = opens_at.len == 0 ? CLOCK_NONE_MS : reply_i64(reply_at(r, 3));
    e->seats = redis_read_seat_counts(reply_at(r, 4), 0);
    e->reserving = reply_i64(reply_at(r, 6)) != 0;
    e->stays_ended = reply_u64(reply_at(r, 7));
    if (e->outcome != ENTER_TAKEN && e->outcome != ENTER_THERE) return true;
    queue_read_place(reply_at(r, 9), reply_u64(reply_at(r, 8)), &e->place);
    e->has_stock = reply_i64(reply_at(r, 10)) != 0;
    return queue_place_is_live(&e->place);
}

static void redis_on_entered(struct call *c, enum err result, const redisReply *reply) {
    struct enter_op *e = c->op;
    if (result == ERR_OK && !redis_read_entered(reply, e)) result = ERR_INTERNAL;
    call_note_result(c, result);
    if (result != ERR_OK) {
        redis_enter_end(c);
        return;
    }
    e->op.now_ms = reply_i64(reply_at(reply, 1));
    queue_report_expired(c->store, &e->op, reply_at(reply, 5));
    bool is_there = e->outcome == ENTER_TAKEN || e->outcome == ENTER_THERE;
    if (is_there && e->place.pending) e->op.result = e->submit(e);
    if (e->op.result == ERR_OK || e->outcome != ENTER_TAKEN) {
        redis_enter_end(c);
        return;
    }
    settle_begin(c, e->op.now_ms, STR("enters"), false);
    settle_add(c, e->place.seq, false);
    call_send(c, redis_on_enter_undone);
}

static void redis_enter(struct queues *q, struct enter_op *e) {
    struct call *c = queue_call(q, &e->op, "enter");
    call_add(c, e->user);
    call_add_u64(c, e->lane);
    call_add_i64(c, e->section_key);
    call_add(c, e->only_there ? STR("1") : STR("0"));
    call_send(c, redis_on_entered);
}

/* ---- admitting ---- */

static void redis_admit_end(struct call *c) {
    struct admit_op *a = call_free(c);
    a->done(a);
}

static void redis_on_admit_undone(struct call *c, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    redis_admit_end(c);
}

static void redis_read_admitted(const redisReply *r, struct admit_op *a) {
    size_t count = r == NULL ? 0 : r->elements / 4;
    for (; a->count < count && a->count < ADMIT_MAX; a->count++) {
        size_t at = a->count * 4;
        a->entries[a->count] = (struct entry_change){.seq = reply_u64(reply_at(r, at)),
                                                     .expires_ms = reply_i64(reply_at(r, at + 1)),
                                                     .waited_ms = reply_i64(reply_at(r, at + 2)),
                                                     .promised_s = reply_i64(reply_at(r, at + 3))};
    }
}

static void redis_on_admitted(struct call *c, enum err result, const redisReply *reply) {
    struct admit_op *a = c->op;
    call_note_result(c, result);
    if (result == ERR_OK) {
        a->op.now_ms = reply_i64(reply_at(reply, 0));
        queue_report_expired(c->store, &a->op, reply_at(reply, 1));
        redis_read_admitted(reply_at(reply, 2), a);
        if (a->count > 0) a->op.result = a->submit(a);
    }
    if (a->op.result == ERR_OK || a->count == 0) {
        redis_admit_end(c);
        return;
    }
    settle_begin(c, a->op.now_ms, STR("admissions"), false);
    for (size_t i = 0; i < a->count; i++) settle_add(c, a->entries[i].seq, false);
    call_send(c, redis_on_admit_undone);
}

/* Sent once: entries that a call with a lost answer has admitted are pending, and found by
 * `overdue`. */
static void redis_admit(struct queues *q, struct admit_op *a) {
    a->count = 0;
    call_send_once(queue_call(q, &a->op, "admit"), redis_on_admitted);
}

/* ---- ending ---- */

static void redis_on_ended(struct call *c, enum err result, const redisReply *reply) {
    struct end_op *e = call_end(c, result);
    e->ended = result == ERR_OK && reply_i64(reply) != 0;
    e->done(e);
}

static void redis_end(struct queues *q, struct end_op *e) {
    struct call *c = queue_call(q, &e->op, "end");
    call_add_u64(c, e->seq);
    call_add(c, entry_status_words[e->final]);
    call_send(c, redis_on_ended);
}

/* ---- repairing an entry from the ledger ---- */

static void redis_on_entry_synced(struct call *c, enum err result, const redisReply *reply) {
    struct entry_sync_op *y = call_end(c, result);
    int outcome = result == ERR_OK ? word_index(sync_words, reply_str(reply)) : ENTRY_SYNC_OTHER;
    if (outcome < 0) y->op.result = ERR_INTERNAL;
    y->outcome = outcome < 0 ? ENTRY_SYNC_OTHER : (enum entry_sync_outcome)outcome;
    y->done(y);
}

static void redis_sync_entry(struct queues *q, struct entry_sync_op *y) {
    struct call *c = queue_call(q, &y->op, "sync_entry");
    queue_add_entry(c, y->entry);
    call_add(c, entry_status_words[y->seen]);
    call_send(c, redis_on_entry_synced);
}

/* ---- adding, changing and removing events ---- */

static void event_add_time(struct call *c, int64_t at_ms) {
    if (at_ms == CLOCK_NONE_MS)
        call_add(c, STR(""));
    else
        call_add_i64(c, at_ms);
}

static void event_add_rules(struct call *c, const struct event *e) {
    const struct queue_rules *r = &e->queue;
    call_add_i64(c, e->version);
    call_add(c, event_state_words[e->state]);
    event_add_time(c, e->opens_at_ms);
    event_add_time(c, e->closes_at_ms);
    call_add_i64(c, r->max_waiting);
    call_add_i64(c, r->max_active);
    call_add_i64(c, r->entry_batch_size);
    call_add_i64(c, r->entry_interval_s);
    call_add_i64(c, r->active_ttl_s);
    call_add_i64(c, r->grace_s);
    call_add_i64(c, e->hold_s);
    call_add_i64(c, e->max_per_user);
}

static void event_add_section(struct call *c, const struct section *s) {
    call_add_i64(c, s->key);
    call_add_i64(c, s->capacity);
    call_add(c, section_mode_words[s->mode]);
    call_add(c, section_status_words[s->status]);
    call_add(c, str_of(s->id));
}

/* A function that may touch all keys of the event and of its sections; the last key is that of the
 * incarnation. */
static void event_begin(struct call *c, const char *function, int64_t now_ms) {
    struct section_set sections = store_copy_sections(c->store, c->event);
    call_begin(c, function, QUEUE_KEYS + SEATS_KEYS + SECTION_KEYS * sections.count + 1);
    queue_add_keys(c);
    seats_add_keys(c, &sections);
    call_add(c, STR(INCARNATION_KEY));
    mem_free(sections.keys);
    queue_add_arguments(c, now_ms);
}

/* configure or restore_event. */
static void event_begin_rules(struct call *c, const char *function, const struct event *e,
                              int64_t now_ms) {
    event_begin(c, function, now_ms);
    event_add_rules(c, e);
    for (size_t i = 0; i < e->section_count; i++) event_add_section(c, &e->sections[i]);
}

static void redis_on_configured(struct call *c, enum err result, const redisReply *reply) {
    (void)reply;
    if (result == ERR_OK) atomic_store(&c->event->in_redis, true);
    struct configure_op *op = call_end(c, result);
    op->done(op);
}

static void redis_configure(struct queues *q, struct configure_op *op) {
    struct redis_store *s = queue_store(q);
    store_register_event(s, op->event);
    op->op.event_key = op->event->key;
    struct call *c = call_new_for_event(s, &op->op);
    event_begin_rules(c, "configure", op->event, op->op.now_ms);
    call_send(c, redis_on_configured);
}

static void redis_on_removed(struct call *c, enum err result, const redisReply *reply) {
    struct redis_store *s = c->store;
    struct remove_op *op = call_end(c, result);
    if (result == ERR_OK && reply_i64(reply) == 1) store_remove_event(s, op->op.event_key);
    op->done(op);
}

/* If this node has not registered the event, the function finds its sections itself. */
static void redis_remove(struct queues *q, struct remove_op *op) {
    struct redis_store *s = queue_store(q);
    struct event removed = {.key = op->op.event_key};
    if (str_copy(op->type, removed.type, sizeof removed.type) &&
        str_copy(op->id, removed.id, sizeof removed.id) && op->type.len > 0)
        store_register_event(s, &removed);
    struct call *c = call_new_for_event(s, &op->op);
    event_begin(c, "remove", op->op.now_ms);
    call_add_i64(c, op->version);
    call_send(c, redis_on_removed);
}

static void redis_register_event(struct queues *q, const struct event *e) {
    store_register_event(queue_store(q), e);
    store_set_in_redis(queue_store(q), e->key);
}

static void redis_listen_expired(struct queues *q, struct queue_listener listener) {
    queue_store(q)->expired = listener;
}

/* ---- operations that have been pending for too long ---- */

static void redis_read_overdue_entries(const redisReply *reply, struct overdue_op *o) {
    const redisReply *enters = reply_at(reply, 0);
    for (; o->enter_count < OVERDUE_MAX; o->enter_count++) {
        const redisReply *r = reply_at(enters, o->enter_count);
        if (r == NULL) break;
        o->enters[o->enter_count] = reply_u64(r);
    }
    const redisReply *admissions = reply_at(reply, 1);
    for (; o->admission_count < ADMIT_MAX; o->admission_count++) {
        const redisReply *seq = reply_at(admissions, o->admission_count * 2);
        if (seq == NULL) break;
        o->admissions[o->admission_count] = (struct entry_change){
            .seq = reply_u64(seq),
            .expires_ms = reply_i64(reply_at(admissions, o->admission_count * 2 + 1)),
            .promised_s = -1};
    }
}

static void redis_read_overdue_claims(const redisReply *claims, struct overdue_op *o) {
    for (size_t i = 0; claims != NULL && i < claims->elements && i < OVERDUE_MAX; i++)
        if (claim_ref_read(reply_str(reply_at(claims, i)), &o->claims[o->claim_count]))
            o->claim_count++;
}

static void redis_read_overdue_expiries(const redisReply *expiries, struct overdue_op *o) {
    for (; o->expiry_count < OVERDUE_MAX; o->expiry_count++) {
        const redisReply *seq = reply_at(expiries, o->expiry_count);
        if (seq == NULL) break;
        o->expiries[o->expiry_count] = (struct entry_change){.seq = reply_u64(seq)};
    }
}

static void redis_on_overdue(struct call *c, enum err result, const redisReply *reply) {
    struct overdue_op *o = call_end(c, result);
    if (result == ERR_OK) {
        redis_read_overdue_entries(reply, o);
        redis_read_overdue_claims(reply_at(reply, 2), o);
        redis_read_overdue_expiries(reply_at(reply, 3), o);
    }
    o->done(o);
}

/* Sent once: what a lost answer contained is returned again later. */
static void redis_overdue(struct queues *q, struct overdue_op *o) {
    o->enter_count = 0;
    o->admission_count = 0;
    o->claim_count = 0;
    o->expiry_count = 0;
    struct call *c = queue_call(q, &o->op, "overdue");
    call_add_i64(c, o->older_ms);
    call_send_once(c, redis_on_overdue);
}

/* ---- rebuilding; an event that was deleted is not known, and rebuild_add skips it ---- */

static void redis_restore_event(struct queues *q, const struct event *e) {
    struct call c = {0};
    redis_register_event(q, e);
    call_set_event(&c, queue_store(q), e->key);
    event_begin_rules(&c, "restore_event", e, 0);
    rebuild_add(&c);
}

static void redis_restore_totals(struct queues *q, int64_t event_key,
                                 const struct queue_counts *totals) {
    struct call c = {0};
    call_set_event(&c, queue_store(q), event_key);
    queue_begin(&c, "restore_totals", 0);
    call_add_u64(&c, totals->entered);
    call_add_u64(&c, totals->admitted);
    call_add_u64(&c, totals->completed);
    call_add_u64(&c, totals->left);
    call_add_u64(&c, totals->expired);
    call_add_u64(&c, totals->waited_ms);
    call_add_u64(&c, totals->waited_ms_max);
    rebuild_add(&c);
}

static void redis_restore_entry(struct queues *q, const struct ledger_entry *e) {
    struct call c = {0};
    call_set_event(&c, queue_store(q), e->event_key);
    queue_begin(&c, "restore", e->joined_ms);
    queue_add_entry(&c, e);
    rebuild_add(&c);
}

static void redis_recovered(struct queues *q, int64_t event_key, uint64_t next_seq,
                            int64_t now_ms) {
    struct call c = {0};
    call_set_event(&c, queue_store(q), event_key);
    queue_begin(&c, "recovered", now_ms);
    call_add_u64(&c, next_seq);
    rebuild_add(&c);
}

const struct queue_ops redis_queue_ops = {.enter = redis_enter,
                                          .settle = redis_settle,
                                          .admit = redis_admit,
                                          .look = redis_look,
                                          .end = redis_end,
                                          .sync = redis_sync_entry,
                                          .configure = redis_configure,
                                          .remove = redis_remove,
                                          .overdue = redis_overdue,
                                          .ticks = redis_ticks,
                                          .register_event = redis_register_event,
                                          .restore_event = redis_restore_event,
                                          .restore_totals = redis_restore_totals,
                                          .restore = redis_restore_entry,
                                          .recovered = redis_recovered,
                                          .listen = redis_listen_expired};
