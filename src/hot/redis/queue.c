/* The waiting rooms' side of the Redis adapter: each operation is a call of a function of
 * lua/queue.lua, which says what its arguments and its reply are. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hot/redis/internal.h"

/* How many are told to have expired at a time. */
#define EXPIRED_MAX 256

/* An operation on its way. */
struct sending {
    struct call call;
    struct redis_store *store;
    struct redis_event *event; /* held */
    union {
        struct enter_op *enter;
        struct settle_op *settle;
        struct admit_op *admit;
        struct end_op *end;
        struct entry_sync_op *sync;
        struct configure_op *configure;
        struct remove_op *remove;
        struct overdue_op *overdue;
    };
};

static const str outcome_words[] = {
    [ENTER_TAKEN] = STR_INIT("TAKEN"),
    [ENTER_THERE] = STR_INIT("THERE"),
    [ENTER_FULL] = STR_INIT("FULL"),
    [ENTER_NOT_OPEN] = STR_INIT("NOT_OPEN"),
    [ENTER_CLOSED] = STR_INIT("CLOSED"),
    [ENTER_SOLD] = STR_INIT("SOLD"),
    {NULL, 0},
};

static const str sync_words[] = {
    [ENTRY_SYNC_DONE] = STR_INIT("DONE"),
    [ENTRY_SYNC_THERE] = STR_INIT("THERE"),
    [ENTRY_SYNC_OTHER] = STR_INIT("OTHER"),
    [ENTRY_SYNC_EXPIRED] = STR_INIT("EXPIRED"),
    {NULL, 0},
};

static struct redis_store *store_of(struct queues *q) {
    return CONTAINER_OF(q, struct redis_store, queues);
}

/* NULL: nobody has met the event, and the operation says so. */
static struct sending *sending_new(struct queues *q, struct hot_op *op) {
    struct redis_store *store = store_of(q);
    struct redis_event *event = store_find_event(store, op->event_key);
    op->result = event == NULL ? ERR_EVENT_NOT_FOUND : ERR_OK;
    op->epoch = 0;
    if (event == NULL) return NULL;
    struct sending *s = mem_new(sizeof *s);
    s->store = store;
    s->event = event;
    return s;
}

static void sending_free(struct sending *s) {
    redis_event_release(s->event);
    mem_free(s);
}

static void send_it(struct sending *s, bool repeats,
                    void (*done)(struct call *c, enum err result, const redisReply *reply)) {
    s->call.done = done;
    s->call.repeats = repeats;
    link_send(redis_worker_mine()->link, &s->call);
}

static struct sending *sending_of(struct call *c) {
    return CONTAINER_OF(c, struct sending, call);
}

static void answer(struct hot_op *op, const struct call *c, enum err result) {
    op->result = result;
    op->epoch = c->epoch;
}

/* ---- keys and arguments ---- */

void queue_add_keys(struct call *c, const struct redis_event *e) {
    static const char *const parts[] = {"meta",   "seq",     "user", "entry", "waiting",
                                        "active", "pending", "seen", "ended"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) call_add_key(c, "queue", e, parts[i]);
    call_add_key(c, "section", e, "counts");
    call_add_key(c, "limit", e, "reserving");
    call_add_key(c, "claim", e, "pending");
    call_add_key(c, "claim", e, "due");
    call_add(c, STR(TICKS_KEY));
    call_add(c, STR(TICKED_KEY));
}

/* The arguments that all have; the epoch before them is the link's. */
static void add_who_and_when(struct call *c, const struct redis_store *store,
                             const struct redis_event *e, int64_t now_ms) {
    call_add_event(c, e);
    call_add_now(c, store, now_ms);
    call_add(c, str_of(store->node));
}

void queue_begin(struct call *c, const struct redis_store *store, const struct redis_event *e,
                 const char *function, int64_t now_ms) {
    call_begin(c, function, QUEUE_KEYS);
    queue_add_keys(c, e);
    add_who_and_when(c, store, e, now_ms);
}

static void begin_sending(struct sending *s, const char *function, int64_t now_ms) {
    queue_begin(&s->call, s->store, s->event, function, now_ms);
}

static void add_entry(struct call *c, const struct ledger_entry *e) {
    call_add_u64(c, e->seq);
    call_add(c, e->user);
    call_add_u64(c, e->lane);
    call_add(c, entry_status_words[e->status]);
    call_add_i64(c, e->joined_ms);
    call_add_i64(c, e->expires_ms);
}

/* ---- replies ---- */

/* What a token can be made for. */
static bool is_sound(const struct place *p) {
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
    if (!is_sound(out)) *out = (struct place){.status = ENTRY_NONE, .seq = seq};
}

/* As the ledger can be told of it. */
static bool is_live(const struct place *p) {
    return (p->status == ENTRY_WAITING || p->status == ENTRY_ACTIVE) && p->seq > 0 &&
           p->seq <= ENTRY_SEQ_MAX;
}

struct seat_counts queue_read_seats(const redisReply *r) {
    return (struct seat_counts){.available = (uint32_t)reply_u64(reply_at(r, 0)),
                                .held = (uint32_t)reply_u64(reply_at(r, 1)),
                                .confirmed = (uint32_t)reply_u64(reply_at(r, 2))};
}

void queue_tell_ended(const struct redis_store *s, const struct hot_op *op, const redisReply *r) {
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

static void add_settled(struct call *c, uint64_t seq, bool kept) {
    call_add_u64(c, seq);
    call_add(c, kept ? STR("kept") : STR("undone"));
}

static void begin_settle(struct sending *s, int64_t now_ms, str what, bool with_places) {
    begin_sending(s, "settle", now_ms);
    call_add(&s->call, what);
    call_add(&s->call, with_places ? STR("1") : STR("0"));
}

static void on_settled(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct settle_op *t = s->settle;
    answer(&t->op, c, result);
    sending_free(s);
    for (size_t i = 0; result == ERR_OK && t->places != NULL && i < t->count; i++)
        queue_read_place(reply_at(reply, i), t->seqs[i], &t->places[i]);
    t->done(t);
}

static void settle(struct queues *q, struct settle_op *t) {
    struct sending *s = sending_new(q, &t->op);
    if (s == NULL) {
        t->done(t);
        return;
    }
    s->settle = t;
    str what = t->expiries ? STR("expiries") : t->admissions ? STR("admissions") : STR("enters");
    begin_settle(s, t->op.now_ms, what, t->places != NULL);
    for (size_t i = 0; i < t->count; i++)
        add_settled(&s->call, t->seqs[i], t->expiries || t->kept[i]);
    send_it(s, true, on_settled);
}

/* ---- entering ---- */

static void enter_end(struct sending *s) {
    struct enter_op *e = s->enter;
    sending_free(s);
    e->done(e);
}

/* Whatever became of the undoing: what is still pending will be overdue. */
static void on_enter_undone(struct call *c, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    enter_end(sending_of(c));
}

static bool read_entered(const redisReply *r, struct enter_op *e) {
    int outcome = word_index(outcome_words, reply_str(reply_at(r, 0)));
    if (outcome < 0 || (outcome == ENTER_SOLD && e->section_key == 0)) return false;
    e->outcome = (enum enter_outcome)outcome;
    e->closes = reply_u64(reply_at(r, 2));
    str opens_at = reply_str(reply_at(r, 3));
    e->opens_at_ms = opens_at.len == 0 ? CLOCK_NONE_MS : reply_i64(reply_at(r, 3));
    e->seats = queue_read_seats(reply_at(r, 4));
    e->reserving = reply_i64(reply_at(r, 6)) != 0;
    if (e->outcome != ENTER_TAKEN && e->outcome != ENTER_THERE) return true;
    queue_read_place(reply_at(r, 8), reply_u64(reply_at(r, 7)), &e->place);
    return is_live(&e->place);
}

static void on_entered(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct enter_op *e = s->enter;
    answer(&e->op, c, result);
    if (result == ERR_OK && !read_entered(reply, e)) e->op.result = ERR_INTERNAL;
    if (e->op.result != ERR_OK) {
        enter_end(s);
        return;
    }
    e->op.now_ms = reply_i64(reply_at(reply, 1));
    queue_tell_ended(s->store, &e->op, reply_at(reply, 5));
    bool is_there = e->outcome == ENTER_TAKEN || e->outcome == ENTER_THERE;
    if (is_there && e->place.pending) e->op.result = e->submit(e);
    if (e->op.result == ERR_OK || e->outcome != ENTER_TAKEN) {
        enter_end(s);
        return;
    }
    begin_settle(s, e->op.now_ms, STR("enters"), false);
    add_settled(&s->call, e->place.seq, false);
    send_it(s, true, on_enter_undone);
}

static void enter(struct queues *q, struct enter_op *e) {
    struct sending *s = sending_new(q, &e->op);
    if (s == NULL) {
        e->done(e);
        return;
    }
    s->enter = e;
    begin_sending(s, "enter", e->op.now_ms);
    call_add(&s->call, e->user);
    call_add_u64(&s->call, e->lane);
    call_add_i64(&s->call, e->section_key);
    send_it(s, true, on_entered);
}

/* ---- admitting ---- */

static void admit_end(struct sending *s) {
    struct admit_op *a = s->admit;
    sending_free(s);
    a->done(a);
}

static void on_admit_undone(struct call *c, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    admit_end(sending_of(c));
}

static void read_admitted(const redisReply *r, struct admit_op *a) {
    size_t count = r == NULL ? 0 : r->elements / 4;
    for (; a->count < count && a->count < ADMIT_MAX; a->count++) {
        size_t at = a->count * 4;
        a->entries[a->count] = (struct entry_change){.seq = reply_u64(reply_at(r, at)),
                                                     .expires_ms = reply_i64(reply_at(r, at + 1)),
                                                     .waited_ms = reply_i64(reply_at(r, at + 2)),
                                                     .promised_s = reply_i64(reply_at(r, at + 3))};
    }
}

static void on_admitted(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct admit_op *a = s->admit;
    answer(&a->op, c, result);
    if (result == ERR_OK) {
        a->op.now_ms = reply_i64(reply_at(reply, 0));
        queue_tell_ended(s->store, &a->op, reply_at(reply, 1));
        read_admitted(reply_at(reply, 2), a);
        if (a->count > 0) a->op.result = a->submit(a);
    }
    if (a->op.result == ERR_OK || a->count == 0) {
        admit_end(s);
        return;
    }
    begin_settle(s, a->op.now_ms, STR("admissions"), false);
    for (size_t i = 0; i < a->count; i++) add_settled(&s->call, a->entries[i].seq, false);
    send_it(s, true, on_admit_undone);
}

/* Once only: who was admitted by a call whose answer is lost is pending, and found as overdue. */
static void admit(struct queues *q, struct admit_op *a) {
    struct sending *s = sending_new(q, &a->op);
    a->count = 0;
    if (s == NULL) {
        a->done(a);
        return;
    }
    s->admit = a;
    begin_sending(s, "admit", a->op.now_ms);
    send_it(s, false, on_admitted);
}

/* ---- ending ---- */

static void on_ended(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct end_op *e = s->end;
    answer(&e->op, c, result);
    sending_free(s);
    e->ended = result == ERR_OK && reply_i64(reply) != 0;
    e->done(e);
}

static void end(struct queues *q, struct end_op *e) {
    struct sending *s = sending_new(q, &e->op);
    e->ended = false;
    if (s == NULL) {
        e->done(e);
        return;
    }
    s->end = e;
    begin_sending(s, "end", e->op.now_ms);
    call_add_u64(&s->call, e->seq);
    call_add(&s->call, entry_status_words[e->final]);
    send_it(s, true, on_ended);
}

/* ---- as the ledger has it ---- */

static void on_entry_synced(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct entry_sync_op *y = s->sync;
    answer(&y->op, c, result);
    sending_free(s);
    int outcome = result == ERR_OK ? word_index(sync_words, reply_str(reply)) : ENTRY_SYNC_OTHER;
    if (outcome < 0) y->op.result = ERR_INTERNAL;
    y->outcome = outcome < 0 ? ENTRY_SYNC_OTHER : (enum entry_sync_outcome)outcome;
    y->done(y);
}

static void sync_entry(struct queues *q, struct entry_sync_op *y) {
    struct sending *s = sending_new(q, &y->op);
    y->outcome = ENTRY_SYNC_OTHER;
    if (s == NULL) {
        y->done(y);
        return;
    }
    s->sync = y;
    begin_sending(s, "sync_entry", y->op.now_ms);
    add_entry(&s->call, y->entry);
    call_add(&s->call, entry_status_words[y->seen]);
    send_it(s, true, on_entry_synced);
}

/* ---- events that come and go ---- */

static void add_rules(struct call *c, const struct event *e) {
    const struct queue_rules *r = &e->queue;
    call_add_i64(c, e->version);
    call_add(c, event_state_words[e->state]);
    if (e->opens_at_ms == CLOCK_NONE_MS)
        call_add(c, STR(""));
    else
        call_add_i64(c, e->opens_at_ms);
    call_add_i64(c, r->max_waiting);
    call_add_i64(c, r->max_active);
    call_add_i64(c, r->entry_batch_size);
    call_add_i64(c, r->entry_interval_s);
    call_add_i64(c, r->active_ttl_s);
    call_add_i64(c, r->grace_s);
    call_add_i64(c, e->hold_s);
    call_add_i64(c, e->max_per_user);
}

static void add_section(struct call *c, const struct section *s) {
    call_add_i64(c, s->key);
    call_add_i64(c, s->capacity);
    call_add(c, section_mode_words[s->mode]);
    call_add(c, section_status_words[s->status]);
    call_add(c, str_of(s->id));
}

/* One that touches whatever the event has, with its sections; the last key is the incarnation's. */
static void begin_whole(struct call *c, struct redis_store *store, const struct redis_event *known,
                        const char *function, int64_t now_ms) {
    struct section_set sections = store_copy_sections(store, known);
    call_begin(c, function, QUEUE_KEYS + SEATS_KEYS + SECTION_KEYS * sections.count + 1);
    queue_add_keys(c, known);
    seats_add_keys(c, known, &sections);
    call_add(c, STR(INCARNATION_KEY));
    mem_free(sections.keys);
    add_who_and_when(c, store, known, now_ms);
}

/* configure or restore_event. */
static void begin_event(struct call *c, struct redis_store *store, const struct redis_event *known,
                        const char *function, const struct event *e, int64_t now_ms) {
    begin_whole(c, store, known, function, now_ms);
    add_rules(c, e);
    for (size_t i = 0; i < e->section_count; i++) add_section(c, &e->sections[i]);
}

static void on_configured(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct configure_op *op = s->configure;
    (void)reply;
    answer(&op->op, c, result);
    if (result == ERR_OK) store_set_in_redis(s->store, op->op.event_key);
    sending_free(s);
    op->done(op);
}

static void configure(struct queues *q, struct configure_op *op) {
    store_register_event(store_of(q), op->event);
    op->op.event_key = op->event->key;
    struct sending *s = sending_new(q, &op->op);
    if (s == NULL) { /* it has been removed */
        op->done(op);
        return;
    }
    s->configure = op;
    begin_event(&s->call, s->store, s->event, "configure", op->event, op->op.now_ms);
    send_it(s, true, on_configured);
}

static void on_removed(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct remove_op *op = s->remove;
    answer(&op->op, c, result);
    if (result == ERR_OK && reply_i64(reply) == 1) store_remove_event(s->store, op->op.event_key);
    sending_free(s);
    op->done(op);
}

/* Of one that this node has not met the function finds the sections by itself. */
static void remove_event(struct queues *q, struct remove_op *op) {
    struct event gone = {.key = op->op.event_key};
    if (str_copy(op->type, gone.type, sizeof gone.type) &&
        str_copy(op->id, gone.id, sizeof gone.id) && op->type.len > 0)
        store_register_event(store_of(q), &gone);
    struct sending *s = sending_new(q, &op->op);
    if (s == NULL) {
        op->done(op);
        return;
    }
    s->remove = op;
    begin_whole(&s->call, s->store, s->event, "remove", op->op.now_ms);
    call_add_i64(&s->call, op->version);
    send_it(s, true, on_removed);
}

static void register_event(struct queues *q, const struct event *e) {
    store_register_event(store_of(q), e);
    store_set_in_redis(store_of(q), e->key);
}

static void listen_to(struct queues *q, struct queue_listener listener) {
    store_of(q)->expired = listener;
}

/* ---- what is pending for too long ---- */

static void read_overdue_entries(const redisReply *reply, struct overdue_op *o) {
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

static void read_overdue_claims(const redisReply *claims, struct overdue_op *o) {
    for (size_t i = 0; claims != NULL && i < claims->elements && i < OVERDUE_MAX; i++)
        if (claim_ref_read(reply_str(reply_at(claims, i)), &o->claims[o->claim_count]))
            o->claim_count++;
}

static void read_overdue_expiries(const redisReply *expiries, struct overdue_op *o) {
    for (; o->expiry_count < OVERDUE_MAX; o->expiry_count++) {
        const redisReply *seq = reply_at(expiries, o->expiry_count);
        if (seq == NULL) break;
        o->expiries[o->expiry_count] = (struct entry_change){.seq = reply_u64(seq)};
    }
}

static void on_overdue(struct call *c, enum err result, const redisReply *reply) {
    struct sending *s = sending_of(c);
    struct overdue_op *o = s->overdue;
    answer(&o->op, c, result);
    sending_free(s);
    if (result == ERR_OK) {
        read_overdue_entries(reply, o);
        read_overdue_claims(reply_at(reply, 2), o);
        read_overdue_expiries(reply_at(reply, 3), o);
    }
    o->done(o);
}

/* Once only: what a call whose answer is lost has told is told again later. */
static void overdue(struct queues *q, struct overdue_op *o) {
    struct sending *s = sending_new(q, &o->op);
    o->enter_count = 0;
    o->admission_count = 0;
    o->claim_count = 0;
    o->expiry_count = 0;
    if (s == NULL) {
        o->done(o);
        return;
    }
    s->overdue = o;
    begin_sending(s, "overdue", o->op.now_ms);
    call_add_i64(&s->call, o->older_ms);
    send_it(s, false, on_overdue);
}

/* ---- recovery ---- */

static void restore_event(struct queues *q, const struct event *e) {
    struct redis_store *store = store_of(q);
    struct call c = {0};
    store_register_event(store, e);
    store_set_in_redis(store, e->key);
    struct redis_event *event = store_find_event(store, e->key);
    if (event == NULL) return; /* it has been removed */
    begin_event(&c, store, event, "restore_event", e, 0);
    rebuild_add(store, &c);
    redis_event_release(event);
}

static void restore_totals(struct queues *q, int64_t event_key, const struct queue_counts *totals) {
    struct redis_store *store = store_of(q);
    struct redis_event *event = store_find_event(store, event_key);
    if (event == NULL) return;
    struct call c = {0};
    queue_begin(&c, store, event, "restore_totals", 0);
    call_add_u64(&c, totals->entered);
    call_add_u64(&c, totals->admitted);
    call_add_u64(&c, totals->completed);
    call_add_u64(&c, totals->left);
    call_add_u64(&c, totals->expired);
    call_add_u64(&c, totals->waited_ms);
    call_add_u64(&c, totals->waited_ms_max);
    rebuild_add(store, &c);
    redis_event_release(event);
}

static void restore(struct queues *q, const struct ledger_entry *e) {
    struct redis_store *store = store_of(q);
    struct redis_event *event = store_find_event(store, e->event_key);
    if (event == NULL) return; /* it was deleted */
    struct call c = {0};
    queue_begin(&c, store, event, "restore", e->joined_ms);
    add_entry(&c, e);
    rebuild_add(store, &c);
    redis_event_release(event);
}

static void recovered(struct queues *q, int64_t event_key, uint64_t next_seq, int64_t now_ms) {
    struct redis_store *store = store_of(q);
    struct redis_event *event = store_find_event(store, event_key);
    if (event == NULL) return;
    struct call c = {0};
    queue_begin(&c, store, event, "recovered", now_ms);
    call_add_u64(&c, next_seq);
    rebuild_add(store, &c);
    redis_event_release(event);
}

const struct queue_ops redis_queue_ops = {.enter = enter,
                                          .settle = settle,
                                          .admit = admit,
                                          .look = redis_queue_look,
                                          .end = end,
                                          .sync = sync_entry,
                                          .configure = configure,
                                          .remove = remove_event,
                                          .overdue = overdue,
                                          .ticks = redis_ticks,
                                          .register_event = register_event,
                                          .restore_event = restore_event,
                                          .restore_totals = restore_totals,
                                          .restore = restore,
                                          .recovered = recovered,
                                          .listen = listen_to};
