/* Recovery of the ledger's live reservations at a start. */
#include "service/recovery.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "service_fixture.h"

#define SEATS 100

static const struct queue_rules rules = {.max_waiting = 100,
                                         .max_active = 100,
                                         .entry_batch_size = 1000,
                                         .entry_interval_s = 1,
                                         .active_ttl_s = 600,
                                         .grace_s = 300};

struct test_state {
    struct fixture service;
    int64_t section_key;
    int64_t held_ms;
    int64_t expires_ms;
};

/* The section in the catalogue, as loaded at the last start. */
static struct section section_of(struct test_state *f) {
    catalogue_read_lock(f->service.catalogue);
    const struct event *e = catalogue_find_key(f->service.catalogue, f->service.key);
    struct section s = e->sections[0];
    catalogue_read_unlock(f->service.catalogue);
    return s;
}

static int set_up(void **state) {
    struct test_state *f = mem_new(sizeof *f);
    fixture_build(&f->service, &rules);
    f->section_key = section_of(f).key;
    f->held_ms = clock_wall_ms();
    f->expires_ms = f->held_ms + 300000;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct test_state *f = *state;
    fixture_tear_down(&f->service);
    mem_free(f);
    return 0;
}

static struct uuid id_of(unsigned char number) {
    return (struct uuid){.bytes = {[6] = 0x70, [8] = 0x80, [15] = number}};
}

static uint64_t enter_active(struct test_state *f, const char *user) {
    struct place_enter e;
    assert_int_equal(fixture_enter(&f->service, user, LANE_DEFAULT, &e), ERR_OK);
    assert_int_equal(e.enter.place.status, ENTRY_ACTIVE);
    return e.enter.place.seq;
}

/* In the ledger alone, as when the server died at that moment. */
static void hold(struct test_state *f, unsigned char number, const char *user, uint64_t seq,
                 uint32_t first, uint32_t count) {
    struct reservation *wanted = reservation_new(count);
    wanted->id = id_of(number);
    wanted->event_key = f->service.key;
    wanted->section_key = f->section_key;
    str_copy(str_of(user), wanted->user, sizeof wanted->user);
    wanted->entry_seq = seq;
    wanted->created_ms = f->held_ms;
    wanted->expires_ms = f->expires_ms + number;
    memcpy(wanted->currency, "KRW", sizeof wanted->currency);
    for (uint32_t i = 0; i < count; i++) wanted->seats[i] = first + i;
    struct test_record r;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&f->service.h, f->service.ledger, &r), ERR_OK);
    mem_free(wanted);
}

static void confirm(struct test_state *f, unsigned char number, const char *user) {
    struct uuid id = id_of(number);
    struct test_record r;
    test_confirm(&r, &id, user, f->held_ms + 1);
    assert_int_equal(harness_submit(&f->service.h, f->service.ledger, &r), ERR_OK);
    test_record_deinit(&r);
}

static void cancel(struct test_state *f, unsigned char number, const char *user) {
    struct uuid id = id_of(number);
    struct test_record r;
    test_cancel(&r, &id, user, f->held_ms + 1);
    assert_int_equal(harness_submit(&f->service.h, f->service.ledger, &r), ERR_OK);
    test_record_deinit(&r);
}

/* ---- the hot store, which answers at once ---- */

static void counted(struct seat_count_op *c) {
    assert_int_equal(c->op.result, ERR_OK);
}

/* By the hot store, and by the ledger. */
static void assert_counts(struct test_state *f, uint32_t held, uint32_t confirmed) {
    struct section_counts section;
    struct seat_count_op c = {
        .op.event_key = f->service.key, .sections = &section, .max = 1, .done = counted};
    seats_count(f->service.events.seats, &c);
    assert_int_equal(c.count, 1);
    assert_int_equal(section.section_key, f->section_key);
    assert_int_equal(section.seats.held, held);
    assert_int_equal(section.seats.confirmed, confirmed);
    assert_int_equal(section.seats.available, SEATS - held - confirmed);
    assert_int_equal(section_of(f).held, held);
    assert_int_equal(section_of(f).confirmed, confirmed);
}

static void rendered(struct render_op *r) {
    assert_int_equal(r->op.result, ERR_OK);
}

/* The first seats of the map. */
static void assert_map(struct test_state *f, const char *expected) {
    char letters[SEATS + 1] = "";
    struct render_op r = {.op.event_key = f->service.key,
                          .section_key = f->section_key,
                          .first = 1,
                          .letters = letters,
                          .max = strlen(expected),
                          .done = rendered};
    seats_render(f->service.events.seats, &r);
    assert_string_equal(letters, expected);
}

static void told(struct holds_op *h) {
    assert_int_equal(h->op.result, ERR_OK);
}

static size_t holds_of(struct test_state *f, const char *user, struct claim_info *out, size_t max) {
    struct holds_op h = {.op.event_key = f->service.key,
                         .user = str_of(user),
                         .reservations = out,
                         .max = max,
                         .done = told};
    seats_holds(f->service.events.seats, &h);
    return h.count;
}

static void assert_hold(struct test_state *f, const struct claim_info *c, unsigned char number,
                        uint64_t seq, uint32_t count, enum reservation_status status) {
    struct uuid id = id_of(number);
    assert_memory_equal(c->id.bytes, id.bytes, sizeof id.bytes);
    assert_int_equal(c->entry_seq, seq);
    assert_int_equal(c->section_key, f->section_key);
    assert_int_equal(c->seat_count, count);
    assert_int_equal(c->status, status);
    assert_false(c->pending);
    if (status == RESERVATION_HELD) assert_int_equal(c->expires_ms, f->expires_ms + number);
}

static void followed(struct follow_op *op) {
    assert_int_equal(op->op.result, ERR_OK);
}

/* ---- the tests ---- */

static void
live_reservations_are_there_after_a_start_as_the_ledger_has_them_pitfall_31(void **state) {
    struct test_state *f = *state;
    struct claim_info c[4];
    uint64_t ann = enter_active(f, "ann");
    uint64_t bob = enter_active(f, "bob");
    uint64_t cat = enter_active(f, "cat");
    hold(f, 1, "ann", ann, 2, 2);
    hold(f, 2, "bob", bob, 5, 3);
    hold(f, 3, "bob", bob, 9, 1);
    hold(f, 4, "cat", cat, 10, 1);
    hold(f, 5, "cat", cat, 11, 1);
    confirm(f, 2, "bob");
    cancel(f, 4, "cat");
    for (int starts = 0; starts < 2; starts++) { /* the second finds what the first left */
        fixture_recover(&f->service);
        assert_map(f, "AHHACCCAHAHAA");
        assert_counts(f, 4, 3);
        assert_int_equal(holds_of(f, "ann", c, 4), 1);
        assert_hold(f, &c[0], 1, ann, 2, RESERVATION_HELD);
        assert_int_equal(holds_of(f, "bob", c, 4), 2);
        bool newest_first = c[0].status == RESERVATION_HELD;
        assert_hold(f, &c[newest_first ? 1 : 0], 2, bob, 3, RESERVATION_CONFIRMED);
        assert_hold(f, &c[newest_first ? 0 : 1], 3, bob, 1, RESERVATION_HELD);
        assert_int_equal(holds_of(f, "cat", c, 4), 1);
        assert_hold(f, &c[0], 5, cat, 1, RESERVATION_HELD);
        fixture_assert_agreement(&f->service);
    }
    /* Each has its own seats: the end of one frees those and no others. */
    struct reservation_change news = {.id = id_of(1), .status = RESERVATION_CANCELLED};
    seats_follow(f->service.events.seats, &(struct follow_op){.op.event_key = f->service.key,
                                                              .changes = &news,
                                                              .count = 1,
                                                              .done = followed});
    assert_true(news.changed);
    assert_map(f, "AAAACCCAHAHAA");
}

static void due_told(struct due_op *d) {
    assert_int_equal(d->op.result, ERR_OK);
}

static void a_hold_ends_after_a_start_when_it_was_to_end(void **state) {
    struct test_state *f = *state;
    struct claim_ref refs[2];
    uint64_t ann = enter_active(f, "ann");
    hold(f, 7, "ann", ann, 1, 1);
    fixture_recover(&f->service);
    for (int early_ms = 1; early_ms >= 0; early_ms--) {
        struct due_op d = {
            .op = {.event_key = f->service.key, .now_ms = f->expires_ms + 7 - early_ms},
            .refs = refs,
            .max = 2,
            .done = due_told};
        seats_due(f->service.events.seats, &d);
        assert_int_equal(d.count, early_ms == 0);
    }
}

static void returned_seats_admit_as_many_users_after_a_start(void **state) {
    struct test_state *f = *state;
    struct place_enter e;
    char user[16];
    for (unsigned char n = 0; n < SEATS / 4; n++) {
        snprintf(user, sizeof user, "buyer%d", n);
        hold(f, n, user, enter_active(f, user), n * 4U + 1, 4);
    }
    cancel(f, 0, "buyer0");
    fixture_recover(&f->service);
    assert_counts(f, SEATS - 4, 0);
    for (int n = 0; n < 4; n++) {
        snprintf(user, sizeof user, "late%d", n);
        enter_active(f, user);
    }
    assert_int_equal(fixture_enter(&f->service, "last", LANE_DEFAULT, &e), ERR_OK);
    assert_int_equal(e.enter.place.status, ENTRY_WAITING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            live_reservations_are_there_after_a_start_as_the_ledger_has_them_pitfall_31, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_hold_ends_after_a_start_when_it_was_to_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(returned_seats_admit_as_many_users_after_a_start, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
