/* The thread that checks the incarnation of the hot store, and rebuilds the store when it is
 * another one. */
#include "service/rebuilder.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "service/recovery.h"

/* How often the store is checked when nothing is suspected, and when it is in no incarnation. */
#define LOOK_MS 1000
#define RETRY_MS 100
/* How often a node that rebuilds the store renews its lease: well before that ends. */
#define RENEW_MS 2000
/* Entry numbers that an incarnation gave out and that never reached the ledger are skipped. */
#define SEQ_SKIP 1000

static bool rebuilder_is_same(const struct hot_incarnation *a, const struct hot_incarnation *b) {
    return a->epoch == b->epoch && strcmp(a->identity, b->identity) == 0;
}

static void rebuilder_shut(struct rebuilder *r) {
    if (r->incarnation.epoch == 0) return;
    hot_close(r->events->hot);
    r->incarnation = (struct hot_incarnation){0};
    atomic_store(&r->open, false);
    log_warn(msg("redis was restarted, emptied or replaced; requests that need it are refused "
                 "until it is rebuilt"));
}

static void rebuilder_open(struct rebuilder *r, const struct hot_incarnation *incarnation) {
    if (rebuilder_is_same(&r->incarnation, incarnation)) return;
    r->incarnation = *incarnation;
    hot_open(r->events->hot, incarnation);
    atomic_store(&r->open, true);
    log_info(msg("redis holds the state of the ledger; requests that need it are served"),
             kv_i64("epoch", incarnation->epoch));
}

static void rebuilder_wait_ms(pthread_cond_t *wake, pthread_mutex_t *lock, int64_t ms) {
    struct timespec until = clock_steady_in(ms);
    pthread_cond_timedwait(wake, lock, &until);
}

/* Renews the rebuild lease while the rebuild waits for a store. On a separate thread, which stalls
 * when the node does. */
static void *rebuilder_renew(void *arg) {
    struct rebuilder *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->rebuilds) {
        rebuilder_wait_ms(&r->rebuilt, &r->lock, RENEW_MS);
        if (!r->rebuilds) break;
        pthread_mutex_unlock(&r->lock);
        enum err failed = ledger_rebuild_renew(r->events->ledger);
        pthread_mutex_lock(&r->lock);
        if (failed != ERR_OK) break; /* the rebuild finds out at its end */
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static enum err rebuilder_restore(struct events *ev, const struct hot_incarnation *incarnation) {
    enum err failed = hot_rebuild_begin(ev->hot, incarnation);
    if (failed != ERR_OK) return failed;
    failed = recovery_run(ev, clock_wall_ms(), SEQ_SKIP);
    enum err unfinished = hot_rebuild_end(ev->hot);
    return failed != ERR_OK ? failed : unfinished;
}

static enum err rebuilder_restore_renewing(struct rebuilder *r,
                                           const struct hot_incarnation *incarnation) {
    pthread_t thread;
    r->rebuilds = true;
    bool renews = thread_start(&thread, "hot lease", THREAD_ALONE, rebuilder_renew, r) == 0;
    if (!renews)
        log_warn(msg("cannot start a thread to renew the rebuild lease; the rebuild must finish "
                     "within ten seconds"));
    enum err failed = rebuilder_restore(r->events, incarnation);
    pthread_mutex_lock(&r->lock);
    r->rebuilds = false;
    pthread_cond_signal(&r->rebuilt);
    pthread_mutex_unlock(&r->lock);
    if (renews) pthread_join(thread, NULL);
    return failed;
}

/* Begins a new incarnation in the store, and rebuilds it from the ledger; `before` is the last one.
 * False: another node does it, or it failed. */
static bool rebuilder_rebuild(struct rebuilder *r, const struct hot_incarnation *before,
                              struct hot_incarnation *incarnation) {
    struct events *ev = r->events;
    bool is_ours = false;
    enum err failed = ledger_rebuild_begin(ev->ledger, before, &incarnation->epoch, &is_ours);
    if (failed != ERR_OK || !is_ours) return false;
    int64_t began_ns = clock_steady_ns();
    log_info(msg("rebuilding redis from the ledger; requests that need it are refused"),
             kv_i64("epoch", incarnation->epoch));
    failed = rebuilder_restore_renewing(r, incarnation);
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

/* Whether the store holds the state of another ledger, whose nodes may be using it. */
static bool rebuilder_check_foreign(struct rebuilder *r, const struct hot_incarnation *wanted,
                                    const struct hot_incarnation *found) {
    bool is_so = found->ledger[0] != '\0' && wanted->ledger[0] != '\0' &&
                 strcmp(found->ledger, wanted->ledger) != 0;
    if (atomic_exchange(&r->foreign, is_so) != is_so && is_so)
        log_error(msg("redis holds the state of another ledger; refusing to use it"),
                  kv("ledger", wanted->ledger), kv("found", found->ledger));
    return is_so;
}

/* Whether the store can be used. When it can't be reached, its connections log that, and they
 * refuse operations on a run of the store that is not the open incarnation. */
static bool rebuilder_check(struct rebuilder *r) {
    struct events *ev = r->events;
    struct hot_incarnation wanted = {0};
    struct hot_incarnation found = {0};
    enum err failed = ledger_incarnation(ev->ledger, &wanted);
    if (failed != ERR_OK) return false;
    if (!atomic_load(&r->has_events)) {
        if (recovery_load_events(ev) != ERR_OK) return false;
        atomic_store(&r->has_events, true);
    }
    failed = hot_incarnation_read(ev->hot, &found);
    /* A replica refuses writes, but it can be reached. */
    bool is_there = failed == ERR_OK || hot_state(ev->hot) == HOT_STATE_READONLY;
    atomic_store(&r->reachable, is_there);
    if (failed != ERR_OK) return false;
    if (rebuilder_check_foreign(r, &wanted, &found)) {
        rebuilder_shut(r);
        return false;
    }
    memcpy(found.ledger, wanted.ledger, sizeof found.ledger);
    bool is_alive = wanted.epoch != 0 && rebuilder_is_same(&wanted, &found);
    if (!is_alive) {
        rebuilder_shut(r);
        is_alive = rebuilder_rebuild(r, &wanted, &found);
    }
    if (is_alive) rebuilder_open(r, &found);
    return is_alive;
}

static void *rebuilder_run(void *arg) {
    struct rebuilder *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stopping) {
        r->suspects = false;
        pthread_mutex_unlock(&r->lock);
        bool is_well = rebuilder_check(r);
        pthread_mutex_lock(&r->lock);
        if (!r->stopping && !r->suspects)
            rebuilder_wait_ms(&r->wake, &r->lock, is_well ? LOOK_MS : RETRY_MS);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void rebuilder_init(struct rebuilder *r) {
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &steady);
    pthread_cond_init(&r->rebuilt, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&r->lock, NULL);
}

void rebuilder_start(struct rebuilder *r) {
    r->runs = thread_start(&r->thread, "hot rebuilder", THREAD_ALONE, rebuilder_run, r) == 0;
    if (!r->runs) log_error(msg("cannot start the thread that watches redis"));
}

void rebuilder_stop(struct rebuilder *r) {
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    if (r->runs) pthread_join(r->thread, NULL);
}

void rebuilder_deinit(struct rebuilder *r) {
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->rebuilt);
    pthread_mutex_destroy(&r->lock);
}

void rebuilder_suspect(void *rebuilder) {
    struct rebuilder *r = rebuilder;
    pthread_mutex_lock(&r->lock);
    r->suspects = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

bool rebuilder_is_open(struct rebuilder *r) {
    return atomic_load(&r->open) && atomic_load(&r->reachable);
}

bool rebuilder_is_foreign(struct rebuilder *r) {
    return atomic_load(&r->foreign);
}

bool rebuilder_has_events(struct rebuilder *r) {
    return atomic_load(&r->has_events);
}
