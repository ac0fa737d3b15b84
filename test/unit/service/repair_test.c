/* Differences between a hot store in Redis and the ledger are repaired in favour of the ledger. */
#include "service/repair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "redis_fixture.h"
#include "two_stores.h"

/* ---- entries ---- */

static void assert_waits(struct two_stores *t, uint64_t seq, uint64_t position) {
    struct place p = hot_place(t, seq);
    assert_int_equal(p.status, ENTRY_WAITING);
    assert_int_equal(p.position, position);
}

static void a_lost_entry_is_put_back_in_its_old_place_pitfall_13(void **state) {
    struct two_stores *t = *state;
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    redis_fixture_number("HDEL queue:{CONCERT:1}:user bob");
    redis_fixture_number("ZREM queue:{CONCERT:1}:waiting 2");
    assert_int_equal(hot_place(t, 2).status, ENTRY_NONE);
    assert_mended(t, DIFFERENCE_ENTRY_MISSING);
    assert_waits(t, 2, 1);
    assert_waits(t, 3, 2);
    assert_int_equal(hot_admits(t), 3);
}

/* The rest of the entry is still there: it blocks every admission. */
static void an_entry_of_which_only_its_place_is_left_is_whole_again(void **state) {
    struct two_stores *t = *state;
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    assert_mended(t, DIFFERENCE_ENTRY_MISSING);
    assert_waits(t, 2, 1);
    assert_int_equal(hot_admits(t), 3);
}

static void an_admission_of_which_only_the_count_is_left_delays_no_other(void **state) {
    struct two_stores *t = *state;
    assert_int_equal(hot_admits(t), 3);
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    assert_differences(t, 1);
    repair_found(t);
    assert_int_equal(t->reconcile.differences[0].end, DIFFERENCE_REPAIRED);
    assert_int_equal(redis_fixture_number("HGET queue:{CONCERT:1}:meta admitting"), 2);
    assert_waits(t, 2, 1);
}

static void an_active_that_was_lost_is_active_again_until_its_time(void **state) {
    struct two_stores *t = *state;
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 1");
    redis_fixture_number("ZREM queue:{CONCERT:1}:active 1");
    assert_mended(t, DIFFERENCE_ENTRY_MISSING);
    struct place p = hot_place(t, 1);
    assert_int_equal(p.status, ENTRY_ACTIVE);
    assert_int_equal(p.expires_ms, t->began_ms + TWO_STORES_STAY_MS);
}

static void an_entry_that_ended_in_the_ledger_ends_in_the_hot_store(void **state) {
    struct two_stores *t = *state;
    ledger_ends(t, 2, ENTRY_LEFT);
    assert_mended(t, DIFFERENCE_ENTRY_OVER);
    assert_int_equal(hot_place(t, 2).status, ENTRY_LEFT);
    ledger_ends(t, 1, ENTRY_COMPLETED);
    assert_mended(t, DIFFERENCE_ENTRY_OVER);
    assert_int_equal(hot_place(t, 1).status, ENTRY_COMPLETED);
}

static void whom_the_ledger_never_heard_of_is_over(void **state) {
    struct two_stores *t = *state;
    ledger_takes(t, 9, "ira", ENTRY_WAITING, 0);
    hot_gets_entry(t, 9, "ira", "WAITING");
    hot_gets_entry(t, 7, "gus", "WAITING");
    assert_mended(t, DIFFERENCE_ENTRY_OVER);
    assert_int_equal(hot_place(t, 7).status, ENTRY_EXPIRED);
    assert_waits(t, 9, 4);
}

static void an_entry_admitted_in_the_ledger_becomes_active(void **state) {
    struct two_stores *t = *state;
    ledger_admits(t, 2);
    assert_mended(t, DIFFERENCE_ENTRY_STATUS);
    assert_int_equal(hot_place(t, 2).status, ENTRY_ACTIVE);
    assert_waits(t, 3, 1);
}

static void an_entry_admitted_in_the_hot_store_only_waits_again(void **state) {
    struct two_stores *t = *state;
    hot_gets_entry(t, 2, "bob", "ACTIVE");
    assert_mended(t, DIFFERENCE_ENTRY_STATUS);
    assert_waits(t, 2, 1);
}

static void an_active_long_past_its_time_is_expired_in_the_ledger(void **state) {
    struct two_stores *t = *state;
    ledger_takes(t, 6, "flo", ENTRY_ACTIVE, t->began_ms - 10 * TWO_STORES_WAIT_MS);
    assert_mended(t, DIFFERENCE_ENTRY_LATE);
    assert_int_equal(ledger_status(t, 6), ENTRY_EXPIRED);
    assert_int_equal(hot_place(t, 6).status, ENTRY_NONE);
    ledger_takes(t, 7, "gus", ENTRY_ACTIVE, clock_wall_ms());
    assert_differences(t, 0); /* not yet */
    assert_int_equal(ledger_status(t, 7), ENTRY_ACTIVE);
}

/* The hot store decides about silence; its report was lost. */
static void an_entry_that_expired_in_the_hot_store_expires_in_the_ledger(void **state) {
    struct two_stores *t = *state;
    assert_true(hot_ends(t, 2, ENTRY_EXPIRED));
    assert_mended(t, DIFFERENCE_ENTRY_MISSING);
    assert_int_equal(ledger_status(t, 2), ENTRY_EXPIRED);
    assert_int_equal(hot_place(t, 2).status, ENTRY_EXPIRED);
}

/* Leaving is decided in the ledger, so the hot store has no right to it. */
static void an_entry_that_left_in_the_hot_store_only_is_put_back(void **state) {
    struct two_stores *t = *state;
    assert_true(hot_ends(t, 2, ENTRY_LEFT));
    assert_mended(t, DIFFERENCE_ENTRY_MISSING);
    assert_waits(t, 2, 1);
    assert_int_equal(ledger_status(t, 2), ENTRY_WAITING);
}

static void of_two_live_entries_of_a_user_the_newer_counts_pitfall_14(void **state) {
    struct two_stores *t = *state;
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    redis_fixture_number("ZREM queue:{CONCERT:1}:waiting 2");
    ledger_takes(t, 8, "bob", ENTRY_WAITING, 0);
    hot_gets_entry(t, 8, "bob", "WAITING");
    assert_mended(t, DIFFERENCE_ENTRY_MISSING);
    assert_int_equal(ledger_status(t, 2), ENTRY_EXPIRED);
    assert_int_equal(ledger_status(t, 8), ENTRY_WAITING);
    assert_waits(t, 8, 3);
}

static void an_older_entry_in_the_way_is_ended_first(void **state) {
    struct two_stores *t = *state;
    ledger_ends(t, 2, ENTRY_LEFT);
    ledger_takes(t, 8, "bob", ENTRY_WAITING, 0);
    assert_differences(t, 2);
    repair_found(t);
    assert_differences(t, 0);
    assert_int_equal(hot_place(t, 2).status, ENTRY_LEFT);
    assert_waits(t, 8, 3);
}

/* ---- reservations ---- */

static void seats_of_a_cancelled_reservation_are_free(void **state) {
    struct two_stores *t = *state;
    assert_first_seats(t, "HHAACCAAAA");
    ledger_cancels(t, two_stores_id(t, 1), "ann");
    assert_mended(t, DIFFERENCE_RESERVATION_OVER);
    assert_first_seats(t, "AAAACCAAAA");
    ledger_cancels(t, two_stores_id(t, 2), "dan");
    assert_mended(t, DIFFERENCE_RESERVATION_OVER);
    assert_first_seats(t, "AAAAAAAAAA");
}

static void seats_that_no_reservation_has_in_the_ledger_are_free(void **state) {
    struct two_stores *t = *state;
    hot_gets_seats(t, two_stores_id(t, 7), "ann", 1, 8, 2, RESERVATION_CONFIRMED);
    assert_first_seats(t, "HHAACCACCA");
    assert_mended(t, DIFFERENCE_RESERVATION_OVER);
    assert_first_seats(t, "HHAACCAAAA");
}

static void a_lost_reservation_has_its_seats_again(void **state) {
    struct two_stores *t = *state;
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED));
    assert_mended(t, DIFFERENCE_RESERVATION_MISSING);
    assert_first_seats(t, "HHAACCAAAA");
    assert_true(hot_follows(t, two_stores_id(t, 2), RESERVATION_CANCELLED));
    assert_mended(t, DIFFERENCE_RESERVATION_MISSING);
    assert_first_seats(t, "HHAACCAAAA");
}

/* Whom the ledger will refuse anyway. */
static void a_repair_takes_seats_from_a_claim_that_is_under_way(void **state) {
    struct two_stores *t = *state;
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED));
    assert_differences(t, 1);
    assert_int_equal(hot_claims(t, uuid_new(t->began_ms), "dan", 4, 1), CLAIM_DONE);
    repair_found(t);
    assert_int_equal(t->reconcile.differences[0].end, DIFFERENCE_REPAIRED);
    assert_differences(t, 0);
    assert_first_seats(t, "HHAACCAAAA");
}

static void a_freed_seat_is_its_reservations_again(void **state) {
    struct two_stores *t = *state;
    hot_frees_seat(t, 2);
    assert_first_seats(t, "HAAACCAAAA");
    assert_mended(t, DIFFERENCE_RESERVATION_STATUS);
    assert_first_seats(t, "HHAACCAAAA");
}

static void confirmed_in_the_ledger_is_confirmed(void **state) {
    struct two_stores *t = *state;
    ledger_confirms(t, two_stores_id(t, 1), "ann"); /* completes her entry with it */
    assert_differences(t, 2);
    repair_found(t);
    assert_differences(t, 0);
    assert_first_seats(t, "CCAACCAAAA");
    assert_int_equal(hot_place(t, 1).status, ENTRY_COMPLETED);
}

static void confirmed_in_the_hot_store_alone_is_held_again(void **state) {
    struct two_stores *t = *state;
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CONFIRMED));
    assert_first_seats(t, "CCAACCAAAA");
    assert_mended(t, DIFFERENCE_RESERVATION_STATUS);
    assert_first_seats(t, "HHAACCAAAA");
}

/* ---- only for a moment ---- */

static void assert_gone(struct two_stores *t) {
    repair_found(t);
    for (size_t i = 0; i < t->reconcile.difference_count; i++)
        assert_int_equal(t->reconcile.differences[i].end, DIFFERENCE_GONE);
}

static void a_difference_that_has_gone_is_left_alone(void **state) {
    struct two_stores *t = *state;
    uint64_t repairs = counter_total(COUNT_RECONCILE_REPAIRS);
    ledger_ends(t, 2, ENTRY_LEFT);
    ledger_admits(t, 3);
    ledger_cancels(t, two_stores_id(t, 1), "ann");
    assert_true(hot_follows(t, two_stores_id(t, 2), RESERVATION_CANCELLED));
    assert_differences(t, 4);
    assert_true(hot_ends(t, 2, ENTRY_LEFT));
    hot_gets_entry(t, 3, "cat", "ACTIVE");
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED));
    hot_gets_seats(t, two_stores_id(t, 2), "dan", 4, 5, 2, RESERVATION_CONFIRMED);
    assert_gone(t);
    assert_int_equal(counter_total(COUNT_RECONCILE_REPAIRS), repairs);
    assert_differences(t, 0);
}

/* Pending here by now: the ledger may not have it yet. */
static void an_entry_that_has_become_pending_is_left_alone(void **state) {
    struct two_stores *t = *state;
    ledger_admits(t, 2);
    assert_differences(t, 1);
    hot_gets_entry(t, 2, "bob", "ADMITTING");
    assert_gone(t);
    assert_differences(t, 0);
}

/* Another difference than the one that was seen has not lasted yet. */
static void a_difference_that_has_changed_is_left_alone(void **state) {
    struct two_stores *t = *state;
    hot_frees_seat(t, 2);
    ledger_admits(t, 2);
    assert_differences(t, 2);
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED));
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    assert_gone(t);
    assert_first_seats(t, "AAAACCAAAA");
    assert_differences(t, 2);
    repair_found(t);
    assert_differences(t, 0);
    assert_first_seats(t, "HHAACCAAAA");
}

static void an_entry_that_has_ended_is_not_put_back(void **state) {
    struct two_stores *t = *state;
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    redis_fixture_number("HDEL queue:{CONCERT:1}:user bob");
    redis_fixture_number("ZREM queue:{CONCERT:1}:waiting 2");
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED));
    assert_differences(t, 2);
    ledger_ends(t, 2, ENTRY_LEFT);
    ledger_cancels(t, two_stores_id(t, 1), "ann");
    assert_gone(t);
    assert_int_equal(hot_place(t, 2).status, ENTRY_NONE);
    assert_first_seats(t, "AAAACCAAAA");
}

/* ---- the ledger goes on between the question and the repair ---- */

/* Stores that, after a repair, wait until the ledger has ended the entry; its update came too early
 * for the hot store. */
struct late {
    struct two_stores *t;
    struct queues queues;
    struct queue_ops queue_ops;
    struct seats seats;
    struct seats_ops seats_ops;
    struct test_record record;
    bool ended;
    struct entry_sync_op *entry_sync;
    struct seat_sync_op *seat_sync;
    void (*entry_done)(struct entry_sync_op *s);
    void (*seats_done)(struct seat_sync_op *s);
    uint64_t seq;
    struct uuid id;
};

static struct late late;

static void on_entry_over(struct task *task) {
    (void)task;
    late.entry_done(late.entry_sync);
}

static void on_entry_back(struct entry_sync_op *s) {
    assert_int_equal(s->outcome, ENTRY_SYNC_DONE);
    test_end(&late.record, late.t->event_key, ENTRY_LEFT, &late.seq, 1, &late.ended);
    late.record.record.task.run = on_entry_over;
    assert_int_equal(ledger_submit(late.t->ledger, &late.record.record), ERR_OK);
}

static void sync_entry_late(struct queues *q, struct entry_sync_op *s) {
    (void)q;
    late.entry_sync = s;
    late.entry_done = s->done;
    late.seq = s->entry->seq;
    s->done = on_entry_back;
    queues_sync(late.t->queues, s);
}

static void end_really(struct queues *q, struct end_op *e) {
    (void)q;
    queues_end(late.t->queues, e);
}

static void on_seats_over(struct task *task) {
    (void)task;
    late.seats_done(late.seat_sync);
}

static void on_seats_back(struct seat_sync_op *s) {
    assert_int_equal(s->changed, 1);
    test_cancel(&late.record, &late.id, "ann", late.t->began_ms + 1);
    late.record.record.task.run = on_seats_over;
    assert_int_equal(ledger_submit(late.t->ledger, &late.record.record), ERR_OK);
}

static void sync_seats_late(struct seats *seats, struct seat_sync_op *s) {
    (void)seats;
    late.seat_sync = s;
    late.seats_done = s->done;
    late.id = s->reservations[0].id;
    s->done = on_seats_back;
    seats_sync(late.t->seats, s);
}

static void hold_really(struct seats *s, struct holds_op *h) {
    (void)s;
    seats_holds(late.t->seats, h);
}

static void follow_really(struct seats *s, struct follow_op *f) {
    (void)s;
    seats_follow(late.t->seats, f);
}

static void an_entry_that_ends_while_it_is_put_back_is_removed_again(void **state) {
    struct two_stores *t = *state;
    late = (struct late){
        .t = t,
        .queue_ops = {.sync = sync_entry_late, .end = end_really},
        .seats_ops = {.sync = sync_seats_late, .holds = hold_really, .follow = follow_really}};
    late.queues.ops = &late.queue_ops;
    late.seats.ops = &late.seats_ops;
    redis_fixture_number("HDEL queue:{CONCERT:1}:entry 2");
    assert_true(hot_follows(t, two_stores_id(t, 1), RESERVATION_CANCELLED));
    assert_differences(t, 2);
    t->reconcile.queues = &late.queues;
    t->reconcile.seats = &late.seats;
    repair_found(t);
    test_record_deinit(&late.record);
    t->reconcile.queues = t->queues;
    t->reconcile.seats = t->seats;
    assert_int_equal(ledger_status(t, 2), ENTRY_LEFT);
    assert_int_equal(hot_place(t, 2).status, ENTRY_LEFT);
    assert_first_seats(t, "AAAACCAAAA");
    assert_differences(t, 0);
}

/* ---- when it can't ---- */

static void a_difference_that_cannot_be_repaired_is_reported(void **state) {
    struct two_stores *t = *state;
    ledger_ends(t, 2, ENTRY_LEFT);
    ledger_cancels(t, two_stores_id(t, 1), "ann");
    assert_differences(t, 2);
    hot_close(t->reconcile.hot);
    repair_found(t);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(t->reconcile.differences[i].end, DIFFERENCE_FAILED);
        assert_int_equal(t->reconcile.differences[i].error, ERR_RECOVERING);
    }
    redis_fixture_join(t->redis);
    assert_differences(t, 2);
}

static void on_stopped(struct reconcile_repair *m) {
    m->at++; /* it was called, before it returned */
}

static void what_is_left_when_it_is_stopped_stays_open(void **state) {
    struct two_stores *t = *state;
    ledger_ends(t, 2, ENTRY_LEFT);
    assert_differences(t, 1);
    struct reconcile_repair *m = mem_new(sizeof *m);
    m->reconcile = &t->reconcile;
    m->done = on_stopped;
    m->stopping = true;
    reconcile_repair(m);
    assert_int_equal(m->at, 1);
    mem_free(m);
    assert_int_equal(t->reconcile.differences[0].end, DIFFERENCE_OPEN);
    assert_int_equal(hot_place(t, 2).status, ENTRY_WAITING);
}

static void what_is_repaired_is_counted_by_its_kind(void **state) {
    struct two_stores *t = *state;
    uint64_t over = counter_total(COUNT_RECONCILE_RESERVATIONS_OVER);
    uint64_t repairs = counter_total(COUNT_RECONCILE_REPAIRS);
    ledger_cancels(t, two_stores_id(t, 1), "ann");
    assert_mended(t, DIFFERENCE_RESERVATION_OVER);
    assert_int_equal(counter_total(COUNT_RECONCILE_RESERVATIONS_OVER), over + 1);
    assert_int_equal(counter_total(COUNT_RECONCILE_REPAIRS), repairs + 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, two_stores_set_up, two_stores_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_lost_entry_is_put_back_in_its_old_place_pitfall_13),
        TEST(an_entry_of_which_only_its_place_is_left_is_whole_again),
        TEST(an_admission_of_which_only_the_count_is_left_delays_no_other),
        TEST(an_active_that_was_lost_is_active_again_until_its_time),
        TEST(an_entry_that_ended_in_the_ledger_ends_in_the_hot_store),
        TEST(whom_the_ledger_never_heard_of_is_over),
        TEST(an_entry_admitted_in_the_ledger_becomes_active),
        TEST(an_entry_admitted_in_the_hot_store_only_waits_again),
        TEST(an_active_long_past_its_time_is_expired_in_the_ledger),
        TEST(an_entry_that_expired_in_the_hot_store_expires_in_the_ledger),
        TEST(an_entry_that_left_in_the_hot_store_only_is_put_back),
        TEST(of_two_live_entries_of_a_user_the_newer_counts_pitfall_14),
        TEST(an_older_entry_in_the_way_is_ended_first),
        TEST(seats_of_a_cancelled_reservation_are_free),
        TEST(seats_that_no_reservation_has_in_the_ledger_are_free),
        TEST(a_lost_reservation_has_its_seats_again),
        TEST(a_repair_takes_seats_from_a_claim_that_is_under_way),
        TEST(a_freed_seat_is_its_reservations_again),
        TEST(confirmed_in_the_ledger_is_confirmed),
        TEST(confirmed_in_the_hot_store_alone_is_held_again),
        TEST(a_difference_that_has_gone_is_left_alone),
        TEST(an_entry_that_has_become_pending_is_left_alone),
        TEST(a_difference_that_has_changed_is_left_alone),
        TEST(an_entry_that_has_ended_is_not_put_back),
        TEST(an_entry_that_ends_while_it_is_put_back_is_removed_again),
        TEST(a_difference_that_cannot_be_repaired_is_reported),
        TEST(what_is_left_when_it_is_stopped_stays_open),
        TEST(what_is_repaired_is_counted_by_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
