/* Changing and deleting an event: ledger, hot store, catalogue, other nodes, answer. */
#include "service/events.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "service/event_sync.h"

static void events_on_change_written(struct task *task),
    events_on_change_applied(struct task *task), events_on_removal_written(struct task *task),
    events_on_removal_applied(struct task *task);
static void events_on_change_configured(struct configure_op *op);
static void events_on_removal_followed(struct remove_op *op);

bool events_are_current(struct events *ev) {
    return ev->sync == NULL || event_sync_is_current(ev->sync);
}

/* Calls `run` when every node has applied the change. */
static void events_await_nodes(struct events *ev, struct event_wait *wait, int64_t version,
                               void (*run)(struct task *task)) {
    wait->task.run = run;
    if (ev->sync == NULL) {
        run(&wait->task);
        return;
    }
    hot_announce(ev->hot);
    event_sync_wait_applied(ev->sync, wait, version);
}

/* ---- change ---- */

void events_change(struct events *ev, struct event_change *change) {
    assert((change->put.wanted == NULL) != (change->put.edit == NULL) && change->done != NULL);
    change->events = ev;
    change->put.record.kind = LEDGER_EVENT_PUT;
    change->put.record.task.run = events_on_change_written;
    change->put.now_ms = clock_wall_ms();
    change->put.seats_max = ev->seats_max;
    enum err refused = ledger_submit(ev->ledger, &change->put.record);
    if (refused != ERR_OK) change->done(change, refused);
}

static void events_on_change_written(struct task *task) {
    struct event_change *change = CONTAINER_OF(task, struct event_change, put.record.task);
    if (change->put.record.result != ERR_OK) {
        change->done(change, change->put.record.result);
        return;
    }
    const struct event *stored = change->put.stored;
    change->configure =
        (struct configure_op){.op = {.event_key = stored->key, .now_ms = clock_wall_ms()},
                              .event = stored,
                              .done = events_on_change_configured};
    queues_configure(change->events->queues, &change->configure);
}

/* The hot store comes first, so that a request which finds the event in the catalogue finds its
 * queue, too. A change that it could not get is sent again by event_sync. */
static void events_on_change_configured(struct configure_op *op) {
    struct event_change *change = CONTAINER_OF(op, struct event_change, configure);
    if (op->op.result != ERR_OK && op->op.result != ERR_EVENT_NOT_FOUND)
        atomic_store(&change->events->hot_is_stale, true);
    catalogue_install(change->events->catalogue, event_copy(change->put.stored));
    events_await_nodes(change->events, &change->wait, change->put.stored->version,
                       events_on_change_applied);
}

static void events_on_change_applied(struct task *task) {
    struct event_change *change = CONTAINER_OF(task, struct event_change, wait.task);
    change->done(change, ERR_OK);
}

/* ---- delete ---- */

void events_delete(struct events *ev, struct event_removal *removal) {
    assert(removal->done != NULL);
    removal->events = ev;
    removal->remove.record.kind = LEDGER_EVENT_DELETE;
    removal->remove.record.task.run = events_on_removal_written;
    removal->remove.now_ms = clock_wall_ms();
    enum err refused = ledger_submit(ev->ledger, &removal->remove.record);
    if (refused != ERR_OK) removal->done(removal, refused);
}

static void events_on_removal_written(struct task *task) {
    struct event_removal *removal = CONTAINER_OF(task, struct event_removal, remove.record.task);
    const struct ledger_event_delete *gone = &removal->remove;
    if (gone->record.result != ERR_OK) {
        removal->done(removal, gone->record.result);
        return;
    }
    catalogue_remove(removal->events->catalogue, gone->type, gone->id, gone->version);
    removal->hot_remove =
        (struct remove_op){.op = {.event_key = gone->key, .now_ms = clock_wall_ms()},
                           .type = gone->type,
                           .id = gone->id,
                           .version = gone->version,
                           .done = events_on_removal_followed};
    queues_remove(removal->events->queues, &removal->hot_remove);
}

static void events_on_removal_followed(struct remove_op *op) {
    struct event_removal *removal = CONTAINER_OF(op, struct event_removal, hot_remove);
    if (op->op.result != ERR_OK && op->op.result != ERR_EVENT_NOT_FOUND)
        atomic_store(&removal->events->hot_is_stale, true);
    events_await_nodes(removal->events, &removal->wait, removal->remove.version,
                       events_on_removal_applied);
}

static void events_on_removal_applied(struct task *task) {
    struct event_removal *removal = CONTAINER_OF(task, struct event_removal, wait.task);
    removal->done(removal, ERR_OK);
}

static void on_audit_page(struct task *task) {
    struct audit_read *a = CONTAINER_OF(task, struct audit_read, page.record.task);
    a->done(a, a->page.record.result);
}

void events_read_audit(struct events *ev, struct audit_read *a) {
    a->page.record.kind = LEDGER_AUDIT_PAGE;
    a->page.record.task.run = on_audit_page;
    enum err refused = ledger_ask(ev->ledger, &a->page.record);
    if (refused != ERR_OK) a->done(a, refused);
}
