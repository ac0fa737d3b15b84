/* The ledger's contract for changes of a reservation, one record at a time.
 * ledger_reservation_model_suite.c has concurrent records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_client.h"

static const struct ledger_adapter *adapter;

static int set_up(void **state) {
    return ledger_client_set_up(state, adapter, 10, 3);
}

/* ---- confirm ---- */

static void a_confirmed_one_stays_as_it_was_confirmed(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    for (int round = 0; round < 3; round++) {
        /* Repeated also long after its time, and after a restart. */
        test_confirm(&r, &id, "a", round == 0 ? 2500 : 9000);
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        assert_int_equal(r.confirm.confirmed, round == 0);
        assert_int_equal(r.confirm.completed, round == 0);
        assert_false(r.confirm.expired);
        struct reservation *got = ledger_client_get(d, 1);
        assert_non_null(got);
        assert_non_null(r.confirm.stored);
        ledger_client_assert_equal(r.confirm.stored, got);
        assert_int_equal(got->status, RESERVATION_CONFIRMED);
        assert_int_equal(got->confirmed_ms, 2500);
        assert_int_equal(got->ended_ms, CLOCK_NONE_MS);
        assert_string_equal(got->confirmation_code, "CODE002500");
        assert_int_equal(got->expires_ms, TEST_EXPIRES_MS);
        mem_free(got);
        test_record_deinit(&r);
        ledger_client_assert_counts(d, 0, 0, 2);
        if (round == 1) ledger_client_restart(d);
    }
    struct ledger_client_loaded all;
    ledger_client_load(d, &all);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.reservations[0]->status, RESERVATION_CONFIRMED);
    ledger_client_loaded_free(&all);
}

/* Pitfall 33: paid after the hold expired. Pitfall 22: its time is in milliseconds. */
static void a_hold_past_its_time_is_not_confirmed_and_ends(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 2, "b", TEST_EXPIRES_MS - 1), ERR_OK);
    test_confirm(&r, &id, "a", TEST_EXPIRES_MS);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_HOLD_EXPIRED);
    assert_true(r.confirm.expired);
    assert_false(r.confirm.confirmed);
    assert_false(r.confirm.completed);
    assert_int_equal(r.confirm.stored->status, RESERVATION_EXPIRED);
    assert_int_equal(r.confirm.stored->ended_ms, TEST_EXPIRES_MS);
    test_record_deinit(&r);
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_EXPIRED);
    ledger_client_assert_counts(d, 0, 0, 1);
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_ACTIVE);
    /* A node whose clock is slow neither revives it nor releases it again. */
    assert_int_equal(ledger_client_hold(d, 3, "c", 3, 0, SEATS(1)), ERR_OK);
    test_confirm(&r, &id, "a", 2500);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_HOLD_EXPIRED);
    assert_false(r.confirm.expired);
    assert_int_equal(r.confirm.stored->ended_ms, TEST_EXPIRES_MS);
    test_record_deinit(&r);
    ledger_client_assert_counts(d, 0, 1, 1);
}

static void a_confirmed_one_is_cancelled_only_with_the_right_to(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    test_cancel(&r, &id, "a", 2600);
    r.cancel.may_end_confirmed = false;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_CANCEL_BY_SHOP);
    assert_false(r.cancel.cancelled || r.cancel.expired);
    assert_int_equal(r.cancel.stored->status, RESERVATION_CONFIRMED);
    test_record_deinit(&r);
    test_cancel(&r, &id, "b", 2600);
    r.cancel.may_end_confirmed = false;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_NOT_YOURS);
    assert_null(r.cancel.stored);
    ledger_client_assert_counts(d, 0, 1, 2);
    /* A hold needs no such right, and cancelling again is harmless. */
    struct uuid held = ledger_client_id(2);
    for (int i = 0; i < 2; i++) {
        test_cancel(&r, &held, "a", 2600 + i);
        r.cancel.may_end_confirmed = false;
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        assert_int_equal(r.cancel.cancelled, i == 0);
        test_record_deinit(&r);
    }
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    ledger_client_assert_counts(d, 0, 0, 0);
}

/* Pitfall 25: only the holder may confirm or cancel. */
static void only_its_own_user_confirms_and_cancels(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    test_confirm(&r, &id, "b", 2500);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_NOT_YOURS);
    assert_null(r.confirm.stored); /* nothing of it is returned either */
    test_cancel(&r, &id, "b", 2500);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_NOT_YOURS);
    assert_null(r.cancel.stored);
    assert_false(r.cancel.cancelled);
    /* After its time another user may still not end it. */
    assert_int_equal(ledger_client_confirm(d, 1, "b", 9000), ERR_NOT_YOURS);
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_HELD);
    assert_int_equal(ledger_client_confirm(d, 9, "a", 2500), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(ledger_client_cancel(d, 9, "a"), ERR_RESERVATION_NOT_FOUND);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "b", 2500), ERR_NOT_YOURS);
    assert_int_equal(ledger_client_cancel(d, 1, "b"), ERR_NOT_YOURS);
    ledger_client_assert_counts(d, 0, 0, 1);
}

static bool completes(struct ledger_client *d, uint64_t number, const char *user) {
    struct uuid id = ledger_client_id(number);
    struct test_record r;
    test_confirm(&r, &id, user, 2500);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_true(r.confirm.confirmed);
    test_record_deinit(&r);
    return r.confirm.completed;
}

/* Pitfall 11: the place is given back when the purchase is done, and not before. */
static void the_entry_is_completed_when_nothing_else_is_held(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 1, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "a", 1, 1, SEATS(2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "b", 2, 1, SEATS(3)), ERR_OK);
    assert_false(completes(d, 1, "a"));
    assert_int_equal(ledger_client_cancel(d, 3, "a"), ERR_OK);
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_ACTIVE); /* cancelling keeps the place */
    assert_true(completes(d, 2, "a"));
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_COMPLETED);
    assert_int_equal(ledger_client_entry(d, 2), ENTRY_ACTIVE);
    /* Cancelling does not undo a confirmation. */
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_COMPLETED);
}

static void a_hold_outlives_the_stay_that_made_it(void **state) {
    struct ledger_client *d = *state;
    static const uint64_t first = 1;
    struct test_record r;
    bool ended;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    test_end(&r, d->event->key, ENTRY_EXPIRED, &first, 1, &ended);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    ledger_client_enter(d, 9, "a");
    assert_false(completes(d, 1, "a"));
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_EXPIRED);
    assert_int_equal(ledger_client_entry(d, 9), ENTRY_ACTIVE);
    /* An ACTIVE row past its time counts as EXPIRED, although that is not written yet. */
    struct reservation *wanted = ledger_client_wanted(d, 2, "b", 2, 0, SEATS(2));
    wanted->expires_ms = 200000;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    mem_free(wanted);
    struct uuid id = ledger_client_id(2);
    test_confirm(&r, &id, "b", 100000);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_false(r.confirm.completed);
    test_record_deinit(&r);
}

/* ---- the audit trail ---- */

/* The acts of the newest rows, newest first: "confirm by shop;". */
static void expect_acts(struct ledger_client *d, int64_t count, const char *expected) {
    struct test_record page;
    struct buf acts = {0};
    test_page(&page, 0, count);
    assert_int_equal(harness_ask(&d->h, d->l, &page), ERR_OK);
    str rest = buf_str(&page.page.json);
    str part;
    while (str_split(&rest, '"', &part)) {
        if (!str_eq(part, STR("actor"))) continue;
        str actor;
        str act;
        for (int i = 0; i < 2; i++) str_split(&rest, '"', &actor); /* : and the name */
        for (int i = 0; i < 4; i++) str_split(&rest, '"', &act);
        buf_addf(&acts, "%.*s by %.*s;", (int)act.len, act.at, (int)actor.len, actor.at);
    }
    assert_string_equal(buf_cstr(&acts), expected);
    buf_deinit(&acts);
    test_record_deinit(&page);
}

static void an_act_of_a_key_is_noted_if_it_changes_something(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct uuid over = ledger_client_id(2);
    struct test_record r;
    static const struct audit_note confirms = {STR_INIT("shop"), STR_INIT("confirm"), STR_INIT("x"),
                                               STR_INIT("{}")};
    static const struct audit_note cancels = {STR_INIT("desk"), STR_INIT("cancel"), STR_INIT("x"),
                                              STR_INIT("{\"why\":\"é\"}")};
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(2)), ERR_OK);
    expect_acts(d, 1, "event.put by admin;");
    for (int round = 0; round < 2; round++) {
        test_confirm(&r, &id, "a", 2500);
        r.confirm.note = &confirms;
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        test_record_deinit(&r);
    }
    expect_acts(d, 2, "confirm by shop;event.put by admin;");
    for (int round = 0; round < 2; round++) {
        test_cancel(&r, &id, "a", 2600);
        r.cancel.note = &cancels;
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        test_record_deinit(&r);
    }
    test_confirm(&r, &id, "a", 2700);
    r.confirm.note = &confirms;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_RESERVATION_ENDED);
    test_record_deinit(&r);
    test_cancel(&r, &over, "b", TEST_EXPIRES_MS);
    r.cancel.note = &cancels;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_HOLD_EXPIRED);
    assert_true(r.cancel.expired);
    test_record_deinit(&r);
    test_confirm(&r, &over, "a", 2500);
    r.confirm.note = &confirms;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_NOT_YOURS);
    test_record_deinit(&r);
    expect_acts(d, 3, "cancel by desk;confirm by shop;event.put by admin;");
}

/* ---- cancel, expire, leave ---- */

static void a_cancelled_one_gives_its_seats_back_once(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    for (int round = 0; round < 3; round++) {
        test_cancel(&r, &id, "a", 2600 + round);
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        assert_int_equal(r.cancel.cancelled, round == 0);
        struct reservation *got = ledger_client_get(d, 1);
        ledger_client_assert_equal(r.cancel.stored, got);
        assert_int_equal(got->status, RESERVATION_CANCELLED);
        assert_int_equal(got->ended_ms, 2600);
        assert_int_equal(got->confirmed_ms, 2500); /* it was, once */
        assert_int_equal(got->seat_count, 2);
        mem_free(got);
        test_record_deinit(&r);
        /* From then on the seats belong to another user. */
        if (round == 0) assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(2, 3)), ERR_OK);
        ledger_client_assert_counts(d, 0, 2, 0);
    }
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_RESERVATION_ENDED);
    assert_int_equal(ledger_client_status(d, 2), RESERVATION_HELD);
}

/* Pitfall 27: cancelling an EXPIRED one releases the seats twice. */
/* Whether or not the tick has been there: its time decides. */
static void one_that_is_over_expires_instead_of_being_cancelled(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    for (int round = 0; round < 2; round++) {
        test_cancel(&r, &id, "a", TEST_EXPIRES_MS);
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_HOLD_EXPIRED);
        assert_false(r.cancel.cancelled);
        assert_int_equal(r.cancel.expired, round == 0);
        assert_int_equal(r.cancel.stored->status, RESERVATION_EXPIRED);
        test_record_deinit(&r);
    }
    ledger_client_assert_counts(d, 0, 0, 0);
}

static void an_expired_one_is_not_cancelled(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_true(ledger_client_expire(d, 1, TEST_EXPIRES_MS));
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_HOLD_EXPIRED);
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_EXPIRED);
    ledger_client_assert_counts(d, 0, 1, 0);
    assert_int_equal(ledger_client_confirm(d, 2, "b", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_HOLD_EXPIRED);
    ledger_client_assert_counts(d, 0, 0, 1);
}

/* Pitfall 28: the expirer overwrites CONFIRMED. Pitfall 29: it frees the next holder's hold.
 * Pitfall 23: a seat whose hold has ended can be held again. */
static void only_a_hold_past_its_time_expires(void **state) {
    struct ledger_client *d = *state;
    struct uuid ids[6];
    struct test_record r;
    bool expired[6];
    for (uint64_t i = 0; i < 6; i++) ids[i] = ledger_client_id(i + 1);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(2)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 2, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "b", 2, 0, SEATS(3, 4)), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 3, "b"), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "c", 3, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 4, "c", 2500), ERR_OK);
    struct reservation *later = ledger_client_wanted(d, 5, "b", 2, 0, SEATS(4));
    later->expires_ms = TEST_EXPIRES_MS + 1;
    test_hold(&r, later);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    mem_free(later);
    assert_false(ledger_client_expire(d, 1, TEST_EXPIRES_MS - 1));
    for (int round = 0; round < 2; round++) {
        test_expire(&r, ids, 6, expired, TEST_EXPIRES_MS);
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        assert_int_equal(expired[0], round == 0);
        for (int i = 1; i < 6; i++) assert_false(expired[i]);
        ledger_client_assert_counts(d, 0, 1, 2);
    }
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_EXPIRED);
    assert_int_equal(ledger_client_status(d, 2), RESERVATION_CONFIRMED);
    assert_int_equal(ledger_client_status(d, 3), RESERVATION_CANCELLED);
    assert_int_equal(ledger_client_status(d, 5), RESERVATION_HELD);
    struct reservation *got = ledger_client_get(d, 1);
    assert_int_equal(got->ended_ms, TEST_EXPIRES_MS);
    mem_free(got);
    assert_int_equal(ledger_client_hold(d, 6, "b", 2, 0, SEATS(1)), ERR_OK);
}

static void leaving_releases_holds_and_keeps_purchases(void **state) {
    struct ledger_client *d = *state;
    static const uint64_t first = 1;
    struct uuid ids[5];
    struct test_record r;
    bool ended;
    bool cancelled[5];
    for (uint64_t i = 0; i < 5; i++) ids[i] = ledger_client_id(i + 1);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(2)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 2, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 3, "b", 2, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "a", 1, 1, SEATS(4)), ERR_OK);
    assert_true(ledger_client_expire(d, 4, TEST_EXPIRES_MS));
    test_end(&r, d->event->key, ENTRY_LEFT, &first, 1, &ended);
    r.end.user = STR("a");
    r.end.cancels = ids;
    r.end.cancel_count = 5;
    r.end.cancelled = cancelled;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_true(ended);
    assert_true(cancelled[0]);
    for (int i = 1; i < 5; i++) assert_false(cancelled[i]);
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_LEFT);
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_CANCELLED);
    assert_int_equal(ledger_client_status(d, 2), RESERVATION_CONFIRMED);
    assert_int_equal(ledger_client_status(d, 3), RESERVATION_HELD);
    ledger_client_assert_counts(d, 0, 1, 1);
    /* When the place has ended before, its holds are cancelled too. */
    ledger_client_enter(d, 8, "a");
    assert_int_equal(ledger_client_hold(d, 5, "a", 8, 0, SEATS(5)), ERR_OK);
    struct event *other = test_event("2", 1);
    struct event *stored = harness_store(&d->h, d->l, other);
    for (int in_event = 0; in_event < 2; in_event++) {
        test_end(&r, in_event ? d->event->key : stored->key, ENTRY_LEFT, &first, 1, &ended);
        r.end.user = STR("a");
        r.end.cancels = &ids[4];
        r.end.cancel_count = 1;
        r.end.cancelled = cancelled;
        assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
        assert_false(ended);
        assert_int_equal(cancelled[0], in_event);
    }
    mem_free(stored);
    mem_free(other);
    ledger_client_assert_counts(d, 0, 1, 1);
}

/* ---- with other records ---- */

static void what_is_reserved_keeps_its_section_and_event(void **state) {
    struct ledger_client *d = *state;
    struct event *smaller = test_event("1", 1);
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(7)), ERR_OK);
    smaller->sections[0].capacity = 6;
    test_put(&r, smaller, 1);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_SECTION_IN_USE);
    test_delete(&r, "CONCERT", "1", 1);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_EVENT_IN_USE);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    test_delete(&r, "CONCERT", "1", 1);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_EVENT_IN_USE);
    smaller->sections[0].capacity = 7;
    struct event *stored = harness_store(&d->h, d->l, smaller);
    assert_int_equal(stored->sections[0].confirmed, 1);
    assert_int_equal(stored->sections[0].held, 0);
    mem_free(stored);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    smaller->sections[0].capacity = 1;
    mem_free(harness_store(&d->h, d->l, smaller));
    test_delete(&r, "CONCERT", "1", 1);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(1)), ERR_SECTION_NOT_FOUND);
    mem_free(smaller);
}

/* Pitfall 31: a start resets nothing. */
static void a_load_reports_everything_live_in_order_and_changes_nothing(void **state) {
    struct ledger_client *d = *state;
    static const uint64_t numbers[] = {5, 1, 4, 2, 3};
    static const uint64_t live[] = {1, 2, 5};
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(ledger_client_hold(d, numbers[i], i % 2 ? "a" : "b", i % 2 ? 1 : 2, i % 2,
                                            SEATS(i + 1)),
                         ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 2, "a", 2500), ERR_OK);
    assert_true(ledger_client_expire(d, 3, 3000));
    assert_int_equal(ledger_client_cancel(d, 4, "b"), ERR_OK);
    struct ledger_client_loaded all;
    for (int round = 0; round < 3; round++) {
        ledger_client_restart(d);
        ledger_client_load(d, &all);
        assert_int_equal(all.count, 3);
        for (size_t i = 0; i < 3; i++) {
            struct reservation *got = ledger_client_get(d, live[i]);
            ledger_client_assert_equal(all.reservations[i], got);
            mem_free(got);
        }
        ledger_client_loaded_free(&all);
        ledger_client_assert_counts(d, 0, 1, 0);
        ledger_client_assert_counts(d, 1, 1, 1);
    }
}

static void many_seats_are_one_reservation(void **state) {
    struct ledger_client *d = *state;
    struct event *large = test_event("1", 2);
    large->sections[0].capacity = SECTION_CAPACITY_MAX;
    large->max_per_user = PER_USER_MAX;
    mem_free(harness_store(&d->h, d->l, large));
    struct reservation *wanted = reservation_new(RESERVATION_SEATS_MAX);
    struct reservation *model = ledger_client_wanted(d, 1, "a", 1, 0, SEATS(1));
    uint32_t *seats = wanted->seats;
    *wanted = *model;
    wanted->seats = seats;
    wanted->seat_count = RESERVATION_SEATS_MAX;
    for (uint32_t i = 0; i < RESERVATION_SEATS_MAX; i++) seats[i] = SECTION_CAPACITY_MAX - 999 + i;
    uint32_t *refused = mem_new(RESERVATION_SEATS_MAX * sizeof *refused);
    struct test_record r;
    test_hold(&r, model);
    r.hold.wanted = wanted;
    r.hold.refused = refused;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    struct reservation *got = ledger_client_get(d, 1);
    ledger_client_assert_equal(got, wanted);
    mem_free(got);
    wanted->id = ledger_client_id(2);
    memcpy(wanted->user, "b", 2);
    wanted->entry_seq = 2;
    r.back = false;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_SEAT_TAKEN);
    assert_int_equal(r.hold.refused_count, RESERVATION_SEATS_MAX);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    mem_free(refused);
    mem_free(model);
    mem_free(wanted);
    mem_free(large);
}

/* ---- holding again ---- */

/* Fills in a record for seats of section 0, created at that time; `refused` has room for 4. */
static void test_hold_again(struct ledger_client *d, struct test_record *r, uint64_t number,
                            const char *user, const uint32_t *seats, int64_t now_ms, bool is_named,
                            uint32_t *refused) {
    uint64_t seq = (uint64_t)(user[0] - 'a' + 1);
    struct reservation *wanted = ledger_client_wanted(d, number, user, seq, 0, seats);
    wanted->created_ms = now_ms;
    wanted->expires_ms = now_ms + 1000;
    test_hold(r, wanted);
    r->hold.is_named = is_named;
    r->hold.refused = refused;
}

static void hold_again_free(struct test_record *r) {
    mem_free((struct reservation *)(uintptr_t)r->hold.wanted);
}

/* `refused`: the one seat that is refused; 0: none is. */
static void assert_hold_again(struct ledger_client *d, uint64_t number, const char *user,
                              const uint32_t *seats, int64_t now_ms, bool is_named,
                              enum err expected, uint32_t refused, int64_t free_at_ms) {
    uint32_t seats_refused[4];
    struct test_record r;
    test_hold_again(d, &r, number, user, seats, now_ms, is_named, seats_refused);
    assert_int_equal(harness_submit(&d->h, d->l, &r), expected);
    assert_int_equal(r.hold.held, expected == ERR_OK);
    assert_int_equal(r.hold.refused_count, refused != 0);
    if (refused != 0) assert_int_equal(seats_refused[0], refused);
    assert_int_equal(r.hold.free_at_ms, free_at_ms);
    hold_again_free(&r);
}

static void change_event(struct ledger_client *d, int64_t rehold_s, int64_t max_holds) {
    d->event->rehold_s = rehold_s;
    d->event->max_holds_per_stay = max_holds;
    d->event->max_per_user = 10;
    mem_free(harness_store(&d->h, d->l, d->event));
}

static void a_seat_that_was_given_up_is_not_named_again_by_its_user_for_a_time(void **state) {
    struct ledger_client *d = *state;
    change_event(d, 5, 0);
    assert_hold_again(d, 1, "a", SEATS(1, 2), 2000, true, ERR_OK, 0, 0);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK); /* at 2600 */
    assert_hold_again(d, 2, "a", SEATS(2, 3), 2700, true, ERR_SEAT_GIVEN_UP, 2, 7600);
    ledger_client_restart(d);
    assert_hold_again(d, 2, "a", SEATS(2, 3), 7599, true, ERR_SEAT_GIVEN_UP, 2, 7600);
    ledger_client_assert_counts(d, 0, 0, 0);
    /* Another user, or seats that the server has chosen; and the same seat after another user. */
    assert_hold_again(d, 3, "b", SEATS(2), 2700, true, ERR_OK, 0, 0);
    assert_hold_again(d, 4, "a", SEATS(1, 2), 2800, true, ERR_SEAT_TAKEN, 2, 0);
    assert_int_equal(ledger_client_cancel(d, 3, "b"), ERR_OK);
    assert_hold_again(d, 5, "b", SEATS(2), 2800, true, ERR_SEAT_GIVEN_UP, 2, 7600);
    assert_hold_again(d, 6, "a", SEATS(2), 2800, true, ERR_OK, 0, 0);
    assert_hold_again(d, 7, "a", SEATS(1), 2800, false, ERR_OK, 0, 0);
    /* A hold that expires is given up, too; what was bought is not. */
    assert_true(ledger_client_expire(d, 7, 4000));
    assert_hold_again(d, 8, "a", SEATS(1), 8999, true, ERR_SEAT_GIVEN_UP, 1, 9000);
    assert_hold_again(d, 8, "a", SEATS(1), 9000, true, ERR_OK, 0, 0);
    assert_int_equal(ledger_client_confirm(d, 6, "a", 2900), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 6, "a"), ERR_OK);
    assert_hold_again(d, 9, "a", SEATS(2), 2900, true, ERR_OK, 0, 0);
}

static void holds_of_given_up_seats_are_judged_in_a_batch_too(void **state) {
    struct ledger_client *d = *state;
    enum { COUNT = 4 };
    struct test_record r[COUNT];
    uint32_t refused[COUNT][4];
    change_event(d, 5, 0);
    assert_hold_again(d, 1, "a", SEATS(1), 2000, true, ERR_OK, 0, 0);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    test_hold_again(d, &r[0], 2, "b", SEATS(2), 2700, true, refused[0]);
    test_hold_again(d, &r[1], 3, "b", SEATS(3), 2700, true, refused[1]);
    test_hold_again(d, &r[2], 4, "a", SEATS(1), 2700, true, refused[2]);
    test_hold_again(d, &r[3], 5, "a", SEATS(4), 2700, true, refused[3]);
    for (int i = 0; i < COUNT; i++) assert_int_equal(ledger_submit(d->l, &r[i].record), ERR_OK);
    harness_wait_back(&d->h, r, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(r[i].record.result, i == 2 ? ERR_SEAT_GIVEN_UP : ERR_OK);
        hold_again_free(&r[i]);
    }
    ledger_client_assert_counts(d, 0, 3, 0);
}

static void a_stay_has_as_many_holds_as_the_event_allows(void **state) {
    struct ledger_client *d = *state;
    enum { COUNT = 4 };
    struct test_record r[COUNT];
    uint32_t refused[COUNT][4];
    /* What was held without a limit does not count. */
    assert_hold_again(d, 9, "a", SEATS(9), 2000, true, ERR_OK, 0, 0);
    change_event(d, 0, 2);
    for (int round = 0; round < 2; round++) {
        uint64_t number = (uint64_t)round + 1;
        assert_hold_again(d, number, "a", SEATS(1), 2000, true, ERR_OK, 0, 0);
        assert_int_equal(ledger_client_cancel(d, number, "a"), ERR_OK);
        ledger_client_restart(d);
    }
    assert_hold_again(d, 3, "a", SEATS(1), 2000, false, ERR_HOLD_LIMIT, 0, 0);
    /* Refused ones do not count, and neither does the same hold once more. */
    assert_hold_again(d, 4, "b", SEATS(9), 2000, true, ERR_SEAT_TAKEN, 9, 0);
    assert_hold_again(d, 4, "b", SEATS(2), 2000, true, ERR_OK, 0, 0);
    struct test_record again;
    test_hold_again(d, &again, 4, "b", SEATS(2), 2000, true, refused[0]);
    assert_int_equal(harness_submit(&d->h, d->l, &again), ERR_OK);
    assert_false(again.hold.held);
    hold_again_free(&again);
    /* In one batch. */
    test_hold_again(d, &r[0], 5, "b", SEATS(3), 2000, true, refused[0]);
    for (int i = 1; i < COUNT; i++)
        test_hold_again(d, &r[i], (uint64_t)i + 5, "c", SEATS((uint32_t)i + 3), 2000, true,
                        refused[i]);
    for (int i = 0; i < COUNT; i++) assert_int_equal(ledger_submit(d->l, &r[i].record), ERR_OK);
    harness_wait_back(&d->h, r, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(r[i].record.result, i == COUNT - 1 ? ERR_HOLD_LIMIT : ERR_OK);
        hold_again_free(&r[i]);
    }
    assert_hold_again(d, 10, "b", SEATS(8), 2000, true, ERR_HOLD_LIMIT, 0, 0);
    change_event(d, 0, 0);
    assert_hold_again(d, 10, "b", SEATS(8), 2000, true, ERR_OK, 0, 0);
}

int ledger_reservation_suite_run(const struct ledger_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, ledger_client_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_confirmed_one_stays_as_it_was_confirmed),
        TEST(a_hold_past_its_time_is_not_confirmed_and_ends),
        TEST(only_its_own_user_confirms_and_cancels),
        TEST(a_confirmed_one_is_cancelled_only_with_the_right_to),
        TEST(the_entry_is_completed_when_nothing_else_is_held),
        TEST(a_hold_outlives_the_stay_that_made_it),
        TEST(an_act_of_a_key_is_noted_if_it_changes_something),
        TEST(a_cancelled_one_gives_its_seats_back_once),
        TEST(one_that_is_over_expires_instead_of_being_cancelled),
        TEST(an_expired_one_is_not_cancelled),
        TEST(only_a_hold_past_its_time_expires),
        TEST(leaving_releases_holds_and_keeps_purchases),
        TEST(what_is_reserved_keeps_its_section_and_event),
        TEST(a_load_reports_everything_live_in_order_and_changes_nothing),
        TEST(many_seats_are_one_reservation),
        TEST(a_seat_that_was_given_up_is_not_named_again_by_its_user_for_a_time),
        TEST(holds_of_given_up_seats_are_judged_in_a_batch_too),
        TEST(a_stay_has_as_many_holds_as_the_event_allows),
    };
#undef TEST
    return cmocka_run_group_tests_name("ledger contract: reservations", tests, NULL, NULL);
}
