/* Records whose connection breaks, above all at the commit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "cut_proxy.h"
#include "feed/local.h"
#include "ledger_client.h"
#include "ledger_postgres.h"
#include "services.h"

#define DEADLINE_MS 1500

struct fixture {
    struct ledger_client d; /* whose ledger is behind the proxy */
    struct cut_proxy *proxy;
    char url[320];
    struct ledger *direct; /* the same, not behind it */
};

static struct fixture *behind;

/* The ledger of a client: the database first, then its URL with the proxy's port. */
static struct ledger *open_behind(struct harness *h, int64_t queue_max) {
    postgres_database_for(h);
    postgres_url_with_port(postgres_database()->url, cut_proxy_port(behind->proxy), behind->url,
                           sizeof behind->url);
    postgres_options.url = behind->url;
    postgres_options.deadline_ms = DEADLINE_MS;
    return postgres_open(h, queue_max);
}

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    behind = f;
    f->proxy = cut_proxy_start(services_start(SERVICE_POSTGRES)->postgres_port);
    ledger_client_open(&f->d, open_behind, 2, 10);
    postgres_options.url = NULL;
    f->direct = postgres_open(&f->d.h, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    cut_proxy_set(f->proxy, CUT_NOTHING, CUT_NOTHING);
    ledger_close(f->direct);
    ledger_client_shut(&f->d);
    cut_proxy_stop(f->proxy);
    postgres_shut();
    mem_free(f);
    return 0;
}

static bool is_writable(void *arg) {
    struct ledger_health health;
    ledger_health(arg, &health);
    return health.writable;
}

static enum err enter(struct fixture *f, uint64_t seq, const char *user) {
    struct test_record r;
    test_enter(&r, f->d.event->key, seq, user, ENTRY_ACTIVE);
    r.enter.expires_ms = 100000;
    return harness_submit(&f->d.h, f->d.l, &r);
}

/* The state as another session sees it. */
static enum entry_status entry(struct fixture *f, uint64_t seq) {
    struct test_record r;
    test_get(&r, f->d.event->key, seq);
    assert_int_equal(harness_ask(&f->d.h, f->direct, &r), ERR_OK);
    return r.get.status;
}

static void commit_whose_answer_was_lost_stands(void **state) {
    struct fixture *f = *state;
    cut_proxy_set(f->proxy, CUT_AFTER_COMMIT, CUT_NOTHING);
    assert_int_equal(enter(f, 1, "a"), ERR_OK);
    assert_true(cut_proxy_has_cut(f->proxy));
    assert_int_equal(entry(f, 1), ENTRY_ACTIVE);

    /* The answer agrees with the effect. */
    struct reservation *wanted = ledger_client_wanted(&f->d, 1, "a", 1, 0, SEATS(3, 4));
    struct test_record r;
    test_hold(&r, wanted);
    cut_proxy_set(f->proxy, CUT_AFTER_COMMIT, CUT_NOTHING);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &r), ERR_OK);
    assert_true(cut_proxy_has_cut(f->proxy) && r.hold.held);
    assert_int_equal(ledger_client_seat(&f->d, 0, 3, NULL), SEAT_HELD);
    mem_free(wanted);
    ledger_client_assert_counts(&f->d, 0, 2, 0);
    ledger_client_assert_sound(&f->d);
}

static void commit_that_never_arrived_was_none(void **state) {
    struct fixture *f = *state;
    cut_proxy_set(f->proxy, CUT_BEFORE_COMMIT, CUT_NOTHING);
    assert_int_equal(enter(f, 1, "a"), ERR_LEDGER_FAILED);
    assert_true(cut_proxy_has_cut(f->proxy));
    assert_int_equal(entry(f, 1), ENTRY_NONE);
    harness_wait(&f->d.h, is_writable, f->d.l);
    assert_int_equal(enter(f, 1, "a"), ERR_OK);
}

/* Rows are read and returned once. */
static void question_that_ends_with_a_lost_commit_is_answered(void **state) {
    struct fixture *f = *state;
    static const enum cut cuts[] = {CUT_BEFORE_COMMIT, CUT_AFTER_COMMIT};
    for (size_t i = 0; i < 2; i++) {
        struct test_record r;
        test_events_read(&r, 0);
        cut_proxy_set(f->proxy, cuts[i], CUT_NOTHING);
        assert_int_equal(harness_ask(&f->d.h, f->d.l, &r), ERR_OK);
        assert_true(cut_proxy_has_cut(f->proxy));
        assert_int_equal(r.events_read.count, 1);
        test_record_deinit(&r);
    }
}

static void the_hand_over_of_a_failed_record_is_undone(void **state) {
    struct fixture *f = *state;
    ledger_client_enter(&f->d, 1, "a");
    assert_int_equal(ledger_client_hold(&f->d, 1, "a", 1, 0, SEATS(3)), ERR_OK);
    struct uuid id = ledger_client_id(1);
    struct test_record r;
    test_confirm(&r, &id, "a", 2500);
    cut_proxy_set(f->proxy, CUT_BEFORE_COMMIT, CUT_NOTHING);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &r), ERR_LEDGER_FAILED);
    assert_null(r.confirm.stored);
    assert_false(r.confirm.confirmed || r.confirm.completed);
    assert_int_equal(ledger_client_status(&f->d, 1), RESERVATION_HELD);
}

static void an_outcome_that_no_server_states_in_time_is_unknown(void **state) {
    struct fixture *f = *state;
    int64_t began_ms = clock_steady_ms();
    cut_proxy_set(f->proxy, CUT_AFTER_COMMIT, CUT_REFUSED);
    assert_int_equal(enter(f, 1, "a"), ERR_LEDGER_UNKNOWN);
    assert_in_range(clock_steady_ms() - began_ms, DEADLINE_MS, HARNESS_DEADLINE_MS);
    assert_int_equal(entry(f, 1), ENTRY_ACTIVE);
    cut_proxy_set(f->proxy, CUT_NOTHING, CUT_NOTHING);
    harness_wait(&f->d.h, is_writable, f->d.l);
    /* The caller repeats the record: the result is the same. */
    assert_int_equal(enter(f, 1, "a"), ERR_OK);
}

struct publishing {
    struct feed_publish publish;
    bool done;
};

static void on_published(struct feed_publish *p) {
    CONTAINER_OF(p, struct publishing, publish)->done = true;
}

static bool is_published(void *arg) {
    return ((struct publishing *)arg)->done;
}

/* The client gets the id with the 503: this one was accepted. */
static void a_request_of_an_unknown_commit_is_found_by_the_id_that_was_answered(void **state) {
    struct fixture *f = *state;
    struct feed *feed = local_feed_new(f->d.l, 1, true);
    struct request request = {.id = ledger_client_id(1),
                              .event_key = f->d.event->key,
                              .section_key = f->d.event->sections[0].key,
                              .entry_seq = 1,
                              .user = "a",
                              .strategy = STRATEGY_QUEUE,
                              .quantity = 1,
                              .created_ms = 2000,
                              .finished_ms = CLOCK_NONE_MS};
    struct publishing p = {
        .publish = {.request = &request, .may_rename = true, .done = on_published}};
    struct request *found = NULL;
    struct test_record r;
    cut_proxy_set(f->proxy, CUT_AFTER_COMMIT, CUT_REFUSED);
    feed_publish(feed, &p.publish);
    harness_wait(&f->d.h, is_published, &p);
    assert_int_equal(p.publish.result, ERR_FEED_UNKNOWN);
    test_requests_get(&r, &p.publish.id, 1, &found);
    assert_int_equal(harness_ask(&f->d.h, f->direct, &r), ERR_OK);
    assert_non_null(found);
    assert_int_equal(found->status, REQUEST_PENDING);
    mem_free(found);
    cut_proxy_set(f->proxy, CUT_NOTHING, CUT_NOTHING);
    harness_wait(&f->d.h, is_writable, f->d.l);
    feed_close(feed);
}

/* A server that gets the question and does not answer has not denied the commit. */
static void a_question_without_an_answer_changes_nothing(void **state) {
    struct fixture *f = *state;
    cut_proxy_set(f->proxy, CUT_AFTER_COMMIT, CUT_AT_QUESTION);
    assert_int_equal(enter(f, 1, "a"), ERR_LEDGER_UNKNOWN);
    assert_int_equal(entry(f, 1), ENTRY_ACTIVE);
    cut_proxy_set(f->proxy, CUT_NOTHING, CUT_NOTHING);
    harness_wait(&f->d.h, is_writable, f->d.l);
}

static void while_a_commit_is_asked_after_the_next_are_answered(void **state) {
    struct fixture *f = *state;
    struct test_record first, second;
    test_enter(&first, f->d.event->key, 1, "a", ENTRY_ACTIVE);
    test_enter(&second, f->d.event->key, 2, "b", ENTRY_ACTIVE);
    cut_proxy_set(f->proxy, CUT_AFTER_COMMIT, CUT_REFUSED);
    assert_int_equal(ledger_submit(f->d.l, &first.record), ERR_OK);
    while (!cut_proxy_has_cut(f->proxy)) harness_run_for(&f->d.h, 1);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &second), ERR_LEDGER_FAILED);
    assert_false(first.back);
    harness_wait_back(&f->d.h, &first, 1);
    assert_int_equal(first.record.result, ERR_LEDGER_UNKNOWN);
}

static void server_that_is_silent_is_given_up(void **state) {
    struct fixture *f = *state;
    int64_t began_ms = clock_steady_ms();
    cut_proxy_set(f->proxy, CUT_SILENT, CUT_NOTHING);
    assert_int_equal(enter(f, 1, "a"), ERR_LEDGER_FAILED);
    assert_in_range(clock_steady_ms() - began_ms, 0, HARNESS_DEADLINE_MS);
    assert_false(is_writable(f->d.l));
    /* From now on no record waits for the deadline: forty would take a minute. */
    began_ms = clock_steady_ms();
    for (uint64_t i = 2; i < 42; i++) assert_int_equal(enter(f, i, "a"), ERR_LEDGER_FAILED);
    assert_in_range(clock_steady_ms() - began_ms, 0, 20 * DEADLINE_MS);
    cut_proxy_set(f->proxy, CUT_NOTHING, CUT_NOTHING);
    harness_wait(&f->d.h, is_writable, f->d.l);
    assert_int_equal(enter(f, 1, "a"), ERR_OK);
    assert_int_equal(entry(f, 2), ENTRY_NONE);
}

/* A broken idle connection is only noticed when it is used: no record may fail because of that. */
static void idle_connections_are_replaced_unnoticed(void **state) {
    struct fixture *f = *state;
    assert_int_equal(enter(f, 1, "a"), ERR_OK);
    struct event *by_seat = event_copy(f->d.event);
    by_seat->sections[0].mode = SECTION_MODE_SEAT;
    mem_free(f->d.event);
    f->d.event = harness_store(&f->d.h, f->d.l, by_seat);
    mem_free(by_seat);
    struct reservation *wanted = ledger_client_wanted(&f->d, 1, "a", 1, 0, SEATS(1));
    struct reservation *other = ledger_client_wanted(&f->d, 2, "a", 1, 0, SEATS(2));
    struct test_record r;
    test_hold(&r, wanted);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &r), ERR_OK);
    cut_proxy_set(f->proxy, CUT_REFUSED, CUT_NOTHING);
    harness_run_for(&f->d.h, 50);
    cut_proxy_set(f->proxy, CUT_NOTHING, CUT_NOTHING);
    test_hold(&r, other);
    assert_int_equal(harness_submit(&f->d.h, f->d.l, &r), ERR_OK);
    struct uuid id = ledger_client_id(2);
    test_reservation_get(&r, &id);
    assert_int_equal(harness_ask(&f->d.h, f->d.l, &r), ERR_OK);
    assert_non_null(r.reservation_get.found);
    test_record_deinit(&r);
    mem_free(wanted);
    mem_free(other);
}

static bool is_not_writable(void *arg) {
    return !is_writable(arg);
}

static void restarted_server_is_written_to_again(void **state) {
    struct fixture *f = *state;
    assert_int_equal(enter(f, 1, "a"), ERR_OK);
    services_stop(SERVICE_POSTGRES);
    /* It notices by itself. */
    harness_wait(&f->d.h, is_not_writable, f->d.l);
    assert_int_equal(enter(f, 2, "b"), ERR_LEDGER_FAILED);
    services_start(SERVICE_POSTGRES);
    harness_wait(&f->d.h, is_writable, f->d.l);
    assert_int_equal(enter(f, 3, "c"), ERR_OK);
    assert_int_equal(entry(f, 1), ENTRY_ACTIVE);
    assert_int_equal(entry(f, 2), ENTRY_NONE);
    ledger_client_assert_sound(&f->d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commit_whose_answer_was_lost_stands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(commit_that_never_arrived_was_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(question_that_ends_with_a_lost_commit_is_answered, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_hand_over_of_a_failed_record_is_undone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_outcome_that_no_server_states_in_time_is_unknown, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_request_of_an_unknown_commit_is_found_by_the_id_that_was_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_question_without_an_answer_changes_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(while_a_commit_is_asked_after_the_next_are_answered, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(server_that_is_silent_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(idle_connections_are_replaced_unnoticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(restarted_server_is_written_to_again, set_up, tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
