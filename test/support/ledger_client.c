#include "ledger_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"

void ledger_client_open(struct ledger_client *d,
                        struct ledger *(*open)(struct harness *h, int64_t queue_max),
                        size_t sections, int64_t capacity) {
    harness_init(&d->h);
    d->open = open;
    d->l = open(&d->h, 0);
    struct event *wanted = test_event("1", sections);
    for (size_t i = 0; i < sections; i++) wanted->sections[i].capacity = capacity;
    d->event = harness_store(&d->h, d->l, wanted);
    mem_free(wanted);
}

void ledger_client_shut(struct ledger_client *d) {
    ledger_close(d->l);
    mem_free(d->event);
    harness_deinit(&d->h);
}

int ledger_client_set_up(void **state, const struct ledger_adapter *adapter, int64_t capacity,
                         uint64_t users) {
    struct ledger_client *d = mem_new(sizeof *d);
    ledger_client_open(d, adapter->open, 2, capacity);
    for (uint64_t seq = 1; seq <= users; seq++)
        ledger_client_enter(d, seq, (const char[]){(char)('a' + seq - 1), 0});
    *state = d;
    return 0;
}

int ledger_client_tear_down(void **state) {
    struct ledger_client *d = *state;
    ledger_client_assert_sound(d);
    ledger_client_shut(d);
    mem_free(d);
    return 0;
}

void ledger_client_restart(struct ledger_client *d) {
    ledger_close(d->l);
    d->l = d->open(&d->h, 0);
}

struct uuid ledger_client_id(uint64_t number) {
    struct uuid id = {.bytes = {[6] = 0x70, [8] = 0x80, [15] = 0x15}};
    for (int i = 0; i < 6; i++) id.bytes[i] = (unsigned char)(number >> (40 - 8 * i));
    return id;
}

struct reservation *ledger_client_wanted(const struct ledger_client *d, uint64_t number,
                                         const char *user, uint64_t seq, size_t section,
                                         const uint32_t *seats) {
    uint32_t count = 0;
    while (seats[count] != 0) count++;
    struct reservation *r = reservation_new(count);
    r->id = ledger_client_id(number);
    r->event_key = d->event->key;
    r->section_key = d->event->sections[section].key;
    assert_true(str_copy(str_of(user), r->user, sizeof r->user));
    r->entry_seq = seq;
    bool ledger_decides = d->event->sections[section].mode == SECTION_MODE_SEAT;
    r->strategy = ledger_decides ? STRATEGY_OPTIMISTIC : STRATEGY_ADAPTIVE;
    if (count > 0) memcpy(r->seats, seats, count * sizeof *seats);
    r->price = count * d->event->sections[section].price;
    memcpy(r->currency, d->event->currency, sizeof r->currency);
    r->created_ms = TEST_HELD_MS;
    r->expires_ms = TEST_EXPIRES_MS;
    return r;
}

void ledger_client_enter(struct ledger_client *d, uint64_t seq, const char *user) {
    struct test_record r;
    test_enter(&r, d->event->key, seq, user, ENTRY_ACTIVE);
    r.enter.expires_ms = 100000;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
}

enum entry_status ledger_client_entry(struct ledger_client *d, uint64_t seq) {
    struct test_record r;
    test_get(&r, d->event->key, seq);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    return r.get.status;
}

enum err ledger_client_hold(struct ledger_client *d, uint64_t number, const char *user,
                            uint64_t seq, size_t section, const uint32_t *seats) {
    struct reservation *wanted = ledger_client_wanted(d, number, user, seq, section, seats);
    struct test_record r;
    test_hold(&r, wanted);
    enum err e = harness_submit(&d->h, d->l, &r);
    mem_free(wanted);
    return e;
}

enum err ledger_client_confirm(struct ledger_client *d, uint64_t number, const char *user,
                               int64_t now_ms) {
    struct uuid id = ledger_client_id(number);
    struct test_record r;
    test_confirm(&r, &id, user, now_ms);
    enum err e = harness_submit(&d->h, d->l, &r);
    test_record_deinit(&r);
    return e;
}

enum err ledger_client_cancel(struct ledger_client *d, uint64_t number, const char *user) {
    struct uuid id = ledger_client_id(number);
    struct test_record r;
    test_cancel(&r, &id, user, 2600);
    enum err e = harness_submit(&d->h, d->l, &r);
    test_record_deinit(&r);
    return e;
}

bool ledger_client_expire(struct ledger_client *d, uint64_t number, int64_t now_ms) {
    struct uuid id = ledger_client_id(number);
    struct test_record r;
    bool expired;
    test_expire(&r, &id, 1, &expired, now_ms);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    return expired;
}

struct reservation *ledger_client_get(struct ledger_client *d, uint64_t number) {
    struct uuid id = ledger_client_id(number);
    struct test_record r;
    test_reservation_get(&r, &id);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    return r.reservation_get.found;
}

enum reservation_status ledger_client_status(struct ledger_client *d, uint64_t number) {
    struct reservation *r = ledger_client_get(d, number);
    assert_non_null(r);
    enum reservation_status status = r->status;
    mem_free(r);
    return status;
}

enum seat_state ledger_client_seat(struct ledger_client *d, size_t section, uint32_t seat,
                                   int64_t *version) {
    struct test_record r;
    enum seat_state state;
    int64_t of;
    struct uuid holder;
    test_seats_read(&r, d->event->sections[section].key, &seat, 1, &state, &of, &holder);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    if (version != NULL) *version = of;
    return state;
}

static void on_event(void *to, struct event *e) {
    struct ledger_client_loaded *l = to;
    if (l->event == NULL)
        l->event = e;
    else
        mem_free(e);
}

static void on_entry(void *to, const struct ledger_entry *e) {
    struct ledger_client_loaded *l = to;
    (void)e;
    assert_int_equal(l->count, 0); /* entries come first */
    l->entries++;
}

static void on_reservation(void *to, const struct reservation *r) {
    struct ledger_client_loaded *l = to;
    assert_true(l->count < sizeof l->reservations / sizeof *l->reservations);
    l->reservations[l->count++] = test_reservation_copy(r);
}

void ledger_client_load(struct ledger_client *d, struct ledger_client_loaded *out) {
    *out = (struct ledger_client_loaded){0};
    assert_int_equal(ledger_load(d->l, &(struct ledger_reader){.on_event = on_event,
                                                               .on_entry = on_entry,
                                                               .on_reservation = on_reservation,
                                                               .to = out}),
                     ERR_OK);
}

void ledger_client_loaded_free(struct ledger_client_loaded *l) {
    for (size_t i = 0; i < l->count; i++) mem_free(l->reservations[i]);
    mem_free(l->event);
}

void ledger_client_assert_equal(const struct reservation *a, const struct reservation *b) {
    assert_memory_equal(a->id.bytes, b->id.bytes, sizeof a->id.bytes);
    assert_int_equal(a->event_key, b->event_key);
    assert_int_equal(a->section_key, b->section_key);
    assert_string_equal(a->user, b->user);
    assert_int_equal(a->entry_seq, b->entry_seq);
    assert_int_equal(a->strategy, b->strategy);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->seat_count, b->seat_count);
    assert_memory_equal(a->seats, b->seats, a->seat_count * sizeof *a->seats);
    assert_int_equal(a->price, b->price);
    assert_string_equal(a->currency, b->currency);
    assert_int_equal(a->expires_ms, b->expires_ms);
    assert_int_equal(a->created_ms, b->created_ms);
    assert_int_equal(a->confirmed_ms, b->confirmed_ms);
    assert_int_equal(a->ended_ms, b->ended_ms);
    assert_string_equal(a->confirmation_code, b->confirmation_code);
}

void ledger_client_assert_counts(struct ledger_client *d, size_t section, int64_t held,
                                 int64_t confirmed) {
    struct ledger_client_loaded all;
    ledger_client_load(d, &all);
    const struct section *s = &all.event->sections[section];
    int64_t by_state[256] = {0};
    for (uint32_t seat = 1; seat <= s->capacity; seat++)
        by_state[ledger_client_seat(d, section, seat, NULL)]++;
    assert_int_equal(s->held, held);
    assert_int_equal(s->confirmed, confirmed);
    assert_int_equal(by_state[SEAT_HELD], held);
    assert_int_equal(by_state[SEAT_CONFIRMED], confirmed);
    assert_int_equal(by_state[SEAT_AVAILABLE], s->capacity - held - confirmed);
    ledger_client_loaded_free(&all);
}

static void on_finding(void *to, const struct ledger_finding *f) {
    (void)to;
    if (f->violations > 0)
        fail_msg("%.*s: %.*s", (int)f->invariant.len, f->invariant.at, (int)f->examples.len,
                 f->examples.at);
}

void ledger_client_assert_sound(struct ledger_client *d) {
    assert_int_equal(ledger_check(d->l, false, on_finding, NULL), ERR_OK);
}
