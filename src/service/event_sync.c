/* Reading changes of events from the ledger, the lease that a read gives, and the requests that
 * wait for either. */
#include "service/event_sync.h"

#include <assert.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#define READ_MS 1000
#define FAST_MS 10
/* The same on all nodes: one waits for as long as the other's lease lasts. */
#define LEASE_NS INT64_C(5000000000)
#define MISS_READ_NS INT64_C(50000000)
#define MISS_KEPT_MS 1000

static void event_sync_end_read(struct event_sync *s), event_sync_renew_lease(struct event_sync *s),
    event_sync_report(struct event_sync *s), event_sync_apply_all(struct event_sync *s),
    event_sync_end_asking(struct event_sync *s);
static void event_sync_on_read(struct task *task), event_sync_on_reported(struct task *task),
    event_sync_on_nodes_read(struct task *task), event_sync_on_dropped(struct task *task);
static void event_sync_on_configured(struct configure_op *op);
static void event_sync_on_removed(struct remove_op *op);

/* ---- requests that wait ---- */

/* Under lock. */
static struct event_miss *event_sync_miss_at(struct event_sync *s, uint64_t name) {
    return &s->misses[name % EVENT_SYNC_MISSES];
}

/* Ends the waits for which `is_over` says so. */
static void event_sync_end_waits(struct event_sync *s,
                                 bool (*is_over)(struct event_sync *s, struct event_wait *w)) {
    struct task_list left = {0};
    pthread_mutex_lock(&s->lock);
    struct task *task;
    while ((task = task_list_take(&s->waits)) != NULL) {
        struct event_wait *w = CONTAINER_OF(task, struct event_wait, task);
        if (is_over(s, w))
            mailbox_post(w->task.home, task);
        else
            task_list_add(&left, task);
    }
    s->waits = left;
    pthread_mutex_unlock(&s->lock);
}

/* A failed read ends the wait too: then the lease says whether the node knows enough. */
static bool event_sync_is_over_by_read(struct event_sync *s, struct event_wait *w) {
    if (w->version != 0 || w->since_ns > s->began_ns) return false;
    if (s->read.record.result == ERR_OK)
        *event_sync_miss_at(s, w->name) =
            (struct event_miss){w->name, s->began_ns / 1000000 + MISS_KEPT_MS};
    return true;
}

static bool event_sync_has_outlasted_leases(const struct event_wait *w, int64_t now_ns) {
    return w->version != 0 && now_ns - w->since_ns > LEASE_NS;
}

static bool event_sync_is_over_by_nodes(struct event_sync *s, struct event_wait *w) {
    bool is_applied = s->nodes.record.result == ERR_OK && s->nodes.lowest > w->version;
    return w->version != 0 && (is_applied || event_sync_has_outlasted_leases(w, s->asked_ns));
}

static void event_sync_add_wait(struct event_sync *s, struct event_wait *w) {
    w->since_ns = clock_steady_ns();
    w->task.home = mailbox_mine();
    assert(w->task.home != NULL);
    pthread_mutex_lock(&s->lock);
    task_list_add(&s->waits, &w->task);
    pthread_mutex_unlock(&s->lock);
}

/* ---- reading what has changed ---- */

static void event_sync_read_changes(struct event_sync *s) {
    if (atomic_exchange(&s->busy, true)) {
        s->again = true;
        return;
    }
    s->again = false;
    s->began_ns = clock_steady_ns();
    int64_t known = atomic_exchange(&s->events->hot_is_stale, false) ? 0 : s->read.mark;
    s->pushes_all = known == 0;
    s->read = (struct ledger_events_read){
        .record = {.kind = LEDGER_EVENTS_READ, .task.run = event_sync_on_read},
        .known_mark = known,
        .node = s->node};
    enum err refused = ledger_ask(s->events->ledger, &s->read.record);
    if (refused == ERR_OK) return;
    s->read.record.result = refused;
    s->read.mark = known;
    event_sync_end_read(s);
}

static void event_sync_on_read(struct task *task) {
    struct event_sync *s = CONTAINER_OF(task, struct event_sync, read.record.task);
    bool is_read = s->read.record.result == ERR_OK;
    bool is_reported = s->is_registered && s->read.node_applied == s->read.mark;
    s->events_done = 0;
    s->removed_done = 0;
    s->hot_is_lost = false;
    s->applied = s->read.mark;
    if (is_read) atomic_store(&s->node_count, s->read.node_count);
    if (is_read && s->read.mark != s->read.known_mark) {
        event_sync_apply_all(s);
    } else if (is_read && is_reported && !s->read.may_lag) {
        event_sync_renew_lease(s);
    } else if (is_read) {
        event_sync_report(s);
    } else {
        s->read.mark = s->read.known_mark;
        event_sync_end_read(s);
    }
}

static void event_sync_end_read(struct event_sync *s) {
    for (size_t i = 0; i < s->read.count; i++) mem_free(s->read.events[i]);
    mem_free(s->read.events);
    mem_free(s->read.removed);
    s->read.events = NULL;
    s->read.removed = NULL;
    s->read.count = 0;
    event_sync_end_waits(s, event_sync_is_over_by_read);
    atomic_store(&s->busy, false);
    if (s->again && !s->stopping) event_sync_read_changes(s);
}

/* ---- the hot store gets it, then the catalogue ---- */

static bool event_sync_is_newer(struct event_sync *s, const struct event *e) {
    struct catalogue *c = s->events->catalogue;
    catalogue_read_lock(c);
    const struct event *known = catalogue_find(c, str_of(e->type), str_of(e->id));
    bool is_newer = known == NULL || known->version < e->version;
    catalogue_read_unlock(c);
    return is_newer;
}

static bool event_sync_is_known(struct event_sync *s, int64_t key) {
    catalogue_read_lock(s->events->catalogue);
    bool is_there = catalogue_find_key(s->events->catalogue, key) != NULL;
    catalogue_read_unlock(s->events->catalogue);
    return is_there;
}

/* Skips events and removals that this node has applied already. */
static void event_sync_skip_known(struct event_sync *s) {
    if (s->pushes_all) return;
    while (s->events_done < s->read.count &&
           !event_sync_is_newer(s, s->read.events[s->events_done]))
        s->events_done++;
    if (s->events_done < s->read.count) return;
    while (s->removed_done < s->read.removed_count &&
           !event_sync_is_known(s, s->read.removed[s->removed_done].key))
        s->removed_done++;
}

static void event_sync_apply_event(struct event_sync *s, const struct event *e) {
    s->configure = (struct configure_op){.op = {.event_key = e->key, .now_ms = clock_wall_ms()},
                                         .event = e,
                                         .done = event_sync_on_configured};
    if (!s->hot_is_lost) {
        queues_configure(s->events->queues, &s->configure);
        return;
    }
    /* Requests about it are refused with 503 until the hot store has it, not with 404. */
    queues_register_event(s->events->queues, e);
    event_sync_on_configured(&s->configure);
}

static void event_sync_apply_removal(struct event_sync *s, const struct removed_event *e) {
    s->remove = (struct remove_op){.op = {.event_key = e->key, .now_ms = clock_wall_ms()},
                                   .type = str_of(e->type),
                                   .id = str_of(e->id),
                                   .version = e->version,
                                   .done = event_sync_on_removed};
    if (s->hot_is_lost)
        event_sync_on_removed(&s->remove);
    else
        queues_remove(s->events->queues, &s->remove);
}

/* In a loop, because a hot store that is unavailable calls back before the call returns, and
 * recursion would overflow the stack. It is then skipped for the rest of this read, and receives
 * all events at the next one. */
static void event_sync_apply_all(struct event_sync *s) {
    do {
        event_sync_skip_known(s);
        bool has_event = s->events_done < s->read.count;
        if (!has_event && s->removed_done == s->read.removed_count) {
            event_sync_report(s);
            return;
        }
        s->has_answered = false;
        s->calls_hot = true;
        if (has_event)
            event_sync_apply_event(s, s->read.events[s->events_done]);
        else
            event_sync_apply_removal(s, &s->read.removed[s->removed_done]);
        s->calls_hot = false;
    } while (s->has_answered);
}

static void event_sync_applied(struct event_sync *s, enum err result) {
    if (result != ERR_OK && result != ERR_EVENT_NOT_FOUND) {
        s->hot_is_lost = true;
        s->read.mark = 0;
    }
    if (s->calls_hot)
        s->has_answered = true;
    else
        event_sync_apply_all(s);
}

static void event_sync_on_configured(struct configure_op *op) {
    struct event_sync *s = CONTAINER_OF(op, struct event_sync, configure);
    struct event **e = &s->read.events[s->events_done++];
    catalogue_install(s->events->catalogue, *e);
    *e = NULL;
    event_sync_applied(s, op->op.result);
}

static void event_sync_on_removed(struct remove_op *op) {
    struct event_sync *s = CONTAINER_OF(op, struct event_sync, remove);
    const struct removed_event *e = &s->read.removed[s->removed_done++];
    catalogue_remove(s->events->catalogue, str_of(e->type), str_of(e->id), e->version);
    event_sync_applied(s, op->op.result);
}

/* ---- reporting how far this node is, and its lease ---- */

static void event_sync_report(struct event_sync *s) {
    if (s->read.may_lag) {
        event_sync_end_read(s);
        return;
    }
    s->report = (struct ledger_node_report){
        .record = {.kind = LEDGER_NODE_REPORT, .always = true, .task.run = event_sync_on_reported},
        .registers = !s->is_registered,
        .name = str_of(s->name),
        .applied = s->applied};
    if (s->report.registers) s->node = uuid_new(clock_wall_ms());
    s->report.node = s->node;
    if (ledger_submit(s->events->ledger, &s->report.record) != ERR_OK) event_sync_end_read(s);
}

static void event_sync_renew_lease(struct event_sync *s) {
    atomic_store(&s->lease_until_ns, s->began_ns + LEASE_NS);
    event_sync_end_read(s);
}

/* The lease begins with the read only if the node was in the table since then: so that a node which
 * changed an event after the read has to wait for this one. */
static void event_sync_on_reported(struct task *task) {
    struct event_sync *s = CONTAINER_OF(task, struct event_sync, report.record.task);
    bool is_done = s->report.record.result == ERR_OK;
    if (is_done && !s->report.registers && s->report.was_there) {
        event_sync_renew_lease(s);
        return;
    }
    if (is_done) {
        s->is_registered = s->report.registers;
        s->again = true;
    }
    event_sync_end_read(s);
}

/* ---- while requests wait ---- */

static void event_sync_ask_nodes(struct event_sync *s) {
    if (atomic_exchange(&s->asks_nodes, true)) return;
    s->asked_ns = clock_steady_ns();
    s->nodes = (struct ledger_nodes_read){
        .record = {.kind = LEDGER_NODES_READ, .task.run = event_sync_on_nodes_read}};
    enum err refused = ledger_ask(s->events->ledger, &s->nodes.record);
    if (refused == ERR_OK) return;
    s->nodes.record.result = refused;
    event_sync_end_asking(s);
}

static void event_sync_end_asking(struct event_sync *s) {
    event_sync_end_waits(s, event_sync_is_over_by_nodes);
    atomic_store(&s->asks_nodes, false);
}

/* The latest of the changes that have waited for as long as a lease lasts; 0: none has. */
static int64_t event_sync_overdue_version(struct event_sync *s) {
    int64_t version = 0;
    pthread_mutex_lock(&s->lock);
    for (struct task *task = s->waits.first; task != NULL; task = task->next) {
        const struct event_wait *w = CONTAINER_OF(task, struct event_wait, task);
        if (w->version > version && event_sync_has_outlasted_leases(w, s->asked_ns))
            version = w->version;
    }
    pthread_mutex_unlock(&s->lock);
    return version;
}

static void event_sync_on_nodes_read(struct task *task) {
    struct event_sync *s = CONTAINER_OF(task, struct event_sync, nodes.record.task);
    int64_t version = event_sync_overdue_version(s);
    if (s->nodes.record.result != ERR_OK || s->nodes.lowest > version) {
        event_sync_end_asking(s);
        return;
    }
    s->drop = (struct ledger_nodes_drop){
        .record = {.kind = LEDGER_NODES_DROP, .always = true, .task.run = event_sync_on_dropped},
        .version = version};
    if (ledger_submit(s->events->ledger, &s->drop.record) != ERR_OK) event_sync_end_asking(s);
}

static void event_sync_on_dropped(struct task *task) {
    struct event_sync *s = CONTAINER_OF(task, struct event_sync, drop.record.task);
    if (s->drop.record.result == ERR_OK && s->drop.count > 0)
        log_warn(msg("nodes did not apply a change of an event in time; each refuses to sell until "
                     "it has caught up"),
                 kv_i64("nodes", s->drop.count), kv("node", s->drop.name),
                 kv_i64("waited_ms", LEASE_NS / 1000000));
    event_sync_end_asking(s);
}

static void event_sync_on_fast_tick(void *to) {
    struct event_sync *s = to;
    bool awaits_read = false;
    bool awaits_nodes = false;
    pthread_mutex_lock(&s->lock);
    for (struct task *task = s->waits.first; task != NULL; task = task->next) {
        const struct event_wait *w = CONTAINER_OF(task, struct event_wait, task);
        awaits_nodes = awaits_nodes || w->version != 0;
        awaits_read = awaits_read || w->version == 0;
    }
    pthread_mutex_unlock(&s->lock);
    if (!awaits_read && !awaits_nodes) ticker_stop(&s->fast_ticker);
    if (awaits_nodes) event_sync_ask_nodes(s);
    bool is_due = clock_steady_ns() - s->began_ns >= MISS_READ_NS && !atomic_load(&s->busy);
    if (awaits_read && is_due) event_sync_read_changes(s);
}

static void event_sync_on_nudge(struct task *task) {
    struct event_sync *s = CONTAINER_OF(task, struct event_sync, nudge);
    atomic_store(&s->nudged, false);
    if (s->stopping) return;
    if (atomic_exchange(&s->changed, false)) event_sync_read_changes(s);
    ticker_start(&s->fast_ticker, FAST_MS);
    event_sync_on_fast_tick(s);
}

static void event_sync_post_nudge(struct event_sync *s) {
    if (!atomic_exchange(&s->nudged, true)) mailbox_post(s->home, &s->nudge);
}

void event_sync_nudge(struct event_sync *s) {
    atomic_store(&s->changed, true);
    event_sync_post_nudge(s);
}

void event_sync_wait_applied(struct event_sync *s, struct event_wait *w, int64_t version) {
    assert(version > 0);
    w->version = version;
    event_sync_add_wait(s, w);
    event_sync_nudge(s);
}

void event_sync_wait_read(struct event_sync *s, struct event_wait *w, str name) {
    w->version = 0;
    w->name = str_hash(name, s->seed);
    event_sync_add_wait(s, w);
    event_sync_post_nudge(s);
}

bool event_sync_is_absent(struct event_sync *s, str name) {
    uint64_t hash = str_hash(name, s->seed);
    pthread_mutex_lock(&s->lock);
    const struct event_miss *m = event_sync_miss_at(s, hash);
    bool is_so = m->name == hash && clock_steady_ms() < m->until_ms;
    pthread_mutex_unlock(&s->lock);
    return is_so;
}

int64_t event_sync_nodes(struct event_sync *s) {
    return atomic_load(&s->node_count);
}

bool event_sync_is_current(struct event_sync *s) {
    return clock_steady_ns() < atomic_load(&s->lease_until_ns);
}

bool event_sync_is_busy(struct event_sync *s) {
    return !atomic_load(&s->stopped) || atomic_load(&s->busy) || atomic_load(&s->asks_nodes);
}

/* ---- start and stop ---- */

static void event_sync_on_tick(void *to) {
    event_sync_read_changes(to);
}

void event_sync_init(struct event_sync *s, uv_loop_t *loop, struct mailbox *home) {
    s->home = home;
    s->nudge.run = event_sync_on_nudge;
    pthread_mutex_init(&s->lock, NULL);
    ssize_t got = getrandom(&s->seed, sizeof s->seed, 0);
    assert(got == sizeof s->seed);
    ticker_init(&s->ticker, loop, event_sync_on_tick, s);
    ticker_init(&s->fast_ticker, loop, event_sync_on_fast_tick, s);
    ticker_start(&s->ticker, READ_MS);
}

void event_sync_stop(struct event_sync *s) {
    assert(s->waits.count == 0);
    s->stopping = true;
    ticker_close(&s->ticker);
    ticker_close(&s->fast_ticker);
    atomic_store(&s->stopped, true);
}

void event_sync_leave(struct event_sync *s) {
    if (s->is_registered) ledger_leave(s->events->ledger, &s->node);
}

void event_sync_deinit(struct event_sync *s) {
    pthread_mutex_destroy(&s->lock);
}
