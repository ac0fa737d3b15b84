#include "service/rebuilder.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "service/recovery.h"

/* How often it looks when nothing is suspected, and how soon again when the store is in no
 * incarnation. */
#define LOOK_MS 1000
#define RETRY_MS 100
/* How often a node that fills the store says so: well before it counts as silent. */
#define RENEW_MS 2000
/* Numbers that a incarnation may have given out without the ledger's knowing are not given out
 * again. */
#define SEQ_SKIP 1000

static bool same_incarnation(const struct hot_incarnation *a, const struct hot_incarnation *b) {
    return a->epoch == b->epoch && strcmp(a->identity, b->identity) == 0;
}

static void shut(struct rebuilder *k) {
    if (k->incarnation.epoch == 0) return;
    hot_shut(k->events->hot);
    k->incarnation = (struct hot_incarnation){0};
    atomic_store(&k->open, false);
    log_warn(msg("redis was restarted, emptied or replaced; requests that need it are refused "
                 "until it is rebuilt"));
}

static void open_incarnation(struct rebuilder *k, const struct hot_incarnation *incarnation) {
    if (same_incarnation(&k->incarnation, incarnation)) return;
    k->incarnation = *incarnation;
    hot_open(k->events->hot, incarnation);
    atomic_store(&k->open, true);
    log_info(msg("redis is in use"), kv_i64("epoch", incarnation->epoch));
}

static void wait_for_ms(pthread_cond_t *wake, pthread_mutex_t *lock, int64_t ms) {
    struct timespec until = clock_steady_in(ms);
    pthread_cond_timedwait(wake, lock, &until);
}

/* Whatever the filling waits for just now, the ledger hears that this node is there: on a thread
 * beside it, which stands still when the node does. */
static void *renew(void *arg) {
    struct rebuilder *k = arg;
    pthread_mutex_lock(&k->lock);
    while (k->fills) {
        wait_for_ms(&k->filled, &k->lock, RENEW_MS);
        if (!k->fills) break;
        pthread_mutex_unlock(&k->lock);
        enum err failed = ledger_rebuild_renew(k->events->ledger);
        pthread_mutex_lock(&k->lock);
        if (failed != ERR_OK) break; /* whoever fills finds out at the end */
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

static enum err fill_store(struct events *ev, const struct hot_incarnation *incarnation) {
    enum err failed = hot_rebuild_begin(ev->hot, incarnation);
    if (failed != ERR_OK) return failed;
    failed = recovery_run(ev, clock_wall_ms(), SEQ_SKIP);
    enum err unfinished = hot_rebuild_end(ev->hot);
    return failed != ERR_OK ? failed : unfinished;
}

static enum err fill_renewing(struct rebuilder *k, const struct hot_incarnation *incarnation) {
    pthread_t thread;
    k->fills = true;
    bool renews = thread_start(&thread, "hot lease", THREAD_ALONE, renew, k) == 0;
    if (!renews)
        log_warn(msg("cannot start a thread to renew the rebuild lease; the rebuild must finish "
                     "within ten seconds"));
    enum err failed = fill_store(k->events, incarnation);
    pthread_mutex_lock(&k->lock);
    k->fills = false;
    pthread_cond_signal(&k->filled);
    pthread_mutex_unlock(&k->lock);
    if (renews) pthread_join(thread, NULL);
    return failed;
}

/* The store as it is now gets a incarnation, filled from the ledger; `before` is the last one there
 * was. False: somebody else sees to it, or it failed. */
static bool fill(struct rebuilder *k, const struct hot_incarnation *before,
                 struct hot_incarnation *incarnation) {
    struct events *ev = k->events;
    bool is_ours = false;
    enum err failed = ledger_rebuild_begin(ev->ledger, before, &incarnation->epoch, &is_ours);
    if (failed != ERR_OK || !is_ours) return false;
    int64_t began_ns = clock_steady_ns();
    log_info(msg("rebuilding redis from the ledger; requests that need it are refused"),
             kv_i64("epoch", incarnation->epoch));
    failed = fill_renewing(k, incarnation);
    if (failed != ERR_OK) incarnation->identity[0] = '\0';
    enum err unknown = ledger_rebuild_end(ev->ledger, incarnation);
    if (failed == ERR_OK) failed = unknown;
    if (failed != ERR_OK) {
        log_error(msg("redis could not be rebuilt; retrying"), kv_str("error", err_title(failed)));
        return false;
    }
    count(COUNT_HOT_REBUILDS, 1);
    log_info(msg("redis was rebuilt from the ledger"), kv_i64("epoch", incarnation->epoch),
             kv_i64("ms", (clock_steady_ns() - began_ns) / 1000000));
    return true;
}

/* Whether the store holds the state of another ledger, whose nodes may be at work with it. */
static bool is_foreign(struct rebuilder *k, const struct hot_incarnation *wanted,
                       const struct hot_incarnation *found) {
    bool is_so = found->ledger[0] != '\0' && wanted->ledger[0] != '\0' &&
                 strcmp(found->ledger, wanted->ledger) != 0;
    if (atomic_exchange(&k->foreign, is_so) != is_so && is_so)
        log_error(msg("redis holds the state of another ledger; refusing to use it"),
                  kv("ledger", wanted->ledger), kv("found", found->ledger));
    return is_so;
}

/* Whether all is well. A store that can't be reached is waited for, and logs that itself. What the
 * hot store would do meanwhile it refuses: its links know the run that they may work with. */
static bool look(struct rebuilder *k) {
    struct events *ev = k->events;
    struct hot_incarnation wanted = {0};
    struct hot_incarnation found = {0};
    enum err failed = ledger_incarnation(ev->ledger, &wanted);
    if (failed != ERR_OK) return false;
    if (!atomic_load(&k->met)) {
        if (recovery_meet(ev) != ERR_OK) return false;
        atomic_store(&k->met, true);
    }
    failed = hot_incarnation_read(ev->hot, &found);
    /* A replica refuses to be worked with, and is there: what can be read or left elsewhere is. */
    bool is_there = failed == ERR_OK || hot_state(ev->hot) == HOT_STATE_READONLY;
    atomic_store(&k->reachable, is_there);
    if (failed != ERR_OK) return false;
    if (is_foreign(k, &wanted, &found)) {
        shut(k);
        return false;
    }
    memcpy(found.ledger, wanted.ledger, sizeof found.ledger);
    bool is_alive = wanted.epoch != 0 && same_incarnation(&wanted, &found);
    if (!is_alive) {
        shut(k);
        is_alive = fill(k, &wanted, &found);
    }
    if (is_alive) open_incarnation(k, &found);
    return is_alive;
}

static void *run(void *arg) {
    struct rebuilder *k = arg;
    pthread_mutex_lock(&k->lock);
    while (!k->stopping) {
        k->suspects = false;
        pthread_mutex_unlock(&k->lock);
        bool is_well = look(k);
        pthread_mutex_lock(&k->lock);
        if (!k->stopping && !k->suspects)
            wait_for_ms(&k->wake, &k->lock, is_well ? LOOK_MS : RETRY_MS);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

void rebuilder_init(struct rebuilder *k) {
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&k->wake, &steady);
    pthread_cond_init(&k->filled, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&k->lock, NULL);
}

void rebuilder_start(struct rebuilder *k) {
    k->runs = thread_start(&k->thread, "hot rebuilder", THREAD_ALONE, run, k) == 0;
    if (!k->runs) log_error(msg("cannot start the thread that watches redis"));
}

void rebuilder_stop(struct rebuilder *k) {
    pthread_mutex_lock(&k->lock);
    k->stopping = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    if (k->runs) pthread_join(k->thread, NULL);
}

void rebuilder_deinit(struct rebuilder *k) {
    pthread_cond_destroy(&k->wake);
    pthread_cond_destroy(&k->filled);
    pthread_mutex_destroy(&k->lock);
}

void rebuilder_suspect(void *rebuilder) {
    struct rebuilder *k = rebuilder;
    pthread_mutex_lock(&k->lock);
    k->suspects = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

bool rebuilder_is_open(struct rebuilder *k) {
    return atomic_load(&k->open) && atomic_load(&k->reachable);
}

bool rebuilder_is_foreign(struct rebuilder *k) {
    return atomic_load(&k->foreign);
}

bool rebuilder_has_met(struct rebuilder *k) {
    return atomic_load(&k->met);
}
