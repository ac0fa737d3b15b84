/* One live entry per user and event, also when two nodes write at once (pitfall 14). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

struct fixture {
    struct ledger_client d;
    struct ledger *other;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    ledger_client_open(&f->d, postgres_open, 1, 40);
    f->other = postgres_open(&f->d.h, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ledger_close(f->other);
    ledger_client_assert_sound(&f->d);
    ledger_client_shut(&f->d);
    postgres_shut();
    mem_free(f);
    return 0;
}

static enum err enter(struct fixture *f, struct ledger *l, uint64_t seq, const char *user) {
    struct test_record r;
    test_enter(&r, f->d.event->key, seq, user, ENTRY_WAITING);
    return harness_submit(&f->d.h, l, &r);
}

static void trap_14_live_entry_of_a_user_is_unique(void **state) {
    struct fixture *f = *state;
    assert_int_equal(enter(f, f->d.l, 5, "a"), ERR_OK);
    PGconn *c = PQconnectdb(postgres_database()->url);
    PGresult *r = PQexec(c, "INSERT INTO queue_entries(event_id, seq, user_id, lane, status,"
                            " joined_at) SELECT event_id, 6, user_id, lane, status, joined_at"
                            " FROM queue_entries WHERE seq = 5");
    assert_string_equal(PQresultErrorField(r, PG_DIAG_SQLSTATE), PG_UNIQUE);
    PQclear(r);
    PQfinish(c);
}

static void new_entry_closes_whichever_was_live(void **state) {
    struct fixture *f = *state;
    assert_int_equal(enter(f, f->d.l, 5, "a"), ERR_OK);
    assert_int_equal(enter(f, f->d.l, 6, "b"), ERR_OK);
    /* The other node does not know of it, and names nothing that it closes. */
    assert_int_equal(enter(f, f->other, 9, "a"), ERR_OK);
    assert_int_equal(ledger_client_entry(&f->d, 5), ENTRY_EXPIRED);
    assert_int_equal(ledger_client_entry(&f->d, 6), ENTRY_WAITING);
    assert_int_equal(ledger_client_entry(&f->d, 9), ENTRY_WAITING);
    /* A number that comes late is refused, and changes nothing. */
    assert_int_equal(enter(f, f->other, 7, "a"), ERR_CONFLICT);
    assert_int_equal(ledger_client_entry(&f->d, 7), ENTRY_NONE);
    assert_int_equal(ledger_client_entry(&f->d, 9), ENTRY_WAITING);
}

static void a_user_who_enters_twice_in_a_batch_has_the_last_place(void **state) {
    struct fixture *f = *state;
    enum { COUNT = 60 };
    struct test_record r[COUNT];
    for (int i = 0; i < COUNT; i++) {
        test_enter(&r[i], f->d.event->key, (uint64_t)i + 1, i % 2 == 0 ? "a" : "b", ENTRY_WAITING);
        assert_int_equal(ledger_submit(f->d.l, &r[i].record), ERR_OK);
    }
    harness_wait_back(&f->d.h, r, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(r[i].record.result, ERR_OK);
        assert_int_equal(ledger_client_entry(&f->d, (uint64_t)i + 1),
                         i < COUNT - 2 ? ENTRY_EXPIRED : ENTRY_WAITING);
    }
}

/* Both nodes write the same entries, admit and end them, hold and expire the same seats: in other
 * orders, at once. Whatever meets whatever, each thing happens once. */
static void nodes_that_do_the_same_do_it_once(void **state) {
    struct fixture *f = *state;
    enum { COUNT = 40 };
    struct test_record r[2][COUNT];
    struct reservation *wanted[COUNT];
    struct uuid ids[COUNT];
    char users[COUNT][16];
    bool expired[2][COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(users[i], sizeof users[i], "user%d", (int)i);
        wanted[i] = ledger_client_wanted(&f->d, i + 1, users[i], i + 1, 0, SEATS((uint32_t)i + 1));
        ids[i] = ledger_client_id(i + 1);
    }
    for (int n = 0; n < 2; n++) {
        for (int k = 0; k < COUNT; k++) {
            int i = n == 0 ? k : COUNT - 1 - k;
            test_enter(&r[n][i], f->d.event->key, (uint64_t)i + 1, users[i], ENTRY_ACTIVE);
            r[n][i].enter.expires_ms = 100000;
            assert_int_equal(ledger_submit(n == 0 ? f->d.l : f->other, &r[n][i].record), ERR_OK);
        }
    }
    for (int n = 0; n < 2; n++) harness_wait_back(&f->d.h, r[n], COUNT);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < COUNT; i++) assert_int_equal(r[n][i].record.result, ERR_OK);

    for (int n = 0; n < 2; n++) {
        for (int k = 0; k < COUNT; k++) {
            int i = n == 0 ? k : COUNT - 1 - k;
            test_hold(&r[n][i], wanted[i]);
            assert_int_equal(ledger_submit(n == 0 ? f->d.l : f->other, &r[n][i].record), ERR_OK);
        }
    }
    for (int n = 0; n < 2; n++) harness_wait_back(&f->d.h, r[n], COUNT);
    int sold_out = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(r[0][i].record.result, ERR_OK);
        assert_int_equal(r[1][i].record.result, ERR_OK);
        assert_true(r[0][i].hold.held != r[1][i].hold.held);
        sold_out += r[0][i].hold.sold_out + r[1][i].hold.sold_out;
        mem_free(wanted[i]);
    }
    assert_int_equal(sold_out, 1);
    ledger_client_assert_counts(&f->d, 0, COUNT, 0);

    for (int n = 0; n < 2; n++) {
        test_expire(&r[n][0], ids, COUNT, expired[n], 5000);
        assert_int_equal(ledger_submit(n == 0 ? f->d.l : f->other, &r[n][0].record), ERR_OK);
    }
    for (int n = 0; n < 2; n++) {
        harness_wait_back(&f->d.h, r[n], 1);
        assert_int_equal(r[n][0].record.result, ERR_OK);
    }
    for (int i = 0; i < COUNT; i++) assert_true(expired[0][i] != expired[1][i]);
    ledger_client_assert_counts(&f->d, 0, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(trap_14_live_entry_of_a_user_is_unique, set_up, tear_down),
        cmocka_unit_test_setup_teardown(new_entry_closes_whichever_was_live, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_user_who_enters_twice_in_a_batch_has_the_last_place,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(nodes_that_do_the_same_do_it_once, set_up, tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
