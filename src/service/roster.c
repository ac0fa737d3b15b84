#include "service/roster.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

#define LOOK_MS 1000

static void look(struct roster *r);

static void finish(struct roster *r) {
    for (size_t i = 0; i < r->read.count; i++) mem_free(r->read.events[i]);
    mem_free(r->read.events);
    mem_free(r->read.removed);
    r->read.events = NULL;
    r->read.removed = NULL;
    r->read.count = 0;
    atomic_store(&r->busy, false);
    if (r->again && !r->stopping) look(r);
}

/* ---- what was removed ---- */

static void next_removed(struct roster *r);

static void on_gone(struct remove_op *op) {
    struct roster *r = CONTAINER_OF(op, struct roster, remove);
    const struct removed_event *e = &r->read.removed[r->removed_done++];
    catalogue_remove(r->events->catalogue, str_of(e->type), str_of(e->id), e->version);
    next_removed(r);
}

static bool is_known(struct roster *r, int64_t key) {
    catalogue_open(r->events->catalogue);
    bool is_there = catalogue_find_key(r->events->catalogue, key) != NULL;
    catalogue_shut(r->events->catalogue);
    return is_there;
}

static void next_removed(struct roster *r) {
    while (r->removed_done < r->read.removed_count &&
           !is_known(r, r->read.removed[r->removed_done].key))
        r->removed_done++;
    if (r->removed_done == r->read.removed_count) {
        finish(r);
        return;
    }
    const struct removed_event *e = &r->read.removed[r->removed_done];
    r->remove = (struct remove_op){.op = {.event_key = e->key, .now_ms = clock_wall_ms()},
                                   .version = e->version,
                                   .done = on_gone};
    queues_remove(r->events->queues, &r->remove);
}

/* ---- what is new or has changed ---- */

static void next_event(struct roster *r);

/* A hot store that could not be told now is told of everything the next time. */
static void on_configured(struct configure_op *op) {
    struct roster *r = CONTAINER_OF(op, struct roster, configure);
    struct event **e = &r->read.events[r->events_done++];
    if (op->op.result != ERR_OK && op->op.result != ERR_EVENT_NOT_FOUND) r->read.mark = 0;
    catalogue_install(r->events->catalogue, *e);
    *e = NULL;
    next_event(r);
}

static bool is_news(struct roster *r, const struct event *e) {
    struct catalogue *c = r->events->catalogue;
    catalogue_open(c);
    const struct event *known = catalogue_find(c, str_of(e->type), str_of(e->id));
    bool is_newer = known == NULL || known->version < e->version;
    catalogue_shut(c);
    return is_newer;
}

static void next_event(struct roster *r) {
    while (r->events_done < r->read.count && !r->pushes_all &&
           !is_news(r, r->read.events[r->events_done]))
        r->events_done++;
    if (r->events_done == r->read.count) {
        next_removed(r);
        return;
    }
    const struct event *e = r->read.events[r->events_done];
    r->configure = (struct configure_op){
        .op = {.event_key = e->key, .now_ms = clock_wall_ms()}, .event = e, .done = on_configured};
    queues_configure(r->events->queues, &r->configure);
}

/* ---- looking ---- */

static void on_read(struct task *task) {
    struct roster *r = CONTAINER_OF(task, struct roster, read.record.task);
    bool is_news_there = r->read.record.result == ERR_OK && r->read.mark != r->read.known_mark;
    if (!is_news_there) {
        if (r->read.record.result != ERR_OK) r->read.mark = r->read.known_mark;
        r->read.removed_count = 0;
        finish(r);
        return;
    }
    r->events_done = 0;
    r->removed_done = 0;
    next_event(r);
}

static void look(struct roster *r) {
    if (atomic_exchange(&r->busy, true)) {
        r->again = true;
        return;
    }
    r->again = false;
    int64_t known = atomic_exchange(&r->events->untold, false) ? 0 : r->read.mark;
    r->pushes_all = known == 0;
    r->read = (struct ledger_events_read){
        .record = {.kind = LEDGER_EVENTS_READ, .task.run = on_read}, .known_mark = known};
    if (ledger_ask(r->events->ledger, &r->read.record) == ERR_OK) return;
    r->read.mark = known;
    atomic_store(&r->busy, false);
}

static void on_tick(void *to) {
    look(to);
}

static void on_nudge(struct task *task) {
    struct roster *r = CONTAINER_OF(task, struct roster, nudge);
    atomic_store(&r->nudged, false);
    if (!r->stopping) look(r);
}

void roster_nudge(void *roster) {
    struct roster *r = roster;
    if (!atomic_exchange(&r->nudged, true)) mailbox_post(r->home, &r->nudge);
}

void roster_init(struct roster *r, uv_loop_t *loop, struct mailbox *home) {
    r->home = home;
    r->nudge.run = on_nudge;
    ticker_init(&r->ticker, loop, on_tick, r);
    ticker_start(&r->ticker, LOOK_MS);
}

void roster_stop(struct roster *r) {
    r->stopping = true;
    ticker_close(&r->ticker);
}

bool roster_is_busy(struct roster *r) {
    return atomic_load(&r->busy);
}
