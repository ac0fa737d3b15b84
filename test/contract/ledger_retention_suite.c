#include "ledger_retention_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"

#define ENTRY_ROW                                                                                  \
    "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at, admitted_at,"      \
    " active_expires_at, finished_at) VALUES"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS (24 * HOUR_MS)

static const struct retention_adapter *adapter;

int retained_set_up(void **state) {
    struct retained *f = mem_new(sizeof *f);
    harness_init(&f->h);
    struct ledger *l = adapter->open(&f->h, HOUR_MS, 0, 0);
    f->tables = adapter->tables(&f->h);
    struct event *wanted = test_event("1", 2);
    f->stored = harness_store(&f->h, l, wanted);
    mem_free(wanted);
    ledger_close(l);
    f->now = clock_wall_ms();
    f->old = f->now - 31 * DAY_MS;
    f->recent = f->now - 29 * DAY_MS;
    *state = f;
    return 0;
}

int retained_tear_down(void **state) {
    struct retained *f = *state;
    if (f->l != NULL) ledger_close(f->l);
    mem_free(f->stored);
    harness_deinit(&f->h);
    mem_free(f);
    return 0;
}

void retained_keep(struct retained *f, int64_t audit_days, int64_t ended_days) {
    f->l = adapter->open(&f->h, 20, audit_days, ended_days);
}

int64_t retained_number(const struct retained *f, const char *sql) {
    return tables_number(f->tables, "%s", sql);
}

void retained_await(struct retained *f, const char *sql, int64_t number) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)HARNESS_DEADLINE_MS * 1000000;
    int64_t found;
    while ((found = retained_number(f, sql)) != number) {
        if (clock_steady_ns() > deadline_ns) fail_msg("%s is %lld", sql, (long long)found);
        harness_run_for(&f->h, 10);
    }
}

/* A complete pass is over when a row that was just inserted, and is due, has been removed. */
void retained_await_a_round(struct retained *f) {
    for (int i = 0; i < 2; i++) {
        tables_sql(f->tables,
                   "INSERT INTO events(type, external_id, version, title, state, auto_enter,"
                   " max_waiting, max_active, entry_batch_size, entry_interval_s, active_ttl_s,"
                   " grace_s, token_ttl_s, hold_s, max_per_user, currency, created_at,"
                   " updated_at, deleted_at) VALUES ('MARK', 'mark', 1, '', 'OPEN', 0, 0, 0, 0,"
                   " 0, 0, 0, 0, 0, 0, '', 1, 1, 1)");
        retained_await(f, "SELECT count(*) FROM events WHERE type = 'MARK'", 0);
    }
}

void retained_on_finding(void *to, const struct ledger_finding *finding) {
    (void)to;
    if (finding->violations > 0)
        fail_msg("%.*s: %.*s", (int)finding->invariant.len, finding->invariant.at,
                 (int)finding->examples.len, finding->examples.at);
}

void retained_assert_sound(struct retained *f) {
    assert_int_equal(ledger_check(f->l, false, retained_on_finding, NULL), ERR_OK);
}

const char *retained_rows_of_the_event(const struct retained *f) {
#define ROWS                                                                                       \
    "SELECT (SELECT count(*) FROM events WHERE id = 1)"                                            \
    " + (SELECT count(*) FROM sections WHERE event_id = 1)"                                        \
    " + (SELECT count(*) FROM seats WHERE section_id IN (1, 2))"                                   \
    " + (SELECT count(*) FROM queue_entries WHERE event_id = 1)"                                   \
    " + (SELECT count(*) FROM retired_entries WHERE event_id = 1)"                                 \
    " + (SELECT count(*) FROM reservations WHERE event_id = 1)"                                    \
    " + (SELECT count(*) FROM requests WHERE event_id = 1)"                                        \
    " + (SELECT count(*) FROM facts WHERE event_id = 1)"
    return f->tables.has_buyers ? ROWS " + (SELECT count(*) FROM buyers WHERE event_id = 1)" : ROWS;
}

static void old_audit_rows_go_but_never_the_newest(void **state) {
    struct retained *f = *state;
    tables_insert(f->tables, 1, 1700,
                  "audit(at, actor, act, subject, detail) SELECT i, 'a', 'b', 'c', '{}'");
    tables_sql(f->tables, "UPDATE audit SET at = %lld", f->old);
    uint64_t retired = counter_total(COUNT_LEDGER_RETIRED_ROWS);
    retained_keep(f, 30, 0);
    retained_await(f, "SELECT count(*) FROM audit", 1);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT id FROM audit"), 1701);
    assert_true(counter_total(COUNT_LEDGER_RETIRED_ROWS) - retired >= 1700);
    /* The next version is above all that ever were. */
    struct event *wanted = test_event("2", 1);
    struct event *stored = harness_store(&f->h, f->l, wanted);
    assert_int_equal(stored->version, 1702);
    mem_free(stored);
    mem_free(wanted);
}

static void for_ever_means_for_ever(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[0], 1, "CANCELLED");
    tables_sql(f->tables, "UPDATE audit SET at = 1;"
                          "INSERT INTO audit(at, actor, act, subject, detail)"
                          " VALUES (1, 'a', 'b', 'c', '{}');"
                          "UPDATE facts SET relayed_at = 1;" ENTRY_ROW
                          " (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, 1)");
    retained_keep(f, 0, 0);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM audit"), 2);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM reservations"), 1);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM facts"), 2);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM queue_entries"), 1);
}

static void the_highest_number_of_a_queue_is_never_forgotten(void **state) {
    struct retained *f = *state;
    tables_sql(f->tables,
               ENTRY_ROW " (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
                         " (1, 2, 'b', 8, 'LEFT', 1, NULL, NULL, %lld)",
               f->old, f->old);
    retained_keep(f, 0, 30);
    retained_await(f, "SELECT count(*) FROM queue_entries", 1);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT seq FROM queue_entries"), 2);
}

static void on_totals(void *to, int64_t event_key, const struct queue_counts *totals) {
    assert_int_equal(event_key, 1);
    *(struct queue_counts *)to = *totals;
}

static void assert_totals(struct retained *f) {
    struct queue_counts t = {0};
    struct ledger_reader reader = {.on_totals = on_totals, .to = &t};
    assert_int_equal(ledger_load(f->l, &reader), ERR_OK);
    assert_int_equal(t.entered, 6);
    assert_int_equal(t.admitted, 3);
    assert_int_equal(t.completed, 1);
    assert_int_equal(t.left, 2);
    assert_int_equal(t.expired, 1);
    assert_int_equal(t.waited_ms, 100 + 7 + 20);
    assert_int_equal(t.waited_ms_max, 100);
}

static void entries_that_go_stay_counted(void **state) {
    struct retained *f = *state;
    tables_sql(f->tables,
               ENTRY_ROW " (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
                         " (1, 2, 'b', 8, 'COMPLETED', 1, 101, 3000, %lld),"
                         " (1, 3, 'c', 8, 'VOID', 1, NULL, NULL, %lld),"
                         " (1, 4, 'd', 8, 'EXPIRED', 1, 8, 3000, %lld),"
                         " (1, 5, 'e', 8, 'LEFT', 1, NULL, NULL, %lld),"
                         " (1, 6, 'f', 8, 'ACTIVE', 1, 21, 3000, NULL),"
                         " (1, 7, 'g', 8, 'WAITING', 1, NULL, NULL, NULL)",
               f->old, f->old, f->old, f->old, f->recent);
    retained_keep(f, 0, 0);
    assert_totals(f);
    ledger_close(f->l);
    retained_keep(f, 0, 30);
    retained_await(f, "SELECT count(*) FROM queue_entries", 3);
    assert_totals(f);
    tables_sql(f->tables, "UPDATE queue_entries SET finished_at = %lld WHERE seq = 5", f->old);
    retained_await(f, "SELECT count(*) FROM queue_entries", 2);
    assert_totals(f);
    retained_assert_sound(f);
}

static void idempotency_lasts_a_day(void **state) {
    struct retained *f = *state;
    tables_sql(f->tables,
               "INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id,"
               " created_at) VALUES ('u', 'r', 'old', {00}, {01}, %lld),"
               " ('u', 'r', 'young', {00}, {02}, %lld)",
               (long long)(f->now - 25 * HOUR_MS), (long long)(f->now - 23 * HOUR_MS));
    retained_keep(f, 0, 0);
    retained_await(f, "SELECT count(*) FROM idempotency", 1);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM idempotency WHERE key = 'young'"), 1);
}

/* A repeated request is answered from the reservation, though its section has been taken out. */
static void a_reservation_stays_as_long_as_the_key_that_names_it(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[1], 3, "CANCELLED");
    tables_sql(f->tables,
               "UPDATE facts SET relayed_at = 1;"
               "INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id,"
               " created_at) VALUES ('user', 'r', 'k', {00}, {03}, %lld)",
               (long long)(f->now - 23 * HOUR_MS));
    retained_keep(f, 0, 1);
    struct event *only_a = test_event("1", 1);
    mem_free(harness_store(&f->h, f->l, only_a));
    mem_free(only_a);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM reservations"), 1);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM sections"), 2);
    tables_sql(f->tables, "UPDATE idempotency SET created_at = %lld",
               (long long)(f->now - 25 * HOUR_MS));
    retained_await(f, "SELECT count(*) FROM reservations", 0);
    retained_await(f, "SELECT count(*) FROM sections", 1);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM idempotency"), 0);
    retained_assert_sound(f);
}

static void seed_reservations(struct retained *f) {
    static const char *const statuses[] = {"CONFIRMED", "HELD", "CANCELLED", "EXPIRED", "EXPIRED"};
    for (unsigned i = 0; i < 5; i++)
        tables_reservation(f->tables, i + 1, f->stored, &f->stored->sections[0], i < 3 ? i + 1 : 3,
                           statuses[i]);
    tables_sql(f->tables,
               "UPDATE reservations SET created_at = %lld, ended_at = ended_at + %lld - 2000;"
               "UPDATE reservations SET ended_at = %lld WHERE id = {05};"
               "UPDATE facts SET at = %lld, relayed_at = %lld;"
               "UPDATE facts SET relayed_at = NULL WHERE reservation_id = {04}"
               " AND kind = 'EXPIRED'",
               f->old, f->old, f->recent, f->old, f->old);
    /* One that never was, under an id that no late hold will bring any more. */
    tables_sql(f->tables,
               "INSERT INTO reservations VALUES ({0a}, 1, 1, '', 0, '', 'VOID', 0, '', 0, '', 1,"
               " 1, NULL, %lld, NULL)",
               f->old);
}

#define REQUEST_ROWS                                                                               \
    "INSERT INTO requests(seq, id, partition, event_id, section_id, user_id, entry_seq, strategy," \
    " quantity, body_digest, ahead, status, reason, created_at, finished_at) VALUES"

static void seed_queue_and_requests(struct retained *f) {
    tables_sql(f->tables,
               ENTRY_ROW " (1, 1, 'a', 8, 'LEFT', 1, NULL, NULL, %lld),"
                         " (1, 2, 'b', 8, 'COMPLETED', 1, 2, 3, %lld),"
                         " (1, 3, 'c', 8, 'WAITING', 1, NULL, NULL, NULL),"
                         " (1, 4, 'd', 1, 'ACTIVE', 1, 2, 3, NULL)",
               f->old, f->recent);
    tables_sql(f->tables,
               REQUEST_ROWS
               " (1, {01}, 0, 1, 1, 'a', 1, 'queue', 1, {01}, 0, 'FAIL', 'x', 1, %lld),"
               " (2, {11}, 0, 1, 1, 'a', 1, 'queue', 1, {11}, 0, 'FAIL', 'x', 1, %lld),"
               " (3, {22}, 0, 1, 1, 'a', 1, 'queue', 1, {22}, 0, 'PENDING', '', 1, NULL)",
               f->old, f->recent);
    if (f->tables.has_buyers)
        tables_sql(f->tables, "INSERT INTO buyers VALUES (1, 'nobody', 0, 0)");
}

static void ended_things_go_and_live_ones_stay(void **state) {
    struct retained *f = *state;
    seed_reservations(f);
    seed_queue_and_requests(f);
    retained_keep(f, 0, 30);
    retained_await(f, "SELECT count(*) FROM reservations", 4);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM reservations WHERE id = {03}"), 0);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM facts WHERE reservation_id = {03}"),
                     0);
    assert_int_equal(retained_number(f, "SELECT sum(seq) FROM queue_entries"), 2 + 3 + 4);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM requests"), 2);
    if (f->tables.has_buyers)
        assert_int_equal(retained_number(f, "SELECT count(*) FROM buyers"), 1);
    retained_assert_sound(f);

    /* Once its last fact is relayed, the fourth goes too. */
    tables_sql(f->tables, "UPDATE facts SET relayed_at = 1");
    retained_await(f, "SELECT count(*) FROM reservations", 3);
    retained_assert_sound(f);
}

static void sold_out(struct retained *f, int64_t at_ms) {
    tables_sql(f->tables,
               "INSERT INTO facts(kind, event_id, seat_count, at) VALUES ('SOLD_OUT', 1, 0, %lld)",
               (long long)at_ms);
}

/* Boards that are rebuilt count it from there; it is not relayed. */
static void when_an_event_was_last_sold_out_is_known_as_long_as_it_lives(void **state) {
    struct retained *f = *state;
    sold_out(f, f->old - 1);
    sold_out(f, f->old);
    tables_sql(f->tables, "UPDATE facts SET relayed_at = at WHERE at = %lld", (long long)f->old);
    retained_keep(f, 0, 30);
    retained_await(f, "SELECT count(*) FROM facts", 1);
    retained_await_a_round(f);
    assert_true(retained_number(f, "SELECT max(at) FROM facts") == f->old);
    retained_assert_sound(f);
}

static void delete_event(struct retained *f) {
    struct test_record r;
    test_delete(&r, "CONCERT", "1", 5);
    assert_int_equal(harness_submit(&f->h, f->l, &r), ERR_OK);
}

static void everything_of_a_deleted_event_goes(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[0], 3, "CANCELLED");
    tables_sql(f->tables, "UPDATE facts SET relayed_at = 1;"
                          "INSERT INTO reservations VALUES ({01}, 1, 1, '', 0, '', 'VOID', 0, '',"
                          " 0, '', 1, 1, NULL, 1, NULL);" REQUEST_ROWS
                          " (1, {01}, 0, 1, 1, 'a', 1, 'queue', 1, {01}, 0, 'FAIL',"
                          " 'x', 1, 2)");
    sold_out(f, f->recent);
    tables_insert(f->tables, 1, 1200,
                  "queue_entries(event_id, seq, user_id, lane, status, joined_at,"
                  " admitted_at, active_expires_at, finished_at) SELECT 1, i, 'u' || i, 8, "
                  "'WAITING', 1, NULL, NULL, NULL");
    tables_insert(f->tables, 1, 700,
                  "seats(section_id, seat_no, state, version)"
                  " SELECT 1 + i % 2, i, 'AVAILABLE', 2");
    if (f->tables.has_buyers) tables_insert(f->tables, 1, 700, "buyers SELECT 1, 'u' || i, 0, 0");
    retained_keep(f, 0, 0);
    struct event *other = test_event("other", 1);
    mem_free(harness_store(&f->h, f->l, other));
    delete_event(f);
    retained_await(f, retained_rows_of_the_event(f), 0);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM events"), 1);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM sections"), 1);
    retained_assert_sound(f);
    mem_free(other);
}

static void deleted_event_waits_for_its_facts_to_be_relayed(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[0], 3, "CANCELLED");
    retained_keep(f, 0, 0);
    delete_event(f);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, retained_rows_of_the_event(f)), 1 + 2 + 1 + 2);
    retained_assert_sound(f);
    tables_sql(f->tables, "UPDATE facts SET relayed_at = 1");
    retained_await(f, retained_rows_of_the_event(f), 0);
    retained_assert_sound(f);
}

/* Boards count it a moment later, or when a transaction that keeps them has ended. */
static void what_was_given_back_a_moment_ago_stays_though_its_section_goes(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[1], 3, "CANCELLED");
    tables_sql(f->tables,
               "UPDATE facts SET relayed_at = 1; UPDATE reservations SET created_at = %lld,"
               " ended_at = %lld",
               (long long)f->now - 2000, (long long)f->now - 1000);
    retained_keep(f, 0, 0);
    struct event *only_a = test_event("1", 1);
    mem_free(harness_store(&f->h, f->l, only_a));
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM facts"), 2);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM sections"), 2);
    retained_assert_sound(f);
    tables_sql(f->tables, "UPDATE reservations SET created_at = 1, ended_at = 2");
    retained_await(f, "SELECT count(*) FROM facts", 0);
    retained_await(f, "SELECT count(*) FROM sections", 1);
    mem_free(only_a);
}

static void section_taken_out_goes_with_its_history(void **state) {
    struct retained *f = *state;
    tables_reservation(f->tables, 3, f->stored, &f->stored->sections[1], 3, "CANCELLED");
    tables_sql(f->tables, "UPDATE facts SET relayed_at = 1;"
                          "INSERT INTO seats(section_id, seat_no, state, version)"
                          " VALUES (1, 1, 'AVAILABLE', 2),"
                          " (2, 3, 'AVAILABLE', 2)");
    retained_keep(f, 0, 0);
    struct event *only_a = test_event("1", 1);
    mem_free(harness_store(&f->h, f->l, only_a));
    retained_await(f, "SELECT count(*) FROM sections", 1);
    retained_await_a_round(f);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM seats"), 1);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM reservations"), 0);
    assert_int_equal(retained_number(f, "SELECT count(*) FROM events"), 1);
    retained_assert_sound(f);
    mem_free(only_a);
}

int ledger_retention_suite_run(const struct retention_adapter *a) {
    adapter = a;
    const struct CMUnitTest tests[] = {
        RETAINED_TEST(old_audit_rows_go_but_never_the_newest),
        RETAINED_TEST(for_ever_means_for_ever),
        RETAINED_TEST(the_highest_number_of_a_queue_is_never_forgotten),
        RETAINED_TEST(entries_that_go_stay_counted),
        RETAINED_TEST(idempotency_lasts_a_day),
        RETAINED_TEST(a_reservation_stays_as_long_as_the_key_that_names_it),
        RETAINED_TEST(ended_things_go_and_live_ones_stay),
        RETAINED_TEST(when_an_event_was_last_sold_out_is_known_as_long_as_it_lives),
        RETAINED_TEST(everything_of_a_deleted_event_goes),
        RETAINED_TEST(deleted_event_waits_for_its_facts_to_be_relayed),
        RETAINED_TEST(what_was_given_back_a_moment_ago_stays_though_its_section_goes),
        RETAINED_TEST(section_taken_out_goes_with_its_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
