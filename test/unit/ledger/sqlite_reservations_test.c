/* Reservations when a batch or the disk fails, and when the file contradicts itself; and columns
 * that no question reads yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ledger_client.h"
#include "ledger_raw.h"
#include "splitmix.h"
#include "sync_recorder.h"

static struct ledger *open_sqlite(struct harness *h, int64_t queue_max) {
    return raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .queue_max = queue_max});
}

/* Ten users, each ACTIVE by the entry of their number, in two sections of ten seats. */
static int set_up(void **state) {
    struct ledger_client *d = mem_new(sizeof *d);
    ledger_client_open(d, open_sqlite, 2, 10);
    for (uint64_t i = 1; i <= 10; i++)
        ledger_client_enter(d, i, (char[]){(char)('a' + i - 1), '\0'});
    *state = d;
    return 0;
}

static int tear_down(void **state) {
    struct ledger_client *d = *state;
    sync_fail_writes(0, 0);
    sync_fail_syncs(0);
    ledger_client_shut(d);
    mem_free(d);
    return 0;
}

/* Five records that change everything: a new hold with a key (3), a confirmation (1), a
 * cancellation (2), an expiry (4), and a user who leaves (5). The holds 1, 2, 4 and 5 exist
 * already. */
struct five {
    struct test_record records[6]; /* the last: a key that is replayed */
    struct reservation *wanted[2];
    struct idempotency keys[2];
    struct uuid ids[6]; /* the first: of the hold with the old key */
    uint64_t seq;
    bool expired;
    bool ended;
    bool cancelled;
};

static struct idempotency key_of(const char *key) {
    return (struct idempotency){.user = STR("a"), .route = STR("r"), .key = str_of(key)};
}

static void hold_before(struct ledger_client *d) {
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(3)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "d", 4, 0, SEATS(5)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 5, "e", 5, 0, SEATS(6)), ERR_OK);
    struct reservation *wanted = ledger_client_wanted(d, 6, "a", 1, 1, SEATS(1));
    struct idempotency key = key_of("old");
    struct test_record r;
    test_hold(&r, wanted);
    r.hold.idempotency = &key;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    mem_free(wanted);
}

static void five_prepare(struct ledger_client *d, struct five *f) {
    *f = (struct five){.seq = 5, .keys = {key_of("new"), key_of("old")}};
    for (uint64_t i = 1; i <= 5; i++) f->ids[i] = ledger_client_id(i);
    f->ids[0] = ledger_client_id(6);
    f->wanted[0] = ledger_client_wanted(d, 3, "c", 3, 0, SEATS(4));
    f->wanted[1] = ledger_client_wanted(d, 7, "a", 1, 1, SEATS(2));
    test_hold(&f->records[0], f->wanted[0]);
    f->records[0].hold.idempotency = &f->keys[0];
    test_confirm(&f->records[1], &f->ids[1], "a", 2500);
    test_cancel(&f->records[2], &f->ids[2], "b", 2500);
    test_expire(&f->records[3], &f->ids[4], 1, &f->expired, 3000);
    test_end(&f->records[4], d->event->key, ENTRY_LEFT, &f->seq, 1, &f->ended);
    f->records[4].end.user = STR("e");
    f->records[4].end.cancels = &f->ids[5];
    f->records[4].end.cancel_count = 1;
    f->records[4].end.cancelled = &f->cancelled;
    test_hold(&f->records[5], f->wanted[1]);
    f->records[5].hold.idempotency = &f->keys[1];
}

static void five_end(struct five *f) {
    for (int i = 0; i < 6; i++) test_record_deinit(&f->records[i]);
    for (int i = 0; i < 2; i++) mem_free(f->wanted[i]);
}

static void assert_five_done(struct ledger_client *d, struct five *f) {
    for (int i = 0; i < 6; i++) assert_int_equal(f->records[i].record.result, ERR_OK);
    assert_true(f->records[0].hold.held);
    assert_true(f->records[1].confirm.confirmed);
    assert_int_equal(f->records[1].confirm.stored->status, RESERVATION_CONFIRMED);
    assert_true(f->records[2].cancel.cancelled);
    assert_true(f->expired && f->ended && f->cancelled);
    assert_false(f->records[5].hold.held);
    assert_true(f->keys[1].replayed);
    assert_true(uuid_eq(&f->keys[1].reservation, &f->ids[0]));
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_CONFIRMED);
    assert_int_equal(ledger_client_status(d, 2), RESERVATION_CANCELLED);
    assert_int_equal(ledger_client_status(d, 3), RESERVATION_HELD);
    assert_int_equal(ledger_client_status(d, 4), RESERVATION_EXPIRED);
    assert_int_equal(ledger_client_status(d, 5), RESERVATION_CANCELLED);
    assert_int_equal(ledger_client_entry(d, 5), ENTRY_LEFT);
    ledger_client_assert_counts(d, 0, 1, 2);
    ledger_client_assert_counts(d, 1, 1, 0);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM idempotency"), 2);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM idempotency i JOIN reservations r"
                                       " ON r.id = i.reservation_id WHERE r.user_id = 'c'"),
                     1);
}

static void assert_five_undone(struct ledger_client *d, struct five *f, enum err result) {
    for (int i = 0; i < 6; i++) assert_int_equal(f->records[i].record.result, result);
    assert_false(f->records[0].hold.held);
    assert_false(f->records[1].confirm.confirmed);
    assert_false(f->records[1].confirm.completed);
    assert_null(f->records[1].confirm.stored);
    assert_false(f->records[2].cancel.cancelled);
    assert_null(f->records[2].cancel.stored);
    assert_false(f->keys[1].replayed);
    assert_null(ledger_client_get(d, 3));
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_HELD);
    assert_int_equal(ledger_client_entry(d, 5), ENTRY_ACTIVE);
    ledger_client_assert_counts(d, 0, 5, 0);
    ledger_client_assert_counts(d, 1, 1, 0);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM facts"), 5);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM idempotency"), 1);
}

/* The batch is rolled back after all had said what they did, and each says it again, once. */
static void a_batch_is_replayed_without_its_guilty_record(void **state) {
    struct ledger_client *d = *state;
    hold_before(d);
    struct five f;
    five_prepare(d, &f);
    struct reservation *guilty = ledger_client_wanted(d, 8, "h", 8, 0, SEATS(8));
    guilty->price = -1;
    struct test_record records[7];
    test_hold(&records[6], guilty);
    memcpy(records, f.records, sizeof f.records);
    for (int i = 0; i < 6; i += 5) records[i].hold.refused = records[i].refused;
    raw_submit_as_batch(&d->h, d->l, records, 7);
    memcpy(f.records, records, sizeof f.records);
    assert_int_equal(records[6].record.result, ERR_LEDGER_FAILED);
    assert_false(records[6].hold.held);
    assert_null(ledger_client_get(d, 8));
    assert_five_done(d, &f);
    ledger_client_assert_sound(d);
    five_end(&f);
    mem_free(guilty);
}

static void a_batch_that_fails_on_the_disk_changes_and_reports_nothing(void **state) {
    struct ledger_client *d = *state;
    hold_before(d);
    struct five f;
    five_prepare(d, &f);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    raw_submit_as_batch(&d->h, d->l, f.records, 6);
    sync_fail_syncs(0);
    assert_five_undone(d, &f, ERR_LEDGER_FAILED);
    five_end(&f);
    five_prepare(d, &f);
    raw_submit_as_batch_failing(&d->h, d->l, f.records, 6, SQLITE_FULL);
    assert_five_undone(d, &f, ERR_LEDGER_FULL);
    ledger_client_assert_sound(d);
    five_end(&f);
    /* The same again, when the cause is removed. */
    five_prepare(d, &f);
    raw_submit_as_batch(&d->h, d->l, f.records, 6);
    assert_five_done(d, &f);
    ledger_client_assert_sound(d);
    five_end(&f);
}

/* A user may have four seats: this one may have that many more, and not one above. */
static void assert_room(struct ledger_client *d, const char *user, uint64_t seq, uint32_t room) {
    static uint64_t number = 1000;
    uint32_t seats[] = {6, 7, 8, 9, 10, 0};
    seats[room + 1] = 0;
    assert_int_equal(ledger_client_hold(d, ++number, user, seq, 1, seats), ERR_LIMIT_EXCEEDED);
    if (room == 0) return;
    seats[room] = 0;
    assert_int_equal(ledger_client_hold(d, ++number, user, seq, 1, seats), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, number, user), ERR_OK);
}

/* User a, who has four seats by the holds 1 and 2, gives 1 back, and user b takes its seats and one
 * more. The last record, of user c, violates a constraint. */
struct exchange {
    struct test_record records[4];
    struct reservation *wanted[3];
    struct uuid given_back;
};

static void exchange_prepare(struct ledger_client *d, struct exchange *x) {
    x->given_back = ledger_client_id(1);
    test_cancel(&x->records[0], &x->given_back, "a", 2100);
    x->wanted[0] = ledger_client_wanted(d, 3, "b", 2, 0, SEATS(1, 2));
    x->wanted[1] = ledger_client_wanted(d, 4, "b", 2, 0, SEATS(5));
    x->wanted[2] = ledger_client_wanted(d, 5, "c", 3, 0, SEATS(6));
    x->wanted[2]->price = -1;
    for (int i = 0; i < 3; i++) test_hold(&x->records[i + 1], x->wanted[i]);
}

static void exchange_end(struct exchange *x) {
    for (int i = 0; i < 4; i++) test_record_deinit(&x->records[i]);
    for (int i = 0; i < 3; i++) mem_free(x->wanted[i]);
}

static void a_batch_that_fails_leaves_everybodys_limit_as_it_was(void **state) {
    struct ledger_client *d = *state;
    struct exchange x;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "a", 1, 0, SEATS(3, 4)), ERR_OK);
    exchange_prepare(d, &x);
    sync_fail_syncs(SQLITE_IOERR_FSYNC);
    raw_submit_as_batch(&d->h, d->l, x.records, 3);
    sync_fail_syncs(0);
    for (int i = 0; i < 3; i++) assert_int_equal(x.records[i].record.result, ERR_LEDGER_FAILED);
    exchange_end(&x);
    assert_room(d, "a", 1, 0);
    assert_room(d, "b", 2, 4);

    /* Replayed one by one, each counts once, and the one that fails does not. */
    exchange_prepare(d, &x);
    raw_submit_as_batch(&d->h, d->l, x.records, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(x.records[i].record.result, i == 3 ? ERR_LEDGER_FAILED : ERR_OK);
    exchange_end(&x);
    assert_room(d, "a", 1, 2);
    assert_room(d, "b", 2, 1);
    assert_room(d, "c", 3, 4);
    ledger_client_restart(d);
    assert_room(d, "a", 1, 2);
    assert_room(d, "b", 2, 1);
    assert_room(d, "c", 3, 4);
    ledger_client_assert_sound(d);
}

/* The disk fails at each write in turn, so also when the hold had been counted already. */
static void a_hold_that_the_disk_failed_can_be_repeated(void **state) {
    struct ledger_client *d = *state;
    int failed = 0;
    enum err e = ERR_LEDGER_FULL;
    for (int spared = 0; e != ERR_OK; spared++) {
        sync_fail_writes(SQLITE_FULL, spared);
        e = ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2, 3, 4));
        sync_fail_writes(0, 0);
        failed += e == ERR_LEDGER_FULL;
        assert_true(e == ERR_OK || e == ERR_LEDGER_FULL);
    }
    assert_true(failed > 2);
    assert_room(d, "a", 1, 0);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_room(d, "a", 1, 4);
}

/* Acknowledged records are stored and failed ones are not, whichever write fails. */
static void any_sequence_of_failures_keeps_what_was_acknowledged(void **state) {
    struct ledger_client *d = *state;
    uint64_t random = 7;
    int failed = 0;
    int kept = dup(STDERR_FILENO); /* every failure is logged */
    assert_non_null(freopen("/dev/null", "w", stderr));
    for (uint64_t i = 1; i <= 120; i++) {
        enum reservation_status status = RESERVATION_HELD;
        bool is_there = false;
        for (int step = 0; step < 3; step++) {
            uint64_t fault = next_random(&random) % 4;
            if (fault == 0) sync_fail_writes(SQLITE_FULL, (int)(next_random(&random) % 12));
            if (fault == 1) sync_fail_syncs(SQLITE_IOERR_FSYNC);
            enum err e = step == 0   ? ledger_client_hold(d, i, "j", 10, 0, SEATS(1, 2))
                         : step == 1 ? ledger_client_confirm(d, i, "j", 2500)
                                     : ledger_client_cancel(d, i, "j");
            sync_fail_writes(0, 0);
            sync_fail_syncs(0);
            /* The entry is COMPLETED by the first confirmation; another is needed then. */
            if (e == ERR_NOT_ACTIVE) break;
            if (step == 0) is_there = e == ERR_OK;
            if (e == ERR_OK && step == 1) status = RESERVATION_CONFIRMED;
            if (e == ERR_OK && step == 2) status = RESERVATION_CANCELLED;
            failed += e == ERR_LEDGER_FAILED || e == ERR_LEDGER_FULL;
            struct reservation *got = ledger_client_get(d, i);
            assert_int_equal(got != NULL, is_there);
            if (is_there) assert_int_equal(got->status, status);
            mem_free(got);
        }
        raw_sql(&d->h, "UPDATE queue_entries SET status = 'ACTIVE', finished_at = NULL"
                       " WHERE seq = 10");
        if (is_there && status != RESERVATION_CANCELLED)
            assert_int_equal(ledger_client_cancel(d, i, "j"), ERR_OK);
    }
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    assert_true(failed > 30);
    ledger_client_assert_counts(d, 0, 0, 0);
    ledger_client_assert_sound(d);
}

/* Each of its two sections has one seat. */
static void make_small(struct ledger_client *d) {
    struct event *small = test_event("1", 2);
    small->sections[0].capacity = 1;
    small->sections[1].capacity = 1;
    mem_free(harness_store(&d->h, d->l, small));
    mem_free(small);
}

static void a_sold_out_event_is_a_fact_each_time_it_becomes_so(void **state) {
    struct ledger_client *d = *state;
    static const char facts[] = "SELECT count(*) FROM facts WHERE kind = 'SOLD_OUT'";
    make_small(d);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(raw_number(&d->h, facts), 0);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 1, SEATS(1)), ERR_OK);
    assert_int_equal(raw_number(&d->h, facts), 1);
    assert_int_equal(raw_number(&d->h, "SELECT at FROM facts WHERE kind = 'SOLD_OUT'"),
                     TEST_HELD_MS);
    assert_int_equal(ledger_client_hold(d, 3, "c", 3, 1, SEATS(1)), ERR_SEAT_TAKEN);
    assert_int_equal(ledger_client_confirm(d, 1, "a", 2500), ERR_OK);
    assert_int_equal(raw_number(&d->h, facts), 1);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 4, "d", 4, 0, SEATS(1)), ERR_OK);
    assert_int_equal(raw_number(&d->h, facts), 2);
    /* A reservation's facts: each step once, in its order. */
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM facts WHERE section_id = 1"
                                       " AND user_id = 'a' AND seat_count = 1 AND event_id = 1"),
                     3);
}

/* Pitfalls 25 and 29 with an inconsistent file: rows of other reservations are not touched. */
static void rows_that_contradict_each_other_fail_their_record_alone(void **state) {
    struct ledger_client *d = *state;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(3)), ERR_OK);
    raw_sql(&d->h, "UPDATE seats SET reservation_id ="
                   " (SELECT id FROM reservations WHERE user_id = 'b') WHERE seat_no = 2");
    struct uuid ids[] = {ledger_client_id(1), ledger_client_id(2)};
    struct test_record records[3];
    test_confirm(&records[0], &ids[0], "a", 2500);
    test_cancel(&records[1], &ids[0], "a", 2500);
    test_confirm(&records[2], &ids[1], "b", 2500);
    raw_submit_as_batch(&d->h, d->l, records, 3);
    assert_int_equal(records[0].record.result, ERR_LEDGER_FAILED);
    assert_int_equal(records[1].record.result, ERR_LEDGER_FAILED);
    assert_int_equal(records[2].record.result, ERR_OK);
    assert_int_equal(ledger_client_status(d, 1), RESERVATION_HELD);
    assert_int_equal(ledger_client_seat(d, 0, 2, NULL), SEAT_HELD);
    for (int i = 0; i < 3; i++) test_record_deinit(&records[i]);
    /* It is not counted as confirmed or cancelled either. */
    assert_room(d, "a", 1, 2);
    assert_int_equal(ledger_client_hold(d, 3, "a", 1, 0, SEATS(4)), ERR_OK);
    assert_int_equal(ledger_client_confirm(d, 3, "a", 2500), ERR_OK);
    assert_int_equal(ledger_client_entry(d, 1), ENTRY_ACTIVE);
    raw_sql(&d->h, "UPDATE reservations SET seats = '1;2' WHERE seats = '1,2'");
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_LEDGER_FAILED);
    struct test_record get;
    test_reservation_get(&get, &ids[0]);
    assert_int_equal(harness_ask(&d->h, d->l, &get), ERR_LEDGER_FAILED);
    assert_null(get.reservation_get.found);
    struct ledger_reader reader = {.on_reservation = NULL};
    assert_int_equal(ledger_load(d->l, &reader), ERR_OK);
}

static void a_seat_whose_holder_is_no_id_is_not_reported(void **state) {
    struct ledger_client *d = *state;
    enum seat_state seat_state;
    int64_t version;
    struct uuid holder;
    struct test_record r;
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    raw_sql(&d->h, "UPDATE seats SET reservation_id = x'0102'");
    test_seats_read(&r, d->event->sections[0].key, SEATS(1), 1, &seat_state, &version, &holder);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_LEDGER_FAILED);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(1)), ERR_LEDGER_FAILED);
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 0, SEATS(2)), ERR_OK);
    assert_int_equal(ledger_client_seat(d, 0, 2, NULL), SEAT_HELD);
}

static void on_reservation(void *to, const struct reservation *r) {
    (void)r;
    (*(int *)to)++;
}

static void a_spoilt_row_keeps_the_server_from_starting_on_it(void **state) {
    struct ledger_client *d = *state;
    static const char *const spoilt[] = {
        "seats = '1,2,3'", "seats = '2,1'",      "seats = '1,1000001'", "seats = '0,1'",
        "seats = ''",      "strategy = 'magic'", "seat_count = 1001",   "currency = 'KRWX'",
    };
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        int told = 0;
        struct ledger_reader reader = {.on_reservation = on_reservation, .to = &told};
        raw_sql(&d->h,
                "CREATE TABLE kept AS SELECT * FROM reservations;"
                "UPDATE reservations SET %s",
                spoilt[i]);
        assert_int_equal(ledger_load(d->l, &reader), ERR_LEDGER_FAILED);
        assert_int_equal(told, 0);
        raw_sql(&d->h, "DELETE FROM reservations; INSERT INTO reservations SELECT * FROM kept;"
                       "DROP TABLE kept");
        assert_int_equal(ledger_load(d->l, &reader), ERR_OK);
        assert_int_equal(told, 1);
    }
}

/* Whoever can't be counted could be sold too much. */
static void a_live_row_that_cannot_be_counted_keeps_the_ledger_shut(void **state) {
    struct ledger_client *d = *state;
    static const char *const spoilt[] = {"seat_count = 1001", "seat_count = -2",
                                         "user_id = printf('%065d', 1)"};
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1, 2)), ERR_OK);
    ledger_close(d->l);
    raw_sql(&d->h, "CREATE TABLE kept AS SELECT * FROM reservations");
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        struct buf why = {0};
        raw_sql_unruly(&d->h, "UPDATE reservations SET %s", spoilt[i]);
        assert_int_equal(
            sqlite_ledger_open(&(struct sqlite_ledger_options){.path = d->h.path}, &d->l, &why),
            ERR_LEDGER_FAILED);
        if (strstr(buf_cstr(&why), "cannot count the live reservations in ") == NULL)
            fail_msg("%s", buf_cstr(&why));
        buf_deinit(&why);
        raw_sql(&d->h, "DELETE FROM reservations; INSERT INTO reservations SELECT * FROM kept");
    }
    raw_sql(&d->h, "DROP TABLE kept");
    d->l = open_sqlite(&d->h, 0);
    assert_room(d, "a", 1, 2);
}

/* Retention keeps facts that are not relayed yet. */
static void without_a_relay_facts_expire_by_retention(void **state) {
    struct ledger_client *d = *state;
    make_small(d);
    assert_int_equal(ledger_client_hold(d, 1, "a", 1, 0, SEATS(1)), ERR_OK);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM facts WHERE relayed_at IS NULL"), 1);
    ledger_close(d->l);
    d->l = raw_ledger_open(&(struct sqlite_ledger_options){.path = d->h.path, .no_relay = true});
    assert_int_equal(ledger_client_hold(d, 2, "b", 2, 1, SEATS(1)), ERR_OK);
    assert_int_equal(ledger_client_cancel(d, 1, "a"), ERR_OK);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM facts WHERE relayed_at IS NULL"), 1);
    assert_int_equal(raw_number(&d->h, "SELECT count(*) FROM facts WHERE relayed_at = at"
                                       " AND kind IN ('HELD','CANCELLED','SOLD_OUT')"),
                     3);
}

/* As in schema 2: the row of a key had the answer, whose first member is the id. */
static void a_key_of_an_older_version_is_answered(void **state) {
    struct ledger_client *d = *state;
    hold_before(d);
    raw_sql(&d->h,
            "DELETE FROM schema_version WHERE number > 2; DROP TABLE idempotency;"
            "ALTER TABLE events DROP COLUMN page;"
            "ALTER TABLE events DROP COLUMN return_hosts;"
            "ALTER TABLE events DROP COLUMN notice;"
            "ALTER TABLE events DROP COLUMN closes_at;"
            "ALTER TABLE events DROP COLUMN confirm_by;"
            "ALTER TABLE events DROP COLUMN cancel_confirmed;"
            "ALTER TABLE events DROP COLUMN rehold_s;"
            "ALTER TABLE events DROP COLUMN max_holds_per_stay;"
            "ALTER TABLE seats DROP COLUMN given_up;"
            "ALTER TABLE queue_entries DROP COLUMN holds;"
            "CREATE TABLE idempotency(id INTEGER PRIMARY KEY, user_id TEXT NOT NULL,"
            " route TEXT NOT NULL, key TEXT NOT NULL, body_digest BLOB NOT NULL,"
            " status INTEGER NOT NULL, response TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;"
            "CREATE UNIQUE INDEX idempotency_named ON idempotency(user_id, route, key);"
            "INSERT INTO idempotency VALUES (7, 'a', 'r', 'old', zeroblob(32), 201,"
            " '{\"id\":\"00000000-0006-7000-8000-000000000015\",\"status\":\"HELD\"}', %d),"
            " (8, 'a', 'r', 'of none', zeroblob(32), 201, '{\"id\":\"0\"}', 1)",
            TEST_HELD_MS);
    ledger_client_restart(d);
    struct idempotency key = key_of("old");
    struct uuid id = ledger_client_id(6);
    struct test_record r;
    test_idempotency_get(&r, &key);
    assert_int_equal(harness_ask(&d->h, d->l, &r), ERR_OK);
    assert_true(key.replayed && uuid_eq(&key.reservation, &id));
    assert_int_equal(raw_number(&d->h, "SELECT sum(id) FROM idempotency"), 7);
}

int main(void) {
    sync_recorder_register();
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_batch_is_replayed_without_its_guilty_record),
        TEST(a_batch_that_fails_on_the_disk_changes_and_reports_nothing),
        TEST(a_batch_that_fails_leaves_everybodys_limit_as_it_was),
        TEST(a_hold_that_the_disk_failed_can_be_repeated),
        TEST(any_sequence_of_failures_keeps_what_was_acknowledged),
        TEST(a_sold_out_event_is_a_fact_each_time_it_becomes_so),
        TEST(rows_that_contradict_each_other_fail_their_record_alone),
        TEST(a_seat_whose_holder_is_no_id_is_not_reported),
        TEST(a_live_row_that_cannot_be_counted_keeps_the_ledger_shut),
        TEST(a_spoilt_row_keeps_the_server_from_starting_on_it),
        TEST(without_a_relay_facts_expire_by_retention),
        TEST(a_key_of_an_older_version_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
