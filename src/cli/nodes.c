/* Starting and stopping of the background work of a node. */
#include "cli/nodes.h"

#include <stdio.h>
#include <unistd.h>

#include "api/live.h"
#include "api/request_live.h"
#include "base/clock.h"
#include "base/log.h"

/* How long a start waits for the hot store; then it serves what can be served without. */
#define OPEN_WAIT_MS 5000

static void nodes_on_changed(void *to, int64_t event_key, const uint64_t *seqs, size_t count) {
    struct nodes *n = to;
    pthread_mutex_lock(&n->lock);
    if (n->listens) live_announce(n->api, event_key, seqs, count);
    pthread_mutex_unlock(&n->lock);
}

static void on_event_changed(void *to) {
    struct nodes *n = to;
    pthread_mutex_lock(&n->lock);
    if (n->listens) event_sync_nudge(&n->event_sync);
    pthread_mutex_unlock(&n->lock);
}

static void on_requests_accepted(void *to, const int64_t *partitions, size_t count) {
    struct nodes *n = to;
    pthread_mutex_lock(&n->lock);
    if (n->listens) requests_nudge(&n->api->requests, partitions, count);
    pthread_mutex_unlock(&n->lock);
}

static void on_requests_decided(void *to, const struct uuid *ids, size_t count) {
    struct nodes *n = to;
    pthread_mutex_lock(&n->lock);
    if (n->listens) request_live_announce(n->api, ids, count);
    pthread_mutex_unlock(&n->lock);
}

static void on_suspect(void *to) {
    rebuilder_suspect(&((struct nodes *)to)->rebuilder);
}

void nodes_init(struct nodes *n, struct api *api, struct fact_sink *facts,
                const struct settings *s) {
    struct events *ev = &api->events;
    n->api = api;
    pthread_mutex_init(&n->lock, NULL);
    n->degraded_reads = (struct degraded_reads){.ledger = ev->ledger, .catalogue = ev->catalogue};
    degraded_init(&n->degraded_reads);
    api->room.degraded_reads = &n->degraded_reads;
    n->snapshot = (struct snapshot){.hot = ev->hot, .catalogue = ev->catalogue};
    snapshot_init(&n->snapshot);
    api->snapshot = &n->snapshot;
    n->rebuilder.events = ev;
    api->rebuilder = &n->rebuilder;
    n->event_sync.events = ev;
    n->event_sync.name = n->name;
    ev->sync = &n->event_sync;
    n->relay.events = ev;
    n->relay.room = &api->room;
    n->finish_pending = (struct finish_pending){.room = &api->room,
                                                .seats = ev->seats,
                                                .catalogue = ev->catalogue,
                                                .deadline_ms = s->ledger_deadline_ms};
    n->reconcile_job = (struct reconcile_job){.reconcile = {.ledger = ev->ledger,
                                                            .hot = ev->hot,
                                                            .queues = ev->queues,
                                                            .seats = ev->seats,
                                                            .wait_ms = 2 * s->ledger_deadline_ms},
                                              .interval_ms = s->reconcile_interval_seconds * 1000};
    n->fact_publisher = (struct fact_publisher){.ledger = ev->ledger, .sink = facts};
    if (facts != NULL) api->fact_publisher = &n->fact_publisher;
    rebuilder_init(&n->rebuilder);
    hot_listen(ev->hot, (struct hot_listener){.changed = nodes_on_changed,
                                              .event_changed = on_event_changed,
                                              .requests_accepted = on_requests_accepted,
                                              .requests_decided = on_requests_decided,
                                              .suspect = on_suspect,
                                              .to = n});
}

void nodes_start_on(struct nodes *n, struct worker *w) {
    event_sync_init(&n->event_sync, &w->loop, &w->mailbox);
    relay_init(&n->relay, &w->loop);
    reconcile_job_init(&n->reconcile_job, &w->mailbox);
    if (n->fact_publisher.sink != NULL) fact_publisher_init(&n->fact_publisher, &w->loop);
    arrivals_start(&n->api->arrivals, &w->loop);
}

static bool is_ready(struct nodes *n) {
    return rebuilder_is_open(&n->rebuilder) && event_sync_is_current(&n->event_sync);
}

void nodes_set_name(struct nodes *n, const char *listening) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(n->name, sizeof n->name, "%s %s", host, listening);
}

bool nodes_start(struct nodes *n, struct buf *why) {
    rebuilder_start(&n->rebuilder);
    pthread_mutex_lock(&n->lock);
    n->listens = true;
    pthread_mutex_unlock(&n->lock);
    event_sync_nudge(&n->event_sync);
    int64_t until_ms = clock_steady_ms() + OPEN_WAIT_MS;
    while (!rebuilder_has_events(&n->rebuilder) || (!is_ready(n) && clock_steady_ms() < until_ms)) {
        if (rebuilder_is_foreign(&n->rebuilder)) {
            buf_add(why, STR("hot: this Redis holds the state of another ledger. Give this cluster "
                             "a separate Redis or database number; if the other cluster is "
                             "gone for good: redis-cli DEL 'admitone:{hot}:ledger'"));
            return false;
        }
        usleep(5000);
    }
    reconcile_job_start(&n->reconcile_job);
    if (!rebuilder_is_open(&n->rebuilder))
        log_warn(msg("redis cannot be reached yet; serving only requests that do not need it"));
    return true;
}

void nodes_stop_listening(struct nodes *n) {
    pthread_mutex_lock(&n->lock);
    n->listens = false;
    pthread_mutex_unlock(&n->lock);
}

void nodes_stop_on(struct nodes *n) {
    relay_stop(&n->relay);
    reconcile_job_stop(&n->reconcile_job);
    if (n->fact_publisher.sink != NULL) fact_publisher_stop(&n->fact_publisher);
    arrivals_stop(&n->api->arrivals);
}

void nodes_end_sync(struct nodes *n) {
    event_sync_stop(&n->event_sync);
}

bool nodes_are_busy(struct nodes *n) {
    return event_sync_is_busy(&n->event_sync) || relay_is_busy(&n->relay) ||
           finish_pending_is_busy(&n->finish_pending) || reconcile_job_is_busy(&n->reconcile_job) ||
           fact_publisher_is_busy(&n->fact_publisher);
}

void nodes_stop(struct nodes *n) {
    rebuilder_stop(&n->rebuilder);
    event_sync_leave(&n->event_sync);
    reconcile_job_deinit(&n->reconcile_job);
}

void nodes_deinit(struct nodes *n) {
    rebuilder_deinit(&n->rebuilder);
    event_sync_deinit(&n->event_sync);
    degraded_deinit(&n->degraded_reads);
    fact_publisher_deinit(&n->fact_publisher);
    snapshot_deinit(&n->snapshot);
    pthread_mutex_destroy(&n->lock);
}
