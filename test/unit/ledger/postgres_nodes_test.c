/* The table of nodes: a node knows whether it has been in it without a gap, and dead nodes are
 * removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ledger_client.h"
#include "ledger_postgres.h"

struct fixture {
    struct ledger_client d;
    struct test_record r;
};

static int set_up(void **state) {
    static struct fixture f;
    f = (struct fixture){0};
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

/* Whether it was there. */
static bool report(struct fixture *f, const struct uuid *node, bool registers, int64_t applied) {
    test_node_report(&f->r, node, registers, applied);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &f->r), ERR_OK);
    return f->r.node_report.was_there;
}

static int64_t lowest(struct fixture *f) {
    test_nodes_read(&f->r);
    assert_int_equal(harness_ask(&f->d.h, f->d.l, &f->r), ERR_OK);
    return f->r.nodes_read.lowest;
}

/* How many went. */
static int64_t drop(struct fixture *f, int64_t version) {
    test_nodes_drop(&f->r, version);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &f->r), ERR_OK);
    return f->r.nodes_drop.count;
}

static void lowest_mark_is_that_of_the_slowest_node(void **state) {
    struct fixture *f = *state;
    struct uuid a = ledger_client_id(1);
    struct uuid b = ledger_client_id(2);
    assert_true(lowest(f) == INT64_MAX);
    assert_false(report(f, &a, true, 10));
    assert_false(report(f, &b, true, 12));
    assert_int_equal(lowest(f), 10);
    assert_true(report(f, &a, false, 15));
    assert_int_equal(lowest(f), 12);
    ledger_leave(f->d.l, &b); /* this ledger has no connection yet that it could say so on */
    assert_int_equal(lowest(f), 12);
    struct hot_incarnation incarnation;
    assert_int_equal(ledger_incarnation(f->d.l, &incarnation), ERR_OK);
    ledger_leave(f->d.l, &b);
    assert_int_equal(lowest(f), 15);
}

static void node_that_was_dropped_learns_so_and_registers_again(void **state) {
    struct fixture *f = *state;
    struct uuid a = ledger_client_id(1);
    struct uuid b = ledger_client_id(2);
    struct uuid again = ledger_client_id(3);
    report(f, &a, true, 10);
    report(f, &b, true, 12);
    /* The mark is the first version that the node has not applied. */
    assert_int_equal(drop(f, 9), 0);
    assert_int_equal(drop(f, 10), 1);
    assert_string_equal(f->r.nodes_drop.name, "a node");
    assert_int_equal(lowest(f), 12);
    assert_false(report(f, &a, false, 20));
    assert_int_equal(lowest(f), 12);
    assert_false(report(f, &again, true, 20));
    assert_true(report(f, &again, false, 21));
    assert_true(report(f, &b, false, 30));
    assert_int_equal(lowest(f), 21);
}

static void reading_events_returns_what_the_node_has_reported(void **state) {
    struct fixture *f = *state;
    struct uuid a = ledger_client_id(1);
    test_events_read(&f->r, 0);
    f->r.events_read.node = a;
    assert_int_equal(harness_ask(&f->d.h, f->d.l, &f->r), ERR_OK);
    int64_t mark = f->r.events_read.mark;
    assert_int_equal(f->r.events_read.node_applied, 0);
    test_record_deinit(&f->r);
    report(f, &a, true, mark);
    test_events_read(&f->r, mark);
    f->r.events_read.node = a;
    assert_int_equal(harness_ask(&f->d.h, f->d.l, &f->r), ERR_OK);
    assert_int_equal(f->r.events_read.node_applied, mark);
    test_record_deinit(&f->r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lowest_mark_is_that_of_the_slowest_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(node_that_was_dropped_learns_so_and_registers_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(reading_events_returns_what_the_node_has_reported, set_up,
                                        tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
