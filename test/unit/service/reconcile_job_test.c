/* The reconcile job of a node: its thread finds differences, a worker repairs them, and of all
 * nodes that share the stores one at a time does it. */
#include "service/reconcile_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "redis_fixture.h"
#include "two_stores.h"

#define INTERVAL_MS 200

struct fixture {
    struct two_stores t;
    struct reconcile_job reconcile_job;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    two_stores_open(&f->t);
    freeReplyObject(redis_fixture_command("DEL admitone:{hot}:lease:reconcile_job"));
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    two_stores_close(&f->t);
    mem_free(f);
    return 0;
}

static void begin(struct fixture *f, int64_t interval_ms) {
    f->reconcile_job =
        (struct reconcile_job){.reconcile = f->t.reconcile, .interval_ms = interval_ms};
    reconcile_job_init(&f->reconcile_job, &f->t.h.mailbox);
    reconcile_job_start(&f->reconcile_job);
}

static bool is_idle(void *reconcile_job) {
    return !reconcile_job_is_busy(reconcile_job);
}

static void end(struct fixture *f) {
    reconcile_job_stop(&f->reconcile_job);
    harness_wait(&f->t.h, is_idle, &f->reconcile_job);
    reconcile_job_deinit(&f->reconcile_job);
}

static void differences_are_repaired_again_and_again(void **state) {
    struct fixture *f = *state;
    begin(f, INTERVAL_MS);
    for (uint64_t seq = 2; seq <= 5; seq += 3) {
        ledger_ends(&f->t, seq, ENTRY_LEFT);
        int64_t deadline_ms = clock_steady_ms() + HARNESS_DEADLINE_MS;
        while (hot_place(&f->t, seq).status != ENTRY_LEFT)
            assert_true(clock_steady_ms() < deadline_ms);
    }
    end(f);
    assert_differences(&f->t, 0);
}

static void one_node_at_a_time_has_the_lease(void **state) {
    struct fixture *f = *state;
    struct redis_store *other = redis_fixture_store(true);
    struct hot *here = redis_store_hot(f->t.redis);
    struct hot *there = redis_store_hot(other);
    bool is_ours = false;
    assert_int_equal(hot_lease(here, "reconcile_job", 100000, &is_ours), ERR_OK);
    assert_true(is_ours);
    assert_int_equal(hot_lease(there, "reconcile_job", 100000, &is_ours), ERR_OK);
    assert_false(is_ours);
    assert_int_equal(hot_lease(here, "reconcile_job", 100000, &is_ours), ERR_OK);
    assert_false(is_ours);
    assert_int_equal(hot_lease(there, "something else", 100000, &is_ours), ERR_OK);
    assert_true(is_ours);
    assert_in_range(redis_fixture_number("PTTL admitone:{hot}:lease:reconcile_job"), 1, 100000);
    redis_store_free(other);
}

static void a_node_without_the_lease_leaves_the_work_to_the_holder(void **state) {
    struct fixture *f = *state;
    bool is_ours = false;
    assert_int_equal(hot_lease(redis_store_hot(f->t.redis), "reconcile_job", 100000, &is_ours),
                     ERR_OK);
    assert_true(is_ours);
    begin(f, INTERVAL_MS);
    ledger_ends(&f->t, 2, ENTRY_LEFT);
    harness_run_for(&f->t.h, 3 * INTERVAL_MS + 2 * TWO_STORES_WAIT_MS);
    end(f);
    assert_int_equal(hot_place(&f->t, 2).status, ENTRY_WAITING);
}

static void it_stops_at_once_while_it_rests_or_never_began(void **state) {
    struct fixture *f = *state;
    begin(f, 3600000);
    end(f);
    begin(f, 0);
    end(f);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(differences_are_repaired_again_and_again),
        TEST(one_node_at_a_time_has_the_lease),
        TEST(a_node_without_the_lease_leaves_the_work_to_the_holder),
        TEST(it_stops_at_once_while_it_rests_or_never_began),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
