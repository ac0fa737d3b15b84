#include "limits_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"

#define SECOND INT64_C(1000000000)
#define T0 LIMITS_SUITE_T0
#define DEADLINE_NS INT64_C(60000000000)

static const struct limits_adapter *adapter;

struct fixture {
    struct limits *limits;
    void *own;
};

/* Ten places a minute, eight at once; a block has three times that. */
static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct limit_settings s = {.places_per_minute = 10,
                               .places_burst = 8,
                               .requests_per_second = 1,
                               .requests_burst = 60,
                               .block_factor = 3};
    struct limit_rules rules = limit_rules_of(&s);
    f->limits = adapter->open(&f->own, &rules);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    adapter->close(f->own);
    free(f);
    return 0;
}

static struct limit_client number(unsigned char last) {
    return limit_client_v4((unsigned char[]){192, 0, 2, last});
}

static int64_t place(struct fixture *f, unsigned char last, int64_t now_ns) {
    struct limit_client c = number(last);
    return limits_take(f->limits, &c, LIMIT_PLACES, 1, now_ns).wait_ns;
}

struct sharing {
    struct limits_share_op op;
    bool done;
};

static void on_shared(struct limits_share_op *op) {
    CONTAINER_OF(op, struct sharing, op)->done = true;
}

static size_t share(struct fixture *f, int64_t now_ns) {
    struct sharing s = {.op = {.now_ns = now_ns, .done = on_shared}};
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    limits_share(f->limits, &s.op);
    while (!s.done) {
        assert_true(clock_steady_ns() < deadline_ns);
        adapter->run_callbacks(f->own);
    }
    assert_int_equal(s.op.result, ERR_OK);
    return s.op.count;
}

static void a_client_gets_its_burst_and_then_its_rate(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 8; i++) assert_int_equal(place(f, 1, T0), 0);
    assert_int_equal(place(f, 1, T0), 6 * SECOND);
    assert_int_equal(place(f, 1, T0 + 6 * SECOND), 0);
    assert_int_equal(place(f, 1, T0 + 6 * SECOND), 6 * SECOND);
}

static void a_block_gets_a_multiple(void **state) {
    struct fixture *f = *state;
    for (unsigned char i = 0; i < 24; i++) assert_int_equal(place(f, i, T0), 0);
    struct limit_client c = number(77);
    struct limit_verdict v = limits_take(f->limits, &c, LIMIT_PLACES, 1, T0);
    assert_int_equal(v.wait_ns, 2 * SECOND);
    assert_int_equal(v.by, LIMIT_BLOCK);
}

static void what_is_given_back_is_there_again(void **state) {
    struct fixture *f = *state;
    struct limit_client c = number(1);
    for (int i = 0; i < 8; i++) place(f, 1, T0);
    limits_give_back(f->limits, &c, LIMIT_PLACES, 1, T0);
    assert_int_equal(place(f, 1, T0), 0);
    assert_int_not_equal(place(f, 1, T0), 0);
}

static void sharing_changes_nothing_for_the_only_node(void **state) {
    struct fixture *f = *state;
    struct limit_client c = number(1);
    for (int i = 0; i < 5; i++) place(f, 1, T0);
    share(f, T0);
    for (int i = 0; i < 3; i++) assert_int_equal(place(f, 1, T0), 0);
    share(f, T0);
    assert_int_equal(share(f, T0), 0);
    assert_int_equal(place(f, 1, T0), 6 * SECOND);
    limits_give_back(f->limits, &c, LIMIT_PLACES, 2, T0);
    share(f, T0);
    for (int i = 0; i < 2; i++) assert_int_equal(place(f, 1, T0), 0);
    assert_int_equal(place(f, 1, T0), 6 * SECOND);
    for (int64_t t = T0; t <= T0 + 120 * SECOND; t += SECOND) {
        assert_int_equal(place(f, 1, t) == 0, t > T0 && (t - T0) % (6 * SECOND) == 0);
        share(f, t + SECOND / 2);
    }
}

/* The wait that a client was told is right, also if what it had taken is shared only later. */
static void a_wait_does_not_grow_by_sharing(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 8; i++) place(f, 1, T0 + i * SECOND);
    assert_int_equal(place(f, 1, T0 + 8 * SECOND), 0); /* one has come back */
    assert_int_equal(place(f, 1, T0 + 8 * SECOND), 4 * SECOND);
    share(f, T0 + 9 * SECOND);
    assert_int_equal(place(f, 1, T0 + 9 * SECOND), 3 * SECOND);
    assert_int_equal(place(f, 1, T0 + 12 * SECOND), 0);
}

static void much_is_shared_in_several_calls(void **state) {
    struct fixture *f = *state;
    for (int block = 0; block < 250; block++)
        for (int i = 0; i < 8; i++) {
            struct limit_client c =
                limit_client_v4((unsigned char[]){10, 0, (unsigned char)block, 1});
            limits_take(f->limits, &c, LIMIT_PLACES, 1, T0);
        }
    int calls = 0;
    while (share(f, T0) > 0) assert_true(++calls < 100);
    for (int block = 0; block < 250; block++) {
        struct limit_client c = limit_client_v4((unsigned char[]){10, 0, (unsigned char)block, 1});
        assert_int_equal(limits_take(f->limits, &c, LIMIT_PLACES, 1, T0).wait_ns, 6 * SECOND);
    }
}

int limits_suite_run(const struct limits_adapter *a) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_client_gets_its_burst_and_then_its_rate),
        TEST(a_block_gets_a_multiple),
        TEST(what_is_given_back_is_there_again),
        TEST(sharing_changes_nothing_for_the_only_node),
        TEST(a_wait_does_not_grow_by_sharing),
        TEST(much_is_shared_in_several_calls),
    };
    adapter = a;
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
