/* /admin/queue: shows and changes a queue, for the admin. Each change is a change of its event, so
 * it is durable and in the audit trail like any other. */
#include <assert.h>

#include "api/event_json.h"
#include "api/event_page_json.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service/event_views.h"

#define FROM(state) (1U << EVENT_##state)
#define FROM_ANY (FROM(DRAFT) | FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING) | FROM(CLOSED))

struct queue_request {
    struct event_change change;
    int64_t event_key;        /* once it is known */
    struct event_views views; /* the event, when it is shown */
    struct exchange *x;
    struct api *api;
    json_t *body;  /* NULL: none was sent */
    unsigned from; /* the states in which it is allowed */
    int to;        /* the state afterwards; -1: as before */
    bool takes_rules;
    bool process; /* then also an admission step */
    int64_t admitted;
    struct json_problem problem;
};

/* ---- the answer ---- */

/* A change is durable by now: if the hot store can't be asked, there are no numbers to show. */
static void queue_request_render(struct json_out *j, const struct event_view *view,
                                 const struct queue_request *q) {
    const struct event *e = view->event;
    const struct look_op *queue = &view->queue;
    bool is_counted = queue->op.result == ERR_OK;
    enum event_state now = is_counted ? queue->state : event_effective_state(e, queue->op.now_ms);
    json_out_object(j, STR(""));
    json_out_str(j, STR("eventType"), str_of(e->type));
    json_out_str(j, STR("eventId"), str_of(e->id));
    json_out_str(j, STR("state"), event_state_words[e->state]);
    json_out_time(j, STR("opensAt"), e->opens_at_ms);
    json_out_time(j, STR("closesAt"), e->closes_at_ms);
    json_out_bool(j, STR("entering"), now == EVENT_OPEN || now == EVENT_PAUSED);
    bool has_stock = !is_counted || queue->has_stock;
    json_out_bool(j, STR("admitting"), has_stock && event_state_admits(now));
    if (q->process) json_out_i64(j, STR("processed"), q->admitted);
    queue_rules_to_json(j, STR("queue"), &e->queue);
    notice_to_json(j, e->notice);
    if (is_counted)
        queue_counts_to_json(j, &queue->counts);
    else
        json_out_bool(j, STR("degraded"), true);
    json_out_i64(j, STR("version"), e->version);
    json_out_time(j, STR("serverTime"), queue->op.now_ms);
    json_out_object_end(j);
}

static void queue_request_on_counted(struct event_views *views, enum err result) {
    (void)result; /* no seats are counted; of the queue, the view has it */
    struct queue_request *q = CONTAINER_OF(views, struct queue_request, views);
    if (views->first == NULL) {
        reply_problem(q->x, ERR_EVENT_NOT_FOUND, "%s", "The event has just been deleted.");
        return;
    }
    struct json_out j;
    json_out_init(&j, reply_start(q->x, 200));
    queue_request_render(&j, views->first, q);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

/* The event as it is in force now: it may have changed again. */
static void queue_request_show(struct queue_request *q, int64_t event_key) {
    struct catalogue *catalogue = q->api->events.catalogue;
    q->views.queues = true;
    q->views.texts = true;
    q->views.done = queue_request_on_counted;
    catalogue_read_lock(catalogue);
    const struct event *e = catalogue_find_key(catalogue, event_key);
    if (e != NULL) event_views_add(&q->views, &q->x->arena, e);
    catalogue_read_unlock(catalogue);
    event_views_count(&q->views, &q->api->events, NULL);
}

void admin_queue_get(struct api *api, struct exchange *x, const str *captures) {
    struct queue_request *q = arena_new(&x->arena, sizeof *q);
    q->api = api;
    q->x = x;
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, captures[0], captures[1]);
    int64_t key = e == NULL ? 0 : e->key;
    catalogue_read_unlock(api->events.catalogue);
    if (key != 0)
        queue_request_show(q, key);
    else
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
}

/* ---- changes ---- */

static void queue_request_on_processed(void *to, enum err result, size_t admitted) {
    struct queue_request *q = to;
    q->admitted = (int64_t)admitted;
    if (result == ERR_OK)
        queue_request_show(q, q->event_key);
    else
        reply_problem(q->x, result, "%s", err_effect(result));
}

static void queue_request_on_changed(struct event_change *change, enum err result) {
    struct queue_request *q = CONTAINER_OF(change, struct queue_request, change);
    json_decref(q->body);
    if (result == ERR_VERSION_MISMATCH) {
        admin_version_mismatch(q->x, change->put.if_version, change->put.version_present);
        return;
    }
    if (result == ERR_EVENT_NOT_FOUND) {
        reply_problem(q->x, result, "%s", "PUT /admin/events/{type}/{id} creates the event.");
        return;
    }
    if (result != ERR_OK) {
        reply_problem(q->x, result, "%s",
                      q->problem.err == result ? q->problem.detail : err_effect(result));
        return;
    }
    q->event_key = change->put.stored->key;
    mem_free(change->put.stored);
    if (q->process)
        waiting_room_tick(&q->api->room, q->event_key, queue_request_on_processed, q);
    else
        queue_request_show(q, q->event_key);
}

/* On the ledger's thread, which has the request until on_changed is called. */
static enum err queue_request_edit(struct ledger_event_put *put, struct event **e) {
    struct queue_request *q = CONTAINER_OF(put, struct queue_request, change.put);
    enum event_state now = event_effective_state(*e, clock_wall_ms());
    if ((q->from & (1U << (*e)->state | 1U << now)) == 0) {
        str state = event_state_words[(*e)->state];
        json_refuse(&q->problem, ERR_WRONG_STATE, "The event's state is %.*s.", (int)state.len,
                    state.at);
        return ERR_WRONG_STATE;
    }
    static const struct json_field none[] = {{0}};
    if (q->body != NULL && !(q->takes_rules ? queue_patch_json(e, q->body, &q->problem)
                                            : json_read(q->body, none, NULL, "", &q->problem)))
        return q->problem.err;
    if (q->to >= 0) (*e)->state = (enum event_state)q->to;
    return ERR_OK;
}

static void queue_request_run(struct api *api, struct exchange *x, const str *captures,
                              const char *verb, struct queue_request wanted) {
    json_t *body = NULL;
    int64_t if_version;
    if (!admin_if_match(x, &if_version)) return;
    if (x->request.body.len > 0 || x->request.method == HTTP_PATCH) {
        body = json_body(x);
        if (body == NULL) return;
    }
    struct queue_request *q = arena_new(&x->arena, sizeof *q);
    *q = wanted;
    q->api = api;
    q->x = x;
    q->body = body;
    q->change.put.type = arena_copy(&x->arena, captures[0]);
    q->change.put.id = arena_copy(&x->arena, captures[1]);
    q->change.put.note = admin_note(x, verb, admin_event_subject(x, captures[0], captures[1]));
    q->change.put.if_version = if_version;
    q->change.put.edit = queue_request_edit;
    q->change.done = queue_request_on_changed;
    events_change(&api->events, &q->change);
}

void admin_queue_patch(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(api, x, captures, "queue.patch",
                      (struct queue_request){.from = FROM_ANY, .to = -1, .takes_rules = true});
}

/* Also after a pause or when it was closed; with new queue rules, if the body has any. */
void admin_queue_activate(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(
        api, x, captures, "queue.activate",
        (struct queue_request){.from = FROM_ANY, .to = EVENT_OPEN, .takes_rules = true});
}

void admin_queue_pause(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(api, x, captures, "queue.pause",
                      (struct queue_request){.from = FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING),
                                             .to = EVENT_PAUSED});
}

void admin_queue_resume(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(api, x, captures, "queue.resume",
                      (struct queue_request){.from = FROM(PAUSED) | FROM(OPEN), .to = EVENT_OPEN});
}

void admin_queue_drain(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(api, x, captures, "queue.drain",
                      (struct queue_request){.from = FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING),
                                             .to = EVENT_DRAINING});
}

void admin_queue_deactivate(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(api, x, captures, "queue.deactivate",
                      (struct queue_request){.from = FROM_ANY, .to = EVENT_CLOSED});
}

void admin_queue_process(struct api *api, struct exchange *x, const str *captures) {
    queue_request_run(
        api, x, captures, "queue.process",
        (struct queue_request){.from = FROM(OPEN) | FROM(DRAINING), .to = -1, .process = true});
}
