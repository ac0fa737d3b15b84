#include "ledger_check_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"

#define ENTRY_ROW                                                                                  \
    "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at, admitted_at,"      \
    " active_expires_at, finished_at) VALUES"

static const struct check_adapter *adapter;

/* {02} has that many seats, and the user, with {01}, one more. */
#define HAS(count, numbers)                                                                        \
    "UPDATE sections SET capacity = 2000, held = " #count " WHERE id = 1;"                         \
    "DELETE FROM seats WHERE reservation_id = {02};"                                               \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " #count ")"         \
    " INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"                      \
    " SELECT 1, 1000 + i, 'HELD', {02}, 1 FROM n;"                                                 \
    "UPDATE facts SET seat_count = " #count " WHERE reservation_id = {02};"                        \
    "UPDATE reservations SET seat_count = " #count ", seats = '" numbers "' WHERE id = {02}"

/* The table of buyers, where there is one, as it should be. */
static const char counts_buyers[] =
    "UPDATE buyers SET seats = (SELECT sum(seat_count) FROM reservations"
    "  WHERE status IN ('HELD', 'CONFIRMED')),"
    " held = (SELECT sum(seat_count) FROM reservations WHERE status = 'HELD')";

#define REQUEST_ROW                                                                                \
    "INSERT INTO requests(seq, id, partition, event_id, section_id, user_id, entry_seq, strategy," \
    " quantity, body_digest, ahead, status, reason, reservation_id, created_at, finished_at) "     \
    "VALUES"

/* Reservation {01} CONFIRMED has seat 40 of section 1, {02} HELD seat 41, {03} was CANCELLED.
 * Entries 1 and 3 finished, 2 is ACTIVE, 4 and 5 wait, 6 (lane 2) is ACTIVE. */
static const char seeds_entries[] = ENTRY_ROW
    " (1, 1, 'a', 8, 'COMPLETED', 10, 20, 30, 25),"
    " (1, 2, 'b', 8, 'ACTIVE', 10, 20, 9000000000000, NULL),"
    " (1, 3, 'c', 8, 'LEFT', 10, NULL, NULL, 15),"
    " (1, 4, 'd', 8, 'WAITING', 10, NULL, NULL, NULL),"
    " (1, 5, 'e', 8, 'WAITING', 10, NULL, NULL, NULL),"
    " (1, 6, 'f', 2, 'ACTIVE', 10, 20, 9000000000000, NULL),"
    " (1, 7, 'g', 2, 'EXPIRED', 10, 20, 30, 40),"
    " (1, 8, 'g', 2, 'WAITING', 40, NULL, NULL, NULL);" REQUEST_ROW
    " (1, {11}, 3, 1, 1, 'a', 1, 'queue', 2, {11}, 0, 'PENDING', '', NULL, 10, NULL);"
    "INSERT INTO facts(kind, event_id, seat_count, at) VALUES ('SOLD_OUT', 1, 0, 5),"
    " ('SOLD_OUT', 1, 0, 6);"
    /* A free seat beyond the section, which has shrunk. */
    "INSERT INTO seats(section_id, seat_no, state, version) VALUES (1, 500, 'AVAILABLE', 2)";

static int set_up(void **state) {
    (void)state;
    adapter->open();
    struct event *wanted = test_event("1", 2);
    struct event *stored = adapter->store(wanted);
    struct tables t = adapter->tables();
    tables_reservation(t, 1, stored, &stored->sections[0], 40, "CONFIRMED");
    tables_reservation(t, 2, stored, &stored->sections[0], 41, "HELD");
    tables_reservation(t, 3, stored, &stored->sections[0], 42, "CANCELLED");
    tables_sql(t, "%s", seeds_entries);
    if (adapter->seed != NULL) tables_sql(t, "%s", adapter->seed);
    mem_free(stored);
    mem_free(wanted);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    adapter->shut();
    return 0;
}

/* Counts the violations of one invariant, and those of all others. */
struct findings {
    const char *expected;
    int64_t violations;
    int64_t elsewhere;
    int64_t checked;
    int64_t overdue;
    int findings;
    char examples[300];
    char others[300];
};

static void on_finding(void *to, const struct ledger_finding *f) {
    struct findings *t = to;
    t->findings++;
    t->overdue += f->overdue;
    assert_int_equal(f->violations > 0, f->examples.len > 0);
    if (str_eq(f->invariant, str_of(t->expected))) {
        t->violations = f->violations;
        t->checked = f->checked;
        str_copy(f->examples, t->examples, sizeof t->examples);
    } else if (f->violations > 0) {
        t->elsewhere += f->violations;
        str_copy(f->invariant, t->others, sizeof t->others);
    }
}

static struct findings check(bool server_runs, const char *expected) {
    struct findings t = {.expected = expected};
    assert_true(adapter->check(server_runs, on_finding, &t));
    if (t.elsewhere > 0) fail_msg("%s is violated too", t.others);
    return t;
}

static const struct violation violations[] = {
    {"seat_sold_once",
     "INSERT INTO reservations SELECT {09}, event_id, section_id, user_id, entry_seq, strategy,"
     " status, seat_count, seats, price, currency, expires_at, created_at, confirmed_at, ended_at,"
     " NULL FROM reservations WHERE id = {01};"
     "UPDATE sections SET confirmed = 2 WHERE id = 1;"
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " VALUES ('HELD', 1, {09}, 1, 1), ('CONFIRMED', 1, {09}, 1, 1)",
     "section 1 seat 40 in 2"},
    {"taken_seat_has_its_reservation",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
     " VALUES (1, 43, 'HELD', {02}, 1)",
     "section 1 seat 43"},
    {"taken_seat_has_its_reservation",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
     " VALUES (1, 43, 'HELD', {09}, 1)",
     "section 1 seat 43"},
    {"taken_seat_has_its_reservation",
     "UPDATE seats SET state = 'HELD' WHERE section_id = 1 AND seat_no = 40", "section 1 seat 40"},
    {"reservation_has_its_seats", "DELETE FROM seats WHERE seat_no = 40",
     "reservation 01010101010101010101010101010101"},
    {"reservation_has_its_seats",
     "UPDATE seats SET state = 'AVAILABLE', reservation_id = NULL WHERE seat_no = 40",
     "reservation 01010101010101010101010101010101"},
    {"reservation_has_its_seats",
     "UPDATE reservations SET seats = '41,41', seat_count = 2 WHERE id = {02};"
     "UPDATE facts SET seat_count = 2 WHERE reservation_id = {02};"
     "UPDATE sections SET held = 2 WHERE id = 1",
     "reservation 02020202020202020202020202020202"},
    {"available_seat_is_free",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
     " VALUES (1, 43, 'AVAILABLE', {02}, 1)",
     "section 1 seat 43"},
    {"seat_within_capacity", "UPDATE sections SET capacity = 40 WHERE id = 1", "section 1 seat 41"},
    {"user_has_no_more_than_allowed", HAS(4, "1001,1002,1003,1004"), "event 1 user user"},
    {"section_has_what_is_counted", "UPDATE sections SET held = 0 WHERE id = 1", "section 1"},
    {"section_has_what_is_counted", "UPDATE sections SET held = 2, confirmed = 0 WHERE id = 1",
     "section 1"},
    {"section_has_what_is_counted", "UPDATE sections SET confirmed = 1 WHERE id = 2", "section 2"},
    {"one_live_entry_per_user", ENTRY_ROW " (1, 9, 'd', 8, 'WAITING', 10, NULL, NULL, NULL)",
     "event 1 user d"},
    {"entry_has_the_times_of_its_status",
     "UPDATE queue_entries SET active_expires_at = NULL WHERE seq = 2", "event 1 entry 2"},
    {"entry_has_the_times_of_its_status",
     "UPDATE queue_entries SET active_expires_at = 5 WHERE seq = 4", "event 1 entry 4"},
    {"entry_has_the_times_of_its_status",
     "UPDATE queue_entries SET finished_at = NULL WHERE seq = 1", "event 1 entry 1"},
    {"admission_follows_order", ENTRY_ROW " (1, 9, 'x', 8, 'ACTIVE', 10, 20, 9000000000000, NULL)",
     "event 1 entry 9 overtook 4"},
    {"admission_follows_order", ENTRY_ROW " (1, 9, 'x', 8, 'COMPLETED', 10, 20, 30, 25)",
     "event 1 entry 9 overtook 4"},
    {"reservation_has_the_times_of_its_status",
     "UPDATE reservations SET confirmed_at = NULL WHERE id = {01}",
     "reservation 01010101010101010101010101010101"},
    {"reservation_has_the_times_of_its_status",
     "UPDATE reservations SET ended_at = NULL WHERE status = 'CANCELLED'",
     "reservation 03030303030303030303030303030303"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'HELD' AND reservation_id = {01}",
     "reservation 01010101010101010101010101010101 lacks HELD"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'HELD' AND reservation_id = {02}",
     "reservation 02020202020202020202020202020202 lacks HELD"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'CONFIRMED'",
     "reservation 01010101010101010101010101010101 lacks CONFIRMED"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'CANCELLED'",
     "reservation 03030303030303030303030303030303 lacks CANCELLED"},
    {"fact_stands_once",
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " SELECT kind, event_id, reservation_id, seat_count, at FROM facts WHERE kind = 'CONFIRMED'",
     "reservation 01010101010101010101010101010101 CONFIRMED"},
    {"boards_count_what_is_live", "UPDATE facts SET seat_count = 3 WHERE reservation_id = {02}",
     "reservation 02020202020202020202020202020202 HELD, fact HELD of 3 seats"},
    {"boards_count_what_is_live",
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " VALUES ('CANCELLED', 1, {02}, 1, 1)",
     "reservation 02020202020202020202020202020202 HELD, fact CANCELLED of 1 seats"},
    {"boards_count_what_is_live",
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " VALUES ('EXPIRED', 1, {03}, 1, 1)",
     "reservation 03030303030303030303030303030303 CANCELLED, fact EXPIRED of 1 seats"},
    {"word_is_known", "UPDATE seats SET state = 'SOLD' WHERE seat_no = 500",
     "section 1 seat 500 SOLD"},
    {"word_is_known",
     "UPDATE reservations SET status = 'LOST' WHERE status = 'CANCELLED';"
     "UPDATE facts SET kind = 'LOST' WHERE kind = 'SOLD_OUT';"
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at) VALUES"
     " ('EXPIRED', 1, {03}, 1, 1)",
     "LOST"},
    {"request_has_its_result",
     REQUEST_ROW " (2, {12}, 3, 1, 1, 'user', 1, 'queue', 2, {12}, 0, 'SUCCESS', '', {02}, 1, 2)",
     "request 12121212121212121212121212121212 reservation 02020202020202020202020202020202"},
    {"request_has_its_result",
     REQUEST_ROW " (2, {12}, 3, 1, 1, 'user', 1, 'queue', 1, {12}, 0, 'SUCCESS', '', {09}, 1,"
                 " 9000000000000)",
     "request 12121212121212121212121212121212 reservation 09090909090909090909090909090909"},
    {"request_has_its_result",
     REQUEST_ROW " (2, {12}, 3, 1, 1, 'user', 1, 'queue', 1, {12}, 0, 'FAIL', 'x', NULL, 1, 2);"
                 "INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id,"
                 " created_at) VALUES ('user', '" REQUEST_ROUTE
                 "', '12121212-1212-1212-1212-121212121212', {11}, {01}, 1)",
     "request 12121212121212121212121212121212 FAIL, but was held"},
    {"request_has_its_result", "UPDATE requests SET partition = 16 WHERE seq = 1",
     "request 11111111111111111111111111111111 partition 16"},
    {"request_is_held_by_its_user",
     "INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id, created_at) VALUES"
     " ('user', '" REQUEST_ROUTE "', '11111111-1111-1111-1111-111111111111', {11}, {02}, 1)",
     "request 11111111111111111111111111111111 reservation 02020202020202020202020202020202 of "
     "another user"},
    {"reference_leads_somewhere", "UPDATE requests SET section_id = 77 WHERE seq = 1",
     "request 11111111111111111111111111111111 section 77"},
    {"reference_leads_somewhere",
     "UPDATE reservations SET section_id = 77 WHERE status = 'CANCELLED'",
     "reservation 03030303030303030303030303030303 section 77"},
    {"reference_leads_somewhere",
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " VALUES ('HELD', 1, {09}, 1, 1)",
     "reservation 09090909090909090909090909090909"},
    {"reference_leads_somewhere", "UPDATE facts SET event_id = 77 WHERE id = 1", "fact 1 event 77"},
    {"foreign_keys", ENTRY_ROW " (77, 1, 'x', 8, 'WAITING', 10, NULL, NULL, NULL)",
     "queue_entries without events"},
    {"foreign_keys",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version, fence) VALUES (77, 1, "
     "'AVAILABLE', NULL, 0, 0)",
     "seats without sections"},
    {"foreign_keys",
     "INSERT INTO sections(event_id, code, name, capacity, price, mode, status, position)"
     " VALUES (77, 'A', 'A', 1, 1, 'slot', 'open', 0)",
     "sections without events"},
};

static void change(struct tables t, const char *sql) {
    tables_sql(t, "%s", sql);
    if (t.has_buyers) tables_sql(t, "%s", counts_buyers);
}

static void assert_found(const struct violation *v) {
    struct findings t = check(true, v->invariant);
    if (t.violations == 0) fail_msg("not found: %s", v->sql);
    if (strstr(t.examples, v->example) == NULL) fail_msg("%s: %s", v->sql, t.examples);
    assert_true(t.checked > 0);
    if (adapter->repair != NULL) {
        adapter->repair();
    } else {
        tear_down(NULL);
        set_up(NULL);
    }
}

#define VIOLATIONS (sizeof violations / sizeof *violations)

static void each_violation_is_found_by_its_own_check(void **state) {
    (void)state;
    for (size_t i = 0; i < VIOLATIONS; i++) {
        change(adapter->unruly(), violations[i].sql);
        assert_found(&violations[i]);
    }
    for (size_t i = 0; i < adapter->violation_count; i++) {
        tables_sql(adapter->unruly(), "%s", adapter->violations[i].sql);
        assert_found(&adapter->violations[i]);
    }
    check(true, "");
}

static int invariants_of(const struct violation *all, size_t count) {
    int known = 0;
    for (size_t i = 0; i < count; i++)
        known += i == 0 || strcmp(all[i].invariant, all[i - 1].invariant) != 0 ? 1 : 0;
    return known;
}

static void every_check_has_a_violation_here(void **state) {
    (void)state;
    struct findings t = check(true, "");
    int known = 1; /* hold_ends_in_time has a separate test */
    known += invariants_of(violations, VIOLATIONS);
    known += invariants_of(adapter->violations, adapter->violation_count);
    assert_int_equal(t.findings, known);
    assert_int_equal(t.overdue, 0);
}

static void hold_expired_ms_ago(int64_t ms) {
    tables_sql(adapter->tables(), "UPDATE reservations SET expires_at = %lld WHERE status = 'HELD'",
               (long long)(clock_wall_ms() - ms));
}

static void hold_past_its_time_is_overdue_then_a_violation(void **state) {
    (void)state;
    hold_expired_ms_ago(3000);
    struct findings t = check(true, "hold_ends_in_time");
    assert_int_equal(t.violations, 0);
    assert_int_equal(t.overdue, 1);
    hold_expired_ms_ago(60000);
    t = check(false, "hold_ends_in_time");
    assert_int_equal(t.violations, 0);
    assert_int_equal(t.overdue, 1);
    t = check(true, "hold_ends_in_time");
    assert_int_equal(t.violations, 1);
    assert_int_equal(t.overdue, 0);
    assert_string_equal(t.examples, "reservation 02020202020202020202020202020202");
}

/* HELD and CONFIRMED seats count together. The event allows 4; then 6, then 1. */
static void user_may_have_as_many_seats_as_the_event_ever_allowed(void **state) {
    (void)state;
    struct event *wanted = test_event("1", 2);
    change(adapter->tables(), HAS(3, "1001,1002,1003"));
    check(true, "");
    static const int64_t limits[] = {6, 1};
    for (int i = 0; i < 2; i++) {
        wanted->max_per_user = limits[i];
        wanted->sections[0].capacity = 2000;
        mem_free(adapter->store(wanted));
    }
    mem_free(wanted);
    change(adapter->tables(), HAS(5, "1001,1002,1003,1004,1005"));
    check(true, "");
    change(adapter->tables(), HAS(6, "1001,1002,1003,1004,1005,1006"));
    assert_int_equal(check(true, "user_has_no_more_than_allowed").violations, 1);
}

static void examples_are_few_however_many_violations(void **state) {
    (void)state;
    tables_insert(adapter->unruly(), 200, 399,
                  "queue_entries(event_id, seq, user_id, lane, status, joined_at,"
                  " admitted_at, active_expires_at, finished_at) SELECT 1, i, 'u' || (i / 2), 8, "
                  "'WAITING', 10, NULL, NULL, NULL");
    struct findings t = check(true, "one_live_entry_per_user");
    assert_int_equal(t.violations, 100);
    assert_string_equal(t.examples, "event 1 user u100; event 1 user u101; event 1 user u102; "
                                    "event 1 user u103; event 1 user u104");
}

static void spoilt_list_of_seats_is_a_violation_not_a_failure(void **state) {
    (void)state;
    tables_sql(adapter->tables(),
               "UPDATE reservations SET seats = 'forty]' WHERE status = 'HELD';"
               "UPDATE seats SET state = 'AVAILABLE', reservation_id = NULL WHERE seat_no = 41");
    struct findings t = check(true, "reservation_has_its_seats");
    assert_int_equal(t.violations, 1);
}

int ledger_check_suite_run(const struct check_adapter *a) {
    adapter = a;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_violation_is_found_by_its_own_check),
        TEST(every_check_has_a_violation_here),
        TEST(hold_past_its_time_is_overdue_then_a_violation),
        TEST(user_may_have_as_many_seats_as_the_event_ever_allowed),
        TEST(examples_are_few_however_many_violations),
        TEST(spoilt_list_of_seats_is_a_violation_not_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
