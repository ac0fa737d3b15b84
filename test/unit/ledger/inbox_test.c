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
    struct ledger_record records[8];
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

/* How many are there when it has gathered. */
static size_t gather(struct putter *p, size_t wanted, int64_t for_ns, int64_t *took_ns) {
    struct inbox inbox;
    struct ledger_record *out[8];
    pthread_t thread;
    bool ended;
    inbox_init(&inbox, 100);
    p->inbox = &inbox;
    int64_t began_ns = clock_steady_ns();
    assert_int_equal(pthread_create(&thread, NULL, put_all, p), 0);
    inbox_gather(&inbox, wanted, began_ns + for_ns);
    *took_ns = clock_steady_ns() - began_ns;
    size_t taken = inbox_take(&inbox, out, 8, began_ns, &ended);
    pthread_join(thread, NULL);
    while (inbox_take(&inbox, out, 8, began_ns, &ended) > 0) continue;
    inbox_deinit(&inbox);
    return taken;
}

static void gathering_ends_with_as_many_as_are_wanted(void **state) {
    (void)state;
    struct putter p = {.count = 5};
    int64_t took_ns;
    assert_int_equal(gather(&p, 5, LONG_NS, &took_ns), 5);
    assert_true(took_ns < LONG_NS);
}

static void gathering_ends_when_its_time_is_over(void **state) {
    (void)state;
    struct putter p = {.count = 2};
    int64_t took_ns;
    gather(&p, 3, SECOND_NS / 5, &took_ns);
    assert_true(took_ns >= SECOND_NS / 5 && took_ns < LONG_NS);
}

static void gathering_ends_when_the_inbox_is_closed(void **state) {
    (void)state;
    struct putter p = {.count = 2, .closes = true};
    int64_t took_ns;
    assert_int_equal(gather(&p, 3, LONG_NS, &took_ns), 2);
    assert_true(took_ns < LONG_NS);
}

/* Also after a thread has waited for a batch: a single record does not wait. */
static void the_first_record_wakes_the_taker(void **state) {
    (void)state;
    struct inbox inbox;
    struct ledger_record *out[8];
    pthread_t thread;
    bool ended;
    inbox_init(&inbox, 100);
    inbox_gather(&inbox, 8, clock_steady_ns());
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
        cmocka_unit_test(gathering_ends_with_as_many_as_are_wanted),
        cmocka_unit_test(gathering_ends_when_its_time_is_over),
        cmocka_unit_test(gathering_ends_when_the_inbox_is_closed),
        cmocka_unit_test(the_first_record_wakes_the_taker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
