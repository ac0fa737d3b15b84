/* The ledger's contract for holds: every outcome, and idempotency keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/metrics.h"
#include "ledger_client.h"

static const struct ledger_adapter *adapter;

static int set_up(void **state) {
    return ledger_client_set_up(state, adapter, 10, 3);
}

static void assert_refused(const struct test_record *r, size_t count, const uint32_t *seats) {
    assert_int_equal(r->hold.refused_count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(r->hold.refused[i], seats[i]);
    assert_false(r->hold.held);
    assert_false(r->hold.sold_out);
}

static void assert_none(struct ledger_client *d, uint64_t number) {
    assert_null(ledger_client_get(d, number));
}

/* ---- hold ---- */

static void a_hold_is_stored_completely_and_survives_a_restart(void **state) {
    struct ledger_client *d = *state;
    char longest[USER_ID_BYTES_MAX + 1] = {0};
    memset(longest, 'x', USER_ID_BYTES_MAX);
    ledger_client_enter(d, 4, longest);
    struct reservation *wanted = ledger_client_wanted(d, 1, longest, 4, 1, SEATS(2, 3, 10));
    wanted->strategy = STRATEGY_QUEUE;
    struct test_record r;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_true(r.hold.held);
    assert_false(r.hold.sold_out);
    assert_int_equal(r.hold.status, RESERVATION_HELD);
    for (int round = 0; round < 2; round++) {
        struct reservation *got = ledger_client_get(d, 1);
        assert_non_null(got);
        ledger_client_assert_equal(got, wanted);
        mem_free(got);
        struct ledger_client_loaded all;
        ledger_client_load(d, &all);
        assert_int_equal(all.count, 1);
        assert_int_equal(all.entries, 4);
        ledger_client_assert_equal(all.reservations[0], wanted);
        ledger_client_loaded_free(&all);
        ledger_client_restart(d);
    }
    int64_t version = 0;
    assert_int_equal(ledger_client_seat(d, 1, 3, &version), SEAT_HELD);
    assert_int_equal(version, 1);
    assert_int_equal(ledger_client_seat(d, 0, 3, &version), SEAT_AVAILABLE);
    assert_int_equal(version, 0);
    ledger_client_assert_counts(d, 0, 0, 0);
    ledger_client_assert_counts(d, 1, 3, 0);
    assert_int_equal(ledger_client_entry(d, 4), ENTRY_ACTIVE);
    mem_free(wanted);
}

/* Pitfall 24: two groups that each get some. Pitfall 26: a row without its seats. */
static void several_seats_are_taken_all_or_none(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(4, 6)), ERR_OK);
    struct reservation *wanted = ledger_client_wanted(d, 2, "b", 2, 0, SEATS(3, 4, 5, 6));
    struct test_record r;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_SEAT_TAKEN);
    assert_refused(&r, 2, SEATS(4, 6));
    mem_free(wanted);
    assert_none(d, 2);
    int64_t version = 1;
    assert_int_equal(ledger_client_seat(d, 0, 3, &version), SEAT_AVAILABLE);
    assert_int_equal(version, 0);
    ledger_client_assert_counts(d, 0, 2, 0);
    /* Its end frees nothing, for it has nothing. */
    assert_false(ledger_client_expire(d, 2, 9000));
    assert_int_equal(ledger_client_cancel(d, 2, "b"), ERR_RESERVATION_NOT_FOUND);
    ledger_client_assert_counts(d, 0, 2, 0);
    /* It was not counted either: the user may still have four. */
    assert_int_equal(ledger_client_hold(d, 3, "b", 2, 0, SEATS(1, 2, 3, 5)), ERR_OK);
}

/* Also pitfall 32: live reservations count, not cancelled ones. */
static void a_user_has_no_more_seats_than_the_event_allows(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2, 3, 4, 5)), ERR_LIMIT_EXCEEDED);
    assert_none(d, 1);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 1, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "a", 1, 1, SEATS(2, 3)), ERR_LIMIT_EXCEEDED);
    assert_int_equal(ledger_client_hold(d, 3, "a", 1, 1, SEATS(2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "b", 2, 1, SEATS(3)), ERR_OK);
    /* Confirmed seats count as held ones do, cancelled and expired ones no longer. */
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 5, "a", 1, 0, SEATS(5)), ERR_LIMIT_EXCEEDED);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 5, "a", 1, 0, SEATS(1, 2, 3)), ERR_LIMIT_EXCEEDED);
    assert_true(ledger_client_expire(d, 2, 3000));
    assert_int_equal(ledger_client_hold(d, 5, "a", 1, 0, SEATS(1, 2, 3)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 6, "a", 1, 0, SEATS(5)), ERR_LIMIT_EXCEEDED);
    ledger_client_assert_counts(d, 0, 3, 0);
    ledger_client_assert_counts(d, 1, 2, 0);
}

static void what_a_user_has_counts_the_same_after_a_restart(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 1, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "a", 1, 0, SEATS(2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "a", 1, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 2, "a"), ERR_OK);
    for (uint64_t i = 0; i < 2; i++) {
        ledger_client_restart(d);
        assert_int_equal(ledger_client_hold(d, 5, "a", 1, 0, SEATS(4, 5)), ERR_LIMIT_EXCEEDED);
    }
    assert_int_equal(ledger_client_hold(d, 5, "a", 1, 0, SEATS(4)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 6, "a", 1, 0, SEATS(5)), ERR_LIMIT_EXCEEDED);
    /* HELD seats count too: the purchase is completed with the last one. */
    for (uint64_t number = 3; number <= 5; number++) {
        ledger_client_restart(d);
        assert_int_equal(ledger_client_entry(d, 1), ENTRY_ACTIVE);
        assert_int_equal(ledger_client_confirm(d, number, "a", 2500), ERR_OK);
    }
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_COMPLETED);
}

static enum err hold_at(struct ledger_client *d, uint64_t number, const char *user, uint64_t seq,
                        int64_t now_ms) {
    struct reservation *wanted = ledger_client_wanted(d, number, user, seq, 0, SEATS(1));
    wanted->created_ms = now_ms;
    wanted->expires_ms = now_ms + 1000;
    struct test_record r;
    test_hold(&r, wanted);
    enum err e = harness_submit(&d->h, d->l, &r);
    mem_free(wanted);
    return e;
}

static void only_an_active_entry_holds_and_only_its_own_user(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    test_enter(&r, d->event->key, 7, "w", ENTRY_WAITING);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_int_equal(hold_at(d, 1, "w", 7, 2000), ERR_NOT_ACTIVE);
    assert_int_equal(hold_at(d, 1, "b", 1, 2000), ERR_NOT_ACTIVE);
    assert_int_equal(hold_at(d, 1, "nobody", 8, 2000), ERR_NOT_ACTIVE);
    assert_int_equal(hold_at(d, 1, "a", 1, 100000), ERR_NOT_ACTIVE);
    static const uint64_t third = 3;
    bool ended;
    test_end(&r, d->event->key, ENTRY_LEFT, &third, 1, &ended);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_int_equal(hold_at(d, 1, "c", 3, 2000), ERR_NOT_ACTIVE);
    ledger_client_assert_counts(d, 0, 0, 0);
    assert_none(d, 1);
    assert_int_equal(hold_at(d, 1, "a", 1, 99999), ERR_OK);
}

static void a_section_must_be_there(void **state) {
    struct ledger_client *d = *state;
    struct event *other = test_event("2", 1);
    struct event *stored = harness_store(&d->h, d->l, other);
    struct reservation *wanted = ledger_client_wanted(d, 1, "a", 1, 0, SEATS(1));
    struct test_record r;
    wanted->section_key = stored->sections[0].key;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_SECTION_NOT_FOUND);
    wanted->section_key = 999;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_SECTION_NOT_FOUND);
    mem_free(wanted);
    mem_free(stored);
    mem_free(other);
    /* Taken out of the event. */
    struct event *smaller = test_event("1", 1);
    smaller->sections[0].capacity = 10;
    mem_free(harness_store(&d->h, d->l, smaller));
    mem_free(smaller);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 1, SEATS(1)), ERR_SECTION_NOT_FOUND);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
}

static enum err hold_by(struct ledger_client *d, uint64_t number, enum strategy strategy,
                        size_t section) {
    struct reservation *wanted =
        ledger_client_wanted(d, number, "a", 1, section, SEATS((uint32_t)number));
    struct test_record r;
    wanted->strategy = strategy;
    test_hold(&r, wanted);
    enum err e = harness_submit(&d->h, d->l, &r);
    mem_free(wanted);
    return e;
}

static void a_hold_suits_the_mode_that_its_section_has_now(void **state) {
    struct ledger_client *d = *state;
    static const enum strategy by_hot[] = {STRATEGY_SLOT, STRATEGY_LOCK, STRATEGY_ADAPTIVE};
    static const enum strategy by_ledger[] = {STRATEGY_OPTIMISTIC, STRATEGY_PESSIMISTIC,
                                              STRATEGY_DISTRIBUTED_LOCK};
    struct event *wanted = event_copy(d->event);
    wanted->max_per_user = 20;
    wanted->sections[1].mode = SECTION_MODE_SEAT;
    mem_free(harness_store(&d->h, d->l, wanted));
    ledger_client_enter(d, 1, "a");
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(hold_by(d, i + 1, by_hot[i], 1), ERR_STRATEGY_NOT_ALLOWED);
        assert_int_equal(hold_by(d, i + 1, by_ledger[i], 0), ERR_STRATEGY_NOT_ALLOWED);
        assert_none(d, i + 1);
        assert_int_equal(hold_by(d, i + 1, by_hot[i], 0), ERR_OK);
        assert_int_equal(hold_by(d, i + 4, by_ledger[i], 1), ERR_OK);
    }
    /* These do as the mode says. */
    assert_int_equal(hold_by(d, 7, STRATEGY_QUEUE, 0), ERR_OK);
    assert_int_equal(hold_by(d, 8, STRATEGY_QUEUE, 1), ERR_OK);
    ledger_client_assert_counts(d, 0, 4, 0);
    ledger_client_assert_counts(d, 1, 4, 0);
    mem_free(wanted);
}

/* Pitfall 30: the last unit is sold, and only then there is none. */
static void as_many_are_sold_as_there_are(void **state) {
    struct ledger_client *d = *state;
    int sold = 0;
    for (uint64_t i = 0; i < 24; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", (int)i);
        ledger_client_enter(d, 10 + i, user);
        enum err e = ledger_client_hold(d, 1 + i, user, 10 + i, 0, SEATS((uint32_t)i % 12 + 1));
        assert_int_equal(e, i < 10 ? ERR_OK : ERR_SEAT_TAKEN);
        sold += e == ERR_OK;
    }
    assert_int_equal(sold, 10);
    ledger_client_assert_counts(d, 0, 10, 0);
    struct reservation *beyond = ledger_client_wanted(d, 90, "a", 1, 1, SEATS(9, 10, 11));
    struct test_record r;
    test_hold(&r, beyond);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_SEAT_TAKEN);
    assert_refused(&r, 1, SEATS(11));
    mem_free(beyond);
}

static bool sells_out(struct ledger_client *d, uint64_t number, size_t section,
                      const uint32_t *seats) {
    char user[16];
    snprintf(user, sizeof user, "s%d", (int)number);
    ledger_client_enter(d, 100 + number, user);
    struct reservation *wanted =
        ledger_client_wanted(d, number, user, 100 + number, section, seats);
    struct test_record r;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    mem_free(wanted);
    return r.hold.sold_out;
}

static void an_event_is_sold_out_when_its_last_seat_goes_and_not_again(void **state) {
    struct ledger_client *d = *state;
    struct event *small = test_event("1", 2);
    small->sections[0].capacity = 3;
    small->sections[1].capacity = 2;
    mem_free(harness_store(&d->h, d->l, small));
    assert_false(sells_out(d, 1, 0, SEATS(1)));
    assert_false(sells_out(d, 2, 0, SEATS(2, 3))); /* the section, not the event */
    assert_false(sells_out(d, 3, 1, SEATS(2)));
    assert_int_equal(ledger_client_confirm(d, 1, "s1", 2500), ERR_OK);
    assert_true(sells_out(d, 4, 1, SEATS(1)));
    assert_int_equal(ledger_client_confirm(d, 4, "s4", 2500), ERR_OK);
    /* The same once more is not another end. */
    struct reservation *again = ledger_client_wanted(d, 4, "s4", 104, 1, SEATS(1));
    struct test_record r;
    test_hold(&r, again);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_false(r.hold.sold_out);
    mem_free(again);
    /* A seat comes back and goes. */
    assert_true(ledger_client_expire(d, 2, 3000));
    assert_false(sells_out(d, 5, 0, SEATS(2)));
    assert_true(sells_out(d, 6, 0, SEATS(3)));
    mem_free(small);
}

static enum err hold_guarded(struct ledger_client *d, uint64_t number, const uint32_t *seats,
                             const int64_t *versions, const int64_t *fences,
                             struct test_record *r) {
    struct reservation *wanted = ledger_client_wanted(d, number, "b", 2, 0, seats);
    test_hold(r, wanted);
    r->hold.versions = versions;
    r->hold.fences = fences;
    enum err e = harness_submit(&d->h, d->l, r);
    mem_free(wanted);
    return e;
}

/* Submitted together, so that they share a transaction, and in more sections than it keeps count of
 * at a time. */
static void holds_of_many_sections_at_once_are_all_counted(void **state) {
    (void)state;
    enum { SECTIONS = 40, EACH = 3, HOLDS = SECTIONS * EACH };
    static struct test_record records[HOLDS];
    struct reservation *wanted[HOLDS];
    struct ledger_client d;
    char user[8];
    ledger_client_open(&d, adapter->open, SECTIONS, EACH);
    for (uint32_t i = 0; i < HOLDS; i++) {
        uint32_t section = i % SECTIONS;
        snprintf(user, sizeof user, "u%u", section);
        if (i < SECTIONS) ledger_client_enter(&d, section + 1, user);
        wanted[i] =
            ledger_client_wanted(&d, i + 1, user, section + 1, section, SEATS(i / SECTIONS + 1));
        test_hold(&records[i], wanted[i]);
    }
    for (size_t i = 0; i < HOLDS; i++)
        assert_int_equal(ledger_submit(d.l, &records[i].record), ERR_OK);
    harness_wait_back(&d.h, records, HOLDS);
    for (size_t i = 0; i < HOLDS; i++) {
        assert_int_equal(records[i].record.result, ERR_OK);
        assert_true(records[i].hold.held);
        assert_int_equal(records[i].hold.sold_out, i == HOLDS - 1);
        mem_free(wanted[i]);
    }
    for (size_t section = 0; section < SECTIONS; section++)
        ledger_client_assert_counts(&d, section, EACH, 0);
    ledger_client_assert_sound(&d);
    ledger_client_shut(&d);
}

/* User "a" wants more together than max_per_user allows, so PostgreSQL writes those holds one by
 * one, after those that it writes together. The first record may be written alone. */
static void of_holds_submitted_together_the_last_one_sells_out(void **state) {
    (void)state;
    enum { FIRST, ALLOWED, REFUSED, LAST, COUNT };
    static struct test_record records[COUNT];
    struct reservation *wanted[COUNT];
    struct ledger_client d;
    ledger_client_open(&d, adapter->open, 1, 6);
    ledger_client_enter(&d, 1, "a");
    ledger_client_enter(&d, 2, "b");
    wanted[FIRST] = ledger_client_wanted(&d, 1, "b", 2, 0, SEATS(1));
    wanted[ALLOWED] = ledger_client_wanted(&d, 2, "a", 1, 0, SEATS(2, 3, 4));
    wanted[REFUSED] = ledger_client_wanted(&d, 3, "a", 1, 0, SEATS(2, 3));
    wanted[LAST] = ledger_client_wanted(&d, 4, "b", 2, 0, SEATS(5, 6));
    for (size_t i = 0; i < COUNT; i++) test_hold(&records[i], wanted[i]);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(ledger_submit(d.l, &records[i].record), ERR_OK);
    harness_wait_back(&d.h, records, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(records[i].record.result, i == REFUSED ? ERR_LIMIT_EXCEEDED : ERR_OK);
        assert_int_equal(records[i].hold.sold_out, i == LAST);
        mem_free(wanted[i]);
    }
    ledger_client_shut(&d);
}

/* Submitted together too, where that means an order. The first may be written alone, so it is
 * another's. */
static void a_change_of_the_event_counts_for_the_holds_behind_it(void **state) {
    struct ledger_client *d = *state;
    enum { FIRST, BEFORE, CHANGE, BEHIND, COUNT };
    struct test_record records[COUNT];
    struct reservation *first = ledger_client_wanted(d, 1, "b", 2, 0, SEATS(1));
    struct reservation *before = ledger_client_wanted(d, 2, "a", 1, 0, SEATS(2));
    struct reservation *behind = ledger_client_wanted(d, 3, "a", 1, 0, SEATS(3));
    d->event->max_per_user = 1;
    test_hold(&records[FIRST], first);
    test_hold(&records[BEFORE], before);
    test_put(&records[CHANGE], d->event, 1500);
    test_hold(&records[BEHIND], behind);
    for (size_t i = 0; i < COUNT; i++) {
        if (i >= CHANGE && adapter->writes_beside) harness_wait_back(&d->h, records, i);
        assert_int_equal(ledger_submit(d->l, &records[i].record), ERR_OK);
    }
    harness_wait_back(&d->h, records, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(records[i].record.result, i == BEHIND ? ERR_LIMIT_EXCEEDED : ERR_OK);
    ledger_client_assert_counts(d, 0, 2, 0);
    mem_free(records[CHANGE].put.stored);
    mem_free(first);
    mem_free(before);
    mem_free(behind);
}

static void a_version_that_has_passed_is_a_conflict(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    int64_t version = 0;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(2)), ERR_OK);
    /* A seat that was taken since it was read is a conflict: the caller reads again. It is no
     * refusal yet. */
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), (int64_t[]){0, 0}, NULL, &r), ERR_CONFLICT);
    assert_refused(&r, 1, SEATS(2));
    assert_int_equal(ledger_client_seat(d, 0, 2, &version), SEAT_HELD);
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), (int64_t[]){0, version}, NULL, &r),
                     ERR_SEAT_TAKEN);
    assert_refused(&r, 1, SEATS(2));
    /* Free again is not the same as free as ever. */
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), (int64_t[]){0, 0}, NULL, &r), ERR_CONFLICT);
    assert_int_equal(ledger_client_seat(d, 0, 2, &version), SEAT_AVAILABLE);
    assert_int_equal(version, 2);
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), (int64_t[]){0, version}, NULL, &r), ERR_OK);
    assert_int_equal(ledger_client_seat(d, 0, 2, &version), SEAT_HELD);
    assert_int_equal(version, 3);
    assert_int_equal(ledger_client_confirm(d, 2, "b", 2500), ERR_OK);
    assert_int_equal(ledger_client_seat(d, 0, 2, &version), SEAT_CONFIRMED);
    assert_int_equal(version, 4);
}

/* Pitfall 20: a request that slept past the lease of its lock has a lower fence. */
static void a_write_under_an_older_lock_is_refused(void **state) {
    struct ledger_client *d = *state;
    const int64_t epoch = INT64_C(3) << EPOCH_COUNT_BITS;
    struct test_record r;
    assert_int_equal(hold_guarded(d, 1, SEATS(1), NULL, (int64_t[]){epoch + 10}, &r), ERR_OK);
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), NULL, (int64_t[]){epoch + 9, epoch + 9}, &r),
                     ERR_LOCK_LOST);
    assert_refused(&r, 1, SEATS(1));
    assert_int_equal(ledger_client_cancel(d, 1, "b"), ERR_OK);
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), NULL, (int64_t[]){epoch + 9, epoch + 9}, &r),
                     ERR_LOCK_LOST);
    assert_int_equal(ledger_client_seat(d, 0, 2, NULL), SEAT_AVAILABLE);
    /* Within one lock, and under a later one. */
    assert_int_equal(hold_guarded(d, 2, SEATS(1), NULL, (int64_t[]){epoch + 10}, &r), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 2, "b"), ERR_OK);
    assert_int_equal(hold_guarded(d, 3, SEATS(1), NULL, (int64_t[]){epoch + 11}, &r), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 3, "b"), ERR_OK);
    /* A strategy without locks leaves the number as it is. */
    assert_int_equal(hold_guarded(d, 4, SEATS(1), NULL, NULL, &r), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 4, "b"), ERR_OK);
    assert_int_equal(hold_guarded(d, 5, SEATS(1), NULL, (int64_t[]){epoch + 10}, &r),
                     ERR_LOCK_LOST);
}

static void each_seat_is_judged_and_written_by_the_fence_of_its_own_lock(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    assert_int_equal(hold_guarded(d, 1, SEATS(1, 2), NULL, (int64_t[]){20, 5}, &r), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "b"), ERR_OK);
    /* One of the two is stale, in either order, and the other is not affected. */
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), NULL, (int64_t[]){19, 30}, &r), ERR_LOCK_LOST);
    assert_refused(&r, 1, SEATS(1));
    assert_int_equal(hold_guarded(d, 2, SEATS(1, 2), NULL, (int64_t[]){30, 4}, &r), ERR_LOCK_LOST);
    assert_refused(&r, 1, SEATS(2));
    assert_none(d, 2);
    ledger_client_assert_counts(d, 0, 0, 0);
    for (uint32_t seat = 1; seat <= 2; seat++) {
        int64_t version = 0;
        ledger_client_seat(d, 0, seat, &version);
        assert_int_equal(version, 2);
    }
    /* The fences of the refused ones were not stored either: an earlier fence is still valid. */
    assert_int_equal(hold_guarded(d, 3, SEATS(1, 2), NULL, (int64_t[]){20, 5}, &r), ERR_OK);
}

static void the_refusal_is_that_of_the_worst_seat(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    assert_int_equal(hold_guarded(d, 1, SEATS(3), NULL, (int64_t[]){7}, &r), ERR_OK);
    assert_int_equal(hold_guarded(d, 2, SEATS(1), NULL, NULL, &r), ERR_OK);
    assert_int_equal(hold_guarded(d, 3, SEATS(1, 2), (int64_t[]){1, 5}, (int64_t[]){6, 6}, &r),
                     ERR_CONFLICT);
    assert_refused(&r, 1, SEATS(2));
    ledger_client_enter(d, 50, "d");
    struct reservation *wanted = ledger_client_wanted(d, 3, "d", 50, 0, SEATS(1, 2, 3));
    test_hold(&r, wanted);
    r.hold.versions = (int64_t[]){1, 5, 1};
    r.hold.fences = (int64_t[]){6, 6, 6};
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_LOCK_LOST);
    assert_refused(&r, 1, SEATS(3));
    mem_free(wanted);
}

static void the_same_hold_once_more_changes_nothing(void **state) {
    struct ledger_client *d = *state;
    struct reservation *wanted = ledger_client_wanted(d, 1, "a", 1, 0, SEATS(1, 2));
    struct test_record r;
    enum reservation_status then[] = {RESERVATION_HELD, RESERVATION_CONFIRMED,
                                      RESERVATION_CANCELLED};
    int64_t version = 0;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    for (int i = 0; i < 3; i++) {
        if (i == 1) assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
        if (i == 2) assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
        test_hold(&r, wanted);
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        assert_false(r.hold.held);
        assert_int_equal(r.hold.status, then[i]);
        assert_int_equal(ledger_client_status(d, 1), then[i]);
        assert_int_equal(ledger_client_seat(d, 0, 1, &version) == SEAT_AVAILABLE, i == 2);
        assert_int_equal(version, i + 1);
    }
    mem_free(wanted);
}

static void an_id_is_one_reservations_for_ever(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 1, "b", 2, 0, SEATS(1, 2)), ERR_CONFLICT);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 3)), ERR_CONFLICT);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_CONFLICT);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 1, SEATS(1, 2)), ERR_CONFLICT);
    ledger_client_assert_counts(d, 0, 2, 0);
    ledger_client_assert_counts(d, 1, 0, 0);
}

static bool voids(struct ledger_client *d, uint64_t number) {
    struct reservation *of = ledger_client_wanted(d, number, "a", 1, 0, SEATS(1));
    struct test_record r;
    test_hold_void(&r, of, 2100);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    mem_free(of);
    return r.undo.voided;
}

static void a_hold_that_was_undone_is_refused_when_it_comes_late(void **state) {
    struct ledger_client *d = *state;
    assert_true(voids(d, 1));
    assert_true(voids(d, 1));
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_CONFLICT);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(ledger_client_cancel(d, 1, ""), ERR_RESERVATION_NOT_FOUND);
    assert_false(ledger_client_expire(d, 1, 9000));
    assert_none(d, 1);
    ledger_client_assert_counts(d, 0, 0, 0);
    struct ledger_client_loaded all;
    ledger_client_restart(d);
    ledger_client_load(d, &all);
    assert_int_equal(all.count, 0);
    ledger_client_loaded_free(&all);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(1)), ERR_OK);
}

static void what_is_there_is_not_undone(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_false(voids(d, 1));
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_HELD);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_false(voids(d, 1));
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_CANCELLED);
    /* In a removed section there is nothing to undo, and no row without a parent is written. */
    struct reservation *lost = ledger_client_wanted(d, 2, "a", 1, 0, SEATS(1));
    struct test_record r;
    lost->section_key = 999;
    test_hold_void(&r, lost, 2100);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_true(r.undo.voided);
    mem_free(lost);
}

/* ---- seats ---- */

/* The holders of seats 1 to 3 in section 0, read by one question; 0: none. */
static void assert_holders(struct ledger_client *d, enum seat_state taken,
                           const uint64_t numbers[3]) {
    enum seat_state states[3];
    int64_t versions[3];
    struct uuid holders[3];
    struct test_record r;
    memset(holders, 0xff, sizeof holders); /* free seats are returned too */
    test_seats_read(&r, d->event->sections[0].key, SEATS(1, 2, 3), 3, states, versions, holders);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    for (int i = 0; i < 3; i++) {
        struct uuid id = numbers[i] == 0 ? (struct uuid){0} : ledger_client_id(numbers[i]);
        assert_int_equal(states[i], numbers[i] == 0 ? SEAT_AVAILABLE : taken);
        assert_memory_equal(holders[i].bytes, id.bytes, sizeof id.bytes);
    }
}

static void a_seat_reports_the_reservation_that_has_it(void **state) {
    struct ledger_client *d = *state;
    assert_holders(d, SEAT_HELD, (uint64_t[]){0, 0, 0});
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(3)), ERR_OK);
    assert_holders(d, SEAT_HELD, (uint64_t[]){1, 0, 2});
    assert_int_equal(ledger_client_confirm(d, 2, "b", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_holders(d, SEAT_CONFIRMED, (uint64_t[]){0, 0, 2});
    assert_int_equal(ledger_client_cancel(d, 2, "b"), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "c", 3, 0, SEATS(2, 3)), ERR_OK);
    assert_holders(d, SEAT_HELD, (uint64_t[]){0, 3, 3});
}

/* ---- keys ---- */

static struct idempotency key_of(const char *user, const char *key, unsigned char body) {
    struct idempotency i = {
        .user = str_of(user), .route = STR("POST /reservations"), .key = str_of(key)};
    memset(i.digest, body, sizeof i.digest);
    return i;
}

static enum err hold_keyed(struct ledger_client *d, uint64_t number, const char *user, uint64_t seq,
                           uint32_t seat, struct idempotency *i) {
    struct reservation *wanted = ledger_client_wanted(d, number, user, seq, 0, SEATS(seat));
    struct test_record r;
    test_hold(&r, wanted);
    r.hold.idempotency = i;
    enum err e = harness_submit(&d->h, d->l, &r);
    assert_int_equal(r.hold.held, e == ERR_OK && !i->replayed);
    mem_free(wanted);
    return e;
}

static void assert_replayed(const struct idempotency *i, uint64_t number) {
    struct uuid id = ledger_client_id(number);
    assert_true(i->replayed);
    assert_true(uuid_eq(&i->reservation, &id));
}

static void a_key_has_one_effect_and_names_its_reservation(void **state) {
    struct ledger_client *d = *state;
    struct idempotency first = key_of("a", "k", 1);
    assert_int_equal(hold_keyed(d, 1, "a", 1, 1, &first), ERR_OK);
    assert_false(first.replayed);
    for (int round = 0; round < 2; round++) {
        struct idempotency again = key_of("a", "k", 1);
        /* Another id and seat: the first execution counts. */
        assert_int_equal(hold_keyed(d, 2, "a", 1, 2, &again), ERR_OK);
        assert_replayed(&again, 1);
        struct idempotency other_body = key_of("a", "k", 2);
        assert_int_equal(hold_keyed(d, 2, "a", 1, 2, &other_body), ERR_IDEMPOTENCY_MISMATCH);
        assert_false(other_body.replayed);
        assert_none(d, 2);
        ledger_client_assert_counts(d, 0, 1, 0);
        ledger_client_restart(d);
    }
    /* Its own for each user and route. */
    struct idempotency other_user = key_of("b", "k", 2);
    assert_int_equal(hold_keyed(d, 3, "b", 2, 3, &other_user), ERR_OK);
    struct idempotency other_route = key_of("a", "k", 2);
    other_route.route = STR("POST /elsewhere");
    assert_int_equal(hold_keyed(d, 4, "a", 1, 4, &other_route), ERR_OK);
    ledger_client_assert_counts(d, 0, 3, 0);
}

/* Also when submitted together: each is decided as if the earlier ones were written, and a refused
 * one does not affect the rest of the batch. */
static void holds_of_one_batch_see_those_before_them(void **state) {
    struct ledger_client *d = *state;
    static const struct {
        uint64_t number;
        const char *user;
        uint64_t seq;
        uint32_t seats[3];
        const char *key;
        enum err result;
        bool held;
        uint32_t refused;
    } all[] = {
        {1, "c", 3, {10}, NULL, ERR_OK, true, 0}, /* it may be written alone */
        {2, "a", 1, {1}, "k", ERR_OK, true, 0},
        {3, "b", 2, {1, 2}, NULL, ERR_SEAT_TAKEN, false, 1},
        {4, "b", 2, {2}, NULL, ERR_OK, true, 0},
        {2, "a", 1, {1}, NULL, ERR_OK, false, 0},
        {2, "d", 4, {9}, NULL, ERR_CONFLICT, false, 0},
        {5, "a", 1, {8}, "k", ERR_OK, false, 0}, /* replayed */
        {6, "c", 3, {3, 4}, NULL, ERR_OK, true, 0},
        {7, "d", 1, {9}, NULL, ERR_NOT_ACTIVE, false, 0},
        {8, "c", 3, {5, 6}, NULL, ERR_LIMIT_EXCEEDED, false, 0},
        {9, "c", 3, {5}, NULL, ERR_OK, true, 0},
        {10, "a", 1, {11}, NULL, ERR_SEAT_TAKEN, false, 11},
        {11, "e", 5, {6, 8}, NULL, ERR_OK, true, 0},
        {12, "e", 5, {7}, NULL, ERR_OK, true, 0},
        {13, "b", 2, {9}, NULL, ERR_OK, true, 0},
        {14, "e", 5, {9}, NULL, ERR_SEAT_TAKEN, false, 9},
    };
    enum { COUNT = sizeof all / sizeof *all };
    struct test_record records[COUNT];
    struct reservation *wanted[COUNT];
    struct idempotency keys[COUNT];
    uint64_t failures = counter_total(COUNT_LEDGER_BATCH_FAILURES);
    ledger_client_enter(d, 4, "d");
    ledger_client_enter(d, 5, "e");
    for (size_t i = 0; i < COUNT; i++) {
        wanted[i] =
            ledger_client_wanted(d, all[i].number, all[i].user, all[i].seq, 0, all[i].seats);
        test_hold(&records[i], wanted[i]);
        if (all[i].key == NULL) continue;
        keys[i] = key_of(all[i].user, all[i].key, 1);
        records[i].hold.idempotency = &keys[i];
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(ledger_submit(d->l, &records[i].record), ERR_OK);
    harness_wait_back(&d->h, records, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(records[i].record.result, all[i].result);
        assert_int_equal(records[i].hold.held, all[i].held);
        assert_int_equal(records[i].hold.refused_count, all[i].refused > 0);
        if (all[i].refused > 0) assert_int_equal(records[i].hold.refused[0], all[i].refused);
        if (all[i].key != NULL && !all[i].held) assert_replayed(&keys[i], 2);
        mem_free(wanted[i]);
    }
    ledger_client_assert_counts(d, 0, 10, 0);
    assert_int_equal(counter_total(COUNT_LEDGER_BATCH_FAILURES), failures);
}

static void a_refused_request_may_use_its_key_again(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "b", 2, 0, SEATS(1)), ERR_OK);
    struct idempotency i = key_of("a", "k", 1);
    assert_int_equal(hold_keyed(d, 2, "a", 1, 1, &i), ERR_SEAT_TAKEN);
    assert_int_equal(ledger_client_cancel(d, 1, "b"), ERR_OK);
    i = key_of("a", "k", 2);
    assert_int_equal(hold_keyed(d, 2, "a", 1, 1, &i), ERR_OK);
    assert_false(i.replayed);
}

static void a_key_can_be_asked_for(void **state) {
    struct ledger_client *d = *state;
    struct idempotency i = key_of("a", "k", 1);
    struct test_record r;
    test_idempotency_get(&r, &i);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    assert_false(i.replayed);
    assert_int_equal(hold_keyed(d, 1, "a", 1, 1, &i), ERR_OK);
    i = key_of("a", "k", 1);
    test_idempotency_get(&r, &i);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    assert_replayed(&i, 1);
    i = key_of("a", "k", 9);
    test_idempotency_get(&r, &i);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_IDEMPOTENCY_MISMATCH);
    assert_false(i.replayed);
}

/* The columns from which a repeated request is answered do not change after the hold. */
static void what_a_hold_was_created_with_never_changes(void **state) {
    struct ledger_client *d = *state;
    struct idempotency keys[] = {key_of("a", "1", 1), key_of("a", "2", 1), key_of("a", "3", 1)};
    for (uint64_t n = 1; n <= 3; n++)
        assert_int_equal(hold_keyed(d, n, "a", 1, (uint32_t)n, &keys[n - 1]), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 2, "a"), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 3, "a", 3000), ERR_HOLD_EXPIRED);
    ledger_client_restart(d);
    for (uint64_t n = 1; n <= 3; n++) {
        struct reservation *wanted = ledger_client_wanted(d, n, "a", 1, 0, SEATS((uint32_t)n));
        assert_int_equal(hold_keyed(d, 9, "a", 1, 9, &keys[n - 1]), ERR_OK);
        assert_replayed(&keys[n - 1], n);
        struct reservation *found = ledger_client_get(d, n);
        assert_int_not_equal(found->status, RESERVATION_HELD);
        assert_true(found->event_key == wanted->event_key &&
                    found->section_key == wanted->section_key);
        assert_string_equal(found->user, wanted->user);
        assert_int_equal(found->strategy, wanted->strategy);
        assert_int_equal(found->seat_count, 1);
        assert_int_equal(found->seats[0], n);
        assert_int_equal(found->price, wanted->price);
        assert_string_equal(found->currency, wanted->currency);
        assert_int_equal(found->created_ms, wanted->created_ms);
        assert_int_equal(found->expires_ms, wanted->expires_ms);
        mem_free(found);
        mem_free(wanted);
    }
}

int ledger_hold_suite_run(const struct ledger_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, ledger_client_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_hold_is_stored_completely_and_survives_a_restart),
        TEST(several_seats_are_taken_all_or_none),
        TEST(a_user_has_no_more_seats_than_the_event_allows),
        TEST(what_a_user_has_counts_the_same_after_a_restart),
        TEST(only_an_active_entry_holds_and_only_its_own_user),
        TEST(a_section_must_be_there),
        TEST(a_hold_suits_the_mode_that_its_section_has_now),
        TEST(as_many_are_sold_as_there_are),
        TEST(an_event_is_sold_out_when_its_last_seat_goes_and_not_again),
        TEST(of_holds_submitted_together_the_last_one_sells_out),
        cmocka_unit_test(holds_of_many_sections_at_once_are_all_counted),
        TEST(a_change_of_the_event_counts_for_the_holds_behind_it),
        TEST(a_version_that_has_passed_is_a_conflict),
        TEST(a_write_under_an_older_lock_is_refused),
        TEST(each_seat_is_judged_and_written_by_the_fence_of_its_own_lock),
        TEST(the_refusal_is_that_of_the_worst_seat),
        TEST(the_same_hold_once_more_changes_nothing),
        TEST(an_id_is_one_reservations_for_ever),
        TEST(a_hold_that_was_undone_is_refused_when_it_comes_late),
        TEST(what_is_there_is_not_undone),
        TEST(a_seat_reports_the_reservation_that_has_it),
        TEST(a_key_has_one_effect_and_names_its_reservation),
        TEST(holds_of_one_batch_see_those_before_them),
        TEST(a_refused_request_may_use_its_key_again),
        TEST(a_key_can_be_asked_for),
        TEST(what_a_hold_was_created_with_never_changes),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract: holds", tests, NULL, NULL);
}
