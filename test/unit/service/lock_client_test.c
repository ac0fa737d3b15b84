/* The lock client of a worker: retry delays, locks and the renewal of their leases. */
#include "service/lock_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hot/memory_locks.h"
#include "ledger_harness.h"
#include "timed_locks.h"

#define LEASE_MS 30

struct fixture {
    struct harness h;
    struct memory_locks *memory;
    struct timed_locks locks;
    struct lock_client lock_client;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    harness_init(&f->h);
    f->memory = memory_locks_new(1);
    timed_locks_init(&f->locks, memory_locks_port(f->memory));
    f->lock_client = (struct lock_client){.locks = &f->locks.locks, .lease_ms = LEASE_MS};
    lock_client_init(&f->lock_client, &f->h.loop);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    lock_client_close(&f->lock_client);
    harness_deinit(&f->h);
    memory_locks_free(f->memory);
    mem_free(f);
    return 0;
}

static bool is_awake(struct fixture *f) {
    return ticker_runs(&f->lock_client.ticker);
}

/* ---- rests ---- */

#define RESTS 200

struct sleeper {
    struct retry_delay rest;
    struct fixture *f;
    int left; /* rests */
    int64_t began_ns;
    bool late; /* longer than it asked for */
    bool early;
    int *back;
};

#define REST_MS_MAX 8

static void sleep_once(struct sleeper *s) {
    s->left--;
    s->began_ns = clock_steady_ns();
    lock_client_delay(&s->f->lock_client, &s->rest, REST_MS_MAX);
    int64_t latest_ns = clock_steady_ns() + REST_MS_MAX * INT64_C(1000000);
    s->late = s->late || s->rest.until_ns > latest_ns;
}

static void on_slept(struct retry_delay *r) {
    struct sleeper *s = CONTAINER_OF(r, struct sleeper, rest);
    s->early = s->early || clock_steady_ns() < r->until_ns;
    if (s->left > 0)
        sleep_once(s);
    else
        ++*s->back;
}

static bool all_back(void *back) {
    return *(int *)back == RESTS;
}

static void rests_are_bounded_and_everybody_comes_back(void **state) {
    struct fixture *f = *state;
    int back = 0;
    struct sleeper *sleepers = mem_new(RESTS * sizeof *sleepers);
    int64_t longest_ns = 0;
    for (int i = 0; i < RESTS; i++) {
        struct sleeper *s = &sleepers[i];
        *s = (struct sleeper){.rest.done = on_slept, .f = f, .left = 1 + i % 3, .back = &back};
        sleep_once(s);
        int64_t ns = s->rest.until_ns - s->began_ns;
        if (ns > longest_ns) longest_ns = ns;
    }
    assert_true(is_awake(f));
    assert_true(longest_ns > REST_MS_MAX * INT64_C(1000000) / 2); /* spread over all of it */
    harness_wait(&f->h, all_back, &back);
    for (int i = 0; i < RESTS; i++) assert_false(sleepers[i].late || sleepers[i].early);
    assert_false(is_awake(f));
    mem_free(sleepers);
}

/* ---- locks ---- */

struct user {
    struct held_lock k;
    int heard;
};

static void on_heard(struct held_lock *k) {
    CONTAINER_OF(k, struct user, k)->heard++;
}

static void ask(struct fixture *f, struct user *u, const char *name) {
    *u = (struct user){
        .k = {.acquire = {.name = str_of(name), .wait_ms_max = 10000}, .done = on_heard}};
    lock_client_acquire(&f->lock_client, &u->k);
}

static void give_back(struct user *u) {
    u->heard = 0;
    lock_client_release(&u->k);
}

static bool has_heard(void *u) {
    return ((struct user *)u)->heard > 0;
}

static bool has_it(const struct user *u) {
    return u->heard == 1 && u->k.acquire.outcome == LOCK_ACQUIRED;
}

static void an_idle_lock_client_does_not_tick(void **state) {
    struct fixture *f = *state;
    struct user ann;
    struct user bob;
    assert_false(is_awake(f));
    ask(f, &ann, "A");
    assert_true(has_it(&ann));
    assert_true(is_awake(f)); /* to renew it */
    ask(f, &bob, "A");
    assert_int_equal(bob.heard, 0);
    give_back(&ann);
    assert_int_equal(ann.heard, 1);
    assert_true(is_awake(f)); /* because a request waits */
    harness_wait(&f->h, has_heard, &bob);
    assert_true(has_it(&bob));
    give_back(&bob);
    assert_int_equal(bob.heard, 1);
    assert_false(is_awake(f));
    int renewals = f->locks.renewals;
    f->locks.now_ms += 100 * LEASE_MS;
    harness_run_for(&f->h, 60);
    assert_int_equal(f->locks.renewals, renewals);
}

/* Renews all leases, also while new locks are added: a timer that is set again each time would
 * never fire. */
static void a_lock_that_is_held_is_renewed_until_it_is_given_back(void **state) {
    struct fixture *f = *state;
    struct user ann;
    struct user bob;
    struct user cat;
    ask(f, &ann, "A");
    ask(f, &bob, "B");
    ask(f, &cat, "A");
    for (int i = 0; i < 10; i++) {
        f->locks.now_ms += LEASE_MS - 1;
        timed_locks_wait_for_renewals(&f->locks, &f->h, 2);
        struct user other;
        ask(f, &other, "C");
        give_back(&other);
    }
    assert_int_equal(cat.heard, 0); /* after ten leases: it is Ann's still */
    give_back(&ann);
    harness_wait(&f->h, has_heard, &cat);
    assert_true(has_it(&cat));
    give_back(&cat);
    give_back(&bob);
}

/* A process that was stalled: no lease was renewed. */
static void a_lock_whose_lease_is_over_goes_to_the_next_pitfall_20(void **state) {
    struct fixture *f = *state;
    struct user ann;
    struct user bob;
    ask(f, &ann, "A");
    ask(f, &bob, "A");
    f->locks.now_ms += LEASE_MS; /* before the lock_client ticks */
    harness_wait(&f->h, has_heard, &bob);
    assert_true(has_it(&bob));
    assert_true(bob.k.acquire.fence > ann.k.acquire.fence);
    give_back(&ann);
    assert_int_equal(ann.heard, 1); /* lost: that ends it as well */
    struct user cat;
    ask(f, &cat, "A");
    assert_int_equal(cat.heard, 0); /* and took nothing from Bob */
    give_back(&bob);
    harness_wait(&f->h, has_heard, &cat);
    give_back(&cat);
}

static void a_lock_given_back_during_its_renewal_is_done_when_both_are(void **state) {
    struct fixture *f = *state;
    struct user ann;
    f->locks.is_late = true;
    ask(f, &ann, "A");
    timed_locks_wait_for_renewals(&f->locks, &f->h, 1);
    harness_run_for(&f->h, 60);
    assert_int_equal(f->locks.renewals, 1); /* one at a time */
    give_back(&ann);
    assert_int_equal(ann.heard, 0); /* its memory is still in use */
    timed_locks_answer(&f->locks);
    assert_int_equal(ann.heard, 1);
    f->locks.is_late = false;
    struct user bob;
    ask(f, &bob, "A");
    assert_true(has_it(&bob)); /* the late renewal changed nothing */
    give_back(&bob);
}

static void a_wait_ends_by_its_time_or_by_the_drain(void **state) {
    struct fixture *f = *state;
    struct user ann;
    struct user bob;
    struct user cat;
    struct user dee;
    ask(f, &ann, "A");
    ask(f, &bob, "A");
    f->locks.now_ms += LEASE_MS / 2;
    bob.k.acquire.wait_ms_max = LEASE_MS / 2; /* as if it had asked for no longer */
    harness_wait(&f->h, has_heard, &bob);
    assert_int_equal(bob.k.acquire.outcome, LOCK_TIMED_OUT);

    ask(f, &cat, "A");
    lock_client_drain(&f->lock_client);
    harness_wait(&f->h, has_heard, &cat);
    assert_int_equal(cat.k.acquire.outcome, LOCK_TIMED_OUT);
    ask(f, &dee, "A");
    assert_int_equal(dee.heard, 1); /* at once */
    assert_int_equal(dee.k.acquire.outcome, LOCK_TIMED_OUT);
    f->locks.now_ms += LEASE_MS - 1;
    timed_locks_wait_for_renewals(&f->locks, &f->h, 1); /* a holder keeps its lock to the end */
    give_back(&ann);
    assert_false(is_awake(f));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(rests_are_bounded_and_everybody_comes_back),
        TEST(an_idle_lock_client_does_not_tick),
        TEST(a_lock_that_is_held_is_renewed_until_it_is_given_back),
        TEST(a_lock_whose_lease_is_over_goes_to_the_next_pitfall_20),
        TEST(a_lock_given_back_during_its_renewal_is_done_when_both_are),
        TEST(a_wait_ends_by_its_time_or_by_the_drain),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
