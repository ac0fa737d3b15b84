/* The thread that reconciles every interval, and its hand-over to the worker that repairs. */
#include "service/reconcile_job.h"

#include <sys/random.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

/* The lease ends a little before the node's next comparison. */
#define LEASE_PART(interval_ms) ((interval_ms) / 4 * 3)
/* At most this many differences are logged one by one. */
#define LINES_MAX 20

/* Under lock. False: it is time to stop. */
static bool reconcile_job_wait_ms(struct reconcile_job *s, int64_t ms) {
    struct timespec until = clock_steady_in(ms);
    int timed_out = 0;
    while (!s->stopping && timed_out == 0)
        timed_out = pthread_cond_timedwait(&s->wake, &s->lock, &until);
    return !s->stopping;
}

/* ---- on the worker ---- */

static void reconcile_job_on_repaired(struct reconcile_repair *repair) {
    struct reconcile_job *s = CONTAINER_OF(repair->reconcile, struct reconcile_job, reconcile);
    pthread_mutex_lock(&s->lock);
    s->repairing = false;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void reconcile_job_on_posted(struct task *task) {
    reconcile_repair(CONTAINER_OF(task, struct reconcile_job, task)->repair);
}

/* ---- on its own thread ---- */

static void reconcile_job_log(const struct reconcile_job *s) {
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
            msg("redis and the ledger had different states of an entry or a reservation"),
            kv_str("what", buf_str(&text)),
            kv_str("result", d->end == DIFFERENCE_REPAIRED ? STR("repaired") : err_code(d->error)));
    }
    buf_deinit(&text);
    if (totals[DIFFERENCE_REPAIRED] + totals[DIFFERENCE_FAILED] > 0)
        log_warn(msg("redis had lost changes and was corrected from the ledger"),
                 kv_i64("repaired", totals[DIFFERENCE_REPAIRED]),
                 kv_i64("failed", totals[DIFFERENCE_FAILED]),
                 kv_i64("left_for_next_run", (int64_t)r->left_out));
}

/* Returns when the worker has done it, or it is time to stop. Under lock. */
static void reconcile_job_repair(struct reconcile_job *s) {
    s->repair = mem_new(sizeof *s->repair);
    s->repair->reconcile = &s->reconcile;
    s->repair->done = reconcile_job_on_repaired;
    s->task.run = reconcile_job_on_posted;
    s->repairing = true;
    mailbox_post(s->home, &s->task);
    while (s->repairing) pthread_cond_wait(&s->wake, &s->lock);
    mem_free(s->repair);
    s->repair = NULL;
    reconcile_job_log(s);
}

/* False: there is nothing to repair, or a store can't be read now. */
static bool reconcile_job_compare(struct reconcile_job *s) {
    struct reconcile *r = &s->reconcile;
    bool is_ours = false;
    enum err failed = hot_lease(r->hot, "reconcile_job", LEASE_PART(s->interval_ms), &is_ours);
    if (failed != ERR_OK || !is_ours) return false;
    failed = reconcile_compare(r);
    if (failed != ERR_OK) /* The connection that failed has logged it. */
        log_debug(msg("cannot compare the hot store with the ledger now"),
                  kv_str("error", err_title(failed)));
    for (size_t i = 0; failed == ERR_OK && i < r->event_count; i++)
        if (r->events[i].is_missing)
            log_warn(msg("redis lacks an event; requests for it fail until redis is rebuilt"),
                     kv("event", r->events[i].name));
    return failed == ERR_OK && r->difference_count > 0;
}

/* Before the first comparison: not all nodes at the same time. */
static int64_t reconcile_job_first_ms(const struct reconcile_job *s) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return s->interval_ms;
    return (int64_t)(random % (uint64_t)s->interval_ms);
}

static void *reconcile_job_run(void *arg) {
    struct reconcile_job *s = arg;
    pthread_mutex_lock(&s->lock);
    int64_t wait_ms = reconcile_job_first_ms(s);
    while (reconcile_job_wait_ms(s, wait_ms)) {
        wait_ms = s->interval_ms;
        pthread_mutex_unlock(&s->lock);
        bool differs = reconcile_job_compare(s);
        pthread_mutex_lock(&s->lock);
        if (differs && reconcile_job_wait_ms(s, s->reconcile.wait_ms)) reconcile_job_repair(s);
        reconcile_clear(&s->reconcile);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- start and stop ---- */

void reconcile_job_init(struct reconcile_job *s, struct mailbox *home) {
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&s->lock, NULL);
    s->home = home;
}

void reconcile_job_start(struct reconcile_job *s) {
    if (s->interval_ms == 0) return;
    s->runs = thread_start(&s->thread, "reconcile", THREAD_ALONE, reconcile_job_run, s) == 0;
    if (!s->runs) log_error(msg("cannot start the reconciliation thread"));
}

void reconcile_job_stop(struct reconcile_job *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    if (s->repair != NULL) atomic_store(&s->repair->stopping, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

bool reconcile_job_is_busy(struct reconcile_job *s) {
    pthread_mutex_lock(&s->lock);
    bool is_busy = s->repairing;
    pthread_mutex_unlock(&s->lock);
    return is_busy;
}

void reconcile_job_deinit(struct reconcile_job *s) {
    if (s->runs) pthread_join(s->thread, NULL);
    reconcile_clear(&s->reconcile);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
}
