/* The contract of the limits on arrival, on Redis; and two nodes that count together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "limits_suite.h"
#include "redis_fixture.h"

#define EPOCH 5
#define SECOND INT64_C(1000000000)
#define T0 LIMITS_SUITE_T0
#define DEADLINE_NS INT64_C(60000000000)

/* ---- one node ---- */

/* Rebuilding Redis keeps the counts. */
static void forget_counts(void) {
    freeReplyObject(redis_fixture_command("FLUSHDB"));
}

struct node {
    struct redis_store *store;
    struct limits *limits;
};

static uv_loop_t loop;

static void node_attach(struct node *n) {
    assert_int_equal(uv_loop_init(&loop), 0);
    redis_fixture_attach(n->store, &loop);
}

static void node_detach(struct node *n) {
    redis_store_detach(n->store);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static struct limits *open_redis(void **fixture, const struct limit_rules *rules) {
    struct node *n = calloc(1, sizeof *n);
    n->store = redis_fixture_limited_store(rules);
    n->limits = redis_store_limits(n->store);
    forget_counts();
    redis_fixture_begin(n->store, EPOCH);
    node_attach(n);
    *fixture = n;
    return n->limits;
}

static void close_redis(void *fixture) {
    struct node *n = fixture;
    node_detach(n);
    redis_store_free(n->store);
    free(n);
}

static void run_callbacks(void *fixture) {
    (void)fixture;
    uv_run(&loop, UV_RUN_ONCE);
}

/* ---- two nodes ---- */

/* One place a second, sixteen at once. */
static int set_up(void **state) {
    struct node *nodes = calloc(2, sizeof *nodes);
    struct limit_settings s = {.places_per_minute = 60, .places_burst = 16, .block_factor = 2};
    struct limit_rules rules = limit_rules_of(&s);
    for (int i = 0; i < 2; i++) {
        nodes[i].store = redis_fixture_limited_store(&rules);
        nodes[i].limits = redis_store_limits(nodes[i].store);
    }
    forget_counts();
    redis_fixture_begin(nodes[0].store, EPOCH);
    redis_fixture_join(nodes[1].store);
    *state = nodes;
    return 0;
}

static int tear_down(void **state) {
    struct node *nodes = *state;
    for (int i = 0; i < 2; i++) redis_store_free(nodes[i].store);
    free(nodes);
    return 0;
}

static struct limit_verdict node_take(struct node *n, int64_t now_ns) {
    struct limit_client c = limit_client_v4((unsigned char[]){192, 0, 2, 1});
    return limits_take(n->limits, &c, LIMIT_PLACES, 1, now_ns);
}

static int64_t node_take_all(struct node *n, int64_t now_ns) {
    int64_t count = 0;
    while (node_take(n, now_ns).wait_ns == 0) count++;
    return count;
}

struct sharing {
    struct limits_share_op op;
    bool done;
};

static void on_shared(struct limits_share_op *op) {
    CONTAINER_OF(op, struct sharing, op)->done = true;
}

static enum err node_share(struct node *n, int64_t now_ns) {
    struct sharing s = {.op = {.now_ns = now_ns, .done = on_shared}};
    int64_t deadline_ns = clock_steady_ns() + DEADLINE_NS;
    limits_share(n->limits, &s.op);
    while (!s.done) {
        assert_true(clock_steady_ns() < deadline_ns);
        uv_run(&loop, UV_RUN_ONCE);
    }
    return s.op.result;
}

/* A thread has one node at a time. */
static void node_share_once(struct node *n, int64_t now_ns) {
    node_attach(n);
    assert_int_equal(node_share(n, now_ns), ERR_OK);
    node_detach(n);
}

static void a_node_learns_what_the_other_has_let_in(void **state) {
    struct node *nodes = *state;
    assert_int_equal(node_take_all(&nodes[0], T0), 16);
    node_share_once(&nodes[0], T0);
    for (int i = 0; i < 2; i++) assert_int_equal(node_take(&nodes[1], T0).wait_ns, 0);
    node_share_once(&nodes[1], T0);
    /* 18 were taken, 16 may be. */
    assert_int_equal(node_take(&nodes[1], T0).wait_ns, 3 * SECOND);
    assert_int_equal(node_take(&nodes[1], T0 + 3 * SECOND).wait_ns, 0);
    assert_true(redis_fixture_number("PTTL admitone:{limits}:p:32:c0000201") > 0);
}

/* A client that sends as much as it can to both, for five minutes. The first burst passes on each
 * node; from then on all that is let in is counted on both. */
static void two_nodes_together_let_in_about_the_rate(void **state) {
    struct node *nodes = *state;
    int64_t in = 0;
    for (int64_t t = T0; t < T0 + 300 * SECOND; t += 10 * SECOND)
        for (int i = 0; i < 2; i++) {
            in += node_take_all(&nodes[i], t);
            node_share_once(&nodes[i], t);
        }
    print_message("%lld in 300 s at 1 a second, burst 16\n", (long long)in);
    assert_in_range(in, 290, 300 + 2 * 16);
}

/* A client that stays below the rate on each node: what each tells, late and in small parts, adds
 * up. 1.6 a second were asked for. */
static void what_nodes_tell_late_adds_up(void **state) {
    struct node *nodes = *state;
    int64_t in = 0;
    int asked = 0;
    for (int64_t t = T0; t < T0 + 400 * SECOND; t += 5 * SECOND / 4)
        for (int i = 0; i < 2; i++) {
            in += node_take(&nodes[i], t).wait_ns == 0;
            if (++asked % 8 >= 6) node_share_once(&nodes[i], t + SECOND / 5);
        }
    print_message("%lld in 400 s at 1 a second, 640 asked\n", (long long)in);
    assert_in_range(in, 390, 400 + 2 * 16);
}

/* For the time in which other nodes may tell what they have let in meanwhile. */
static void a_bucket_that_is_full_again_is_kept_for_a_while(void **state) {
    struct node *nodes = *state;
    for (int i = 0; i < 2; i++) assert_int_equal(node_take(&nodes[0], T0 + i * SECOND).wait_ns, 0);
    node_share_once(&nodes[0], T0 + 100 * SECOND);
    assert_in_range(redis_fixture_number("PTTL admitone:{limits}:p:32:c0000201"), 60000, 600000);
    assert_int_equal(node_take_all(&nodes[1], T0 + 100 * SECOND), 16);
}

static void a_node_without_redis_goes_on_with_its_own_counts(void **state) {
    struct node *nodes = *state;
    hot_close(redis_store_hot(nodes[1].store));
    assert_int_equal(node_take_all(&nodes[1], T0), 16);
    assert_int_equal(uv_loop_init(&loop), 0);
    redis_store_attach(nodes[1].store, &loop);
    assert_int_not_equal(node_share(&nodes[1], T0), ERR_OK);
    assert_int_equal(node_take(&nodes[1], T0).wait_ns, SECOND);
    assert_int_equal(node_take_all(&nodes[1], T0 + 4 * SECOND), 4);
    node_detach(&nodes[1]);
    redis_fixture_join(nodes[1].store); /* Redis is back */
    node_share_once(&nodes[1], T0 + 4 * SECOND);
    assert_int_equal(node_take_all(&nodes[0], T0 + 4 * SECOND), 16);
    node_share_once(&nodes[0], T0 + 4 * SECOND);
    /* The four since then are known, those of before are not. */
    assert_int_equal(node_take(&nodes[0], T0 + 4 * SECOND).wait_ns, 5 * SECOND);
}

static void counts_that_redis_loses_are_not_forgotten_here(void **state) {
    struct node *nodes = *state;
    node_take_all(&nodes[0], T0);
    node_share_once(&nodes[0], T0);
    assert_int_equal(redis_fixture_number("DEL admitone:{limits}:p:32:c0000201"), 1);
    assert_int_equal(node_take_all(&nodes[0], T0 + 2 * SECOND), 2);
    node_share_once(&nodes[0], T0 + 2 * SECOND);
    assert_int_equal(node_take(&nodes[0], T0 + 2 * SECOND).wait_ns, SECOND);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct limits_adapter redis = {
        .open = open_redis, .close = close_redis, .run_callbacks = run_callbacks};
    const struct CMUnitTest tests[] = {
        TEST(a_node_learns_what_the_other_has_let_in),
        TEST(two_nodes_together_let_in_about_the_rate),
        TEST(what_nodes_tell_late_adds_up),
        TEST(a_bucket_that_is_full_again_is_kept_for_a_while),
        TEST(a_node_without_redis_goes_on_with_its_own_counts),
        TEST(counts_that_redis_loses_are_not_forgotten_here),
    };
    return limits_suite_run(&redis) +
           cmocka_run_group_tests_name("limits of two nodes", tests, NULL, NULL);
}
