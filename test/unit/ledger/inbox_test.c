/* The inbox: when the thread that takes records from it is woken. */
#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ledger/sqlite_internal.h"
#include "run/mailbox.h"

#define SECOND_NS INT64_C(1000000000)
#define LONG_NS (60 * SECOND_NS)

static struct mailbox home; /* noted in records, never posted to */

static void never(struct task *task) {
    (void)task;
    fail();
}

struct putter {
    struct inbox *inbox;
    struct ledger_record records[16];
    size_t count;
    bool closes;
};

static void *put_all(void *arg) {
    struct putter *p = arg;
    mailbox_set_mine(&home);
    for (size_t i = 0; i < p->count; i++) {
        p->records[i] = (struct ledger_record){.task.run = never};
        enum err refused = inbox_put(p->inbox, &p->records[i]);
        assert(refused == ERR_OK);
    }
    if (p->closes) inbox_close(p->inbox);
    return NULL;
}

/* How many a batch has that is taken while the putter puts its records in. */
static size_t take(struct putter *p, struct batch_history history, int64_t *took_ns) {
    struct inbox inbox;
    struct ledger_record *out[16];
    pthread_t thread;
    bool ended;
    inbox_init(&inbox, 100);
    p->inbox = &inbox;
    int64_t began_ns = clock_steady_ns();
    assert_int_equal(pthread_create(&thread, NULL, put_all, p), 0);
    size_t taken = inbox_take_batch(&inbox, &history, out, 16, began_ns + LONG_NS, &ended);
    *took_ns = clock_steady_ns() - began_ns;
    pthread_join(thread, NULL);
    while (inbox_take(&inbox, out, 16, began_ns, &ended) > 0) continue;
    inbox_deinit(&inbox);
    return taken;
}

static void a_batch_of_the_largest_size_is_taken_at_once(void **state) {
    (void)state;
    struct putter p = {.count = 16};
    int64_t took_ns;
    assert_int_equal(take(&p, (struct batch_history){8, LONG_NS}, &took_ns), 16);
    assert_true(took_ns < LONG_NS);
}

static void a_batch_waits_for_more_only_for_a_moment(void **state) {
    (void)state;
    struct putter p = {.count = 2};
    int64_t took_ns;
    assert_in_range(take(&p, (struct batch_history){8, LONG_NS}, &took_ns), 1, 2);
    assert_true(took_ns < LONG_NS);
}

static void a_batch_is_taken_when_the_inbox_is_closed(void **state) {
    (void)state;
    struct putter p = {.closes = true};
    int64_t took_ns;
    assert_int_equal(take(&p, (struct batch_history){8, LONG_NS}, &took_ns), 0);
    assert_true(took_ns < LONG_NS);
}

static void a_small_batch_after_a_large_one_does_not_end_the_load(void **state) {
    (void)state;
    struct batch_history h = {0};
    batch_history_add(&h, 100, 4000);
    batch_history_add(&h, 1, 100);
    assert_int_equal(h.records, 75);
    assert_int_equal(h.took_ns, 3000);
    batch_history_add(&h, 80, 3500);
    assert_int_equal(h.records, 80);
    assert_int_equal(h.took_ns, 3500);
    for (int i = 0; i < 50; i++) batch_history_add(&h, 1, 100);
    assert_in_range(h.records, 1, 4);
}

/* Also after a thread has waited for a batch: a single record does not wait. */
static void the_first_record_wakes_the_taker(void **state) {
    (void)state;
    struct inbox inbox;
    struct ledger_record *out[8];
    pthread_t thread;
    bool ended;
    inbox_init(&inbox, 100);
    struct batch_history history = {8, 2};
    assert_int_equal(inbox_take_batch(&inbox, &history, out, 8, clock_steady_ns(), &ended), 0);
    struct putter p = {.inbox = &inbox, .count = 1};
    int64_t began_ns = clock_steady_ns();
    assert_int_equal(pthread_create(&thread, NULL, put_all, &p), 0);
    assert_int_equal(inbox_take(&inbox, out, 8, began_ns + LONG_NS, &ended), 1);
    assert_true(clock_steady_ns() - began_ns < LONG_NS);
    pthread_join(thread, NULL);
    inbox_deinit(&inbox);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_of_the_largest_size_is_taken_at_once),
        cmocka_unit_test(a_batch_waits_for_more_only_for_a_moment),
        cmocka_unit_test(a_batch_is_taken_when_the_inbox_is_closed),
        cmocka_unit_test(a_small_batch_after_a_large_one_does_not_end_the_load),
        cmocka_unit_test(the_first_record_wakes_the_taker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
