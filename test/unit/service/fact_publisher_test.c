/* The publication of facts, to a sink that may refuse a batch or keep it waiting: no fact is lost
 * or out of order, and another node continues where the first one stopped. */
#include "service/fact_publisher.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/mem.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

#define PUBLISHED_MAX 64

struct fixture {
    struct ledger_client d;
    struct fact_sink sink;
    struct fact_batch *waiting;        /* the batch that is under way */
    int refuses;                       /* so many batches */
    bool is_away;                      /* batches wait until the sink is stopped */
    char published[PUBLISHED_MAX][24]; /* "HELD a" */
    size_t count;
    size_t wanted;
    struct fact_publisher a;
    struct fact_publisher b;
};

static struct fixture f;

/* ---- the sink ---- */

static void sink_on_sent(struct task *task) {
    struct fact_batch *b = CONTAINER_OF(task, struct fact_batch, task);
    f.waiting = NULL;
    b->done(b);
}

static void sink_end(struct fact_batch *b, enum err result) {
    b->result = result;
    b->task = (struct task){.run = sink_on_sent};
    mailbox_post(&f.d.h.mailbox, &b->task);
}

static void sink_note(const struct fact_message *m) {
    char text[512];
    char kind[16];
    char user[8];
    assert_true(f.count < PUBLISHED_MAX);
    assert_true(str_copy(m->value, text, sizeof text));
    assert_true(str_eq(m->key, STR("CONCERT/1")));
    assert_int_equal(sscanf(strstr(text, "\"kind\":"), "\"kind\":\"%15[A-Z_]", kind), 1);
    assert_int_equal(sscanf(strstr(text, "\"userId\":"), "\"userId\":\"%7[a-z]", user), 1);
    snprintf(f.published[f.count++], sizeof f.published[0], "%s %s", kind, user);
}

static void sink_publish(struct fact_sink *s, struct fact_batch *b) {
    (void)s;
    assert_null(f.waiting); /* one at a time */
    f.waiting = b;
    if (f.is_away) return;
    for (size_t i = 0; f.refuses == 0 && i < b->count; i++) sink_note(&b->messages[i]);
    sink_end(b, f.refuses == 0 ? ERR_OK : ERR_FEED_UNAVAILABLE);
    if (f.refuses > 0) f.refuses--;
}

static void sink_stop(struct fact_sink *s) {
    (void)s;
    if (f.waiting != NULL && f.is_away) sink_end(f.waiting, ERR_FEED_UNAVAILABLE);
}

/* ---- the fixture ---- */

static int set_up(void **state) {
    static const struct fact_sink_ops ops = {.publish = sink_publish, .stop = sink_stop};
    (void)state;
    f = (struct fixture){.sink = {.ops = &ops, .topic = STR("facts")}};
    ledger_client_open(&f.d, postgres_open, 1, 10);
    for (uint64_t seq = 1; seq <= 4; seq++)
        ledger_client_enter(&f.d, seq, (const char[]){(char)('a' + seq - 1), 0});
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ledger_client_shut(&f.d);
    postgres_shut();
    return 0;
}

static void begin(struct fact_publisher *p) {
    *p = (struct fact_publisher){.ledger = f.d.l, .sink = &f.sink};
    fact_publisher_init(p, &f.d.h.loop);
}

static bool is_over(void *publisher) {
    return !fact_publisher_is_busy(publisher);
}

static void stop(struct fact_publisher *p) {
    fact_publisher_stop(p);
    harness_wait(&f.d.h, is_over, p);
    fact_publisher_deinit(p);
}

static bool has_published(void *arg) {
    (void)arg;
    return f.count >= f.wanted;
}

/* These were published, in this order, and nothing else. */
static void assert_published(const char *const *expected) {
    for (f.wanted = 0; expected[f.wanted] != NULL;) f.wanted++;
    harness_wait(&f.d.h, has_published, NULL);
    harness_run_for(&f.d.h, 300);
    assert_int_equal(f.count, f.wanted);
    for (size_t i = 0; i < f.count; i++) assert_string_equal(f.published[i], expected[i]);
}
#define ASSERT_PUBLISHED(...) assert_published((const char *const[]){__VA_ARGS__, NULL})

static void hold(uint64_t number, const char *user) {
    assert_int_equal(ledger_client_hold(&f.d, number, user, number, 0, SEATS((uint32_t)number)),
                     ERR_OK);
}

/* ---- the tests ---- */

static void facts_are_published_in_order_and_once(void **state) {
    (void)state;
    hold(1, "a");
    begin(&f.a);
    ASSERT_PUBLISHED("HELD a");
    hold(2, "b");
    assert_int_equal(ledger_client_cancel(&f.d, 1, "a"), ERR_OK);
    ASSERT_PUBLISHED("HELD a", "HELD b", "CANCELLED a");
    assert_int_equal(fact_publisher_lag_ms(&f.a), 0);
    stop(&f.a);
}

static void a_batch_that_was_refused_is_published_again(void **state) {
    (void)state;
    f.refuses = 3;
    hold(1, "a");
    assert_int_equal(ledger_client_cancel(&f.d, 1, "a"), ERR_OK);
    begin(&f.a);
    ASSERT_PUBLISHED("HELD a", "CANCELLED a");
    assert_int_equal(f.refuses, 0);
    stop(&f.a);
}

static void the_next_node_continues_where_the_first_stopped(void **state) {
    (void)state;
    hold(1, "a");
    begin(&f.a);
    ASSERT_PUBLISHED("HELD a");
    begin(&f.b); /* it does not get the lease yet */
    hold(2, "b");
    ASSERT_PUBLISHED("HELD a", "HELD b");
    stop(&f.a);
    hold(3, "c");
    ASSERT_PUBLISHED("HELD a", "HELD b", "HELD c");
    stop(&f.b);
}

static bool is_waiting(void *arg) {
    (void)arg;
    return f.waiting != NULL;
}

static void a_stop_does_not_wait_for_the_sink_and_loses_nothing(void **state) {
    (void)state;
    hold(1, "a");
    f.is_away = true;
    begin(&f.a);
    harness_wait(&f.d.h, is_waiting, NULL);
    harness_run_for(&f.d.h, 1500); /* the lease is renewed meanwhile */
    assert_true(fact_publisher_lag_ms(&f.a) > 0);
    stop(&f.a);
    f.is_away = false;
    assert_int_equal(f.count, 0);
    begin(&f.b);
    ASSERT_PUBLISHED("HELD a");
    stop(&f.b);
}

static void a_stop_right_after_the_start_ends(void **state) {
    (void)state;
    begin(&f.a);
    stop(&f.a);
    begin(&f.b);
    harness_run_for(&f.d.h, 260); /* it asks for the lease now, or has it */
    stop(&f.b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(facts_are_published_in_order_and_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_batch_that_was_refused_is_published_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_next_node_continues_where_the_first_stopped, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_stop_does_not_wait_for_the_sink_and_loses_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_stop_right_after_the_start_ends, set_up, tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
