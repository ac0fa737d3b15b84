#include "service/sweep.h"

#include <sys/random.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

/* A turn ends a little before the node's own next one comes. */
#define TURN_PART(interval_ms) ((interval_ms) / 4 * 3)
/* So many differences are told of one by one. */
#define LINES_MAX 20

/* Under lock. False: it is time to stop. */
static bool wait_for_ms(struct sweep *s, int64_t ms) {
    struct timespec until = clock_steady_in(ms);
    int timed_out = 0;
    while (!s->stopping && timed_out == 0)
        timed_out = pthread_cond_timedwait(&s->wake, &s->lock, &until);
    return !s->stopping;
}

/* ---- on the worker ---- */

static void on_mended(struct mend *m) {
    struct sweep *s = CONTAINER_OF(m->reconcile, struct sweep, reconcile);
    pthread_mutex_lock(&s->lock);
    s->mending = false;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void on_task(struct task *task) {
    mend_all(CONTAINER_OF(task, struct sweep, task)->mend);
}

/* ---- on its own thread ---- */

static void tell(const struct sweep *s) {
    const struct reconcile *r = &s->reconcile;
    int64_t totals[DIFFERENCE_FAILED + 1] = {0};
    struct buf text = {0};
    for (size_t i = 0; i < r->difference_count; i++) {
        const struct difference *d = &r->differences[i];
        totals[d->end]++;
        bool lasted = d->end == DIFFERENCE_REPAIRED || d->end == DIFFERENCE_FAILED;
        if (!lasted || totals[DIFFERENCE_REPAIRED] + totals[DIFFERENCE_FAILED] > LINES_MAX)
            continue;
        buf_clear(&text);
        difference_describe(r, d, &text);
        log_warn(
            msg("hot store and ledger differed"), kv_str("what", buf_str(&text)),
            kv_str("result", d->end == DIFFERENCE_REPAIRED ? STR("repaired") : err_code(d->error)));
    }
    buf_deinit(&text);
    if (totals[DIFFERENCE_REPAIRED] + totals[DIFFERENCE_FAILED] > 0)
        log_warn(msg("compared and repaired the hot store"),
                 kv_i64("repaired", totals[DIFFERENCE_REPAIRED]),
                 kv_i64("failed", totals[DIFFERENCE_FAILED]),
                 kv_i64("left_for_the_next_time", (int64_t)r->left_out));
}

/* Returns when the worker has done it, or it is time to stop. Under lock. */
static void mend_found(struct sweep *s) {
    s->mend = mem_new(sizeof *s->mend);
    s->mend->reconcile = &s->reconcile;
    s->mend->done = on_mended;
    s->task.run = on_task;
    s->mending = true;
    mailbox_post(s->home, &s->task);
    while (s->mending) pthread_cond_wait(&s->wake, &s->lock);
    mem_free(s->mend);
    s->mend = NULL;
    tell(s);
}

/* A store that can't be read now is compared the next time. */
static bool compare(struct sweep *s) {
    struct reconcile *r = &s->reconcile;
    bool is_ours = false;
    enum err failed = hot_turn(r->hot, "sweep", TURN_PART(s->interval_ms), &is_ours);
    if (failed != ERR_OK || !is_ours) return false;
    failed = reconcile_compare(r);
    if (failed != ERR_OK) /* The connection that failed has logged it, for all who use it. */
        log_debug(msg("cannot compare the hot store with the ledger now"),
                  kv_str("error", err_title(failed)));
    for (size_t i = 0; failed == ERR_OK && i < r->event_count; i++)
        if (r->events[i].is_missing)
            log_warn(msg("redis lacks an event; it will be rebuilt"),
                     kv("event", r->events[i].name));
    return failed == ERR_OK && r->difference_count > 0;
}

/* When the first comes: not all nodes at the same time. */
static int64_t first_ms(const struct sweep *s) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return s->interval_ms;
    return (int64_t)(random % (uint64_t)s->interval_ms);
}

static void *run(void *arg) {
    struct sweep *s = arg;
    pthread_mutex_lock(&s->lock);
    int64_t rest_ms = first_ms(s);
    while (wait_for_ms(s, rest_ms)) {
        rest_ms = s->interval_ms;
        pthread_mutex_unlock(&s->lock);
        bool differs = compare(s);
        pthread_mutex_lock(&s->lock);
        if (differs && wait_for_ms(s, s->reconcile.wait_ms)) mend_found(s);
        reconcile_clear(&s->reconcile);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ---- */

void sweep_init(struct sweep *s, struct mailbox *home) {
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&s->lock, NULL);
    s->home = home;
}

void sweep_start(struct sweep *s) {
    if (s->interval_ms == 0) return;
    s->runs = thread_start(&s->thread, "reconcile", THREAD_ALONE, run, s) == 0;
    if (!s->runs) log_error(msg("cannot start the reconciliation thread"));
}

void sweep_stop(struct sweep *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    if (s->mend != NULL) atomic_store(&s->mend->stopping, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

bool sweep_is_busy(struct sweep *s) {
    pthread_mutex_lock(&s->lock);
    bool is_busy = s->mending;
    pthread_mutex_unlock(&s->lock);
    return is_busy;
}

void sweep_deinit(struct sweep *s) {
    if (s->runs) pthread_join(s->thread, NULL);
    reconcile_clear(&s->reconcile);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
}
