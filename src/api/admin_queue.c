/* What the admin does to a queue, and sees of it. Each act is a change of its event, so it is
 * durable and in the audit trail like any other. */
#include <assert.h>

#include "api/event_json.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

#define FROM(state) (1U << EVENT_##state)
#define FROM_ANY (FROM(DRAFT) | FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING) | FROM(CLOSED))

struct queue_act {
    struct event_change change;
    struct look_op look;
    struct exchange *x;
    struct api *api;
    json_t *body;  /* NULL: none was sent */
    unsigned from; /* the states that it can be done in */
    int to;        /* the state afterwards; -1: as it was */
    bool takes_rules;
    bool process; /* then also an admission step */
    int64_t admitted;
    struct json_problem problem;
};

/* ---- the answer ---- */

/* What the hot store counts. */
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

static void render(struct json_out *j, const struct event *e, const struct queue_act *act) {
    bool is_looked_at = act->look.op.result == ERR_OK;
    enum event_state now = is_looked_at
                               ? act->look.state
                               : event_state_at(e->state, e->opens_at_ms, act->look.op.now_ms);
    json_out_object(j, STR(""));
    json_out_str(j, STR("eventType"), str_of(e->type));
    json_out_str(j, STR("eventId"), str_of(e->id));
    json_out_str(j, STR("state"), event_state_words[e->state]);
    json_out_time(j, STR("opensAt"), e->opens_at_ms);
    json_out_bool(j, STR("entering"), now == EVENT_OPEN || now == EVENT_PAUSED);
    json_out_bool(j, STR("admitting"), now == EVENT_OPEN || now == EVENT_DRAINING);
    if (act->process) json_out_i64(j, STR("processed"), act->admitted);
    queue_rules_to_json(j, STR("queue"), &e->queue);
    if (is_looked_at)
        render_counts(j, &act->look.counts);
    else
        json_out_bool(j, STR("degraded"), true);
    json_out_i64(j, STR("version"), e->version);
    json_out_time(j, STR("serverTime"), act->look.op.now_ms);
    json_out_object_end(j);
}

/* The event may have changed again since: what is in force now is shown. An act is durable by now:
 * that the hot store can't be asked only means that there are no numbers to show. */
static void on_looked(struct look_op *look) {
    struct queue_act *act = CONTAINER_OF(look, struct queue_act, look);
    struct catalogue *catalogue = act->api->events.catalogue;
    const struct event *e = NULL;
    catalogue_read_lock(catalogue);
    if (look->op.result != ERR_EVENT_NOT_FOUND)
        e = catalogue_find_key(catalogue, look->op.event_key);
    if (e != NULL) {
        struct json_out j;
        json_out_init(&j, reply_start(act->x, 200));
        render(&j, e, act);
        json_out_done(&j);
    }
    catalogue_read_unlock(catalogue);
    if (e != NULL)
        reply_send(act->x, STR("application/json"));
    else
        reply_problem(act->x, ERR_EVENT_NOT_FOUND, "%s", "The event has just been deleted.");
}

static void show(struct queue_act *act, int64_t event_key) {
    act->look.op.event_key = event_key;
    act->look.op.now_ms = clock_wall_ms();
    act->look.done = on_looked;
    queues_look(act->api->events.queues, &act->look);
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
        show(act, key);
    else
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
}

/* ---- the acts ---- */

static void on_processed(void *to, enum err result, size_t admitted) {
    struct queue_act *act = to;
    act->admitted = (int64_t)admitted;
    if (result == ERR_OK)
        show(act, act->look.op.event_key);
    else
        reply_problem(act->x, result, "%s", err_effect(result));
}

static void on_changed(struct event_change *change, enum err result) {
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
    int64_t key = change->put.stored->key;
    mem_free(change->put.stored);
    act->look.op.event_key = key;
    if (act->process)
        waiting_room_tick(&act->api->room, key, on_processed, act);
    else
        show(act, key);
}

/* On the ledger's thread; the act is its own until it comes back. */
static enum err edit(struct ledger_event_put *put, struct event **e) {
    struct queue_act *act = CONTAINER_OF(put, struct queue_act, change.put);
    enum event_state now = event_state_at((*e)->state, (*e)->opens_at_ms, clock_wall_ms());
    if ((act->from & (1U << (*e)->state | 1U << now)) == 0) {
        str state = event_state_words[(*e)->state];
        json_refuse(&act->problem, ERR_WRONG_STATE, "The event is %.*s.", (int)state.len, state.at);
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

static void run_act(struct api *api, struct exchange *x, const str *captures, const char *verb,
                    struct queue_act wanted) {
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
    act->change.put.edit = edit;
    act->change.done = on_changed;
    events_change(&api->events, &act->change);
}

void admin_queue_patch(struct api *api, struct exchange *x, const str *captures) {
    run_act(api, x, captures, "queue.patch",
            (struct queue_act){.from = FROM_ANY, .to = -1, .takes_rules = true});
}

/* Also after a pause or when it was closed; with new numbers, if they are sent along. */
void admin_queue_activate(struct api *api, struct exchange *x, const str *captures) {
    run_act(api, x, captures, "queue.activate",
            (struct queue_act){.from = FROM_ANY, .to = EVENT_OPEN, .takes_rules = true});
}

void admin_queue_pause(struct api *api, struct exchange *x, const str *captures) {
    run_act(
        api, x, captures, "queue.pause",
        (struct queue_act){.from = FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING), .to = EVENT_PAUSED});
}

void admin_queue_resume(struct api *api, struct exchange *x, const str *captures) {
    run_act(api, x, captures, "queue.resume",
            (struct queue_act){.from = FROM(PAUSED) | FROM(OPEN), .to = EVENT_OPEN});
}

void admin_queue_drain(struct api *api, struct exchange *x, const str *captures) {
    run_act(api, x, captures, "queue.drain",
            (struct queue_act){.from = FROM(OPEN) | FROM(PAUSED) | FROM(DRAINING),
                               .to = EVENT_DRAINING});
}

void admin_queue_deactivate(struct api *api, struct exchange *x, const str *captures) {
    run_act(api, x, captures, "queue.deactivate",
            (struct queue_act){.from = FROM_ANY, .to = EVENT_CLOSED});
}

void admin_queue_process(struct api *api, struct exchange *x, const str *captures) {
    run_act(api, x, captures, "queue.process",
            (struct queue_act){.from = FROM(OPEN) | FROM(DRAINING), .to = -1, .process = true});
}
