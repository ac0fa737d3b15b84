/* Incarnations of the hot store: one node at a time rebuilds it, and records of an older
 * incarnation are refused. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_client.h"
#include "ledger_postgres.h"

/* Two nodes on one ledger. */
struct fixture {
    struct ledger_client d;
    struct ledger *other;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    ledger_client_open(&f->d, postgres_open, 1, 10);
    f->other = postgres_open(&f->d.h, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    if (f->other != NULL) ledger_close(f->other);
    ledger_client_shut(&f->d);
    postgres_shut();
    mem_free(f);
    return 0;
}

static struct hot_incarnation incarnation_of(struct ledger *l) {
    struct hot_incarnation incarnation;
    assert_int_equal(ledger_incarnation(l, &incarnation), ERR_OK);
    return incarnation;
}

/* The epoch that has begun; 0: another node rebuilds. */
static uint32_t begin(struct ledger *l, struct hot_incarnation before) {
    uint32_t epoch = 0;
    bool ours = false;
    assert_int_equal(ledger_rebuild_begin(l, &before, &epoch, &ours), ERR_OK);
    return ours ? epoch : 0;
}

static void end(struct ledger *l, uint32_t epoch, const char *identity) {
    struct hot_incarnation incarnation = {.epoch = epoch};
    str_copy(str_of(identity), incarnation.identity, sizeof incarnation.identity);
    assert_int_equal(ledger_rebuild_end(l, &incarnation), ERR_OK);
}

static void one_node_rebuilds_at_a_time(void **state) {
    struct fixture *f = *state;
    struct hot_incarnation never = incarnation_of(f->d.l);
    assert_int_equal(never.epoch, 0);
    assert_string_equal(never.identity, "");

    assert_int_equal(begin(f->d.l, never), 1);
    struct hot_incarnation rebuilding = incarnation_of(f->other);
    assert_int_equal(rebuilding.epoch, 1);
    assert_string_equal(rebuilding.identity, "");
    assert_int_equal(begin(f->other, never), 0);      /* it is not the latest incarnation */
    assert_int_equal(begin(f->other, rebuilding), 0); /* another node rebuilds it */

    end(f->d.l, 1, "run-1");
    struct hot_incarnation rebuilt = incarnation_of(f->other);
    assert_string_equal(rebuilt.identity, "run-1");
    assert_int_equal(begin(f->other, rebuilding), 0); /* it was rebuilt since */
    assert_int_equal(begin(f->other, rebuilt), 2);
    end(f->other, 2, "");
    /* The rebuild failed: the next node tries. */
    assert_int_equal(begin(f->d.l, incarnation_of(f->d.l)), 3);
    end(f->d.l, 3, "run-3");
}

static void a_rebuild_of_a_dead_node_is_left_to_the_next(void **state) {
    struct fixture *f = *state;
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 1);
    assert_int_equal(begin(f->d.l, incarnation_of(f->d.l)), 0);
    ledger_close(f->other);
    f->other = NULL;
    uint32_t epoch = 0;
    for (int i = 0; i < 200 && epoch == 0; i++) {
        epoch = begin(f->d.l, incarnation_of(f->d.l));
        usleep(10000);
    }
    assert_int_equal(epoch, 2);
    /* A late end of the first incarnation is none. */
    struct hot_incarnation late = {.epoch = 1, .identity = "run-1"};
    assert_int_equal(ledger_rebuild_end(f->d.l, &late), ERR_RECOVERING);
    assert_string_equal(incarnation_of(f->d.l).identity, "");
}

/* Another session has locked the row: the end can't be written, but the next node may try. */
static void a_rebuild_that_cannot_be_finished_is_left_to_the_next_node(void **state) {
    struct fixture *f = *state;
    ledger_close(f->other);
    postgres_options.deadline_ms = 300;
    f->other = postgres_open(&f->d.h, 0);
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 1);
    PGconn *stalled = postgres_other("SELECT number FROM epochs WHERE name = 'hot' FOR SHARE");
    struct hot_incarnation incarnation = {.epoch = 1, .identity = "run-1"};
    assert_int_equal(ledger_rebuild_end(f->other, &incarnation), ERR_LEDGER_FAILED);
    postgres_other_end(stalled);
    uint32_t epoch = 0;
    for (int i = 0; i < 200 && epoch == 0; i++) {
        epoch = begin(f->d.l, incarnation_of(f->d.l));
        usleep(10000);
    }
    assert_int_equal(epoch, 2);
    end(f->d.l, 2, "run-2");
}

/* The server's limit for silence of the rebuilding node, and a margin for a busy machine. */
#define SILENT_MS 10000
#define LATE_MS 20000

static void a_node_that_is_silent_during_a_rebuild_is_replaced(void **state) {
    struct fixture *f = *state;
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 1);
    int64_t began_ms = clock_steady_ms();
    while (clock_steady_ms() < began_ms + SILENT_MS + 1000) {
        assert_int_equal(ledger_rebuild_renew(f->other), ERR_OK);
        assert_int_equal(begin(f->d.l, incarnation_of(f->d.l)), 0);
        usleep(500000);
    }
    uint32_t epoch = 0;
    while (epoch == 0 && clock_steady_ms() < began_ms + SILENT_MS + LATE_MS) {
        epoch = begin(f->d.l, incarnation_of(f->d.l));
        usleep(100000);
    }
    assert_int_equal(epoch, 2);
    assert_int_equal(ledger_rebuild_renew(f->other), ERR_LEDGER_FAILED);
    struct hot_incarnation late = {.epoch = 1, .identity = "run-1"};
    assert_int_equal(ledger_rebuild_end(f->other, &late), ERR_RECOVERING);
    assert_int_equal(begin(f->other, incarnation_of(f->other)),
                     0); /* it has not taken the other node's lock */
    end(f->d.l, 2, "run-2");
}

static enum err enter(struct fixture *f, uint64_t seq, uint32_t epoch) {
    char user[16];
    struct test_record r;
    snprintf(user, sizeof user, "user%d", (int)seq);
    test_enter(&r, f->d.event->key, seq, user, ENTRY_ACTIVE);
    r.enter.expires_ms = 100000;
    r.enter.epoch = epoch;
    return harness_submit(&f->d.h, f->d.l, &r);
}

static enum err hold(struct fixture *f, uint64_t number, uint32_t epoch) {
    char user[16];
    snprintf(user, sizeof user, "user%d", (int)number);
    struct reservation *wanted =
        ledger_client_wanted(&f->d, number, user, number, 0, SEATS((uint32_t)number));
    struct test_record r;
    test_hold(&r, wanted);
    r.hold.epoch = epoch;
    enum err e = harness_submit(&f->d.h, f->d.l, &r);
    mem_free(wanted);
    return e;
}

static enum err admit(struct fixture *f, uint64_t seq, uint32_t epoch, bool *kept) {
    struct entry_change change = {.seq = seq, .expires_ms = 9000};
    struct test_record r;
    test_admit(&r, f->d.event->key, &change, 1, kept);
    r.admit.epoch = epoch;
    return harness_submit(&f->d.h, f->d.l, &r);
}

static void records_of_an_older_incarnation_are_refused(void **state) {
    struct fixture *f = *state;
    bool kept;
    assert_int_equal(enter(f, 1, 0), ERR_OK);
    assert_int_equal(enter(f, 2, 1), ERR_RECOVERING); /* there never was a incarnation */
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 1);
    assert_int_equal(enter(f, 2, 1), ERR_OK);
    assert_int_equal(hold(f, 1, 1), ERR_OK);
    end(f->other, 1, "run-1");
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 2);
    assert_int_equal(enter(f, 3, 1), ERR_RECOVERING);
    assert_int_equal(hold(f, 2, 1), ERR_RECOVERING);
    assert_int_equal(admit(f, 1, 1, &kept), ERR_RECOVERING);
    assert_int_equal(ledger_client_entry(&f->d, 3), ENTRY_NONE);
    assert_int_equal(enter(f, 3, 2), ERR_OK);
    assert_int_equal(hold(f, 2, 0), ERR_OK);
    assert_int_equal(admit(f, 1, 2, &kept), ERR_OK);
    ledger_client_assert_counts(&f->d, 0, 2, 0);
}

static void late_and_timely_records_share_a_batch(void **state) {
    struct fixture *f = *state;
    enum { COUNT = 30 };
    struct test_record r[COUNT];
    char users[COUNT][16];
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 1);
    end(f->other, 1, "run-1");
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 2);
    for (int i = 0; i < COUNT; i++) {
        snprintf(users[i], sizeof users[i], "user%d", i);
        test_enter(&r[i], f->d.event->key, (uint64_t)i + 1, users[i], ENTRY_WAITING);
        r[i].enter.epoch = i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 0;
        assert_int_equal(ledger_submit(f->d.l, &r[i].record), ERR_OK);
    }
    harness_wait_back(&f->d.h, r, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(r[i].record.result, i % 3 == 0 ? ERR_RECOVERING : ERR_OK);
        assert_int_equal(ledger_client_entry(&f->d, (uint64_t)i + 1),
                         i % 3 == 0 ? ENTRY_NONE : ENTRY_WAITING);
    }
}

struct beginning {
    struct ledger *l;
    struct hot_incarnation before;
    uint32_t epoch;
    _Atomic bool done;
};

static void *begin_beside(void *arg) {
    struct beginning *b = arg;
    b->epoch = begin(b->l, b->before);
    b->done = true;
    return NULL;
}

/* The begin of an incarnation waits for batches of the last one. */
static void an_incarnation_begins_when_the_last_one_has_ended(void **state) {
    struct fixture *f = *state;
    assert_int_equal(begin(f->other, incarnation_of(f->other)), 1);
    end(f->other, 1, "run-1");
    PGconn *writing = postgres_other("SELECT number FROM epochs WHERE name = 'hot' FOR SHARE");
    struct beginning b = {.l = f->other, .before = incarnation_of(f->other)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begin_beside, &b), 0);
    harness_run_for(&f->d.h, 300);
    assert_false(b.done);
    postgres_other_end(writing);
    pthread_join(thread, NULL);
    assert_int_equal(b.epoch, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_node_rebuilds_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rebuild_of_a_dead_node_is_left_to_the_next, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_rebuild_that_cannot_be_finished_is_left_to_the_next_node,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_is_silent_during_a_rebuild_is_replaced, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(records_of_an_older_incarnation_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(late_and_timely_records_share_a_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_incarnation_begins_when_the_last_one_has_ended, set_up,
                                        tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_drop();
    return failed;
}
