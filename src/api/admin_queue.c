/* /admin/queue: shows and changes a queue, for the admin. Each change is a change of its event, so
 * it is durable and in the audit trail like any other. */
#include <assert.h>

#include "api/event_json.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service/event_views.h"

#define FROM(state) (1U << EVENT_##state)
#define FROM_ANY (FROM(DRAFT) | FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING) | FROM(CLOSED))

struct queue_act {
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

/* Renders the counts of the hot store. */
static void render_counts(struct json_out *j, const struct queue_counts *c) {
    json_out_i64(j, STR("waiting"), (int64_t)c->waiting);
    json_out_i64(j, STR("active"), (int64_t)c->active);
    json_out_i64(j, STR("entered"), (int64_t)c->entered);
    json_out_i64(j, STR("admitted"), (int64_t)c->admitted);
    json_out_i64(j, STR("completed"), (int64_t)c->completed);
    json_out_i64(j, STR("left"), (int64_t)c->left);
    json_out_i64(j, STR("expired"), (int64_t)c->expired);
    json_out_i64(j, STR("rejected"), (int64_t)c->rejected);
    json_out_f64(j, STR("admissionsPerSecond"), c->rate);
    json_out_f64(j, STR("avgWaitSeconds"),
                 c->admitted == 0 ? 0 : (double)c->waited_ms / 1000 / (double)c->admitted);
    json_out_f64(j, STR("maxWaitSeconds"), (double)c->waited_ms_max / 1000);
}

/* A change is durable by now: if the hot store can't be asked, there are no numbers to show. */
static void queue_act_render(struct json_out *j, const struct event_view *view,
                             const struct queue_act *act) {
    const struct event *e = view->event;
    const struct look_op *queue = &view->queue;
    bool is_counted = queue->op.result == ERR_OK;
    enum event_state now =
        is_counted ? queue->state : event_state_at(e->state, e->opens_at_ms, queue->op.now_ms);
    json_out_object(j, STR(""));
    json_out_str(j, STR("eventType"), str_of(e->type));
    json_out_str(j, STR("eventId"), str_of(e->id));
    json_out_str(j, STR("state"), event_state_words[e->state]);
    json_out_time(j, STR("opensAt"), e->opens_at_ms);
    json_out_bool(j, STR("entering"), now == EVENT_OPEN || now == EVENT_PAUSED);
    json_out_bool(j, STR("admitting"), now == EVENT_OPEN || now == EVENT_DRAINING);
    if (act->process) json_out_i64(j, STR("processed"), act->admitted);
    queue_rules_to_json(j, STR("queue"), &e->queue);
    if (is_counted)
        render_counts(j, &queue->counts);
    else
        json_out_bool(j, STR("degraded"), true);
    json_out_i64(j, STR("version"), e->version);
    json_out_time(j, STR("serverTime"), queue->op.now_ms);
    json_out_object_end(j);
}

static void queue_act_on_counted(struct event_views *views, enum err result) {
    (void)result; /* no seats are counted; of the queue, the view has it */
    struct queue_act *act = CONTAINER_OF(views, struct queue_act, views);
    if (views->first == NULL) {
        reply_problem(act->x, ERR_EVENT_NOT_FOUND, "%s", "The event has just been deleted.");
        return;
    }
    struct json_out j;
    json_out_init(&j, reply_start(act->x, 200));
    queue_act_render(&j, views->first, act);
    json_out_done(&j);
    reply_send(act->x, STR("application/json"));
}

/* The event as it is in force now: it may have changed again. */
static void queue_act_show(struct queue_act *act, int64_t event_key) {
    struct catalogue *catalogue = act->api->events.catalogue;
    act->views.queues = true;
    act->views.done = queue_act_on_counted;
    catalogue_read_lock(catalogue);
    const struct event *e = catalogue_find_key(catalogue, event_key);
    if (e != NULL) event_views_add(&act->views, &act->x->arena, e);
    catalogue_read_unlock(catalogue);
    event_views_count(&act->views, &act->api->events, NULL);
}

void admin_queue_get(struct api *api, struct exchange *x, const str *captures) {
    struct queue_act *act = arena_new(&x->arena, sizeof *act);
    act->api = api;
    act->x = x;
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, captures[0], captures[1]);
    int64_t key = e == NULL ? 0 : e->key;
    catalogue_read_unlock(api->events.catalogue);
    if (key != 0)
        queue_act_show(act, key);
    else
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
}

/* ---- changes ---- */

static void queue_act_on_processed(void *to, enum err result, size_t admitted) {
    struct queue_act *act = to;
    act->admitted = (int64_t)admitted;
    if (result == ERR_OK)
        queue_act_show(act, act->event_key);
    else
        reply_problem(act->x, result, "%s", err_effect(result));
}

static void queue_act_on_changed(struct event_change *change, enum err result) {
    struct queue_act *act = CONTAINER_OF(change, struct queue_act, change);
    json_decref(act->body);
    if (result == ERR_EVENT_NOT_FOUND) {
        reply_problem(act->x, result, "%s", "PUT /admin/events/{type}/{id} creates the event.");
        return;
    }
    if (result != ERR_OK) {
        reply_problem(act->x, result, "%s",
                      act->problem.err == result ? act->problem.detail : err_effect(result));
        return;
    }
    act->event_key = change->put.stored->key;
    mem_free(change->put.stored);
    if (act->process)
        waiting_room_tick(&act->api->room, act->event_key, queue_act_on_processed, act);
    else
        queue_act_show(act, act->event_key);
}

/* On the ledger's thread, which has the act until on_changed is called. */
static enum err queue_act_edit(struct ledger_event_put *put, struct event **e) {
    struct queue_act *act = CONTAINER_OF(put, struct queue_act, change.put);
    enum event_state now = event_state_at((*e)->state, (*e)->opens_at_ms, clock_wall_ms());
    if ((act->from & (1U << (*e)->state | 1U << now)) == 0) {
        str state = event_state_words[(*e)->state];
        json_refuse(&act->problem, ERR_WRONG_STATE, "The event's state is %.*s.", (int)state.len,
                    state.at);
        return ERR_WRONG_STATE;
    }
    static const struct json_field none[] = {{0}};
    if (act->body != NULL &&
        !(act->takes_rules ? queue_patch_json(*e, act->body, &act->problem)
                           : json_read(act->body, none, NULL, "", &act->problem)))
        return act->problem.err;
    if (act->to >= 0) (*e)->state = (enum event_state)act->to;
    return ERR_OK;
}

static void queue_act_run(struct api *api, struct exchange *x, const str *captures,
                          const char *verb, struct queue_act wanted) {
    json_t *body = NULL;
    if (x->request.body.len > 0 || x->request.method == HTTP_PATCH) {
        body = json_body(x);
        if (body == NULL) return;
    }
    struct queue_act *act = arena_new(&x->arena, sizeof *act);
    *act = wanted;
    act->api = api;
    act->x = x;
    act->body = body;
    act->change.put.type = arena_copy(&x->arena, captures[0]);
    act->change.put.id = arena_copy(&x->arena, captures[1]);
    act->change.put.note = admin_note(x, verb, captures[0], captures[1]);
    act->change.put.edit = queue_act_edit;
    act->change.done = queue_act_on_changed;
    events_change(&api->events, &act->change);
}

void admin_queue_patch(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(api, x, captures, "queue.patch",
                  (struct queue_act){.from = FROM_ANY, .to = -1, .takes_rules = true});
}

/* Also after a pause or when it was closed; with new queue rules, if the body has any. */
void admin_queue_activate(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(api, x, captures, "queue.activate",
                  (struct queue_act){.from = FROM_ANY, .to = EVENT_OPEN, .takes_rules = true});
}

void admin_queue_pause(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(
        api, x, captures, "queue.pause",
        (struct queue_act){.from = FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING), .to = EVENT_PAUSED});
}

void admin_queue_resume(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(api, x, captures, "queue.resume",
                  (struct queue_act){.from = FROM(PAUSED) | FROM(OPEN), .to = EVENT_OPEN});
}

void admin_queue_drain(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(api, x, captures, "queue.drain",
                  (struct queue_act){.from = FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING),
                                     .to = EVENT_DRAINING});
}

void admin_queue_deactivate(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(api, x, captures, "queue.deactivate",
                  (struct queue_act){.from = FROM_ANY, .to = EVENT_CLOSED});
}

void admin_queue_process(struct api *api, struct exchange *x, const str *captures) {
    queue_act_run(
        api, x, captures, "queue.process",
        (struct queue_act){.from = FROM(OPEN) | FROM(DRAINING), .to = -1, .process = true});
}
