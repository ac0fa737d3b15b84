/* The contract of a feed. Two workers are attached on the test's own thread. */
#include "feed_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "ledger_client.h"

#define WORKERS 2
#define DELIVERED_MAX 1000
#define NUMBERS_MAX 1000
/* An adapter may wait until a part of the window is free. */
#define WINDOW_LEAST (FEED_WINDOW / 2)

static const struct feed_adapter *adapter;

struct fixture;

struct test_consumer {
    struct feed_consumer port;
    struct fixture *fixture;
    size_t worker;
};

struct fixture {
    struct ledger_client d;
    struct feed *feed;
    struct test_consumer consumers[WORKERS];
    struct feed_message *delivered[DELIVERED_MAX];
    size_t workers[DELIVERED_MAX]; /* to which each was delivered */
    size_t count;
    size_t acknowledged;         /* of the first ones */
    int partitions[NUMBERS_MAX]; /* of the requests, by their numbers */
};

static void on_delivered(struct feed_consumer *port, struct feed_message *m) {
    struct test_consumer *c = CONTAINER_OF(port, struct test_consumer, port);
    struct fixture *f = c->fixture;
    assert_true(f->count < DELIVERED_MAX);
    f->workers[f->count] = c->worker;
    f->delivered[f->count++] = m;
}

static bool is_available(void *arg) {
    struct feed_stats stats;
    feed_stats(((struct fixture *)arg)->feed, &stats);
    return stats.is_available;
}

static void feed_begin(struct fixture *f) {
    f->feed = adapter->open(f->d.l, WORKERS);
    harness_wait(&f->d.h, is_available, f);
    f->count = 0;
    f->acknowledged = 0;
    for (size_t i = 0; i < WORKERS; i++)
        f->consumers[i] =
            (struct test_consumer){.port.deliver = on_delivered, .fixture = f, .worker = i};
}

static void feed_attach_all(struct fixture *f) {
    for (size_t i = 0; i < WORKERS; i++) feed_attach(f->feed, i, &f->consumers[i].port);
}

static void acknowledge_next(struct fixture *f, bool is_decided) {
    assert_true(f->acknowledged < f->count);
    feed_acknowledge(f->feed, f->delivered[f->acknowledged++],
                     is_decided ? FEED_DECIDED : FEED_UNDECIDED, ERR_OK);
}

static bool is_quiet(void *arg) {
    return !feed_is_busy(((struct fixture *)arg)->feed);
}

static void feed_finish(struct fixture *f) {
    for (size_t i = 0; i < WORKERS; i++) feed_drain(f->feed, i);
    harness_wait(&f->d.h, is_quiet, f);
    while (f->acknowledged < f->count) acknowledge_next(f, false);
    harness_wait(&f->d.h, is_quiet, f);
    feed_close(f->feed);
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    if (adapter->begin != NULL) adapter->begin();
    ledger_client_open(&f->d, adapter->open_ledger, 2, 100);
    ledger_client_enter(&f->d, 1, "a");
    feed_begin(f);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    feed_finish(f);
    ledger_client_shut(&f->d);
    mem_free(f);
    return 0;
}

/* ---- publishing ---- */

struct publishing {
    struct feed_publish publish;
    struct request request;
    struct section_names names;
    bool done;
};

static void on_published(struct feed_publish *p) {
    CONTAINER_OF(p, struct publishing, publish)->done = true;
}

static bool is_published(void *arg) {
    return ((struct publishing *)arg)->done;
}

static void publish_begin(struct fixture *f, struct publishing *p, uint64_t number, int partition) {
    assert_true(number < NUMBERS_MAX);
    f->partitions[number] = partition;
    *p = (struct publishing){
        .publish = {.request = &p->request, .names = &p->names, .done = on_published},
        .names = {"CONCERT", "1", "A"},
        .request = {.id = ledger_client_id(number),
                    .partition = partition,
                    .event_key = f->d.event->key,
                    .section_key = f->d.event->sections[0].key,
                    .user = "a",
                    .entry_seq = 1,
                    .strategy = STRATEGY_QUEUE,
                    .quantity = 1,
                    .created_ms = 2000,
                    .finished_ms = CLOCK_NONE_MS}};
    if (adapter->name != NULL) adapter->name(partition, &p->names);
    feed_publish(f->feed, &p->publish);
}

static struct feed_publish publish(struct fixture *f, uint64_t number, int partition) {
    struct publishing p;
    publish_begin(f, &p, number, partition);
    harness_wait(&f->d.h, is_published, &p);
    return p.publish;
}

static void decide(struct fixture *f, const struct request *of) {
    struct request r = *of;
    struct test_record record;
    r.status = REQUEST_FAIL;
    r.finished_ms = 3000;
    str_copy(STR("closed"), r.reason, sizeof r.reason);
    test_request_decide(&record, &r);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &record), ERR_OK);
}

struct expected {
    struct fixture *f;
    size_t count;
};

static bool has_delivered(void *arg) {
    const struct expected *e = arg;
    for (size_t i = 0; i < WORKERS; i++) feed_tick(e->f->feed, i);
    return e->f->count >= e->count;
}

static void await_delivered(struct fixture *f, size_t count) {
    harness_wait(&f->d.h, has_delivered, &(struct expected){f, count});
}

static uint64_t number_of(const struct feed_message *m) {
    for (uint64_t n = 1; n < NUMBERS_MAX; n++) {
        struct uuid id = ledger_client_id(n);
        if (uuid_eq(&id, &m->request->id)) return n;
    }
    fail_msg("an unknown request was delivered");
    return 0;
}

/* ---- the tests ---- */

static void a_request_is_delivered_as_it_was_accepted(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    struct feed_publish p = publish(f, 1, 3);
    assert_int_equal(p.result, ERR_OK);
    assert_true(p.is_new);
    assert_int_equal(p.ahead, 0);
    await_delivered(f, 1);
    const struct request *r = f->delivered[0]->request;
    assert_int_equal(number_of(f->delivered[0]), 1);
    if (adapter->name == NULL) assert_int_equal(r->partition, 3);
    assert_string_equal(r->user, "a");
    assert_int_equal(r->quantity, 1);
    assert_int_equal(r->section_key, f->d.event->sections[0].key);
}

static bool has_delivered_by_itself(void *arg) {
    const struct expected *e = arg;
    return e->f->count >= e->count;
}

/* Ticks are for what has failed. */
static void a_request_is_delivered_without_a_tick(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    publish(f, 1, 3);
    await_delivered(f, 1); /* now the feed works on the partition */
    for (uint64_t n = 2; n <= 20; n++) {
        publish(f, n, 3);
        harness_wait(&f->d.h, has_delivered_by_itself, &(struct expected){f, n});
    }
}

static void requests_are_delivered_in_order_and_each_partition_to_one_worker(void **state) {
    struct fixture *f = *state;
    enum { COUNT = 120 };
    static struct publishing all[COUNT];
    feed_attach_all(f);
    for (uint64_t i = 0; i < COUNT; i++) publish_begin(f, &all[i], COUNT - i, (int)(i % 4));
    for (size_t i = 0; i < COUNT; i++) {
        harness_wait(&f->d.h, is_published, &all[i]);
        assert_int_equal(all[i].publish.result, ERR_OK);
    }
    await_delivered(f, COUNT);
    assert_int_equal(f->count, COUNT);
    size_t worker_of[4] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    size_t next[4] = {0, 1, 2, 3};
    for (size_t i = 0; i < COUNT; i++) {
        size_t p = (size_t)f->partitions[number_of(f->delivered[i])];
        assert_int_equal(number_of(f->delivered[i]), COUNT - next[p]);
        next[p] += 4;
        if (worker_of[p] == SIZE_MAX) worker_of[p] = f->workers[i];
        assert_int_equal(worker_of[p], f->workers[i]);
    }
    assert_int_equal(worker_of[0], worker_of[2]);
    assert_int_not_equal(worker_of[0], worker_of[1]);
}

static void no_more_than_the_window_is_delivered_unacknowledged(void **state) {
    struct fixture *f = *state;
    enum { COUNT = 3 * FEED_WINDOW };
    for (uint64_t n = 1; n <= COUNT; n++) publish(f, n, 5);
    feed_attach_all(f);
    await_delivered(f, WINDOW_LEAST);
    harness_run_for(&f->d.h, 300);
    size_t delivered = f->count;
    assert_in_range(delivered, WINDOW_LEAST, FEED_WINDOW);
    /* Another partition is not held up. */
    publish(f, COUNT + 1, 6);
    await_delivered(f, delivered + 1);
    assert_int_equal(number_of(f->delivered[delivered]), COUNT + 1);
    size_t unacknowledged_max = 0;
    while (f->acknowledged < COUNT + 1) {
        decide(f, f->delivered[f->acknowledged]->request);
        acknowledge_next(f, true);
        if (f->acknowledged < COUNT + 1) await_delivered(f, f->acknowledged + 1);
        size_t unacknowledged = f->count - f->acknowledged;
        if (unacknowledged > unacknowledged_max) unacknowledged_max = unacknowledged;
    }
    assert_true(unacknowledged_max <= FEED_WINDOW + 1);
    harness_run_for(&f->d.h, 50);
    assert_int_equal(f->count, COUNT + 1);
}

static void undecided_requests_are_delivered_again_after_a_restart(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    for (uint64_t n = 1; n <= 10; n++) publish(f, n, 2);
    await_delivered(f, 10);
    for (int i = 0; i < 4; i++) {
        decide(f, f->delivered[f->acknowledged]->request);
        acknowledge_next(f, true);
    }
    feed_finish(f);
    ledger_client_restart(&f->d);
    feed_begin(f);
    /* Also requests that are accepted before a worker attaches. */
    int64_t ahead = publish(f, 11, 2).ahead;
    /* A feed that does not know results learns a moment later what was decided before. */
    assert_in_range(ahead, 6, adapter->knows_results ? 6 : 10);
    feed_attach_all(f);
    await_delivered(f, 7);
    harness_run_for(&f->d.h, 50);
    assert_int_equal(f->count, 7);
    for (size_t i = 0; i < 7; i++) assert_int_equal(number_of(f->delivered[i]), i + 5);
}

static void a_repeated_request_is_delivered_once(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    assert_true(publish(f, 1, 3).is_new);
    for (int i = 0; i < 3; i++) {
        struct feed_publish again = publish(f, 1, 3);
        assert_int_equal(again.result, ERR_OK);
        assert_false(again.is_new);
        assert_int_equal(again.ahead, 0);
    }
    await_delivered(f, 1);
    struct publishing other = {.publish = {.done = on_published}};
    other.publish.request = &other.request;
    other.request = *f->delivered[0]->request;
    other.request.digest[0]++;
    other.request.status = REQUEST_PENDING;
    feed_publish(f->feed, &other.publish);
    harness_wait(&f->d.h, is_published, &other);
    assert_int_equal(other.publish.result, ERR_IDEMPOTENCY_MISMATCH);
    publish(f, 2, 3);
    await_delivered(f, 2);
    harness_run_for(&f->d.h, 50);
    assert_int_equal(f->count, 2);
}

/* Then the ledger sees to it that the second delivery changes nothing. */
static void a_repeated_request_is_delivered_again(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    for (int i = 0; i < 3; i++) {
        struct feed_publish p = publish(f, 1, 3);
        assert_int_equal(p.result, ERR_OK);
        assert_true(p.is_new);
        assert_int_equal(p.ahead, i);
    }
    publish(f, 2, 3);
    await_delivered(f, 4);
    for (size_t i = 0; i < 4; i++) assert_int_equal(number_of(f->delivered[i]), i < 3 ? 1 : 2);
}

/* Pitfall 35. One of the requests could not be decided; those behind it were. */
static void an_undecided_request_is_not_passed_over(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    for (uint64_t n = 1; n <= 10; n++) publish(f, n, 2);
    await_delivered(f, 10);
    for (uint64_t n = 1; n <= 10; n++) {
        if (n != 3) decide(f, f->delivered[f->acknowledged]->request);
        acknowledge_next(f, n != 3);
    }
    feed_finish(f);
    ledger_client_restart(&f->d);
    feed_begin(f);
    feed_attach_all(f);
    size_t again = adapter->knows_results ? 1 : 8;
    await_delivered(f, again);
    harness_run_for(&f->d.h, 50);
    assert_int_equal(f->count, again);
    for (size_t i = 0; i < again; i++) assert_int_equal(number_of(f->delivered[i]), i + 3);
}

/* Pitfall 37. The last ones are decided first: the first one is still there. */
static void requests_that_are_decided_out_of_order_do_not_remove_the_first(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    for (uint64_t n = 1; n <= 10; n++) publish(f, n, 2);
    await_delivered(f, 10);
    for (size_t i = 10; i > 0; i--) {
        bool is_decided = i > 1;
        if (is_decided) decide(f, f->delivered[i - 1]->request);
        feed_acknowledge(f->feed, f->delivered[i - 1], is_decided ? FEED_DECIDED : FEED_UNDECIDED,
                         ERR_OK);
    }
    f->acknowledged = f->count;
    feed_finish(f);
    ledger_client_restart(&f->d);
    feed_begin(f);
    feed_attach_all(f);
    await_delivered(f, adapter->knows_results ? 1 : 10);
    assert_int_equal(number_of(f->delivered[0]), 1);
}

static void a_request_that_is_set_aside_is_not_delivered_again(void **state) {
    struct fixture *f = *state;
    assert_true(f->feed->sets_aside);
    feed_attach_all(f);
    for (uint64_t n = 1; n <= 3; n++) publish(f, n, 2);
    await_delivered(f, 3);
    for (int i = 0; i < 2; i++)
        feed_acknowledge(f->feed, f->delivered[f->acknowledged++], FEED_SET_ASIDE,
                         ERR_EVENT_NOT_FOUND);
    acknowledge_next(f, false);
    harness_wait(&f->d.h, is_quiet, f);
    feed_finish(f);
    feed_begin(f);
    feed_attach_all(f);
    await_delivered(f, 1);
    harness_run_for(&f->d.h, 50);
    assert_int_equal(f->count, 1);
    assert_int_equal(number_of(f->delivered[0]), 3);
}

/* ---- looking ---- */

struct looking {
    struct feed_look look;
    struct uuid ids[3];
    struct request *found[3];
    int64_t ahead[3];
    enum err result;
    bool done;
};

static void on_looked(struct feed_look *look, enum err result) {
    struct looking *l = CONTAINER_OF(look, struct looking, look);
    l->result = result;
    l->done = true;
}

static bool is_looked(void *arg) {
    return ((struct looking *)arg)->done;
}

/* Of three requests: what the ledger knows, and then the feed. On the harness's thread. */
static void look_on(struct harness *h, struct fixture *f, struct looking *l,
                    const uint64_t *numbers) {
    struct test_record record;
    *l = (struct looking){
        .look = {
            .ids = l->ids, .count = 3, .found = l->found, .ahead = l->ahead, .done = on_looked}};
    l->look.asked_ns = clock_steady_ns();
    for (size_t i = 0; i < 3; i++) l->ids[i] = ledger_client_id(numbers[i]);
    test_requests_get(&record, l->ids, 3, l->found);
    assert_int_equal(harness_ask(h, f->d.l, &record), ERR_OK);
    feed_look(f->feed, &l->look);
    harness_wait(h, is_looked, l);
    assert_int_equal(l->result, ERR_OK);
}

static void look(struct fixture *f, struct looking *l, const uint64_t *numbers) {
    look_on(&f->d.h, f, l, numbers);
}

static void undecided_requests_are_found_with_their_positions(void **state) {
    struct fixture *f = *state;
    struct looking l;
    for (uint64_t n = 1; n <= 5; n++) publish(f, n, 2);
    publish(f, 6, 1);
    look(f, &l, (const uint64_t[]){5, 6, 900});
    assert_non_null(l.found[0]);
    assert_string_equal(l.found[0]->user, "a");
    assert_int_equal(l.found[0]->status, REQUEST_PENDING);
    assert_int_equal(l.ahead[0], 4);
    assert_non_null(l.found[1]);
    assert_int_equal(l.ahead[1], 0);
    assert_null(l.found[2]);
    for (size_t i = 0; i < 3; i++) mem_free(l.found[i]);
    /* Of those that are decided none counts. */
    feed_attach_all(f);
    await_delivered(f, 6);
    for (int i = 0; i < 6; i++) {
        bool is_early = number_of(f->delivered[f->acknowledged]) <= 2;
        if (is_early) decide(f, f->delivered[f->acknowledged]->request);
        acknowledge_next(f, is_early);
    }
    /* Positions may be a moment old. */
    for (int tries = 0;; tries++) {
        look(f, &l, (const uint64_t[]){5, 6, 2});
        if (l.ahead[0] == 2) break;
        assert_true(l.ahead[0] == 4 && tries < 100);
        for (size_t i = 0; i < 3; i++) mem_free(l.found[i]);
        harness_run_for(&f->d.h, 50);
    }
    assert_int_equal(l.ahead[1], 0);
    assert_int_equal(l.found[2]->status, REQUEST_FAIL);
    assert_int_equal(l.ahead[2], 0);
    for (size_t i = 0; i < 3; i++) mem_free(l.found[i]);
}

/* Threads that look at one request again and again, as two workers. */
struct watch {
    struct fixture *f;
    uint64_t number;
    _Atomic int64_t lowest; /* position that one of them was answered */
    _Atomic bool has_risen;
    int64_t below; /* of the condition is_lower */
};

static void *watch_run(void *arg) {
    struct watch *w = arg;
    struct harness h;
    harness_init(&h);
    while (atomic_load(&w->lowest) > 0 && !atomic_load(&w->has_risen)) {
        struct looking l;
        int64_t before = atomic_load(&w->lowest);
        look_on(&h, w->f, &l, (const uint64_t[]){w->number, 900, 901});
        for (size_t i = 0; i < 3; i++) mem_free(l.found[i]);
        if (l.ahead[0] > before) atomic_store(&w->has_risen, true);
        while (before > l.ahead[0] &&
               !atomic_compare_exchange_weak(&w->lowest, &before, l.ahead[0])) {
        }
    }
    harness_deinit(&h);
    return NULL;
}

static bool is_lower(void *arg) {
    struct watch *w = arg;
    return atomic_load(&w->lowest) < w->below || atomic_load(&w->has_risen);
}

static void a_position_only_falls_whichever_worker_is_asked(void **state) {
    struct fixture *f = *state;
    enum { COUNT = 21, AT_ONCE = 4 };
    struct watch w = {.f = f, .number = COUNT};
    pthread_t threads[WORKERS];
    atomic_store(&w.lowest, COUNT - 1);
    for (uint64_t n = 1; n <= COUNT; n++) publish(f, n, 2);
    feed_attach_all(f);
    await_delivered(f, COUNT);
    for (size_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, watch_run, &w), 0);
    while (f->acknowledged < COUNT - 1) {
        w.below = atomic_load(&w.lowest);
        for (int i = 0; i < AT_ONCE; i++) {
            decide(f, f->delivered[f->acknowledged]->request);
            acknowledge_next(f, true);
        }
        harness_wait(&f->d.h, is_lower, &w);
    }
    w.below = 1;
    harness_wait(&f->d.h, is_lower, &w);
    for (size_t i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    assert_false(atomic_load(&w.has_risen));
}

/* Known positions are used for a moment. The list of all undecided requests is not read again for a
 * request that is newer: it has the position of its acceptance, even if an earlier one is decided.
 */
static void a_request_that_is_newer_than_the_positions_has_that_of_its_acceptance(void **state) {
    struct fixture *f = *state;
    struct looking first;
    struct looking next;
    bool is_shown = false;
    for (uint64_t n = 1; !is_shown; n += 2) {
        publish(f, n, 2);
        look(f, &first, (const uint64_t[]){n, 900, 901});
        assert_int_equal(first.ahead[0], 0);
        assert_int_equal(publish(f, n + 1, 2).ahead, 1);
        decide(f, first.found[0]);
        look(f, &next, (const uint64_t[]){n + 1, 900, 901});
        /* 0: it took so long that they were read again. */
        is_shown = next.ahead[0] == 1;
        assert_in_range(next.ahead[0], 0, 1);
        decide(f, next.found[0]);
        mem_free(first.found[0]);
        mem_free(next.found[0]);
    }
}

static void a_drained_worker_gets_nothing_more(void **state) {
    struct fixture *f = *state;
    feed_attach_all(f);
    publish(f, 1, 0);
    await_delivered(f, 1);
    feed_drain(f->feed, 0);
    assert_int_equal(publish(f, 2, 0).result, ERR_OK);
    publish(f, 3, 1); /* of the other worker */
    await_delivered(f, 2);
    harness_run_for(&f->d.h, 50);
    assert_int_equal(f->count, 2);
    assert_int_equal(number_of(f->delivered[1]), 3);
}

int feed_suite_run(const struct feed_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_delivered_as_it_was_accepted),
        TEST(a_request_is_delivered_without_a_tick),
        TEST(requests_are_delivered_in_order_and_each_partition_to_one_worker),
        TEST(no_more_than_the_window_is_delivered_unacknowledged),
        TEST(undecided_requests_are_delivered_again_after_a_restart),
        TEST(an_undecided_request_is_not_passed_over),
        TEST(requests_that_are_decided_out_of_order_do_not_remove_the_first),
        TEST(undecided_requests_are_found_with_their_positions),
        TEST(a_position_only_falls_whichever_worker_is_asked),
        TEST(a_drained_worker_gets_nothing_more),
    };
    const struct CMUnitTest with_ids[] = {
        TEST(a_repeated_request_is_delivered_once),
        TEST(a_request_that_is_newer_than_the_positions_has_that_of_its_acceptance)};
    const struct CMUnitTest without_ids[] = {TEST(a_repeated_request_is_delivered_again)};
    const struct CMUnitTest aside[] = {TEST(a_request_that_is_set_aside_is_not_delivered_again)};
#undef TEST
    int failed = cmocka_run_group_tests_name("feed contract", tests, NULL, NULL);
    if (adapter->knows_ids)
        failed += cmocka_run_group_tests_name("feed that knows ids", with_ids, NULL, NULL);
    else
        failed += cmocka_run_group_tests_name("feed without ids", without_ids, NULL, NULL);
    if (adapter->sets_aside)
        failed += cmocka_run_group_tests_name("feed with dead letters", aside, NULL, NULL);
    return failed;
}
