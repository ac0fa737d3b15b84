#include "seats_steps.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/mem.h"

/* ---- the test ---- */

void seats_test_open(struct seats_test *h, const struct queue_adapter *adapter) {
    store_open(&h->s, adapter);
    h->e = steps_event(KEY);
    h->e.queue = (struct queue_rules){.max_waiting = 100000,
                                      .max_active = 100000,
                                      .entry_batch_size = 100000,
                                      .entry_interval_s = 1,
                                      .active_ttl_s = 86400,
                                      .grace_s = 86400};
    h->e.hold_s = 300;
    h->e.max_per_user = 4;
    h->sections[0] = (struct section){.key = FLOOR, .id = "A", .capacity = 100};
    h->sections[1] = (struct section){.key = BALCONY, .id = "B", .capacity = 100};
    h->sections[2] =
        (struct section){.key = BOXES, .id = "C", .capacity = 100, .mode = SECTION_MODE_SEAT};
    h->e.sections = h->sections;
    h->e.section_count = 3;
    seats_test_configure(h);
}

void seats_test_close(struct seats_test *h) {
    store_close(&h->s);
}

int seats_test_set_up(void **state, const struct queue_adapter *adapter) {
    struct seats_test *h = mem_new(sizeof *h);
    seats_test_open(h, adapter);
    *state = h;
    return 0;
}

int seats_test_tear_down(void **state) {
    seats_test_close(*state);
    mem_free(*state);
    return 0;
}

void seats_test_configure(struct seats_test *h) {
    store_configure(&h->s, &h->e);
}

uint64_t seats_test_admit(struct seats_test *h, const char *user) {
    uint64_t seq = step_take_kept(&h->s, KEY, user, T0);
    assert_int_equal(step_look(&h->s, KEY, seq, T0).status, ENTRY_ACTIVE);
    store_heard(&h->s, h->heard, 4096);
    return seq;
}

struct uuid id_of(uint64_t number) {
    struct uuid id = {{1, 2, 3, 4, 5, 6, 0x70}};
    for (int i = 0; i < 7; i++) id.bytes[9 + i] = (unsigned char)(number >> (48 - 8 * i));
    id.bytes[8] = 0x80;
    return id;
}

uint64_t number_of(const struct uuid *id) {
    uint64_t number = 0;
    for (int i = 0; i < 7; i++) number = number << 8 | id->bytes[9 + i];
    return number;
}

/* ---- the operations ---- */

struct claiming {
    struct claim_op op;
    struct store *store;
    bool done;
};

static enum err submit_claim(struct claim_op *op) {
    struct claiming *c = CONTAINER_OF(op, struct claiming, op);
    store_note(c->store, (struct heard){HEARD_CLAIM,
                                        op->op.event_key,
                                        op->op.now_ms,
                                        {.seq = number_of(&op->reservation.id),
                                         .expires_ms = op->reservation.expires_ms}});
    return (enum err)c->store->verdict;
}

static void on_claimed(struct claim_op *op) {
    CONTAINER_OF(op, struct claiming, op)->done = true;
}

struct claimed step_claim(struct store *s, int64_t key, const struct claim_request *w,
                          int64_t now_ms) {
    struct claimed out = {0};
    struct claiming c = {.op = {.op = {.event_key = key, .now_ms = now_ms},
                                .request = *w,
                                .seats = out.seats,
                                .submit = submit_claim,
                                .done = on_claimed},
                         .store = s};
    store_note_section(s, &w->id, w->section_key);
    seats_claim(s->seats, &c.op);
    store_wait(s, &c.done);
    out.result = c.op.op.result;
    out.outcome = c.op.outcome;
    out.r = c.op.reservation;
    out.count = c.op.seat_count;
    return out;
}

struct claimed claim_any(struct store *s, uint64_t id, const char *user, uint64_t seq,
                         int64_t section, uint32_t count) {
    return claim_named(s, id, user, seq, section, NULL, count);
}

struct claimed claim_named(struct store *s, uint64_t id, const char *user, uint64_t seq,
                           int64_t section, const uint32_t *seats, uint32_t count) {
    struct claim_request w = {.id = id_of(id),
                              .user = str_of(user),
                              .entry_seq = seq,
                              .section_key = section,
                              .count = count,
                              .named = seats};
    return step_claim(s, KEY, &w, T0);
}

struct settling {
    struct claim_settle_op op;
    bool done;
};

static void on_settled(struct claim_settle_op *op) {
    CONTAINER_OF(op, struct settling, op)->done = true;
}

bool step_settle_claim(struct store *s, int64_t key, uint64_t id, bool kept) {
    struct uuid uuid = id_of(id);
    bool live = false;
    struct settling t = {.op = {.op = {.event_key = key, .now_ms = T0},
                                .section_key = store_section(s, &uuid),
                                .ids = &uuid,
                                .kept = &kept,
                                .count = 1,
                                .live = &live,
                                .done = on_settled}};
    seats_settle(s->seats, &t.op);
    store_wait(s, &t.done);
    return live;
}

struct following {
    struct follow_op op;
    bool done;
};

static void on_followed(struct follow_op *op) {
    CONTAINER_OF(op, struct following, op)->done = true;
}

bool step_follow(struct store *s, int64_t key, uint64_t id, enum reservation_status status) {
    struct reservation_change change = {.id = id_of(id), .status = status};
    change.section_key = store_section(s, &change.id);
    struct following f = {.op = {.op = {.event_key = key, .now_ms = T0},
                                 .changes = &change,
                                 .count = 1,
                                 .done = on_followed}};
    seats_follow(s->seats, &f.op);
    store_wait(s, &f.done);
    return change.changed;
}

struct syncing {
    struct seat_sync_op op;
    bool done;
};

static void on_synced(struct seat_sync_op *op) {
    CONTAINER_OF(op, struct syncing, op)->done = true;
}

size_t step_sync(struct store *s, int64_t key, const struct live_reservation *r, int64_t section,
                 const uint32_t *available, size_t available_count) {
    struct syncing y = {.op = {.op = {.event_key = key, .now_ms = T0},
                               .reservations = r,
                               .count = r == NULL ? 0 : 1,
                               .section_key = section,
                               .available = available,
                               .available_count = available_count,
                               .done = on_synced}};
    if (r != NULL) store_note_section(s, &r->id, r->section_key);
    seats_sync(s->seats, &y.op);
    store_wait(s, &y.done);
    return y.op.changed;
}

void step_restore_reservation(struct store *s, int64_t key, const struct live_reservation *r) {
    store_note_section(s, &r->id, r->section_key);
    seats_restore(s->seats, key, r);
}

struct dueing {
    struct due_op op;
    bool done;
};

static void on_due(struct due_op *op) {
    CONTAINER_OF(op, struct dueing, op)->done = true;
}

size_t step_due(struct store *s, int64_t key, int64_t now_ms, uint64_t *out, size_t max) {
    struct claim_ref *refs = mem_new((max + 1) * sizeof *refs);
    struct dueing d = {
        .op = {
            .op = {.event_key = key, .now_ms = now_ms}, .refs = refs, .max = max, .done = on_due}};
    seats_due(s->seats, &d.op);
    store_wait(s, &d.done);
    for (size_t i = 0; i < d.op.count; i++) {
        assert(refs[i].section_key == store_section(s, &refs[i].id));
        out[i] = number_of(&refs[i].id);
    }
    mem_free(refs);
    return d.op.count;
}

struct claim_call {
    struct holds_op op;
    bool done;
};

static void on_holds(struct holds_op *op) {
    CONTAINER_OF(op, struct claim_call, op)->done = true;
}

size_t step_holds(struct store *s, int64_t key, const char *user, uint64_t entry_seq,
                  struct claim_info *out, size_t max) {
    struct claim_call h = {.op = {.op = {.event_key = key, .now_ms = T0},
                                  .user = str_of(user),
                                  .entry_seq = entry_seq,
                                  .reservations = out,
                                  .max = max,
                                  .done = on_holds}};
    seats_holds(s->seats, &h.op);
    store_wait(s, &h.done);
    return h.op.count;
}

struct counting {
    struct seat_count_op op;
    bool done;
};

static void on_counted(struct seat_count_op *op) {
    CONTAINER_OF(op, struct counting, op)->done = true;
}

struct section_counts step_section(struct store *s, int64_t key, int64_t section) {
    struct section_counts sections[8];
    struct counting c = {.op = {.op = {.event_key = key, .now_ms = T0},
                                .sections = sections,
                                .max = 8,
                                .done = on_counted}};
    seats_count(s->seats, &c.op);
    store_wait(s, &c.done);
    for (size_t i = 0; i < c.op.count && i < 8; i++)
        if (sections[i].section_key == section) return sections[i];
    return (struct section_counts){0};
}

struct seat_counts step_totals(struct store *s, int64_t key) {
    struct counting c = {
        .op = {.op = {.event_key = key, .now_ms = T0}, .max = 0, .done = on_counted}};
    seats_count(s->seats, &c.op);
    store_wait(s, &c.done);
    return c.op.totals;
}

struct rendering {
    struct render_op op;
    bool done;
};

static void on_rendered(struct render_op *op) {
    CONTAINER_OF(op, struct rendering, op)->done = true;
}

enum err step_render(struct store *s, int64_t key, int64_t section, uint32_t first, char *out,
                     size_t max, size_t *count) {
    struct rendering r = {.op = {.op = {.event_key = key, .now_ms = T0},
                                 .section_key = section,
                                 .first = first,
                                 .letters = out,
                                 .max = max,
                                 .done = on_rendered}};
    seats_render(s->seats, &r.op);
    store_wait(s, &r.done);
    out[r.op.count] = '\0';
    *count = r.op.count;
    return r.op.op.result;
}

struct ticking {
    struct ticks_op op;
    int64_t key;
    bool is_told;
    bool done;
};

static void on_tick_event(struct ticks_op *op, int64_t key) {
    struct ticking *t = CONTAINER_OF(op, struct ticking, op);
    t->is_told |= key == t->key;
}

static void on_ticks(struct ticks_op *op) {
    CONTAINER_OF(op, struct ticking, op)->done = true;
}

bool step_needs_tick(struct store *s, int64_t key, int64_t now_ms) {
    struct ticking t = {.op = {.now_ms = now_ms, .event = on_tick_event, .done = on_ticks},
                        .key = key};
    queues_ticks(s->queues, &t.op);
    store_wait(s, &t.done);
    assert_int_equal(t.op.result, ERR_OK);
    return t.is_told;
}

struct buying {
    struct buyer_op op;
    int64_t key;
    bool is_told;
    bool done;
};

static void on_buyer_event(struct buyer_op *op, int64_t key) {
    struct buying *b = CONTAINER_OF(op, struct buying, op);
    b->is_told |= key == b->key;
}

static void on_buyer(struct buyer_op *op) {
    CONTAINER_OF(op, struct buying, op)->done = true;
}

bool step_is_buyer(struct store *s, int64_t key, const char *user) {
    struct buying b = {
        .op = {.user = str_of(user), .now_ms = T0, .event = on_buyer_event, .done = on_buyer},
        .key = key};
    seats_buyer(s->seats, &b.op);
    store_wait(s, &b.done);
    assert_int_equal(b.op.result, ERR_OK);
    return b.is_told;
}

void assert_seats(struct store *s, int64_t section, uint32_t available, uint32_t held,
                  uint32_t confirmed) {
    struct section_counts c = step_section(s, KEY, section);
    assert_int_equal(c.section_key, section);
    assert_int_equal(c.seats.available, available);
    assert_int_equal(c.seats.held, held);
    assert_int_equal(c.seats.confirmed, confirmed);
    assert_int_equal(c.capacity, available + held + confirmed);
}
