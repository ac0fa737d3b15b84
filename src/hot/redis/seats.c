/* The seats' side of the Redis adapter (port/seats.h): each operation is one call of a function of
 * lua/seats.lua, which documents arguments and replies. */
#include <assert.h>

#include "base/mem.h"
#include "hot/redis/internal.h"

static struct redis_store *seats_store(struct seats *s) {
    return CONTAINER_OF(s, struct redis_store, seats);
}

/* ---- keys and arguments ---- */

void seats_add_keys(struct call *c, const struct section_set *sections) {
    call_add_key(c, "claim", c->event, NULL);
    call_add_key(c, "limit", c->event, NULL);
    call_add_key(c, "limit", c->event, "of");
    call_add_key(c, "queue", c->event, "offers");
    call_add(c, STR(BUYERS_KEY));
    static const char *const parts[SECTION_KEYS] = {"meta", "map", "slots", "free", "runs"};
    for (size_t i = 0; i < sections->count; i++)
        for (size_t part = 0; part < SECTION_KEYS; part++)
            call_add_section_key(c, sections->keys[i], parts[part]);
}

static void seats_begin(struct call *c, const char *function, const struct section_set *sections,
                        int64_t now_ms) {
    call_begin(c, function, 6 + SEATS_KEYS + SECTION_KEYS * sections->count);
    call_add_key(c, "queue", c->event, "meta");
    call_add_key(c, "section", c->event, "counts");
    call_add_key(c, "limit", c->event, "reserving");
    call_add_key(c, "claim", c->event, "pending");
    call_add_key(c, "claim", c->event, "due");
    call_add(c, STR(TICKS_KEY));
    seats_add_keys(c, sections);
    call_add_event(c);
    call_add_now(c, now_ms);
}

static void seats_begin_in_section(struct call *c, const char *function, int64_t section_key,
                                   int64_t now_ms) {
    seats_begin(c, function, &(struct section_set){.keys = &section_key, .count = 1}, now_ms);
}

/* A call that touches these sections; frees the set. */
static struct call *seats_call(struct seats *s, struct hot_op *op, const char *function,
                               struct section_set *sections) {
    struct call *c = call_new_for_event(seats_store(s), op);
    seats_begin(c, function, sections, op->now_ms);
    mem_free(sections->keys);
    return c;
}

static struct call *seats_call_in_section(struct seats *s, struct hot_op *op, const char *function,
                                          int64_t section_key) {
    struct call *c = call_new_for_event(seats_store(s), op);
    seats_begin_in_section(c, function, section_key, op->now_ms);
    return c;
}

static struct call *seats_call_in_event(struct seats *s, struct hot_op *op, const char *function) {
    return seats_call(s, op, function, &(struct section_set){0});
}

static void seats_add_id(struct call *c, const struct uuid *id) {
    char text[UUID_TEXT_BYTES];
    uuid_format(id, text);
    call_add(c, (str){text, sizeof text});
}

/* "5,1-3" for 5, 1, 2 and 3. */
static void seats_add_list(struct call *c, const uint32_t *seats, size_t count) {
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

static void seats_add_reservation(struct call *c, const struct live_reservation *r) {
    seats_add_id(c, &r->id);
    call_add(c, r->user);
    call_add_u64(c, r->entry_seq);
    call_add_i64(c, r->section_key);
    call_add(c, reservation_status_words[r->status]);
    call_add_i64(c, r->expires_ms);
    seats_add_list(c, r->seats, r->seat_count);
}

/* ---- replies ---- */

/* False: it is not a list of seats, or has more than `max`. A list may have a seat 0: a request
 * that names it is refused. */
static bool seats_read_list(str list, uint32_t *out, size_t max, size_t *count) {
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

/* False: it is not a reservation. */
static bool seats_read_info(const redisReply *r, struct claim_info *out) {
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

struct seat_counts redis_read_seat_counts(const redisReply *r, size_t at) {
    return (struct seat_counts){.available = (uint32_t)reply_u64(reply_at(r, at)),
                                .held = (uint32_t)reply_u64(reply_at(r, at + 1)),
                                .confirmed = (uint32_t)reply_u64(reply_at(r, at + 2))};
}

static struct section_counts seats_read_section(int64_t section_key, struct seat_counts seats) {
    return (struct section_counts){section_key, seats.available + seats.held + seats.confirmed,
                                   seats};
}

/* ---- claiming ---- */

static const str claim_words[] = {
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

/* If the undoing failed, the claim stays pending and becomes overdue: a node undoes it then. */
static void redis_on_claim_undone(struct call *call, enum err result, const redisReply *reply) {
    (void)result;
    (void)reply;
    struct claim_op *c = call_free(call);
    c->done(c);
}

/* Submits the record of a reservation that is not durable yet. False: the claim is to be undone,
 * because the record was refused. A reservation that an earlier request made is not undone, unless
 * it has the same id: then it is this very claim, whose first answer was lost. */
static bool redis_submit_claim(struct claim_op *c) {
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    if (!is_there || !c->reservation.pending) return true;
    c->op.result = c->submit(c);
    return c->op.result == ERR_OK || !uuid_eq(&c->reservation.id, &c->request.id);
}

/* False: the reply is not one of `claim`. Of a reservation that was there already, some seats may
 * belong to another user by now. */
static bool redis_read_claimed(struct claim_op *c, const redisReply *reply) {
    int outcome = word_index(claim_words, reply_str(reply_at(reply, 0)));
    if (outcome < 0 ||
        !seats_read_list(reply_str(reply_at(reply, 1)), c->seats, c->request.count, &c->seat_count))
        return false;
    c->outcome = (enum claim_outcome)outcome;
    bool is_there = c->outcome == CLAIM_DONE || c->outcome == CLAIM_THERE;
    if (is_there && !seats_read_info(reply_at(reply, 2), &c->reservation)) return false;
    if (!is_there && c->outcome != CLAIM_LEDGER_DECIDES) return true;
    for (size_t i = 0; i < c->seat_count; i++)
        if (c->seats[i] == 0) return false;
    return c->outcome == CLAIM_THERE || c->seat_count == c->request.count;
}

static void redis_on_claimed(struct call *call, enum err result, const redisReply *reply) {
    struct claim_op *c = call->op;
    call_note_result(call, result);
    if (result == ERR_OK) {
        c->op.now_ms = reply_i64(reply_at(reply, 0));
        queue_report_expired(call->store, &c->op, reply_at(reply, 1));
        if (!redis_read_claimed(c, reply_at(reply, 2))) {
            c->op.result = ERR_INTERNAL; /* if it has claimed seats, they become overdue */
        } else if (!redis_submit_claim(c)) {
            seats_begin_in_section(call, "claim_settle", c->reservation.section_key, c->op.now_ms);
            seats_add_id(call, &c->reservation.id);
            call_add(call, STR("undone"));
            call_send(call, redis_on_claim_undone);
            return;
        }
    }
    call_free(call);
    c->done(c);
}

static void redis_claim(struct seats *s, struct claim_op *c) {
    struct claim_request *r = &c->request;
    struct call *call = call_new_for_event(seats_store(s), &c->op);
    c->seat_count = 0;
    call_begin(call, "claim", QUEUE_KEYS + SEATS_KEYS + SECTION_KEYS);
    queue_add_keys(call);
    seats_add_keys(call, &(struct section_set){.keys = &r->section_key, .count = 1});
    queue_add_arguments(call, c->op.now_ms);
    seats_add_id(call, &r->id);
    call_add(call, r->user);
    call_add_u64(call, r->entry_seq);
    call_add_i64(call, r->section_key);
    call_add_u64(call, r->key.key);
    call_add_u64(call, r->key.request);
    call_add_u64(call, r->spread >> 32);
    call_add_u64(call, r->spread & UINT32_MAX);
    call_add_u64(call, r->count);
    seats_add_list(call, r->named, r->named == NULL ? 0 : r->count);
    call_send(call, redis_on_claimed);
}

/* ---- decisions of the ledger ---- */

static void redis_on_claims_settled(struct call *c, enum err result, const redisReply *reply) {
    struct claim_settle_op *t = call_end(c, result);
    for (size_t i = 0; result == ERR_OK && t->live != NULL && i < t->count; i++)
        t->live[i] = reply_i64(reply_at(reply, i)) == 1;
    t->done(t);
}

static void redis_settle_claims(struct seats *s, struct claim_settle_op *o) {
    struct call *c = seats_call_in_section(s, &o->op, "claim_settle", o->section_key);
    for (size_t i = 0; i < o->count; i++) {
        seats_add_id(c, &o->ids[i]);
        call_add(c, o->kept[i] ? STR("kept") : STR("undone"));
    }
    call_send(c, redis_on_claims_settled);
}

static void redis_on_followed(struct call *c, enum err result, const redisReply *reply) {
    struct follow_op *f = call_end(c, result);
    for (size_t i = 0; result == ERR_OK && i < f->count; i++)
        f->changes[i].changed = reply_i64(reply_at(reply, i)) == 1;
    f->done(f);
}

static void redis_follow(struct seats *s, struct follow_op *f) {
    struct section_set sections = {0};
    for (size_t i = 0; i < f->count; i++) section_set_add(&sections, f->changes[i].section_key);
    struct call *c = seats_call(s, &f->op, "follow", &sections);
    for (size_t i = 0; i < f->count; i++) {
        seats_add_id(c, &f->changes[i].id);
        call_add(c, reservation_status_words[f->changes[i].status]);
    }
    call_send(c, redis_on_followed);
}

static void redis_on_seats_synced(struct call *c, enum err result, const redisReply *reply) {
    struct seat_sync_op *y = call_end(c, result);
    if (result == ERR_OK) y->changed = (size_t)reply_u64(reply);
    y->done(y);
}

static void redis_sync_seats(struct seats *s, struct seat_sync_op *y) {
    y->changed = 0;
    struct section_set sections = {0};
    if (y->available_count > 0) section_set_add(&sections, y->section_key);
    for (size_t i = 0; i < y->count; i++)
        section_set_add(&sections, y->reservations[i].section_key);
    struct call *c = seats_call(s, &y->op, "sync", &sections);
    call_add_i64(c, y->section_key);
    seats_add_list(c, y->available, y->available_count);
    for (size_t i = 0; i < y->count; i++) seats_add_reservation(c, &y->reservations[i]);
    call_send(c, redis_on_seats_synced);
}

static void redis_on_due(struct call *c, enum err result, const redisReply *reply) {
    struct due_op *d = call_end(c, result);
    for (size_t i = 0; result == ERR_OK && i < reply->elements && d->count < d->max; i++)
        if (claim_ref_read(reply_str(reply_at(reply, i)), &d->refs[d->count])) d->count++;
    d->done(d);
}

static void redis_due(struct seats *s, struct due_op *d) {
    d->count = 0;
    struct call *c = seats_call_in_event(s, &d->op, "due");
    call_add_u64(c, d->max);
    call_send(c, redis_on_due);
}

/* ---- looks ---- */

static void redis_on_holds(struct call *c, enum err result, const redisReply *reply) {
    struct holds_op *h = call_end(c, result);
    if (result == ERR_OK) {
        bool is_whole = reply_at(reply, 0) != NULL;
        h->count = (size_t)reply_u64(reply_at(reply, 0));
        for (size_t i = 0; is_whole && i < h->count && i < h->max; i++)
            is_whole = seats_read_info(reply_at(reply, i + 1), &h->reservations[i]);
        if (!is_whole) {
            h->op.result = ERR_INTERNAL;
            h->count = 0;
        }
    }
    h->done(h);
}

static void redis_holds(struct seats *s, struct holds_op *h) {
    h->count = 0;
    struct call *c = seats_call_in_event(s, &h->op, "holds");
    call_add(c, h->user);
    call_add_u64(c, h->entry_seq);
    call_add_u64(c, h->max);
    call_send(c, redis_on_holds);
}

static void redis_on_seats_counted(struct call *call, enum err result, const redisReply *reply) {
    struct seat_count_op *c = call_end(call, result);
    if (result == ERR_OK) {
        c->totals = redis_read_seat_counts(reply_at(reply, 0), 0);
        for (size_t i = 1; i < reply->elements; i++) {
            const redisReply *section = reply_at(reply, i);
            if (c->count < c->max)
                c->sections[c->count] = seats_read_section(reply_i64(reply_at(section, 0)),
                                                           redis_read_seat_counts(section, 1));
            c->count++;
        }
    }
    c->done(c);
}

static void redis_count_seats(struct seats *s, struct seat_count_op *c) {
    c->count = 0;
    call_send(seats_call_in_event(s, &c->op, "count"), redis_on_seats_counted);
}

static void redis_on_rendered(struct call *c, enum err result, const redisReply *reply) {
    struct render_op *r = call_end(c, result);
    if (result == ERR_OK && reply->elements == 0) r->op.result = ERR_SECTION_NOT_FOUND;
    if (r->op.result == ERR_OK) {
        str letters = reply_str(reply_at(reply, 0));
        if (letters.len > r->max) {
            r->op.result = ERR_INTERNAL;
            letters.len = 0;
        }
        if (letters.len > 0) memcpy(r->letters, letters.at, letters.len);
        r->count = letters.len;
        r->counts = seats_read_section(r->section_key, redis_read_seat_counts(reply, 1));
    }
    r->done(r);
}

static void redis_render(struct seats *s, struct render_op *r) {
    r->count = 0;
    struct call *c = seats_call_in_section(s, &r->op, "render", r->section_key);
    call_add_i64(c, r->section_key);
    call_add_u64(c, r->first);
    call_add_u64(c, r->max);
    call_send(c, redis_on_rendered);
}

/* ---- rebuilding ---- */

/* An event that was deleted is not known, and rebuild_add skips it. */
static void redis_restore_reservation(struct seats *s, int64_t event_key,
                                      const struct live_reservation *r) {
    struct call c = {0};
    call_set_event(&c, seats_store(s), event_key);
    seats_begin_in_section(&c, "restore_reservation", r->section_key, 0);
    seats_add_reservation(&c, r);
    rebuild_add(&c);
}

static void redis_restore_ran_out(struct seats *s, int64_t event_key) {
    struct call c = {0};
    call_set_event(&c, seats_store(s), event_key);
    seats_begin(&c, "restore_ran_out", &(struct section_set){0}, 0);
    rebuild_add(&c);
}

const struct seats_ops redis_seats_ops = {.claim = redis_claim,
                                          .settle = redis_settle_claims,
                                          .follow = redis_follow,
                                          .sync = redis_sync_seats,
                                          .due = redis_due,
                                          .holds = redis_holds,
                                          .buyer = redis_buyer,
                                          .count = redis_count_seats,
                                          .render = redis_render,
                                          .restore = redis_restore_reservation,
                                          .restore_ran_out = redis_restore_ran_out};
