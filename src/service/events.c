#include "service/events.h"

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"

/* On the ledger's thread: changes are seen in the order in which they were committed. Whoever finds
 * an event in the catalogue finds its queue too. */
static void on_change_committed(struct ledger_record *r) {
    struct event_change *change = CONTAINER_OF(r, struct event_change, put.record);
    queues_configure(change->events->queues, change->put.stored);
    catalogue_install(change->events->catalogue, event_copy(change->put.stored));
}

static void on_changed(struct task *task) {
    struct event_change *change = CONTAINER_OF(task, struct event_change, put.record.task);
    change->done(change, change->put.record.result);
}

void events_change(struct events *ev, struct event_change *change) {
    assert((change->put.wanted == NULL) != (change->put.edit == NULL) && change->done != NULL);
    change->events = ev;
    change->put.record.kind = LEDGER_EVENT_PUT;
    change->put.record.task.run = on_changed;
    change->put.record.committed = on_change_committed;
    change->put.now_ms = clock_wall_ms();
    enum err refused = ledger_submit(ev->ledger, &change->put.record);
    if (refused != ERR_OK) change->done(change, refused);
}

static void on_removal_committed(struct ledger_record *r) {
    struct event_removal *removal = CONTAINER_OF(r, struct event_removal, remove.record);
    int64_t key =
        catalogue_remove(removal->events->catalogue, removal->remove.type, removal->remove.id);
    queues_remove(removal->events->queues, key);
}

static void on_removed(struct task *task) {
    struct event_removal *removal = CONTAINER_OF(task, struct event_removal, remove.record.task);
    removal->done(removal, removal->remove.record.result);
}

void events_delete(struct events *ev, struct event_removal *removal) {
    assert(removal->done != NULL);
    removal->events = ev;
    removal->remove.record.kind = LEDGER_EVENT_DELETE;
    removal->remove.record.task.run = on_removed;
    removal->remove.record.committed = on_removal_committed;
    removal->remove.now_ms = clock_wall_ms();
    enum err refused = ledger_submit(ev->ledger, &removal->remove.record);
    if (refused != ERR_OK) removal->done(removal, refused);
}
