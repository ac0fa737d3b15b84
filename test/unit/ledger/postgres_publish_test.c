/* The lease and the watermark of the publication of facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ledger_client.h"
#include "ledger_postgres.h"

#define LONG_MS 600000

struct fixture {
    struct ledger_client d;
    struct test_record r;
    struct uuid a;
    struct uuid b;
};

static int set_up(void **state) {
    static struct fixture f;
    f = (struct fixture){.a = ledger_client_id(1), .b = ledger_client_id(2)};
    ledger_client_open(&f.d, postgres_open, 1, 10);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    ledger_client_shut(&f->d);
    postgres_shut();
    return 0;
}

static struct sale_mark mark(uint64_t transaction, int64_t id) {
    return (struct sale_mark){.transaction = transaction, .id = id};
}

/* Whether the node has the lease now. */
static bool publish(struct fixture *f, const struct uuid *node, int64_t lease_ms,
                    struct sale_mark published) {
    test_facts_publish(&f->r, node, lease_ms, published);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &f->r), ERR_OK);
    return f->r.facts_publish.is_ours;
}

static void stop(struct fixture *f, const struct uuid *node, struct sale_mark published) {
    test_facts_publish(&f->r, node, LONG_MS, published);
    f->r.facts_publish.stops = true;
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &f->r), ERR_OK);
    assert_false(f->r.facts_publish.is_ours);
}

static void assert_mark(const struct fixture *f, uint64_t transaction, int64_t id) {
    assert_int_equal(f->r.facts_publish.mark.transaction, transaction);
    assert_int_equal(f->r.facts_publish.mark.id, id);
}

static void one_node_at_a_time_has_the_lease(void **state) {
    struct fixture *f = *state;
    assert_true(publish(f, &f->a, LONG_MS, mark(0, 0)));
    assert_mark(f, 0, 0);
    assert_false(publish(f, &f->b, LONG_MS, mark(0, 0)));
    assert_true(publish(f, &f->a, LONG_MS, mark(0, 0)));
    stop(f, &f->b, mark(0, 0)); /* it is not this node's lease */
    assert_false(publish(f, &f->b, LONG_MS, mark(0, 0)));
    stop(f, &f->a, mark(0, 0));
    assert_true(publish(f, &f->b, LONG_MS, mark(0, 0)));
    assert_false(publish(f, &f->a, LONG_MS, mark(0, 0)));
}

static void a_lease_that_is_not_renewed_goes_to_another_node(void **state) {
    struct fixture *f = *state;
    assert_true(publish(f, &f->a, 1, mark(7, 3)));
    harness_run_for(&f->d.h, 20);
    assert_true(publish(f, &f->b, LONG_MS, mark(0, 0)));
    assert_false(publish(f, &f->a, LONG_MS, mark(0, 0)));
}

static void the_watermark_is_kept_and_never_goes_back(void **state) {
    struct fixture *f = *state;
    publish(f, &f->a, LONG_MS, mark(0, 0));
    publish(f, &f->a, LONG_MS, mark(100, 7));
    assert_mark(f, 100, 7);
    publish(f, &f->a, LONG_MS, mark(99, 8));
    assert_mark(f, 100, 7);
    publish(f, &f->a, LONG_MS, mark(100, 8));
    assert_mark(f, 100, 8);
    publish(f, &f->a, LONG_MS, mark(0, 0));
    assert_mark(f, 100, 8);
    ledger_client_restart(&f->d);
    publish(f, &f->a, LONG_MS, mark(0, 0));
    assert_mark(f, 100, 8);
    /* The number of a transaction has 64 bits. */
    stop(f, &f->a, mark(UINT64_C(5000000000), 1));
    assert_true(publish(f, &f->b, LONG_MS, mark(0, 0)));
    assert_mark(f, UINT64_C(5000000000), 1);
}

/* What it has published is in the topic, also when another node has the lease by then. */
static void a_node_without_the_lease_may_raise_the_watermark(void **state) {
    struct fixture *f = *state;
    publish(f, &f->a, LONG_MS, mark(0, 0));
    assert_false(publish(f, &f->b, LONG_MS, mark(12, 4)));
    assert_true(publish(f, &f->a, LONG_MS, mark(0, 0)));
    assert_mark(f, 12, 4);
}

static void each_topic_has_a_separate_lease_and_watermark(void **state) {
    struct fixture *f = *state;
    publish(f, &f->a, LONG_MS, mark(0, 0));
    publish(f, &f->a, LONG_MS, mark(12, 4));
    test_facts_publish(&f->r, &f->b, LONG_MS, mark(0, 0));
    f->r.facts_publish.topic = STR("test.facts");
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &f->r), ERR_OK);
    assert_true(f->r.facts_publish.is_ours);
    assert_mark(f, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_node_at_a_time_has_the_lease, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lease_that_is_not_renewed_goes_to_another_node, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_watermark_is_kept_and_never_goes_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_node_without_the_lease_may_raise_the_watermark, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(each_topic_has_a_separate_lease_and_watermark, set_up,
                                        tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
