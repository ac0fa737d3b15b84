/* Refuses or postpones requests while this node's events may be out of date. */
#include "api/freshness.h"

#include "base/list.h"
#include "service/event_sync.h"

struct postponed_request {
    struct event_wait wait;
    struct exchange *x;
};

bool fresh_rules(struct api *api, struct exchange *x) {
    if (events_are_current(&api->events)) return true;
    reply_problem(
        x, ERR_NODE_BEHIND, "%s",
        "This node has not reached the ledger for five seconds. Try again, or at another node.");
    return false;
}

static void freshness_on_read(struct task *task) {
    exchange_resume(CONTAINER_OF(task, struct postponed_request, wait.task)->x);
}

bool fresh_absence(struct api *api, struct exchange *x, str event) {
    struct event_sync *sync = api->events.sync;
    if (!fresh_rules(api, x)) return false;
    if (sync == NULL || exchange_was_put_off(x) || event_sync_is_absent(sync, event)) return true;
    struct postponed_request *p = arena_new(&x->arena, sizeof *p);
    exchange_put_off(x);
    p->x = x;
    p->wait.task.run = freshness_on_read;
    event_sync_wait_read(sync, &p->wait, event);
    return false;
}
