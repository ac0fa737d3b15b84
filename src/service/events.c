#include "service/events.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

/* How often a patch starts over because somebody else changed the event meanwhile. */
#define PATCH_TRIES_MAX 8

static void on_loaded(void *to, struct event *e) {
    struct events *ev = to;
    catalogue_install(ev->catalogue, e);
}

enum err events_load(struct events *ev) {
    return ledger_load(ev->ledger, on_loaded, ev);
}

static void finish(struct event_change *change, enum err result) {
    mem_free(change->wanted);
    change->wanted = NULL;
    change->done(change, result);
}

static void start_patch(struct event_change *change);

static void on_put(struct task *task) {
    struct event_change *change = CONTAINER_OF(task, struct event_change, put.record.task);
    struct event *stored = change->put.stored;
    enum err result = change->put.record.result;
    if (stored != NULL) catalogue_install(change->events->catalogue, event_copy(stored));
    if (result == ERR_CONFLICT && stored == NULL) result = ERR_EVENT_NOT_FOUND; /* deleted */
    if (result == ERR_CONFLICT) {
        /* What the patch was made from is no longer in force; `stored` is. */
        mem_free(stored);
        mem_free(change->wanted);
        change->put.stored = NULL;
        change->wanted = NULL;
        if (change->tries < PATCH_TRIES_MAX) {
            start_patch(change);
            return;
        }
    }
    finish(change, result);
}

static void submit_put(struct event_change *change) {
    change->put.record.kind = LEDGER_EVENT_PUT;
    change->put.record.task.run = on_put;
    change->put.wanted = change->wanted;
    change->put.now_ms = clock_wall_ms();
    enum err refused = ledger_submit(change->events->ledger, &change->put.record);
    if (refused != ERR_OK) finish(change, refused);
}

void events_put(struct events *ev, struct event_change *change) {
    assert(change->wanted != NULL && change->done != NULL);
    change->events = ev;
    change->put.expected_version = 0;
    submit_put(change);
}

static void start_patch(struct event_change *change) {
    struct catalogue *catalogue = change->events->catalogue;
    change->tries++;
    catalogue_open(catalogue);
    const struct event *now = catalogue_find(catalogue, change->type, change->id);
    change->wanted = now == NULL ? NULL : event_copy(now);
    catalogue_shut(catalogue);

    enum err refused = ERR_EVENT_NOT_FOUND;
    if (change->wanted != NULL) {
        change->put.expected_version = change->wanted->version;
        refused = change->apply(change);
    }
    if (refused != ERR_OK)
        finish(change, refused);
    else
        submit_put(change);
}

void events_patch(struct events *ev, struct event_change *change) {
    assert(change->apply != NULL && change->done != NULL);
    change->events = ev;
    change->tries = 0;
    start_patch(change);
}

static void on_deleted(struct task *task) {
    struct event_removal *removal = CONTAINER_OF(task, struct event_removal, remove.record.task);
    struct ledger_event_delete *remove = &removal->remove;
    if (remove->record.result == ERR_OK)
        catalogue_remove(removal->events->catalogue, remove->type, remove->id, remove->version);
    removal->done(removal, remove->record.result);
}

void events_delete(struct events *ev, struct event_removal *removal) {
    assert(removal->done != NULL);
    removal->events = ev;
    removal->remove.record.kind = LEDGER_EVENT_DELETE;
    removal->remove.record.task.run = on_deleted;
    removal->remove.now_ms = clock_wall_ms();
    enum err refused = ledger_submit(ev->ledger, &removal->remove.record);
    if (refused != ERR_OK) removal->done(removal, refused);
}
