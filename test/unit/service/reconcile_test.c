/* The differences that are found between a hot store in Redis and the ledger, and what is not
 * compared. */
#include "service/reconcile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "redis_fixture.h"
#include "two_stores.h"

static void assert_described(struct two_stores *t, size_t at, const char *text) {
    struct buf out = {0};
    difference_describe(&t->reconcile, &t->reconcile.differences[at], &out);
    assert_string_equal(buf_cstr(&out), text);
    buf_deinit(&out);
}

static void what_agrees_is_counted_on_both_sides(void **state) {
    struct two_stores *t = *state;
    assert_differences(t, 0);
    const struct compared_event *e = &t->reconcile.events[0];
    assert_string_equal(e->name, "CONCERT/1");
    assert_int_equal(e->key, t->event_key);
    assert_int_equal(e->ledger_entries, 5);
    assert_int_equal(e->hot_entries, 5);
    assert_int_equal(e->ledger_reservations, 2);
    assert_int_equal(e->hot_reservations, 2);
}

static void every_kind_of_difference_is_reported_with_both_sides(void **state) {
    struct two_stores *t = *state;
    ledger_takes(t, 9, "ira", ENTRY_ACTIVE, t->began_ms - 10 * TWO_STORES_WAIT_MS);
    hot_gets_entry(t, 1, "ann", "WAITING");
    ledger_ends(t, 2, ENTRY_LEFT);
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 3");
    hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED);
    hot_frees_seat(t, 5);
    struct uuid made_up = two_stores_id(t, 7);
    hot_gets_seats(t, made_up, "dan", 4, 8, 1, RESERVATION_HELD);
    assert_differences(t, 7);
    static const enum difference_kind kinds[] = {
        DIFFERENCE_ENTRY_STATUS,    DIFFERENCE_ENTRY_OVER,          DIFFERENCE_ENTRY_MISSING,
        DIFFERENCE_ENTRY_LATE,      DIFFERENCE_RESERVATION_MISSING, DIFFERENCE_RESERVATION_STATUS,
        DIFFERENCE_RESERVATION_OVER};
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(t->reconcile.differences[i].kind, kinds[i]);
        assert_int_equal(t->reconcile.differences[i].end, DIFFERENCE_OPEN);
        assert_int_equal(t->reconcile.differences[i].event_key, t->event_key);
    }
    assert_described(t, 0, "CONCERT/1, entry 1: ACTIVE in the ledger, WAITING in the hot store");
    assert_described(t, 1, "CONCERT/1, entry 2: not live in the ledger, WAITING in the hot store");
    assert_described(t, 2, "CONCERT/1, entry 3: WAITING in the ledger, not live in the hot store");
    assert_described(t, 3,
                     "CONCERT/1, entry 9: ACTIVE in the ledger, long past its time, not live in "
                     "the hot store");
    char id[UUID_TEXT_BYTES];
    char text[200];
    uuid_format(&t->reconcile.differences[5].id, id);
    snprintf(text, sizeof text,
             "CONCERT/1, reservation %.*s: CONFIRMED with 2 seats in the ledger, CONFIRMED with 1 "
             "seat in the hot store",
             UUID_TEXT_BYTES, id);
    assert_described(t, 5, text);
}

/* ---- not compared ---- */

static void what_is_pending_is_not_compared(void **state) {
    struct two_stores *t = *state;
    hot_gets_entry(t, 2, "bob", "ADMITTING");
    hot_gets_entry(t, 4, "dan", "ACTIVATING");
    ledger_ends(t, 5, ENTRY_LEFT);
    hot_gets_entry(t, 5, "eve", "ENTERING");
    assert_int_equal(hot_claims(t, two_stores_id(t, 7), "ann", 1, 9), CLAIM_DONE);
    assert_differences(t, 0);
}

/* An entry that was created after the ledger was read. */
static void a_new_entry_is_not_compared(void **state) {
    struct two_stores *t = *state;
    hot_gets_entry_of(t, 6, "flo", "WAITING", clock_wall_ms());
    assert_differences(t, 0);
}

static void an_entry_above_all_numbers_of_the_ledger_differs(void **state) {
    struct two_stores *t = *state;
    hot_gets_entry_of(t, 60, "flo", "ACTIVE", clock_wall_ms() - TWO_STORES_WAIT_MS - 1);
    assert_differences(t, 1);
    assert_described(t, 0, "CONCERT/1, entry 60: not live in the ledger, ACTIVE in the hot store");
}

static void a_reservation_is_compared_when_it_is_old_enough(void **state) {
    struct two_stores *t = *state;
    ledger_holds(t, uuid_new(clock_wall_ms() - TWO_STORES_WAIT_MS - 1), "ann", 1, 8, 1);
    assert_differences(t, 1);
    ledger_holds(t, uuid_new(clock_wall_ms() + 60000), "ann", 1, 9, 1);
    assert_differences(t, 1);
    hot_gets_seats(t, uuid_new(clock_wall_ms() + 60000), "dan", 4, 10, 1, RESERVATION_HELD);
    assert_differences(t, 1);
}

static void an_active_just_past_its_time_does_not_differ_yet(void **state) {
    struct two_stores *t = *state;
    t->reconcile.wait_ms = 60000;
    ledger_takes(t, 6, "flo", ENTRY_ACTIVE, clock_wall_ms() - 30000);
    assert_differences(t, 0);
    t->reconcile.wait_ms = 20000;
    assert_differences(t, 1);
    assert_int_equal(t->reconcile.differences[0].kind, DIFFERENCE_ENTRY_LATE);
}

/* More than are looked into at a time. */
static void however_many_differ_all_are_counted(void **state) {
    struct two_stores *t = *state;
    enum { MANY = DIFFERENCES_MAX + 5 };
    ledger_takes(t, MANY + 100, "zoe", ENTRY_WAITING, 0);
    redis_fixture_number("DEL queue:{CONCERT:1}:entry");
    for (int i = 0; i < MANY; i += 5)
        redis_fixture_number("HSET queue:{CONCERT:1}:entry %d %s %d %s %d %s %d %s %d %s", i + 10,
                             "WAITING", i + 11, "WAITING", i + 12, "WAITING", i + 13, "WAITING",
                             i + 14, "WAITING");
    assert_int_equal(reconcile_compare(&t->reconcile), ERR_OK);
    assert_int_equal(t->reconcile.events[0].hot_entries, MANY);
    assert_int_equal(t->reconcile.events[0].differences, MANY + 6);
    assert_int_equal(t->reconcile.difference_count, DIFFERENCES_MAX);
    assert_int_equal(t->reconcile.left_out, 11);
}

/* ---- what can't be compared ---- */

static void events_are_distinguished_and_a_missing_one_is_reported(void **state) {
    struct two_stores *t = *state;
    struct event *wanted = test_event("2", 1);
    struct event *stored = harness_store(&t->h, t->ledger, wanted);
    mem_free(wanted);
    struct test_record r;
    test_enter(&r, stored->key, 1, "ann", ENTRY_WAITING);
    assert_int_equal(harness_submit(&t->h, t->ledger, &r), ERR_OK);
    mem_free(stored);
    ledger_ends(t, 2, ENTRY_LEFT);
    assert_int_equal(reconcile_compare(&t->reconcile), ERR_OK);
    assert_int_equal(t->reconcile.event_count, 2);
    assert_false(t->reconcile.events[0].is_missing);
    assert_int_equal(t->reconcile.events[0].differences, 1);
    assert_string_equal(t->reconcile.events[1].name, "CONCERT/2");
    assert_true(t->reconcile.events[1].is_missing);
    assert_int_equal(t->reconcile.events[1].ledger_entries, 1);
    assert_int_equal(t->reconcile.difference_count, 1);
}

static void a_store_without_or_with_another_incarnation_is_not_compared(void **state) {
    struct two_stores *t = *state;
    hot_close(t->reconcile.hot);
    assert_int_equal(reconcile_compare(&t->reconcile), ERR_RECOVERING);
    redis_fixture_join(t->redis);
    assert_differences(t, 0);
    redis_fixture_number("HINCRBY admitone:{hot}:incarnation epoch 1");
    assert_int_equal(reconcile_compare(&t->reconcile), ERR_RECOVERING);
    redis_fixture_number("HINCRBY admitone:{hot}:incarnation epoch -1");
    assert_differences(t, 0);
    freeReplyObject(redis_fixture_command("FLUSHALL"));
    assert_int_equal(reconcile_compare(&t->reconcile), ERR_RECOVERING);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, two_stores_set_up, two_stores_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_agrees_is_counted_on_both_sides),
        TEST(every_kind_of_difference_is_reported_with_both_sides),
        TEST(what_is_pending_is_not_compared),
        TEST(a_new_entry_is_not_compared),
        TEST(an_entry_above_all_numbers_of_the_ledger_differs),
        TEST(a_reservation_is_compared_when_it_is_old_enough),
        TEST(an_active_just_past_its_time_does_not_differ_yet),
        TEST(however_many_differ_all_are_counted),
        TEST(events_are_distinguished_and_a_missing_one_is_reported),
        TEST(a_store_without_or_with_another_incarnation_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
