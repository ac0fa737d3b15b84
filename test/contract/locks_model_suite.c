/* Named locks through their port, against a model that is a list of requests in order of arrival:
 * seeded random histories, every outcome compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "history.h"
#include "locks_suite.h"

#define NAMES 3
#define ASKED_MOST 4000
#define SEEDS 2
#define STEPS 3000
#define WAIT_MS_MOST 4000
#define RUNS_MAX 100000

/* All requests for a name, in order of arrival. */
enum fate { WAITS, HOLDS, ENDED, TIMED_OUT };
struct asked {
    struct lock_op op;
    int name;
    int done;
    enum fate fate;
    bool acquired;
    uint64_t fence;
    int64_t until_ms;
};

static const struct locks_adapter *adapter;
static void *caller_data; /* the adapter's own */
static const char *const names[NAMES] = {"T/1/a", "T/1/b", "T/1/c"};
static struct locks *locks;
static struct asked asked[ASKED_MOST];
static size_t asked_count;
static uint64_t last_fence[NAMES];
static uint64_t fence_before; /* the highest of all names, before this step */
static int64_t now_ms;

static void on_done(struct lock_op *op) {
    CONTAINER_OF(op, struct asked, op)->done++;
}

static void on_kept(struct lock_hold_op *op) {
    op->lease_ms = -1; /* seen */
}

/* ---- the model ---- */

static struct asked *holder(int name) {
    for (size_t i = 0; i < asked_count; i++)
        if (asked[i].name == name && asked[i].fate == HOLDS) return &asked[i];
    return NULL;
}

static void grant(struct asked *a) {
    a->fate = HOLDS;
    a->acquired = true;
    a->until_ms = now_ms + a->op.lease_ms;
}

static void pass_on(int name) {
    for (size_t i = 0; i < asked_count; i++) {
        struct asked *a = &asked[i];
        if (a->name != name || a->fate != WAITS) continue;
        if (now_ms - a->op.now_ms >= a->op.wait_ms_max)
            a->fate = TIMED_OUT;
        else if (holder(name) == NULL)
            grant(a);
    }
}

/* The first step of any operation on the name. */
static struct asked *at_this_time(int name) {
    struct asked *h = holder(name);
    if (h == NULL || now_ms < h->until_ms) return h;
    h->fate = ENDED;
    pass_on(name);
    return holder(name);
}

/* ---- the steps ---- */

static void port_acquire(void) {
    if (asked_count == ASKED_MOST) return;
    int name = (int)between(0, NAMES - 1);
    struct asked *h = at_this_time(name);
    struct asked *a = &asked[asked_count];
    *a = (struct asked){.name = name,
                        .op = {.name = str_of(names[name]),
                               .now_ms = now_ms,
                               .wait_ms_max = between(0, 3) == 0 ? 0 : between(1, WAIT_MS_MOST),
                               .lease_ms = between(1, 2000),
                               .done = on_done}};
    locks_acquire(locks, &a->op);
    if (h == NULL)
        grant(a);
    else
        a->fate = a->op.wait_ms_max == 0 ? TIMED_OUT : WAITS;
    asked_count++;
}

static void port_hold(void) {
    int name = (int)between(0, NAMES - 1);
    bool releases = between(0, 2) > 0;
    struct asked *h = holder(name);
    struct lock_hold_op op = {.name = str_of(names[name]),
                              .fence = h != NULL && between(0, 5) > 0
                                           ? h->fence
                                           : (uint64_t)between(0, (int64_t)last_fence[name]),
                              .now_ms = now_ms,
                              .lease_ms = between(1, 2000),
                              .done = on_kept};
    int64_t lease_ms = op.lease_ms;
    h = at_this_time(name);
    bool is_holder = h != NULL && h->fence == op.fence;
    if (releases)
        locks_release(locks, &op);
    else
        locks_renew(locks, &op);
    while (op.lease_ms != -1) adapter->run_callbacks();
    CHECK(op.outcome == (!is_holder ? LOCK_LOST : releases ? LOCK_RELEASED : LOCK_KEPT));
    if (!is_holder) return;
    h->until_ms = now_ms + lease_ms;
    if (!releases) return;
    h->fate = ENDED;
    pass_on(name);
}

static void port_tick(void) {
    locks_tick(locks, now_ms);
    for (int name = 0; name < NAMES; name++) {
        at_this_time(name);
        for (size_t i = 0; i < asked_count; i++)
            if (asked[i].name == name && asked[i].fate == WAITS &&
                now_ms - asked[i].op.now_ms >= asked[i].op.wait_ms_max)
                asked[i].fate = TIMED_OUT;
    }
}

static void port_give_up(void) {
    locks_give_up(locks);
    for (size_t i = 0; i < asked_count; i++)
        if (asked[i].fate == WAITS) asked[i].fate = TIMED_OUT;
}

/* Every request that the model has decided gets the same outcome; no other request gets one. */
static void compare(void) {
    for (int i = 0; i < 3; i++) adapter->run_callbacks();
    for (size_t i = 0; i < asked_count; i++) {
        struct asked *a = &asked[i];
        for (int runs = 0; a->fate != WAITS && a->done == 0 && runs < RUNS_MAX; runs++)
            adapter->run_callbacks();
        CHECK(a->done == (a->fate == WAITS ? 0 : 1));
        if (a->fate == WAITS) continue;
        CHECK(a->op.outcome == (a->acquired ? LOCK_ACQUIRED : LOCK_TIMED_OUT));
        if (!a->acquired || a->fence != 0) continue;
        a->fence = a->op.fence;
        CHECK(a->fence > last_fence[a->name] && a->fence > fence_before);
        last_fence[a->name] = a->fence;
    }
    for (int i = 0; i < NAMES; i++)
        if (last_fence[i] > fence_before) fence_before = last_fence[i];
}

static void forget_who_ended(void) {
    bool waits = false;
    for (size_t i = 0; i < asked_count; i++) waits = waits || asked[i].fate == WAITS;
    if (waits || asked_count < 200) return;
    size_t kept = 0;
    for (size_t i = 0; i < asked_count; i++)
        if (asked[i].fate == HOLDS) asked[kept++] = asked[i];
    asked_count = kept;
}

static void pass_time(void) {
    now_ms += between(0, 800);
}

static void begin_history(void) {
    asked_count = 0;
    now_ms = LOCKS_SUITE_T0;
    locks = adapter->open(&caller_data, 1);
    fence_before = 0;
    for (int i = 0; i < NAMES; i++) last_fence[i] = 0;
}

static void check_step(void) {
    compare();
    forget_who_ended();
}

static void end_history(void) {
    now_ms += 2 * WAIT_MS_MOST;
    port_tick();
    compare();
    adapter->close(caller_data);
}

static void random_histories_give_what_a_simple_model_gives(void **state) {
    (void)state;
    adapter->thread_begins();
    static const struct history_act acts[] = {
        {40, port_acquire}, {35, port_hold}, {10, port_tick},
        {1, port_give_up},  {14, pass_time}, {0},
    };
    history_run(&(struct history){.seeds = SEEDS,
                                  .steps = STEPS,
                                  .acts = acts,
                                  .begin = begin_history,
                                  .check = check_step,
                                  .check_every = 1,
                                  .end = end_history});
    adapter->thread_ends();
}

int locks_model_suite_run(const struct locks_adapter *of) {
    adapter = of;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests_name("locks contract: random histories", tests, NULL, NULL);
}
