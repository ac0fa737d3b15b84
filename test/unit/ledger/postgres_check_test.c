/* Each invariant's query finds its violation, and none mistakes another's for its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_harness.h"
#include "postgres_scratch.h"

/* Reservation x'01…' CONFIRMED has seat 40 of section 1, x'02…' HELD seat 41, x'03…' was
 * CANCELLED. Entries 1 and 3 finished, 2 is ACTIVE, 4 and 5 wait, 6 (lane 2) is ACTIVE. */
struct fixture {
    struct scratch s;
};

#define R1 "'01010101010101010101010101010101'"
#define R2 "'02020202020202020202020202020202'"
#define R9 "'09090909090909090909090909090909'"

/* R2 has that many seats, and the user, with R1, one more. */
#define R2_HAS(seats)                                                                              \
    "UPDATE sections SET capacity = 2000, held = " seats " WHERE id = 1;"                          \
    "DELETE FROM seats WHERE reservation_id = " R2 ";"                                             \
    "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"                       \
    " SELECT 1, 1000 + i, 'HELD', " R2 ", 1 FROM generate_series(1, " seats ") i;"                 \
    "UPDATE reservations SET seat_count = " seats ", seats ="                                      \
    " (SELECT string_agg(seat_no::text, ',' ORDER BY seat_no) FROM seats"                          \
    "  WHERE reservation_id = " R2 ") WHERE id = " R2 ";"                                          \
    "UPDATE buyers SET seats = 1 + " seats ", held = " seats

static const char seeds_entries[] =
    "INSERT INTO queue_entries VALUES"
    " (1, 1, 'a', 8, 'COMPLETED', 10, 20, 30, 25),"
    " (1, 2, 'b', 8, 'ACTIVE', 10, 20, 9000000000000, NULL),"
    " (1, 3, 'c', 8, 'LEFT', 10, NULL, NULL, 15),"
    " (1, 4, 'd', 8, 'WAITING', 10, NULL, NULL, NULL),"
    " (1, 5, 'e', 8, 'WAITING', 10, NULL, NULL, NULL),"
    " (1, 6, 'f', 2, 'ACTIVE', 10, 20, 9000000000000, NULL),"
    " (1, 7, 'g', 2, 'EXPIRED', 10, 20, 30, 40),"
    " (1, 8, 'g', 2, 'WAITING', 40, NULL, NULL, NULL);"
    "INSERT INTO requests VALUES"
    " ('11111111111111111111111111111111', 1, 1, 'a', 1, 2, NULL, 'PENDING', NULL, 10, NULL);"
    "INSERT INTO facts(kind, event_id, seat_count, at) VALUES ('SOLD_OUT', 1, 0, 5),"
    " ('SOLD_OUT', 1, 0, 6);"
    /* A free seat beyond the section, which has shrunk. */
    "INSERT INTO seats(section_id, seat_no, state, version) VALUES (1, 500, 'AVAILABLE', 2)";

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    scratch_open(&f->s);
    struct event *wanted = test_event("1", 2);
    struct event *stored = scratch_store(&f->s, wanted);
    scratch_reservation(&f->s, 1, stored, &stored->sections[0], 40, "CONFIRMED");
    scratch_reservation(&f->s, 2, stored, &stored->sections[0], 41, "HELD");
    scratch_reservation(&f->s, 3, stored, &stored->sections[0], 42, "CANCELLED");
    scratch_sql(&f->s, "%s", seeds_entries);
    mem_free(stored);
    mem_free(wanted);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    scratch_shut(&f->s);
    mem_free(f);
    return 0;
}

/* Counts the violations of one invariant, and those of all others. */
struct tally {
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
    struct tally *t = to;
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

static struct tally check(struct fixture *f, bool server_runs, const char *expected) {
    struct tally t = {.expected = expected};
    assert_true(pg_check_all(&f->s.db, server_runs, clock_wall_ms(), on_finding, &t));
    if (t.elsewhere > 0) fail_msg("%s is violated too", t.others);
    return t;
}

/* What breaks each invariant, and one of the examples that are then named. */
static const struct {
    const char *invariant;
    const char *sql;
    const char *example;
} violations[] = {
    {"seat_sold_once",
     "INSERT INTO reservations SELECT " R9 ", event_id, section_id, user_id, entry_seq, strategy,"
     " status, seat_count, seats, price, currency, expires_at, created_at, confirmed_at, ended_at,"
     " NULL FROM reservations WHERE id = " R1 ";"
     "UPDATE sections SET confirmed = 2 WHERE id = 1; UPDATE buyers SET seats = 3;"
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " VALUES ('HELD', 1, " R9 ", 1, 1), ('CONFIRMED', 1, " R9 ", 1, 1)",
     "section 1 seat 40 in 2"},
    {"taken_seat_has_its_reservation",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
     " VALUES (1, 43, 'HELD', " R2 ", 1)",
     "section 1 seat 43"},
    {"taken_seat_has_its_reservation",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
     " VALUES (1, 43, 'HELD', " R9 ", 1)",
     "section 1 seat 43"},
    {"taken_seat_has_its_reservation",
     "UPDATE seats SET state = 'HELD' WHERE section_id = 1 AND seat_no = 40", "section 1 seat 40"},
    {"reservation_has_its_seats", "DELETE FROM seats WHERE seat_no = 40",
     "reservation 01010101010101010101010101010101"},
    {"reservation_has_its_seats",
     "UPDATE seats SET state = 'AVAILABLE', reservation_id = NULL WHERE seat_no = 40",
     "reservation 01010101010101010101010101010101"},
    {"reservation_has_its_seats",
     "UPDATE reservations SET seats = '41,41', seat_count = 2 WHERE id = " R2 ";"
     "UPDATE sections SET held = 2 WHERE id = 1; UPDATE buyers SET seats = 3, held = 2",
     "reservation 02020202020202020202020202020202"},
    {"available_seat_is_free",
     "INSERT INTO seats(section_id, seat_no, state, reservation_id, version)"
     " VALUES (1, 43, 'AVAILABLE', " R2 ", 1)",
     "section 1 seat 43"},
    {"seat_within_capacity", "UPDATE sections SET capacity = 40 WHERE id = 1", "section 1 seat 41"},
    {"user_has_no_more_than_allowed", R2_HAS("4"), "event 1 user user"},
    {"section_has_what_is_counted", "UPDATE sections SET held = 0 WHERE id = 1", "section 1"},
    {"section_has_what_is_counted", "UPDATE sections SET held = 2, confirmed = 0 WHERE id = 1",
     "section 1"},
    {"section_has_what_is_counted", "UPDATE sections SET confirmed = 1 WHERE id = 2", "section 2"},
    {"buyer_has_what_is_counted", "UPDATE buyers SET seats = 3", "event 1 user user"},
    {"buyer_has_what_is_counted", "UPDATE buyers SET held = 2", "event 1 user user"},
    {"buyer_has_what_is_counted", "DELETE FROM buyers", "event 1 user user"},
    {"buyer_has_what_is_counted", "INSERT INTO buyers VALUES (1, 'other', 1, 0)",
     "event 1 user other"},
    {"one_live_entry_per_user",
     "INSERT INTO queue_entries VALUES (1, 9, 'd', 8, 'WAITING', 10, NULL, NULL, NULL)",
     "event 1 user d"},
    {"entry_has_the_times_of_its_status",
     "UPDATE queue_entries SET active_expires_at = NULL WHERE seq = 2", "event 1 entry 2"},
    {"entry_has_the_times_of_its_status",
     "UPDATE queue_entries SET active_expires_at = 5 WHERE seq = 4", "event 1 entry 4"},
    {"entry_has_the_times_of_its_status",
     "UPDATE queue_entries SET finished_at = NULL WHERE seq = 1", "event 1 entry 1"},
    {"admission_follows_order",
     "INSERT INTO queue_entries VALUES (1, 9, 'x', 8, 'ACTIVE', 10, 20, 9000000000000, NULL)",
     "event 1 entry 9 overtook 4"},
    {"admission_follows_order",
     "INSERT INTO queue_entries VALUES (1, 9, 'x', 8, 'COMPLETED', 10, 20, 30, 25)",
     "event 1 entry 9 overtook 4"},
    {"reservation_has_the_times_of_its_status",
     "UPDATE reservations SET confirmed_at = NULL WHERE id = " R1,
     "reservation 01010101010101010101010101010101"},
    {"reservation_has_the_times_of_its_status",
     "UPDATE reservations SET ended_at = NULL WHERE status = 'CANCELLED'",
     "reservation 03030303030303030303030303030303"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'HELD' AND reservation_id = " R2,
     "reservation 02020202020202020202020202020202 lacks HELD"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'CONFIRMED'",
     "reservation 01010101010101010101010101010101 lacks CONFIRMED"},
    {"reservation_has_its_facts", "DELETE FROM facts WHERE kind = 'CANCELLED'",
     "reservation 03030303030303030303030303030303 lacks CANCELLED"},
    {"fact_stands_once",
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " SELECT kind, event_id, reservation_id, seat_count, at FROM facts WHERE kind = 'CONFIRMED'",
     "reservation 01010101010101010101010101010101 CONFIRMED"},
    {"word_is_known", "UPDATE seats SET state = 'SOLD' WHERE seat_no = 500",
     "section 1 seat 500 SOLD"},
    {"word_is_known",
     "UPDATE reservations SET status = 'LOST' WHERE status = 'CANCELLED';"
     "UPDATE facts SET kind = 'LOST' WHERE kind = 'SOLD_OUT';"
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at) VALUES"
     " ('EXPIRED', 1, '03030303030303030303030303030303', 1, 1)",
     "LOST"},
    {"reference_leads_somewhere", "UPDATE requests SET section_id = 77",
     "request 11111111111111111111111111111111 section 77"},
    {"reference_leads_somewhere",
     "UPDATE reservations SET section_id = 77 WHERE status = 'CANCELLED'",
     "reservation 03030303030303030303030303030303 section 77"},
    {"reference_leads_somewhere",
     "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
     " VALUES ('HELD', 1, " R9 ", 1, 1)",
     "reservation 09090909090909090909090909090909"},
    {"reference_leads_somewhere", "UPDATE facts SET event_id = 77 WHERE id = 1", "fact 1 event 77"},
    {"foreign_keys",
     "INSERT INTO queue_entries VALUES (77, 1, 'x', 8, 'WAITING', 10, NULL, NULL, NULL)",
     "queue_entries without events"},
    {"foreign_keys", "INSERT INTO seats VALUES (77, 1, 'AVAILABLE', NULL, 0, 0)",
     "seats without sections"},
    {"foreign_keys",
     "INSERT INTO sections(event_id, code, name, capacity, price, mode, status, position)"
     " VALUES (77, 'A', 'A', 1, 1, 'slot', 'open', 0)",
     "sections without events"},
    {"file_is_sound", "ALTER TABLE seats ADD CONSTRAINT high CHECK (seat_no > 0) NOT VALID",
     "constraint high is not validated"},
};

/* Each in a transaction that comes to nothing. */
static void each_violation_is_found_by_its_own_check(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof violations / sizeof *violations; i++) {
        assert_true(pg_exec(&f->s.db, "BEGIN"));
        scratch_unrule(&f->s);
        if (!pg_exec(&f->s.db, violations[i].sql)) fail_msg("%s", f->s.db.failure.text);
        struct tally t = check(f, true, violations[i].invariant);
        if (t.violations == 0) fail_msg("not found: %s", violations[i].sql);
        if (strstr(t.examples, violations[i].example) == NULL)
            fail_msg("%s: %s", violations[i].sql, t.examples);
        assert_true(t.checked > 0);
        assert_true(pg_exec(&f->s.db, "ROLLBACK"));
    }
    check(f, true, "");
}

static void every_check_has_a_violation_here(void **state) {
    struct fixture *f = *state;
    struct tally t = check(f, true, "");
    int known = 1; /* hold_ends_in_time has a test of its own */
    for (size_t i = 0; i < sizeof violations / sizeof *violations; i++)
        known +=
            i == 0 || strcmp(violations[i].invariant, violations[i - 1].invariant) != 0 ? 1 : 0;
    assert_int_equal(t.findings, known);
    assert_int_equal(t.overdue, 0);
}

static void hold_past_its_time_is_overdue_then_a_violation(void **state) {
    struct fixture *f = *state;
    scratch_sql(&f->s, "UPDATE reservations SET expires_at = %lld WHERE status = 'HELD'",
                (long long)clock_wall_ms() - 3000);
    struct tally t = check(f, true, "hold_ends_in_time");
    assert_int_equal(t.violations, 0);
    assert_int_equal(t.overdue, 1);
    scratch_sql(&f->s, "UPDATE reservations SET expires_at = %lld WHERE status = 'HELD'",
                (long long)clock_wall_ms() - 60000);
    t = check(f, false, "hold_ends_in_time");
    assert_int_equal(t.violations, 0);
    assert_int_equal(t.overdue, 1);
    t = check(f, true, "hold_ends_in_time");
    assert_int_equal(t.violations, 1);
    assert_int_equal(t.overdue, 0);
    assert_string_equal(t.examples, "reservation 02020202020202020202020202020202");
}

/* What is held and what is confirmed count together. The event allows 4; then 6, then 1. */
static void user_may_have_as_many_seats_as_the_event_ever_allowed(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    scratch_sql(&f->s, "%s", R2_HAS("3"));
    check(f, true, "");
    static const int64_t limits[] = {6, 1};
    for (int i = 0; i < 2; i++) {
        wanted->max_per_user = limits[i];
        wanted->sections[0].capacity = 2000;
        mem_free(scratch_store(&f->s, wanted));
    }
    mem_free(wanted);
    scratch_sql(&f->s, "%s", R2_HAS("5"));
    check(f, true, "");
    scratch_sql(&f->s, "%s", R2_HAS("6"));
    assert_int_equal(check(f, true, "user_has_no_more_than_allowed").violations, 1);
}

static void examples_are_few_however_many_violations(void **state) {
    struct fixture *f = *state;
    scratch_unrule(&f->s);
    scratch_sql(&f->s, "INSERT INTO queue_entries SELECT 1, i, 'u' || (i / 2), 8, 'WAITING', 10,"
                       " NULL, NULL, NULL FROM generate_series(200, 399) i");
    struct tally t = check(f, true, "one_live_entry_per_user");
    assert_int_equal(t.violations, 100);
    assert_string_equal(t.examples, "event 1 user u100; event 1 user u101; event 1 user u102; "
                                    "event 1 user u103; event 1 user u104");
}

static void spoilt_list_of_seats_is_a_violation_not_a_failure(void **state) {
    struct fixture *f = *state;
    scratch_sql(&f->s,
                "UPDATE reservations SET seats = 'forty]' WHERE status = 'HELD';"
                "UPDATE seats SET state = 'AVAILABLE', reservation_id = NULL WHERE seat_no = 41");
    struct tally t = check(f, true, "reservation_has_its_seats");
    assert_int_equal(t.violations, 1);
}

int main(void) {
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
