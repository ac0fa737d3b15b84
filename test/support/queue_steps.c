#include "queue_steps.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

#define DEADLINE_MS 60000

/* ---- the store, and its reports ---- */

void store_note(struct store *s, struct heard h) {
    pthread_mutex_lock(&s->lock);
    if (s->heard_count == s->heard_cap) {
        s->heard_cap = s->heard_cap == 0 ? 64 : s->heard_cap * 2;
        s->heard = mem_grow(s->heard, s->heard_cap * sizeof *s->heard);
    }
    s->heard[s->heard_count++] = h;
    pthread_mutex_unlock(&s->lock);
}

static void on_expired(void *to, int64_t event_key, int64_t now_ms,
                       const struct entry_change *entries, size_t count) {
    for (size_t i = 0; i < count; i++)
        store_note(to, (struct heard){HEARD_EXPIRED, event_key, now_ms, entries[i]});
}

size_t store_heard(struct store *s, struct heard *out, size_t max) {
    pthread_mutex_lock(&s->lock);
    size_t count = s->heard_count;
    s->heard_count = 0;
    for (size_t i = 0; i < count && i < max; i++) out[i] = s->heard[i];
    pthread_mutex_unlock(&s->lock);
    assert_true(count <= max);
    return count;
}

void store_open(struct store *s, const struct queue_adapter *adapter) {
    *s = (struct store){.adapter = adapter, .verdict = ERR_OK};
    pthread_mutex_init(&s->lock, NULL);
    map_init(&s->sections);
    s->queues = adapter->open(&s->fixture);
    s->seats = adapter->seats(s->fixture);
    queues_listen(s->queues, (struct queue_listener){.expired = on_expired, .to = s});
}

void store_close(struct store *s) {
    s->adapter->close(s->fixture);
    pthread_mutex_destroy(&s->lock);
    map_deinit(&s->sections);
    mem_free(s->heard);
}

static str key_of(const struct uuid *id) {
    return (str){(const char *)id->bytes, sizeof id->bytes};
}

void store_note_section(struct store *s, const struct uuid *id, int64_t section_key) {
    pthread_mutex_lock(&s->lock);
    map_put(&s->sections, key_of(id), (void *)(uintptr_t)section_key);
    pthread_mutex_unlock(&s->lock);
}

int64_t store_section(struct store *s, const struct uuid *id) {
    pthread_mutex_lock(&s->lock);
    int64_t section_key = (int64_t)(uintptr_t)map_get(&s->sections, key_of(id));
    pthread_mutex_unlock(&s->lock);
    return section_key;
}

struct event steps_event(int64_t key) {
    return (struct event){.key = key,
                          .state = EVENT_OPEN,
                          .opens_at_ms = CLOCK_NONE_MS,
                          .closes_at_ms = CLOCK_NONE_MS,
                          .queue = {.max_waiting = 1000,
                                    .max_active = 100,
                                    .entry_batch_size = 50,
                                    .entry_interval_s = 1,
                                    .active_ttl_s = 600,
                                    .grace_s = 300}};
}

static struct event named(const struct event *e) {
    struct event out = *e;
    if (out.type[0] == '\0') {
        snprintf(out.type, sizeof out.type, "TEST");
        snprintf(out.id, sizeof out.id, "%lld", (long long)e->key);
    }
    return out;
}

struct configured {
    struct configure_op op;
    bool done;
};

static void on_configured(struct configure_op *op) {
    CONTAINER_OF(op, struct configured, op)->done = true;
}

void step_configure(struct store *s, const struct event *e) {
    struct event event = named(e);
    struct configured c = {
        .op = {.op = {.event_key = e->key}, .event = &event, .done = on_configured}};
    queues_configure(s->queues, &c.op);
    store_wait(s, &c.done);
}

struct removed {
    struct remove_op op;
    bool done;
};

static void on_removed(struct remove_op *op) {
    CONTAINER_OF(op, struct removed, op)->done = true;
}

void step_remove(struct store *s, int64_t key, int64_t version) {
    struct removed r = {.op = {.op = {.event_key = key}, .version = version, .done = on_removed}};
    queues_remove(s->queues, &r.op);
    store_wait(s, &r.done);
}

void store_configure(struct store *s, struct event *e) {
    e->version++;
    step_configure(s, e);
}

void store_rebuild_begins(struct store *s) {
    if (s->adapter->rebuild_begins != NULL) s->adapter->rebuild_begins(s->fixture);
}

void store_rebuild_ends(struct store *s) {
    if (s->adapter->rebuild_ends != NULL) s->adapter->rebuild_ends(s->fixture);
}

void step_restore_event(struct store *s, const struct event *e) {
    struct event event = named(e);
    queues_restore_event(s->queues, &event);
}

/* Threads of the suite's wait too, and only the test's own may fail by cmocka. */
void store_wait(struct store *s, const bool *done) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)DEADLINE_MS * 1000000;
    while (!*done) {
        if (s->adapter->run_callbacks == NULL || clock_steady_ns() > deadline_ns) abort();
        s->adapter->run_callbacks(s->fixture);
    }
}

/* ---- the operations ---- */

struct enter_call {
    struct enter_op op;
    struct store *store;
    bool done;
};

static enum err submit_enter(struct enter_op *op) {
    struct enter_call *e = CONTAINER_OF(op, struct enter_call, op);
    store_note(e->store,
               (struct heard){HEARD_ENTER,
                              op->op.event_key,
                              op->op.now_ms,
                              {.seq = op->place.seq, .expires_ms = op->place.expires_ms}});
    return (enum err)e->store->verdict;
}

static void on_entered(struct enter_op *op) {
    CONTAINER_OF(op, struct enter_call, op)->done = true;
}

static struct entered enter_as(struct store *s, const struct enter_op *asked) {
    struct enter_call e = {.op = *asked, .store = s};
    e.op.submit = submit_enter;
    e.op.done = on_entered;
    queues_enter(s->queues, &e.op);
    store_wait(s, &e.done);
    return (struct entered){.result = e.op.op.result,
                            .outcome = e.op.outcome,
                            .place = e.op.place,
                            .closes = e.op.closes,
                            .opens_at_ms = e.op.opens_at_ms,
                            .seats = e.op.seats,
                            .has_stock = e.op.has_stock,
                            .stays_ended = e.op.stays_ended,
                            .reserving = e.op.reserving};
}

struct entered step_enter(struct store *s, int64_t key, str user, unsigned lane, int64_t now_ms) {
    return enter_as(s, &(struct enter_op){
                           .op = {.event_key = key, .now_ms = now_ms}, .user = user, .lane = lane});
}

struct entered step_enter_for(struct store *s, int64_t key, str user, int64_t section) {
    return enter_as(s, &(struct enter_op){.op = {.event_key = key, .now_ms = T0},
                                          .user = user,
                                          .lane = LANE_DEFAULT,
                                          .section_key = section});
}

struct entered step_enter_only_there(struct store *s, int64_t key, str user, int64_t now_ms) {
    return enter_as(s, &(struct enter_op){.op = {.event_key = key, .now_ms = now_ms},
                                          .user = user,
                                          .lane = LANE_DEFAULT,
                                          .only_there = true});
}

uint64_t step_take(struct store *s, int64_t key, const char *user, int64_t now_ms) {
    struct entered e = step_enter(s, key, str_of(user), LANE_DEFAULT, now_ms);
    assert_int_equal(e.result, ERR_OK);
    assert_int_equal(e.outcome, ENTER_TAKEN);
    assert_true(e.place.pending);
    return e.place.seq;
}

uint64_t step_take_kept(struct store *s, int64_t key, const char *user, int64_t now_ms) {
    uint64_t seq = step_take(s, key, user, now_ms);
    step_settle_enter(s, key, seq, true);
    return seq;
}

struct settling {
    struct settle_op op;
    bool done;
};

static void on_settled(struct settle_op *op) {
    CONTAINER_OF(op, struct settling, op)->done = true;
}

enum err step_settle(struct store *s, int64_t key, bool admissions, const uint64_t *seqs,
                     const bool *kept, size_t count, int64_t now_ms, struct place *places) {
    struct settling t = {.op = {.op = {.event_key = key, .now_ms = now_ms},
                                .admissions = admissions,
                                .seqs = seqs,
                                .kept = kept,
                                .count = count,
                                .places = places,
                                .done = on_settled}};
    queues_settle(s->queues, &t.op);
    store_wait(s, &t.done);
    return t.op.op.result;
}

struct place step_settle_enter(struct store *s, int64_t key, uint64_t seq, bool kept) {
    struct place p = {0};
    step_settle(s, key, false, &seq, &kept, 1, T0, &p);
    return p;
}

struct place step_settle_admit(struct store *s, int64_t key, uint64_t seq, bool kept) {
    struct place p = {0};
    step_settle(s, key, true, &seq, &kept, 1, T0, &p);
    return p;
}

struct admitting {
    struct admit_op op;
    struct store *store;
    bool done;
};

static enum err submit_admit(struct admit_op *op) {
    struct admitting *a = CONTAINER_OF(op, struct admitting, op);
    for (size_t i = 0; i < op->count; i++)
        store_note(a->store,
                   (struct heard){HEARD_ADMIT, op->op.event_key, op->op.now_ms, op->entries[i]});
    return (enum err)a->store->verdict;
}

static void on_admitted(struct admit_op *op) {
    CONTAINER_OF(op, struct admitting, op)->done = true;
}

enum err step_admit_result(struct store *s, int64_t key, int64_t now_ms, struct entry_change *out,
                           size_t *count) {
    struct admitting a = {.op = {.op = {.event_key = key, .now_ms = now_ms},
                                 .entries = out,
                                 .submit = submit_admit,
                                 .done = on_admitted},
                          .store = s};
    queues_admit(s->queues, &a.op);
    store_wait(s, &a.done);
    *count = a.op.count;
    return a.op.op.result;
}

size_t step_admit(struct store *s, int64_t key, int64_t now_ms, struct entry_change *out) {
    size_t count;
    assert_int_equal(step_admit_result(s, key, now_ms, out, &count), ERR_OK);
    return count;
}

size_t step_admit_kept(struct store *s, int64_t key, int64_t now_ms, struct entry_change *out) {
    size_t count = step_admit(s, key, now_ms, out);
    for (size_t i = 0; i < count; i++) step_settle_admit(s, key, out[i].seq, true);
    return count;
}

struct looking {
    struct look_op op;
    bool done;
};

static void on_looked(struct look_op *op) {
    CONTAINER_OF(op, struct looking, op)->done = true;
}

enum err step_look_at(struct store *s, int64_t key, struct look_item *items, size_t count,
                      int64_t now_ms, struct queue_counts *counts, enum event_state *state) {
    struct looking l = {.op = {.op = {.event_key = key, .now_ms = now_ms},
                               .items = items,
                               .count = count,
                               .done = on_looked}};
    queues_look(s->queues, &l.op);
    store_wait(s, &l.done);
    if (counts != NULL) *counts = l.op.counts;
    if (state != NULL) *state = l.op.state;
    return l.op.op.result;
}

struct place step_look(struct store *s, int64_t key, uint64_t seq, int64_t now_ms) {
    struct look_item item = {.seq = seq};
    assert_int_equal(step_look_at(s, key, &item, 1, now_ms, NULL, NULL), ERR_OK);
    assert_int_equal(item.place.seq, seq);
    return item.place;
}

size_t step_look_user(struct store *s, int64_t key, uint64_t seq, int64_t now_ms,
                      char out[USER_ID_BYTES_MAX]) {
    struct look_item item = {.seq = seq};
    struct looking l = {.op = {.op = {.event_key = key, .now_ms = now_ms},
                               .items = &item,
                               .count = 1,
                               .user = out,
                               .done = on_looked}};
    queues_look(s->queues, &l.op);
    store_wait(s, &l.done);
    return l.op.user_len;
}

struct queue_counts step_counts(struct store *s, int64_t key) {
    struct queue_counts counts = {0};
    step_look_at(s, key, NULL, 0, T0, &counts, NULL);
    return counts;
}

bool step_has_stock(struct store *s, int64_t key) {
    struct looking l = {
        .op = {.op = {.event_key = key, .now_ms = T0}, .done = on_looked},
    };
    queues_look(s->queues, &l.op);
    store_wait(s, &l.done);
    assert_int_equal(l.op.op.result, ERR_OK);
    return l.op.has_stock;
}

struct ending {
    struct end_op op;
    bool done;
};

static void on_ended(struct end_op *op) {
    CONTAINER_OF(op, struct ending, op)->done = true;
}

bool step_end(struct store *s, int64_t key, uint64_t seq, enum entry_status final) {
    struct ending e = {
        .op = {
            .op = {.event_key = key, .now_ms = T0}, .seq = seq, .final = final, .done = on_ended}};
    queues_end(s->queues, &e.op);
    store_wait(s, &e.done);
    return e.op.ended;
}

void assert_step_counts(struct store *s, int64_t key, uint64_t waiting, uint64_t active) {
    struct queue_counts c = step_counts(s, key);
    assert_int_equal(c.waiting, waiting);
    assert_int_equal(c.active, active);
}
