/* Invalid answers, as from a database whose functions were changed: the record is refused, nothing
 * of it is written, and the ledger continues to work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

/* Another function takes the place of the one of that name, with the same arguments. */
static void replace(const char *name, const char *returns, const char *body) {
    scratch_sql(postgres_database(),
                "DO $do$ BEGIN"
                " ALTER FUNCTION %s RENAME TO ours;"
                " EXECUTE format('CREATE FUNCTION %s(%%s) RETURNS %s LANGUAGE sql AS $f$ %s $f$',"
                "  (SELECT pg_get_function_identity_arguments(oid) FROM pg_proc"
                "   WHERE proname = 'ours'));"
                " END $do$",
                name, name, returns, body);
}

static void put_back(const char *name) {
    scratch_sql(postgres_database(), "DROP FUNCTION %s; ALTER FUNCTION ours RENAME TO %s", name,
                name);
}

static void shut_client(struct ledger_client *d) {
    ledger_client_assert_sound(d);
    ledger_client_shut(d);
    postgres_drop();
}

#define HOLD_ROW(place_type)                                                                       \
    "TABLE(place " place_type ", outcome text, held boolean, became text, refused text,"           \
    " replayed uuid, free_at bigint)"

/* The connection on which the unexpected answer came is replaced; until that is done, records are
 * refused. */
static void hold_when_connected(struct ledger_client *d, uint64_t number) {
    int64_t until_ms = clock_steady_ms() + HARNESS_DEADLINE_MS;
    enum err result;
    do result = ledger_client_hold(d, number, "a", 1, 0, SEATS(3, 4));
    while (result == ERR_LEDGER_FAILED && clock_steady_ms() < until_ms);
    assert_int_equal(result, ERR_OK);
}

static void holds_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *returns;
        const char *body;
    } all[] = {
        {HOLD_ROW("numeric"), "SELECT 1.5, ''OK'', true, ''HELD'', '''', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 2, ''OK'', true, ''HELD'', '''', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 0, ''OK'', true, ''HELD'', '''', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 1, ''OK'', true, ''HELD'', '''', NULL::uuid, 0::bigint"
                             " WHERE false"},
        {HOLD_ROW("bigint"), "SELECT 1, ''OK'', true, ''HELD'', '''', NULL::uuid, 0::bigint"
                             " FROM generate_series(1, 2)"},
        {HOLD_ROW("bigint"), "SELECT 1, ''MAYBE'', true, ''HELD'', '''', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 1, NULL, true, ''HELD'', '''', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 1, ''OK'', true, ''GONE'', '''', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 1, ''SEAT_TAKEN'', false, ''HELD'', ''1,2,3,4,5'',"
                             " NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"),
         "SELECT 1, ''SEAT_TAKEN'', false, ''HELD'', ''one'', NULL::uuid, 0::bigint"},
        {HOLD_ROW("bigint"),
         "SELECT 1, ''OK'', false, ''HELD'', '''', gen_random_uuid(), 0::bigint"},
        {HOLD_ROW("bigint"), "SELECT 1, ''BLOCKED'', false, ''HELD'', '''', NULL::uuid, 0::bigint"},
    };
    struct ledger_client d;
    ledger_client_open(&d, postgres_open, 2, 20);
    ledger_client_enter(&d, 1, "a");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        replace("ledger_hold_3", all[i].returns, all[i].body);
        if (ledger_client_hold(&d, i + 1, "a", 1, 0, SEATS(3, 4)) != ERR_LEDGER_FAILED)
            fail_msg("answer %zu was believed", i);
        put_back("ledger_hold_3");
        hold_when_connected(&d, 100 + i);
        assert_int_equal(ledger_client_cancel(&d, 100 + i, "a"), ERR_OK);
    }
    shut_client(&d);
}

static void the_rest_is_refused(void **state) {
    (void)state;
    struct ledger_client d;
    ledger_client_open(&d, postgres_open, 2, 20);
    ledger_client_enter(&d, 1, "a");
    struct test_record r;
    bool answers[1];
    uint64_t seqs[] = {1};
    struct uuid none = ledger_client_id(77);
    bool cancelled;
    struct entry_change change = {.seq = 1, .expires_ms = 9000};

    replace("ledger_enter_1", "TABLE(is_there boolean)", "SELECT true WHERE false");
    test_enter(&r, d.event->key, 2, "b", ENTRY_WAITING);
    assert_int_equal(harness_submit(&d.h, d.l, &r), ERR_LEDGER_FAILED);
    put_back("ledger_enter_1");

    replace("ledger_admit_1", "TABLE(kept boolean)", "SELECT true FROM generate_series(1, 7)");
    test_admit(&r, d.event->key, &change, 1, answers);
    assert_int_equal(harness_submit(&d.h, d.l, &r), ERR_LEDGER_FAILED);
    put_back("ledger_admit_1");

    static const char *const ends[] = {"''ENDED'', 2", "''CANCELLED'', 2", "''MAYBE'', 1"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char body[80];
        snprintf(body, sizeof body, "SELECT %s, 0::bigint, 0::bigint", ends[i]);
        replace("ledger_leave_1",
                "TABLE(did text, place bigint, of_section bigint, held_by bigint)", body);
        test_end(&r, d.event->key, ENTRY_LEFT, seqs, 1, answers);
        r.end.user = STR("a");
        r.end.cancels = &none;
        r.end.cancel_count = 1;
        r.end.cancelled = &cancelled;
        assert_int_equal(harness_submit(&d.h, d.l, &r), ERR_LEDGER_FAILED);
        put_back("ledger_leave_1");
    }

    replace("ledger_tally_1", "TABLE(capacity bigint, taken_before bigint, is_removed boolean)",
            "SELECT 1::bigint, 1::bigint, false WHERE false");
    assert_int_equal(ledger_client_hold(&d, 1, "a", 1, 0, SEATS(3)), ERR_LEDGER_FAILED);
    put_back("ledger_tally_1");

    assert_int_equal(ledger_client_entry(&d, 1), ENTRY_ACTIVE);
    assert_int_equal(ledger_client_entry(&d, 2), ENTRY_NONE);
    assert_int_equal(ledger_client_hold(&d, 1, "a", 1, 0, SEATS(3)), ERR_OK);
    shut_client(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_are_refused),
        cmocka_unit_test(the_rest_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
