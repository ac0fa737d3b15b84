/* The contract of the waiting rooms' hot state, with several threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "queue_steps.h"

#define KEY 7
#define OTHER 8
#define THREADS 4
#define WAITING 2000

static const struct queue_adapter *adapter;

struct fixture {
    struct store s;
    struct event e; /* KEY: no entry is silent for too long, and no time is over */
    pthread_barrier_t together;
    _Atomic int64_t clock_ms;
    _Atomic uint64_t taken;
    _Atomic uint64_t undone;
    _Atomic uint64_t wrong; /* threads of the test can't fail it themselves */
    _Atomic bool stop;
    _Atomic uint8_t ended[WAITING + 1];
    _Atomic uint8_t admitted[WAITING + 1];
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    store_open(&f->s, adapter);
    f->e = steps_event(KEY);
    f->e.queue = (struct queue_rules){.max_waiting = 100000,
                                      .max_active = 100000,
                                      .entry_batch_size = 7,
                                      .entry_interval_s = 1,
                                      .active_ttl_s = 86400,
                                      .grace_s = 86400};
    store_configure(&f->s, &f->e);
    pthread_barrier_init(&f->together, NULL, THREADS);
    f->clock_ms = T0;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    pthread_barrier_destroy(&f->together);
    store_close(&f->s);
    mem_free(f);
    return 0;
}

/* ---- a crew ---- */

struct thread_arg {
    struct fixture *f;
    int index;
    void (*work)(struct fixture *f, int index);
    pthread_t thread;
};

static void *run_hand(void *arg) {
    struct thread_arg *h = arg;
    struct store *s = &h->f->s;
    if (s->adapter->thread_begins != NULL) s->adapter->thread_begins(s->fixture);
    pthread_barrier_wait(&h->f->together);
    h->work(h->f, h->index);
    if (s->adapter->thread_ends != NULL) s->adapter->thread_ends(s->fixture);
    return NULL;
}

/* THREADS of them, at once; returns when all are done. */
static void run_crew(struct fixture *f, void (*work)(struct fixture *f, int index)) {
    struct thread_arg thread_args[THREADS];
    for (int i = 0; i < THREADS; i++) {
        thread_args[i] = (struct thread_arg){.f = f, .index = i, .work = work};
        assert_int_equal(pthread_create(&thread_args[i].thread, NULL, run_hand, &thread_args[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread_args[i].thread, NULL);
    assert_int_equal(f->wrong, 0);
}

static void expect(struct fixture *f, bool right) {
    if (!right) f->wrong++;
}

static struct entered enter_named(struct fixture *f, int64_t key, const char *prefix, int a, int b,
                                  int64_t now_ms) {
    char user[48];
    snprintf(user, sizeof user, "%s%d-%d", prefix, a, b);
    return step_enter(&f->s, key, str_of(user), LANE_DEFAULT, now_ms);
}

static void fill(struct fixture *f) {
    f->e.state = EVENT_PAUSED;
    store_configure(&f->s, &f->e);
    for (int i = 1; i <= WAITING; i++) {
        struct entered e = enter_named(f, KEY, "waiting", 0, i, T0);
        assert_int_equal(e.place.seq, i);
        step_settle_enter(&f->s, KEY, e.place.seq, true);
    }
    f->e.state = EVENT_OPEN;
    store_configure(&f->s, &f->e);
}

/* The reports since the last call; mem_free frees them. */
static struct heard *take_heard(struct fixture *f, size_t *count) {
    size_t max = f->s.heard_count;
    struct heard *heard = mem_new((max + 1) * sizeof *heard);
    *count = store_heard(&f->s, heard, max);
    return heard;
}

/* ---- admitting ---- */

static void admit_and_keep(struct fixture *f, int64_t now_ms) {
    struct entry_change out[ADMIT_MAX];
    size_t count = 0;
    expect(f, step_admit_result(&f->s, KEY, now_ms, out, &count) == ERR_OK);
    for (size_t i = 0; i < count; i++) {
        bool kept = true;
        f->admitted[out[i].seq]++;
        step_settle(&f->s, KEY, true, &out[i].seq, &kept, 1, now_ms, NULL);
    }
}

/* All of them tick in the same interval, and in the next. */
static void tick_together(struct fixture *f, int index) {
    (void)index;
    for (int i = 0; i * 7 < WAITING; i++) {
        pthread_barrier_wait(&f->together);
        admit_and_keep(f, T0 + i * SECOND);
    }
}

static void concurrent_ticks_admit_no_user_twice_pitfall_3(void **state) {
    struct fixture *f = *state;
    fill(f);
    size_t count;
    mem_free(take_heard(f, &count));
    run_crew(f, tick_together);
    for (int i = 1; i <= WAITING; i++) assert_int_equal(f->admitted[i], 1);
    assert_step_counts(&f->s, KEY, 0, WAITING);
    /* In order, and never more than a batch in an interval. */
    struct heard *heard = take_heard(f, &count);
    assert_int_equal(count, WAITING);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(heard[i].entry.seq, i + 1);
        assert_int_equal(heard[i].now_ms, T0 + (int64_t)i / 7 * SECOND);
    }
    mem_free(heard);
}

static void tick_or_leave(struct fixture *f, int index) {
    for (int i = 0; i < WAITING; i++) {
        if (index % 2 == 0) {
            admit_and_keep(f, atomic_fetch_add(&f->clock_ms, SECOND));
            continue;
        }
        uint64_t seq = (uint64_t)(i * 7919 + index) % WAITING + 1;
        if (step_end(&f->s, KEY, seq, ENTRY_LEFT)) f->ended[seq]++;
    }
}

static void a_user_who_leaves_during_a_tick_is_not_active_pitfall_3(void **state) {
    struct fixture *f = *state;
    fill(f);
    run_crew(f, tick_or_leave);
    uint64_t left = 0;
    for (uint64_t seq = 1; seq <= WAITING; seq++) {
        enum entry_status status = step_look(&f->s, KEY, seq, T0).status;
        assert_true(f->ended[seq] <= 1 && f->admitted[seq] <= 1);
        assert_int_equal(status, f->ended[seq] == 1 ? ENTRY_LEFT : ENTRY_ACTIVE);
        left += f->ended[seq];
    }
    assert_true(left > 0);
    assert_step_counts(&f->s, KEY, 0, WAITING - left);
}

/* ---- entering ---- */

#define CAP_WAITING 50
#define CAP_ACTIVE 7

static void enter_many(struct fixture *f, int index) {
    for (int i = 0; i < 400; i++) {
        struct entered e = enter_named(f, KEY, "user", index, i, T0);
        struct queue_counts c = step_counts(&f->s, KEY);
        expect(f, c.waiting <= CAP_WAITING && c.active <= CAP_ACTIVE);
        if (e.outcome != ENTER_TAKEN) continue;
        f->taken++;
        if (i % 4 == 0) continue; /* stays pending, and counts */
        bool kept = i % 4 == 1;
        if (!kept) f->undone++;
        step_settle(&f->s, KEY, false, &e.place.seq, &kept, 1, T0, NULL);
    }
}

static void threads_that_enter_at_once_never_pass_the_caps_pitfall_4(void **state) {
    struct fixture *f = *state;
    f->e.queue.max_waiting = CAP_WAITING;
    f->e.queue.max_active = CAP_ACTIVE;
    f->e.queue.entry_batch_size = 1000;
    store_configure(&f->s, &f->e);
    run_crew(f, enter_many);
    struct queue_counts c = step_counts(&f->s, KEY);
    assert_int_equal(c.waiting + c.active, f->taken - f->undone);
    assert_int_equal(c.waiting, CAP_WAITING);
    assert_true(c.rejected > 0);
}

#define ROUNDS 300

static void enter_the_same(struct fixture *f, int index) {
    (void)index;
    for (int i = 1; i <= ROUNDS; i++) {
        pthread_barrier_wait(&f->together);
        struct entered e = enter_named(f, KEY, "the one of round ", i, 0, T0);
        expect(f, e.outcome == ENTER_TAKEN || e.outcome == ENTER_THERE);
        expect(f, e.place.seq == (uint64_t)i);
        if (e.outcome == ENTER_TAKEN) f->taken++;
        bool kept = true;
        step_settle(&f->s, KEY, false, &e.place.seq, &kept, 1, T0, NULL);
    }
}

static void one_user_on_many_threads_has_one_place_and_everything_ends_pitfall_7(void **state) {
    struct fixture *f = *state;
    struct entry_change out[ADMIT_MAX];
    run_crew(f, enter_the_same);
    assert_int_equal(f->taken, ROUNDS);
    assert_step_counts(&f->s, KEY, ROUNDS - 7, 7);
    assert_int_equal(step_counts(&f->s, KEY).entered, ROUNDS);
    /* Left alone, all of them are gone after a while. */
    for (int64_t tick = 0; tick < 64; tick++)
        for (size_t i = step_admit(&f->s, KEY, T0 + (86402 + tick) * SECOND, out); i > 0; i--)
            step_settle_admit(&f->s, KEY, out[i - 1].seq, true);
    step_admit(&f->s, KEY, T0 + 2 * 86480 * SECOND, out);
    assert_step_counts(&f->s, KEY, 0, 0);
    struct queue_counts c = step_counts(&f->s, KEY);
    assert_int_equal(c.expired, ROUNDS);
}

#define EACH 500

static void enter_two_events(struct fixture *f, int index) {
    uint64_t last[2] = {0, 0};
    for (int i = 0; i < EACH; i++) {
        uint64_t here = enter_named(f, KEY, "user", index, i, T0).place.seq;
        uint64_t there = enter_named(f, OTHER, "user", index, i, T0).place.seq;
        expect(f, here > last[0] && there > last[1]);
        last[0] = here;
        last[1] = there;
    }
}

/* Effects of other threads may be reported in another order; but each is reported once. */
static void records_are_submitted_in_the_order_of_the_steps(void **state) {
    struct fixture *f = *state;
    struct event other = f->e;
    other.key = OTHER;
    store_configure(&f->s, &other);
    run_crew(f, enter_two_events);
    size_t count;
    struct heard *heard = take_heard(f, &count);
    uint64_t last[2] = {0, 0};
    bool submitted[2][EACH * THREADS + 1] = {0};
    bool in_order = true;
    assert_int_equal(count, 2 * EACH * THREADS);
    for (size_t i = 0; i < count; i++) {
        bool is_other = heard[i].event_key == OTHER;
        uint64_t seq = heard[i].entry.seq;
        in_order = in_order && seq == ++last[is_other];
        if (seq == 0 || seq > EACH * THREADS || submitted[is_other][seq]) f->wrong++;
        if (seq <= EACH * THREADS) submitted[is_other][seq] = true;
    }
    mem_free(heard);
    assert_int_equal(f->wrong, 0);
    assert_true(in_order || adapter->remote);
}

/* ---- configuring ---- */

static void change_rules(struct fixture *f) {
    struct event other = f->e;
    for (int i = 0; i < 400; i++) {
        f->e.state = i % 3 == 0 ? EVENT_PAUSED : EVENT_OPEN;
        f->e.queue.max_active = 1 + i % 5;
        store_configure(&f->s, &f->e);
        struct event stale = f->e;
        stale.version--;
        stale.state = EVENT_CLOSED;
        step_configure(&f->s, &stale);
        other.key = 100 + i;
        step_configure(&f->s, &other);
        step_remove(&f->s, other.key - 1, other.version);
    }
    f->stop = true;
}

static void work_meanwhile(struct fixture *f, int index) {
    if (index == 0) {
        change_rules(f);
        return;
    }
    for (int i = 0; !f->stop; i++) {
        struct entered e =
            enter_named(f, KEY, "user", index, i, atomic_fetch_add(&f->clock_ms, 100));
        bool kept = true;
        expect(f, e.result == ERR_OK && e.outcome == ENTER_TAKEN);
        step_settle(&f->s, KEY, false, &e.place.seq, &kept, 1, T0, NULL);
        struct queue_counts c = step_counts(&f->s, KEY);
        expect(f, c.active <= 5 + (uint64_t)THREADS);
        step_end(&f->s, KEY, e.place.seq, ENTRY_LEFT);
        enum err there = enter_named(f, 100 + i % 400, "user", index, i, T0).result;
        /* One that is just being made, by another node as it were. */
        bool not_yet = adapter->remote && there == ERR_RECOVERING;
        expect(f, there == ERR_OK || there == ERR_EVENT_NOT_FOUND || not_yet);
    }
}

static void rules_change_and_events_come_and_go_while_others_work(void **state) {
    struct fixture *f = *state;
    run_crew(f, work_meanwhile);
    assert_step_counts(&f->s, KEY, 0, 0);
    enum event_state now;
    assert_int_equal(step_look_at(&f->s, KEY, NULL, 0, T0, NULL, &now), ERR_OK);
    assert_int_equal(now, EVENT_PAUSED); /* the last that was newer */
    assert_int_equal(step_look_at(&f->s, 498, NULL, 0, T0, NULL, &now), ERR_EVENT_NOT_FOUND);
    assert_int_equal(step_look_at(&f->s, 499, NULL, 0, T0, NULL, &now), ERR_OK);
}

int queue_threads_suite_run(const struct queue_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(concurrent_ticks_admit_no_user_twice_pitfall_3),
        TEST(a_user_who_leaves_during_a_tick_is_not_active_pitfall_3),
        TEST(threads_that_enter_at_once_never_pass_the_caps_pitfall_4),
        TEST(one_user_on_many_threads_has_one_place_and_everything_ends_pitfall_7),
        TEST(records_are_submitted_in_the_order_of_the_steps),
        TEST(rules_change_and_events_come_and_go_while_others_work),
    };
#undef TEST
    return cmocka_run_group_tests_name("queue contract: threads", tests, NULL, NULL);
}
