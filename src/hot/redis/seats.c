/* The seats' side of the Redis adapter: each operation is a call of a function of lua/seats.lua,
 * which says what its arguments and its reply are. */
#include <assert.h>

#include "base/mem.h"
#include "hot/redis/internal.h"

/* An operation on its way. */
struct step {
    struct call call;
    struct redis_store *store;
    struct redis_event *event; /* held */
    struct hot_op *op;
    void *whole; /* the operation that `op` is the beginning of */
};

static struct redis_store *store_of(struct seats *s) {
    return CONTAINER_OF(s, struct redis_store, seats);
}

/* NULL: nobody has met the event, and the operation says so. */
static struct step *step_new(struct seats *s, struct hot_op *op, void *whole) {
    struct redis_store *store = store_of(s);
    struct redis_event *event = store_find_event(store, op->event_key);
    op->result = event == NULL ? ERR_EVENT_NOT_FOUND : ERR_OK;
    op->epoch = 0;
    if (event == NULL) return NULL;
    struct step *t = mem_new(sizeof *t);
    *t = (struct step){.store = store, .event = event, .op = op, .whole = whole};
    return t;
}

static void step_free(struct step *t) {
    redis_event_release(t->event);
    mem_free(t);
}

/* It is answered; the operation is the caller's to finish. */
static void *step_end(struct call *c, enum err result) {
    struct step *t = CONTAINER_OF(c, struct step, call);
    void *whole = t->whole;
    t->op->result = result;
    t->op->epoch = c->epoch;
    step_free(t);
    return whole;
}

static void step_send(struct step *t,
                      void (*done)(struct call *c, enum err result, const redisReply *reply)) {
    t->call.done = done;
    t->call.repeats = true; /* all of them say the same twice, or what has become of it */
    link_send(redis_worker_mine()->link, &t->call);
}

/* ---- keys and arguments ---- */

void seats_add_keys(struct call *c, const struct redis_event *e,
                    const struct section_set *sections) {
    call_add_key(c, "claim", e, NULL);
    call_add_key(c, "limit", e, NULL);
    call_add_key(c, "limit", e, "of");
    call_add(c, STR(BUYERS_KEY));
    static const char *const parts[SECTION_KEYS] = {"meta", "map", "slots", "free", "runs"};
    for (size_t i = 0; i < sections->count; i++)
        for (size_t part = 0; part < SECTION_KEYS; part++)
            call_add_section_key(c, e, sections->keys[i], parts[part]);
}

/* A call that touches these sections; the set is done with. */
static void begin(struct step *t, const char *function, struct section_set *sections) {
    call_begin(&t->call, function, 6 + SEATS_KEYS + SECTION_KEYS * sections->count);
    call_add_key(&t->call, "queue", t->event, "meta");
    call_add_key(&t->call, "section", t->event, "counts");
    call_add_key(&t->call, "limit", t->event, "reserving");
    call_add_key(&t->call, "claim", t->event, "pending");
    call_add_key(&t->call, "claim", t->event, "due");
    call_add(&t->call, STR(TICKS_KEY));
    seats_add_keys(&t->call, t->event, sections);
    mem_free(sections->keys);
    call_add_event(&t->call, t->event);
    call_add_now(&t->call, t->store, t->op->now_ms);
}

static void begin_in_section(struct step *t, const char *function, int64_t section_key) {
    struct section_set one = {0};
    section_set_add(&one, section_key);
    begin(t, function, &one);
}

static void begin_in_event(struct step *t, const char *function) {
    begin(t, function, &(struct section_set){0});
}

static void add_id(struct call *c, const struct uuid *id) {
    char text[UUID_TEXT_BYTES];
    uuid_format(id, text);
    call_add(c, (str){text, sizeof text});
}

/* "5,1-3" for 5, 1, 2 and 3. */
static void add_seats(struct call *c, const uint32_t *seats, size_t count) {
    struct buf list = {0};
    for (size_t i = 0; i < count;) {
        size_t first = i;
        while (++i < count && seats[i] == seats[i - 1] + 1) {
        }
        if (first > 0) buf_add_char(&list, ',');
        buf_add_i64(&list, seats[first]);
        if (i - first == 1) continue;
        buf_add_char(&list, '-');
        buf_add_i64(&list, seats[i - 1]);
    }
    call_add(c, buf_str(&list));
    buf_deinit(&list);
}

static void add_reservation(struct call *c, const struct live_reservation *r) {
    add_id(c, &r->id);
    call_add(c, r->user);
    call_add_u64(c, r->entry_seq);
    call_add_i64(c, r->section_key);
    call_add(c, reservation_status_words[r->status]);
    call_add_i64(c, r->expires_ms);
    add_seats(c, r->seats, r->seat_count);
}

/* ---- replies ---- */

/* False: it is no list of seats, or has more than there is room for. A seat 0 may be named, and is
 * refused. */
static bool read_seats(str list, uint32_t *out, size_t max, size_t *count) {
    str part;
    *count = 0;
    while (list.len > 0 && str_split(&list, ',', &part)) {
        str first_text = {0};
        int64_t first = 0;
        str_split(&part, '-', &first_text);
        if (!str_to_i64(first_text, &first) || first < 0) return false;
        int64_t last = first;
        if (part.at != NULL && !str_to_i64(part, &last)) return false;
        if (last < first || last > UINT32_MAX || last - first >= (int64_t)(max - *count))
            return false;
        for (int64_t seat = first; seat <= last; seat++) out[(*count)++] = (uint32_t)seat;
    }
    return true;
}

bool claim_ref_read(str text, struct claim_ref *out) {
    str section = {0};
    str_split(&text, ':', &section);
    return str_to_i64(section, &out->section_key) && uuid_parse(text, &out->id);
}

/* False: it is none. */
static bool read_info(const redisReply *r, struct claim_info *out) {
    uint64_t seats = reply_u64(reply_at(r, 5));
    *out = (struct claim_info){.section_key = reply_i64(reply_at(r, 1)),
                               .entry_seq = reply_u64(reply_at(r, 3)),
                               .expires_ms = reply_i64(reply_at(r, 4)),
                               .seat_count = (uint32_t)seats};
    str step = reply_str(reply_at(r, 2));
    out->status = str_eq(step, STR("C")) ? RESERVATION_CONFIRMED : RESERVATION_HELD;
    out->pending = str_eq(step, STR("P"));
    return step.len == 1 && strchr("PHC", step.at[0]) != NULL && seats > 0 &&
           seats <= RESERVATION_SEATS_MAX && uuid_parse(reply_str(reply_at(r, 0)), &out->id);
}

/* Three numbers, from there on. */
static struct seat_counts read_counts(const redisReply *r, size_t at) {
    return (struct seat_counts){.available = (uint32_t)reply_u64(reply_at(r, at)),
                                .held = (uint32_t)reply_u64(reply_at(r, at + 1)),
                                .confirmed = (uint32_t)reply_u64(reply_at(r, at + 2))};
}

static struct section_counts read_section(int64_t section_key, struct seat_counts seats) {
    return (struct section_counts){section_key, seats.available + seats.held + seats.confirmed,
                                   seats};
}

/* ---- claiming ---- */

static const str outcome_words[] = {
    [CLAIM_DONE] = STR_INIT("DONE"),
    [CLAIM_THERE] = STR_INIT("THERE"),
    [CLAIM_KEY_REUSED] = STR_INIT("KEY_REUSED"),
    [CLAIM_NOT_ACTIVE] = STR_INIT("NOT_ACTIVE"),
    [CLAIM_EVENT_CLOSED] = STR_INIT("EVENT_CLOSED"),
    [CLAIM_NO_SECTION] = STR_INIT("NO_SECTION"),
    [CLAIM_SECTION_CLOSED] = STR_INIT("SECTION_CLOSED"),
    [CLAIM_SECTION_MAINTENANCE] = STR_INIT("SECTION_MAINTENANCE"),
    [CLAIM_LIMIT] = STR_INIT("LIMIT"),
    [CLAIM_LEDGER_DECIDES] = STR_INIT("LEDGER_DECIDES"),
    [CLAIM_SOLD_OUT] = STR_INIT("SOLD_OUT"),
    [CLAIM_NOT_ENOUGH] = STR_INIT("NOT_ENOUGH"),
    [CLAIM_TAKEN] = STR_INIT("TAKEN"),
    [CLAIM_SEATS_TWICE] = STR_INIT("SEATS_TWICE"),
    [CLAIM_NO_SUCH_SEAT] = STR_INIT("NO_SUCH_SEAT"),
    [CLAIM_NO_SUCH_SEAT + 1] = {NULL, 0},
};

/* The seats are free again, or the next node to tick sees to it; what the ledger refused stands. */
static void on_undone(struct call *call, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    struct step *t = CONTAINER_OF(call, struct step, call);
    struct claim_op *c = t->whole;
    step_free(t);
    c->done(c);
}

static void undo(struct step *t) {
    struct claim_op *c = t->whole;
    t->call = (struct call){0};
    begin_in_section(t, "claim_settle", c->reservation.section_key);
    add_id(&t->call, &c->reservation.id);
    call_add(&t->call, STR("undone"));
    step_send(t, on_undone);
}

/* False: its record was refused, and it is to be undone. One that was there is not this one's to
 * undo, unless it is this very one, of which an earlier answer was lost. */
static bool submit(struct claim_op *c) {
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    if (!is_there || !c->reservation.pending) return true;
    c->op.result = c->submit(c);
    return c->op.result == ERR_OK || !uuid_eq(&c->reservation.id, &c->request.id);
}

/* False: no claim is answered so. Of one that was there some seats may be another user's by now.
 */
static bool read_claimed(struct claim_op *c, const redisReply *reply) {
    int outcome = word_index(outcome_words, reply_str(reply_at(reply, 0)));
    if (outcome < 0 ||
        !read_seats(reply_str(reply_at(reply, 1)), c->seats, c->request.count, &c->seat_count))
        return false;
    c->outcome = (enum claim_outcome)outcome;
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    if (is_there && !read_info(reply_at(reply, 2), &c->reservation)) return false;
    if (!is_there && c->outcome != CLAIM_LEDGER_DECIDES) return true;
    for (size_t i = 0; i < c->seat_count; i++)
        if (c->seats[i] == 0) return false;
    return c->outcome == CLAIM_THERE || c->seat_count == c->request.count;
}

static void on_claimed(struct call *call, enum err result, const redisReply *reply) {
    struct step *t = CONTAINER_OF(call, struct step, call);
    struct claim_op *c = t->whole;
    c->op.result = result;
    c->op.epoch = call->epoch;
    if (result == ERR_OK) {
        c->op.now_ms = reply_i64(reply_at(reply, 0));
        queue_tell_ended(t->store, &c->op, reply_at(reply, 1));
        if (!read_claimed(c, reply_at(reply, 2)))
            c->op.result = ERR_INTERNAL; /* should seats be claimed, they are overdue one day */
        else if (!submit(c)) {
            undo(t);
            return;
        }
    }
    step_free(t);
    c->done(c);
}

static void claim(struct seats *s, struct claim_op *c) {
    struct step *t = step_new(s, &c->op, c);
    c->seat_count = 0;
    if (t == NULL) {
        c->done(c);
        return;
    }
    const struct claim_request *w = &c->request;
    struct section_set section = {.keys = &c->request.section_key, .count = 1};
    call_begin(&t->call, "claim", QUEUE_KEYS + SEATS_KEYS + SECTION_KEYS);
    queue_add_keys(&t->call, t->event);
    seats_add_keys(&t->call, t->event, &section);
    call_add_event(&t->call, t->event);
    call_add_now(&t->call, t->store, c->op.now_ms);
    call_add(&t->call, str_of(t->store->node));
    add_id(&t->call, &w->id);
    call_add(&t->call, w->user);
    call_add_u64(&t->call, w->entry_seq);
    call_add_i64(&t->call, w->section_key);
    call_add_u64(&t->call, w->key.key);
    call_add_u64(&t->call, w->key.request);
    call_add_u64(&t->call, w->spread >> 32);
    call_add_u64(&t->call, w->spread & UINT32_MAX);
    call_add_u64(&t->call, w->count);
    add_seats(&t->call, w->named, w->named == NULL ? 0 : w->count);
    step_send(t, on_claimed);
}

/* ---- what the ledger decides ---- */

static void on_settled(struct call *c, enum err result, const redisReply *reply) {
    struct claim_settle_op *t = step_end(c, result);
    for (size_t i = 0; result == ERR_OK && t->live != NULL && i < t->count; i++)
        t->live[i] = reply_i64(reply_at(reply, i)) == 1;
    t->done(t);
}

static void settle(struct seats *s, struct claim_settle_op *o) {
    struct step *t = step_new(s, &o->op, o);
    if (t == NULL) {
        o->done(o);
        return;
    }
    begin_in_section(t, "claim_settle", o->section_key);
    for (size_t i = 0; i < o->count; i++) {
        add_id(&t->call, &o->ids[i]);
        call_add(&t->call, o->kept[i] ? STR("kept") : STR("undone"));
    }
    step_send(t, on_settled);
}

static void on_followed(struct call *c, enum err result, const redisReply *reply) {
    struct follow_op *f = step_end(c, result);
    for (size_t i = 0; result == ERR_OK && i < f->count; i++)
        f->news[i].changed = reply_i64(reply_at(reply, i)) == 1;
    f->done(f);
}

static void follow(struct seats *s, struct follow_op *f) {
    struct step *t = step_new(s, &f->op, f);
    if (t == NULL) {
        f->done(f);
        return;
    }
    struct section_set sections = {0};
    for (size_t i = 0; i < f->count; i++) section_set_add(&sections, f->news[i].section_key);
    begin(t, "follow", &sections);
    for (size_t i = 0; i < f->count; i++) {
        add_id(&t->call, &f->news[i].id);
        call_add(&t->call, reservation_status_words[f->news[i].status]);
    }
    step_send(t, on_followed);
}

static void on_synced(struct call *c, enum err result, const redisReply *reply) {
    struct seat_sync_op *y = step_end(c, result);
    if (result == ERR_OK) y->changed = (size_t)reply_u64(reply);
    y->done(y);
}

static void sync_seats(struct seats *s, struct seat_sync_op *y) {
    struct step *t = step_new(s, &y->op, y);
    y->changed = 0;
    if (t == NULL) {
        y->done(y);
        return;
    }
    struct section_set sections = {0};
    if (y->available_count > 0) section_set_add(&sections, y->section_key);
    for (size_t i = 0; i < y->count; i++)
        section_set_add(&sections, y->reservations[i].section_key);
    begin(t, "sync", &sections);
    call_add_i64(&t->call, y->section_key);
    add_seats(&t->call, y->available, y->available_count);
    for (size_t i = 0; i < y->count; i++) add_reservation(&t->call, &y->reservations[i]);
    step_send(t, on_synced);
}

static void on_due(struct call *c, enum err result, const redisReply *reply) {
    struct due_op *d = step_end(c, result);
    for (size_t i = 0; result == ERR_OK && i < reply->elements && d->count < d->max; i++)
        if (claim_ref_read(reply_str(reply_at(reply, i)), &d->refs[d->count])) d->count++;
    d->done(d);
}

static void due(struct seats *s, struct due_op *d) {
    struct step *t = step_new(s, &d->op, d);
    d->count = 0;
    if (t == NULL) {
        d->done(d);
        return;
    }
    begin_in_event(t, "due");
    call_add_u64(&t->call, d->max);
    step_send(t, on_due);
}

/* ---- looks ---- */

static void on_holds(struct call *c, enum err result, const redisReply *reply) {
    struct holds_op *h = step_end(c, result);
    if (result == ERR_OK) {
        bool is_whole = reply_at(reply, 0) != NULL;
        h->count = (size_t)reply_u64(reply_at(reply, 0));
        for (size_t i = 0; is_whole && i < h->count && i < h->max; i++)
            is_whole = read_info(reply_at(reply, i + 1), &h->reservations[i]);
        if (!is_whole) {
            h->op.result = ERR_INTERNAL;
            h->count = 0;
        }
    }
    h->done(h);
}

static void holds(struct seats *s, struct holds_op *h) {
    struct step *t = step_new(s, &h->op, h);
    h->count = 0;
    if (t == NULL) {
        h->done(h);
        return;
    }
    begin_in_event(t, "holds");
    call_add(&t->call, h->user);
    call_add_u64(&t->call, h->entry_seq);
    call_add_u64(&t->call, h->max);
    step_send(t, on_holds);
}

static void on_counted(struct call *call, enum err result, const redisReply *reply) {
    struct seat_count_op *c = step_end(call, result);
    if (result == ERR_OK) {
        c->totals = read_counts(reply_at(reply, 0), 0);
        for (size_t i = 1; i < reply->elements; i++) {
            const redisReply *section = reply_at(reply, i);
            if (c->count < c->max)
                c->sections[c->count] =
                    read_section(reply_i64(reply_at(section, 0)), read_counts(section, 1));
            c->count++;
        }
    }
    c->done(c);
}

static void count_seats(struct seats *s, struct seat_count_op *c) {
    struct step *t = step_new(s, &c->op, c);
    c->count = 0;
    if (t == NULL) {
        c->done(c);
        return;
    }
    begin_in_event(t, "count");
    step_send(t, on_counted);
}

static void on_rendered(struct call *c, enum err result, const redisReply *reply) {
    struct render_op *r = step_end(c, result);
    if (result == ERR_OK && reply->elements == 0) r->op.result = ERR_SECTION_NOT_FOUND;
    if (r->op.result == ERR_OK) {
        str letters = reply_str(reply_at(reply, 0));
        if (letters.len > r->max) {
            r->op.result = ERR_INTERNAL;
            letters.len = 0;
        }
        if (letters.len > 0) memcpy(r->letters, letters.at, letters.len);
        r->count = letters.len;
        r->counts = read_section(r->section_key, read_counts(reply, 1));
    }
    r->done(r);
}

static void render(struct seats *s, struct render_op *r) {
    struct step *t = step_new(s, &r->op, r);
    r->count = 0;
    if (t == NULL) {
        r->done(r);
        return;
    }
    begin_in_section(t, "render", r->section_key);
    call_add_i64(&t->call, r->section_key);
    call_add_u64(&t->call, r->first);
    call_add_u64(&t->call, r->max);
    step_send(t, on_rendered);
}

/* ---- recovery ---- */

static void restore(struct seats *s, int64_t event_key, const struct live_reservation *r) {
    struct hot_op op = {.event_key = event_key};
    struct step *t = step_new(s, &op, NULL);
    if (t == NULL) return; /* of an event that was deleted */
    begin_in_section(t, "restore_reservation", r->section_key);
    add_reservation(&t->call, r);
    rebuild_add(t->store, &t->call);
    step_free(t);
}

const struct seats_ops redis_seats_ops = {.claim = claim,
                                          .settle = settle,
                                          .follow = follow,
                                          .sync = sync_seats,
                                          .due = due,
                                          .holds = holds,
                                          .buyer = redis_buyer,
                                          .count = count_seats,
                                          .render = render,
                                          .restore = restore};
