/* The writer's count of each user's seats: a transaction's changes are kept or undone with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ledger/sqlite_internal.h"
#include "splitmix.h"

#define A STR("a")
#define EVENT 7

static int set_up(void **state) {
    static struct buyers b;
    buyers_init(&b);
    *state = &b;
    return 0;
}

static int tear_down(void **state) {
    buyers_deinit(*state);
    return 0;
}

static int change(struct buyers *b, int64_t event_key, str user, int64_t live, int64_t held) {
    return buyers_change(b, event_key, user, (struct buyer_seats){.live = live, .held = held});
}

static void assert_has(struct buyers *b, int64_t event_key, str user, int64_t live, int64_t held) {
    struct buyer_seats has = buyers_count(b, event_key, user);
    assert_int_equal(has.live, live);
    assert_int_equal(has.held, held);
}

static void a_transaction_sees_its_own_changes(void **state) {
    struct buyers *b = *state;
    assert_int_equal(change(b, EVENT, A, 2, 2), SQLITE_OK);
    assert_has(b, EVENT, A, 2, 2);
    assert_int_equal(change(b, EVENT, A, 0, -2), SQLITE_OK);
    assert_has(b, EVENT, A, 2, 0);
    /* Nobody else's: another event, and a name that begins alike. */
    assert_has(b, EVENT + 1, A, 0, 0);
    assert_has(b, EVENT, STR("ab"), 0, 0);
    buyers_commit(b);
    assert_has(b, EVENT, A, 2, 0);
}

static void a_rollback_takes_back_only_what_is_not_committed(void **state) {
    struct buyers *b = *state;
    assert_int_equal(change(b, EVENT, A, 3, 3), SQLITE_OK);
    buyers_commit(b);
    assert_int_equal(change(b, EVENT, A, -3, -3), SQLITE_OK);
    assert_int_equal(change(b, EVENT, A, 1, 1), SQLITE_OK);
    assert_int_equal(change(b, EVENT, STR("new"), 1, 1), SQLITE_OK);
    assert_has(b, EVENT, A, 1, 1);
    buyers_rollback(b);
    assert_has(b, EVENT, A, 3, 3);
    assert_has(b, EVENT, STR("new"), 0, 0);
    assert_int_equal(b->all.count, 1);
    /* There is nothing left to take back. */
    buyers_rollback(b);
    assert_has(b, EVENT, A, 3, 3);
}

static void no_count_falls_below_zero(void **state) {
    struct buyers *b = *state;
    assert_int_equal(change(b, EVENT, A, -1, -1), SQLITE_CORRUPT);
    assert_int_equal(change(b, EVENT, A, 2, 1), SQLITE_OK);
    assert_int_equal(change(b, EVENT, A, -2, -2), SQLITE_CORRUPT);
    assert_int_equal(change(b, EVENT, A, -2, 0), SQLITE_CORRUPT);
    assert_has(b, EVENT, A, 2, 1);
    buyers_rollback(b);
    assert_int_equal(b->all.count, 0);
}

enum { EVENTS = 2, USERS = 8, STEPS = 20000 };

struct model {
    struct buyer_seats has[EVENTS][USERS];
};

static const str names[USERS] = {
    STR_INIT("a"), STR_INIT("b"),  STR_INIT("ab"),  STR_INIT("ba"),
    STR_INIT("c"), STR_INIT("cc"), STR_INIT("ccc"), STR_INIT("d"),
};

static void change_both(struct buyers *b, struct model *m, uint64_t *random) {
    size_t e = next_random(random) % EVENTS;
    size_t u = next_random(random) % USERS;
    struct buyer_seats by = {.live = (int64_t)(next_random(random) % 5) - 2,
                             .held = (int64_t)(next_random(random) % 5) - 2};
    struct buyer_seats will = {m->has[e][u].live + by.live, m->has[e][u].held + by.held};
    bool possible = will.held >= 0 && will.held <= will.live;
    int rc = buyers_change(b, (int64_t)e + 1, names[u], by);
    assert_int_equal(rc, possible ? SQLITE_OK : SQLITE_CORRUPT);
    if (possible) m->has[e][u] = will;
}

static void assert_like(struct buyers *b, const struct model *m) {
    for (size_t e = 0; e < EVENTS; e++)
        for (size_t u = 0; u < USERS; u++)
            assert_has(b, (int64_t)e + 1, names[u], m->has[e][u].live, m->has[e][u].held);
}

static size_t who_have_any(const struct model *m) {
    size_t count = 0;
    for (size_t e = 0; e < EVENTS; e++)
        for (size_t u = 0; u < USERS; u++) count += m->has[e][u].live > 0;
    return count;
}

static void any_history_counts_like_a_simple_model(void **state) {
    struct buyers *b = *state;
    struct model now = {0};
    struct model committed = {0};
    uint64_t random = 19;
    for (int i = 0; i < STEPS; i++) {
        change_both(b, &now, &random);
        if (next_random(&random) % 10 != 0) continue;
        bool commits = next_random(&random) % 2 == 0;
        assert_like(b, &now);
        if (commits)
            buyers_commit(b);
        else
            buyers_rollback(b);
        if (commits) committed = now;
        now = committed;
        assert_like(b, &now);
        /* Between transactions, no user without seats is in memory. */
        assert_int_equal(b->all.count, who_have_any(&now));
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_transaction_sees_its_own_changes),
        TEST(a_rollback_takes_back_only_what_is_not_committed),
        TEST(no_count_falls_below_zero),
        TEST(any_history_counts_like_a_simple_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
