/* Asynchronous requests of nodes that share the ledger: the leases of their partitions, and how
 * they are accepted at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

#define LONG_MS 600000
#define SHORT_MS 200

static const struct uuid first = {{1}};
static const struct uuid second = {{2}};

static int set_up(void **state) {
    static struct ledger_client d;
    ledger_client_open(&d, postgres_open, 1, 100);
    ledger_client_enter(&d, 1, "a");
    *state = &d;
    return 0;
}

static int tear_down(void **state) {
    ledger_client_shut(*state);
    return 0;
}

/* Keeps the first so many partitions of those that it has. */
static struct ledger_request_lease lease(struct ledger_client *d, const struct uuid *node,
                                         int64_t lease_ms, int keeps) {
    struct test_record r;
    test_request_lease(&r, node, lease_ms);
    for (int p = 0; p < keeps; p++) r.request_lease.keeps[p] = true;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    return r.request_lease;
}

static int count_of(const struct ledger_request_lease *l) {
    int count = 0;
    for (int p = 0; p < REQUEST_PARTITIONS; p++) count += l->fences[p] != 0;
    return count;
}

static void partitions_are_shared_evenly_when_those_above_the_share_are_released(void **state) {
    struct ledger_client *d = *state;
    struct ledger_request_lease a = lease(d, &first, LONG_MS, 0);
    assert_int_equal(count_of(&a), REQUEST_PARTITIONS);
    assert_int_equal(a.share, REQUEST_PARTITIONS);
    struct ledger_request_lease b = lease(d, &second, LONG_MS, 0);
    assert_int_equal(count_of(&b), 0); /* all are taken */
    struct ledger_request_lease again = lease(d, &first, LONG_MS, REQUEST_PARTITIONS);
    assert_int_equal(count_of(&again), REQUEST_PARTITIONS);
    assert_int_equal(again.share, REQUEST_PARTITIONS / 2);
    for (int p = 0; p < REQUEST_PARTITIONS; p++) assert_int_equal(again.fences[p], a.fences[p]);
    again = lease(d, &first, LONG_MS, REQUEST_PARTITIONS / 2);
    assert_int_equal(count_of(&again), REQUEST_PARTITIONS / 2);
    b = lease(d, &second, LONG_MS, 0);
    assert_int_equal(count_of(&b), REQUEST_PARTITIONS / 2);
    for (int p = 0; p < REQUEST_PARTITIONS; p++) {
        assert_true((again.fences[p] != 0) != (b.fences[p] != 0));
        if (b.fences[p] != 0) assert_true(b.fences[p] > a.fences[p]);
    }
}

static void a_node_that_stops_releases_all(void **state) {
    struct ledger_client *d = *state;
    struct test_record r;
    lease(d, &first, LONG_MS, 0);
    test_request_lease(&r, &first, LONG_MS);
    r.request_lease.stops = true;
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_int_equal(count_of(&r.request_lease), 0);
    struct ledger_request_lease b = lease(d, &second, LONG_MS, 0);
    assert_int_equal(count_of(&b), REQUEST_PARTITIONS);
    assert_int_equal(b.share, REQUEST_PARTITIONS);
}

static enum err decide(struct ledger_client *d, uint64_t number, int64_t fence) {
    struct test_record r;
    struct request q = {.id = ledger_client_id(number),
                        .partition = 3,
                        .event_key = d->event->key,
                        .section_key = d->event->sections[0].key,
                        .user = "a",
                        .entry_seq = 1,
                        .strategy = STRATEGY_QUEUE,
                        .quantity = 1,
                        .created_ms = 2000,
                        .status = REQUEST_FAIL_SOLD_OUT,
                        .reason = "sold_out",
                        .finished_ms = 3000};
    test_request_decide(&r, &q);
    r.request_decide.fence = fence;
    return harness_submit(&d->h, d->l, &r);
}

static void a_node_that_has_lost_its_lease_decides_nothing(void **state) {
    struct ledger_client *d = *state;
    struct uuid id = ledger_client_id(2);
    struct request *found = NULL;
    struct test_record get;
    struct ledger_request_lease a = lease(d, &first, SHORT_MS, 0);
    assert_int_equal(decide(d, 1, a.fences[3]), ERR_OK);
    struct ledger_request_lease b;
    do {
        b = lease(d, &second, LONG_MS, REQUEST_PARTITIONS);
    } while (count_of(&b) < REQUEST_PARTITIONS); /* until the lease of the first has ended */
    assert_true(b.fences[3] > a.fences[3]);
    assert_int_equal(decide(d, 2, a.fences[3]), ERR_LOCK_LOST);
    test_requests_get(&get, &id, 1, &found);
    assert_int_equal(harness_ask(&d->h, d->l, &get), ERR_OK);
    assert_null(found);
    assert_int_equal(decide(d, 2, b.fences[3]), ERR_OK);
    /* The first gets none back before the second gives some up, and then with a new fence. */
    a = lease(d, &first, LONG_MS, REQUEST_PARTITIONS);
    assert_int_equal(count_of(&a), 0);
    ledger_client_assert_sound(d);
}

/* ---- accepting ---- */

#define ROUNDS 120

/* A batch of one node: a request in one partition, a place in the queue, a request in another
 * partition. */
struct mixed_batch {
    struct test_record records[3];
    struct request requests[2];
    char user[16];
};

static void submit_mixed(struct ledger_client *d, struct ledger *node, struct mixed_batch *m,
                         uint64_t number, int first_partition, int second_partition) {
    for (size_t i = 0; i < 2; i++) {
        m->requests[i] = (struct request){.id = ledger_client_id(1000000 + 2 * number + i),
                                          .partition = i == 0 ? first_partition : second_partition,
                                          .event_key = d->event->key,
                                          .section_key = d->event->sections[0].key,
                                          .user = "a",
                                          .entry_seq = 1,
                                          .strategy = STRATEGY_QUEUE,
                                          .quantity = 1,
                                          .created_ms = 2000,
                                          .finished_ms = CLOCK_NONE_MS};
        test_request_put(&m->records[2 * i], &m->requests[i]);
    }
    snprintf(m->user, sizeof m->user, "user%d", (int)number);
    test_enter(&m->records[1], d->event->key, number, m->user, ENTRY_WAITING);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ledger_submit(node, &m->records[i].record), ERR_OK);
}

static void
nodes_that_accept_requests_for_the_same_partitions_do_not_wait_for_each_other(void **state) {
    struct ledger_client *d = *state;
    struct ledger *other = postgres_open(&d->h, 100);
    uint64_t failures = counter_total(COUNT_LEDGER_BATCH_FAILURES);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        struct mixed_batch ours, theirs;
        submit_mixed(d, d->l, &ours, 2 * i, 2, 5);
        submit_mixed(d, other, &theirs, 2 * i + 1, 5, 2);
        harness_wait_back(&d->h, ours.records, 3);
        harness_wait_back(&d->h, theirs.records, 3);
        for (size_t r = 0; r < 3; r++) {
            assert_int_equal(ours.records[r].record.result, ERR_OK);
            assert_int_equal(theirs.records[r].record.result, ERR_OK);
        }
    }
    assert_int_equal(counter_total(COUNT_LEDGER_BATCH_FAILURES), failures);
    ledger_close(other);
    ledger_client_assert_sound(d);
}

static int64_t accept_behind(struct ledger_client *d, uint64_t number, int64_t undecided) {
    struct test_record r;
    struct request q = {.id = ledger_client_id(number),
                        .partition = 3,
                        .event_key = d->event->key,
                        .section_key = d->event->sections[0].key,
                        .user = "a",
                        .entry_seq = 1,
                        .strategy = STRATEGY_QUEUE,
                        .quantity = 1,
                        .created_ms = 2000,
                        .finished_ms = CLOCK_NONE_MS};
    test_request_put(&r, &q);
    assert_int_equal(harness_submit(&d->h, d->l, &r), ERR_OK);
    assert_true(r.request_put.ahead >= undecided); /* never too low */
    return r.request_put.ahead;
}

#define MANY 1500

/* To count them takes longer the more they are, and would be done for each batch. */
static void where_many_requests_are_ahead_a_count_is_used_for_a_while(void **state) {
    struct ledger_client *d = *state;
    int64_t undecided = MANY;
    uint64_t number = 1;
    bool is_shown = false;
    scratch_sql(postgres_database(),
                "INSERT INTO requests(id, partition, seq, event_id, section_id, user_id, entry_seq,"
                " strategy, quantity, body_digest, ahead, status, reason, created_at)"
                " SELECT gen_random_uuid(), 3, n, %lld, %lld, 'a', 1, 'queue', 1,"
                " decode(repeat('00', 32), 'hex'), n - 1, 'PENDING', '', 1000"
                " FROM generate_series(1, %d) n;"
                " UPDATE request_partitions SET last_seq = %d WHERE partition = 3",
                (long long)d->event->key, (long long)d->event->sections[0].key, MANY, MANY);
    assert_int_equal(accept_behind(d, number++, undecided++), MANY);
    while (!is_shown) {
        assert_true(number < 200);
        accept_behind(d, number++, undecided++);
        scratch_sql(postgres_database(),
                    "UPDATE requests SET status = 'FAIL', reason = 'closed', finished_at = 2000"
                    " WHERE seq = (SELECT min(seq) FROM requests WHERE finished_at IS NULL)");
        undecided--;
        is_shown = accept_behind(d, number++, undecided) == undecided + 1;
        undecided++;
    }
    while (accept_behind(d, number++, undecided) > undecided) {
        undecided++;
        harness_run_for(&d->h, 50);
    }
    ledger_client_assert_sound(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            partitions_are_shared_evenly_when_those_above_the_share_are_released, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_stops_releases_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_has_lost_its_lease_decides_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            nodes_that_accept_requests_for_the_same_partitions_do_not_wait_for_each_other, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(where_many_requests_are_ahead_a_count_is_used_for_a_while,
                                        set_up, tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
