/* Questions about all events together: which need a tick, which have changed and what they contain,
 * and in which a user has reservations. lua/common.lua has the keys and the functions. */
#include <stdlib.h>

#include "base/mem.h"
#include "hot/redis/internal.h"

/* Events that one call counts, so that the calls behind it do not wait long. */
#define COUNTS_PAGE_MAX 256

/* A function of lua/common.lua that needs the incarnation's key: its last one. */
static void overview_begin(struct call *c, const char *function, const char *const *keys,
                           size_t key_count, int64_t now_ms) {
    call_begin(c, function, key_count + 1);
    for (size_t i = 0; i < key_count; i++) call_add(c, str_of(keys[i]));
    call_add(c, STR(INCARNATION_KEY));
    c->requires_event = true; /* the ticks' key is there in every incarnation */
    call_add_now(c, now_ms);
}

/* ---- ticks ---- */

static void redis_on_ticks(struct call *c, enum err result, const redisReply *reply) {
    struct redis_store *s = c->store;
    struct ticks_op *op = call_free(c);
    op->result = result;
    for (size_t i = 0; result == ERR_OK && i < reply->elements; i++) {
        int64_t key = store_find_event_key(s, reply_str(reply_at(reply, i)));
        if (key != 0) op->event(op, key); /* else this node does not know the event yet */
    }
    op->done(op);
}

void redis_ticks(struct queues *q, struct ticks_op *op) {
    static const char *const keys[] = {TICKS_KEY};
    if (redis_worker_mine() == NULL) { /* the first tick of a worker that is not attached yet */
        op->result = ERR_HOT_UNAVAILABLE;
        op->done(op);
        return;
    }
    struct call *c = call_new(CONTAINER_OF(q, struct redis_store, queues), op);
    overview_begin(c, "ticks", keys, 1, op->now_ms);
    call_send_once(c, redis_on_ticks);
}

/* ---- a user's events ---- */

static void redis_on_buyer(struct call *c, enum err result, const redisReply *reply) {
    struct redis_store *s = c->store;
    struct buyer_op *op = call_free(c);
    op->result = result == ERR_HOT_UNKNOWN ? ERR_HOT_UNAVAILABLE : result;
    str rest = reply_str(reply);
    str tag;
    while (result == ERR_OK && rest.len > 0 && str_split(&rest, ' ', &tag)) {
        int64_t key = store_find_event_key(s, tag);
        if (key != 0) op->event(op, key);
    }
    op->done(op);
}

void redis_buyer(struct seats *s, struct buyer_op *op) {
    static const char *const keys[] = {BUYERS_KEY, TICKS_KEY};
    struct call *c = call_new(CONTAINER_OF(s, struct redis_store, seats), op);
    overview_begin(c, "buyer", keys, 2, op->now_ms);
    call_add(c, op->user);
    call_send(c, redis_on_buyer);
}

/* ---- counts ---- */

/* One call finds the events that have changed, and one for each page of them counts. */
struct counts {
    struct call call;
    struct event_counts_op *op;
    size_t open; /* calls that are not answered yet */
};

struct counts_page {
    struct call call;
    struct counts *of;
    size_t count;
    struct redis_event *events[COUNTS_PAGE_MAX]; /* held */
};

static void counts_end(struct counts *c) {
    if (--c->open > 0) return;
    struct event_counts_op *op = c->op;
    mem_free(c);
    op->done(op);
}

/* One field of section:{T:ID}:counts that is about a section. */
struct count_field {
    int64_t section_key;
    str state;
    uint32_t seats;
};

static int count_field_compare(const void *a, const void *b) {
    int64_t left = ((const struct count_field *)a)->section_key;
    int64_t right = ((const struct count_field *)b)->section_key;
    return left < right ? -1 : left > right;
}

/* Of "17:held" and so on; false: the field is about all sections. */
static bool count_field_read(str field, const redisReply *value, struct count_field *out) {
    str section;
    str_split(&field, ':', &section);
    out->state = field;
    out->seats = (uint32_t)reply_u64(value);
    return field.len > 0 && str_to_i64(section, &out->section_key);
}

static void count_field_add(struct section_counts *c, const struct count_field *f) {
    if (str_eq(f->state, STR("available"))) c->seats.available = f->seats;
    if (str_eq(f->state, STR("held"))) c->seats.held = f->seats;
    if (str_eq(f->state, STR("confirmed"))) c->seats.confirmed = f->seats;
    c->capacity = c->seats.available + c->seats.held + c->seats.confirmed;
}

static void counts_report_event(struct event_counts_op *op, const struct redis_event *e,
                                const redisReply *r) {
    const redisReply *counts = reply_at(r, 11);
    if (counts == NULL) return; /* it was removed */
    struct count_field *fields = mem_new((counts->elements / 2 + 1) * sizeof *fields);
    size_t field_count = 0;
    for (size_t i = 0; i + 1 < counts->elements; i += 2)
        if (count_field_read(reply_str(reply_at(counts, i)), reply_at(counts, i + 1),
                             &fields[field_count]))
            field_count++;
    qsort(fields, field_count, sizeof *fields, count_field_compare);
    struct section_counts *sections = mem_new((field_count + 1) * sizeof *sections);
    size_t section_count = 0;
    for (size_t i = 0; i < field_count; i++) {
        bool is_new = i == 0 || fields[i].section_key != fields[i - 1].section_key;
        if (is_new) sections[section_count++].section_key = fields[i].section_key;
        count_field_add(&sections[section_count - 1], &fields[i]);
    }
    op->event(op, &(struct event_counts){.event_key = e->key,
                                         .queue = redis_read_queue_counts(r),
                                         .sections = sections,
                                         .section_count = section_count});
    mem_free(sections);
    mem_free(fields);
}

static void redis_on_events_counted(struct call *call, enum err result, const redisReply *reply) {
    struct counts_page *p = CONTAINER_OF(call, struct counts_page, call);
    struct counts *c = p->of;
    if (result != ERR_OK) c->op->result = result;
    for (size_t i = 0; result == ERR_OK && i < p->count; i++)
        counts_report_event(c->op, p->events[i], reply_at(reply, i));
    for (size_t i = 0; i < p->count; i++) redis_event_release(p->events[i]);
    mem_free(p);
    counts_end(c);
}

static void counts_send_page(struct counts *c, struct counts_page *p) {
    call_begin(&p->call, "event_counts", 4 * p->count);
    for (size_t i = 0; i < p->count; i++) {
        call_add_key(&p->call, "queue", p->events[i], "meta");
        call_add_key(&p->call, "queue", p->events[i], "waiting");
        call_add_key(&p->call, "queue", p->events[i], "active");
        call_add_key(&p->call, "section", p->events[i], "counts");
    }
    p->of = c;
    p->call.store = c->call.store;
    call_add_now(&p->call, c->op->now_ms);
    for (size_t i = 0; i < p->count; i++) call_add_i64(&p->call, p->events[i]->key);
    c->open++;
    call_send(&p->call, redis_on_events_counted);
}

static void redis_on_ticked(struct call *call, enum err result, const redisReply *reply) {
    struct counts *c = CONTAINER_OF(call, struct counts, call);
    c->op->result = result;
    c->op->epoch = call->epoch;
    c->op->until_ms = reply_i64(reply_at(reply, 0));
    struct counts_page *p = NULL;
    for (size_t i = 1; result == ERR_OK && i < reply->elements; i++) {
        int64_t key = store_find_event_key(call->store, reply_str(reply_at(reply, i)));
        struct redis_event *e = key == 0 ? NULL : store_find_event(call->store, key);
        if (e == NULL) continue;
        if (p == NULL) p = mem_new(sizeof *p);
        p->events[p->count++] = e;
        if (p->count < COUNTS_PAGE_MAX) continue;
        counts_send_page(c, p);
        p = NULL;
    }
    if (p != NULL) counts_send_page(c, p);
    counts_end(c);
}

void redis_count_events(struct hot *h, struct event_counts_op *op) {
    static const char *const keys[] = {TICKS_KEY, TICKED_KEY};
    struct counts *c = mem_new(sizeof *c);
    c->call.store = CONTAINER_OF(h, struct redis_store, hot);
    c->op = op;
    c->open = 1;
    overview_begin(&c->call, "ticked", keys, 2, op->now_ms);
    call_add_i64(&c->call, op->since_ms);
    call_send(&c->call, redis_on_ticked);
}
