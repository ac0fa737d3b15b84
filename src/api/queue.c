/* The waiting room, as its users meet it. Each request is one struct that lives in its arena from
 * the handler to the answer. */
#include <assert.h>
#include <stdio.h>

#include "api/freshness.h"
#include "api/json_in.h"
#include "api/queue_enter.h"
#include "api/users.h"
#include "base/clock.h"
#include "base/list.h"
#include "service/leave.h"

/* ---- enter ---- */

/* What the body of an enter says. */
struct enter_body {
    str user; /* `at` NULL: not named */
    int64_t lane;
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
};

#define BODY(member) offsetof(struct enter_body, member)
static const struct json_field enter_fields[] = {
    {"userId", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"lane", JSON_KIND_I64, BODY(lane), 0, LANES - 1, 0, 0},
    {0},
};
static const struct json_field token_fields[] = {
    {"userId", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"lane", JSON_KIND_I64, BODY(lane), 0, LANES - 1, 0, 0},
    {"eventType", JSON_KIND_NAME, BODY(type), 1, EVENT_TYPE_BYTES_MAX, 0, 0},
    {"eventId", JSON_KIND_NAME, BODY(id), 1, EVENT_ID_BYTES_MAX, 0, 0},
    {0},
};

/* Who is known without a name needs no body at all. False: the problem has been answered. */
static bool read_body(struct exchange *x, const struct json_field *fields, struct enter_body *out) {
    *out = (struct enter_body){.lane = -1};
    if (x->request.body.len == 0) return true;
    json_t *body = json_body(x);
    if (body == NULL) return false;
    struct json_problem problem;
    const json_t *user = json_object_get(body, "userId");
    bool ok = json_read(body, fields, out, "", &problem) &&
              (user == NULL || user_from_json(x, user, &out->user, &problem));
    json_decref(body);
    if (!ok) reply_problem(x, problem.err, "%s", problem.detail);
    return ok;
}

/* Only the admin key or the shop's assertion chooses another lane than the default. */
static bool choose_pool(struct exchange *x, const struct asker *who, int64_t wanted,
                        unsigned *lane) {
    *lane = who->lane >= 0 ? (unsigned)who->lane : LANE_DEFAULT;
    if (wanted < 0 || wanted == (int64_t)*lane) return true;
    if (!who->admin) {
        reply_problem(x, ERR_LANE_NOT_ALLOWED,
                      "Only the admin key or a signed assertion may choose a lane; yours is %u.",
                      *lane);
        return false;
    }
    *lane = (unsigned)wanted;
    return true;
}

str place_token(struct entering *e, int64_t now_ms, char out[TOKEN_TEXT_BYTES]) {
    str token = queue_token_sign(exchange_context(e->x), &e->event, e->asker.user,
                                 &e->room.enter.place, now_ms, out);
    users_set_cookie(e->api, e->x, &e->asker);
    /* In front of browsers; a shop's back end keeps it itself. */
    if (e->api->users_auth != USERS_TRUSTED) queue_token_set_cookie(e->x, &e->event, token);
    return token;
}

static void answer_place(struct entering *e) {
    const struct place *place = &e->room.enter.place;
    int64_t now_ms = clock_wall_ms();
    char token[TOKEN_TEXT_BYTES];
    struct queue_answer answer = {.event = &e->event,
                                  .token = place_token(e, now_ms, token),
                                  .user = e->asker.user,
                                  .place = place,
                                  .waiting = place->waiting,
                                  .reserving = e->room.enter.reserving,
                                  .remaining_seats = e->room.enter.seats.available,
                                  .now_ms = now_ms,
                                  .issued_ms = now_ms,
                                  .with_expires_in = e->as_token};
    reply_header(e->x, STR("Cache-Control"), STR("no-store"));
    struct json_out j;
    json_out_init(&j, reply_start(e->x, place->status == ENTRY_WAITING ? 202 : 200));
    queue_answer_render(exchange_context(e->x), &j, &answer);
    json_out_done(&j);
    reply_send(e->x, STR("application/json"));
}

static void refuse_full(struct entering *e) {
    char max[24];
    snprintf(max, sizeof max, "%lld", (long long)e->event.rules.max_waiting);
    e->x->retry_after_s = e->event.rules.entry_interval_s;
    struct problem_member members[] = {{STR("entryStatus"), STR("\"REJECTED\"")},
                                       {STR("maxWaiting"), str_of(max)}};
    reply_problem_with(e->x, ERR_QUEUE_FULL, members, 2, "%s",
                       "The queue has reached maxWaiting. Try again after Retry-After seconds.");
}

static void refuse_not_open(struct entering *e) {
    int64_t opens_ms = e->room.enter.opens_at_ms;
    int64_t now_ms = clock_wall_ms();
    struct buf opens = {0};
    struct json_out j;
    json_out_init(&j, &opens);
    json_out_time(&j, STR(""), opens_ms);
    json_out_done(&j);
    bool is_set = opens_ms != CLOCK_NONE_MS;
    if (is_set && opens_ms > now_ms) e->x->retry_after_s = (opens_ms - now_ms + 999) / 1000;
    struct problem_member members[] = {{STR("opensAt"), buf_str(&opens)}};
    reply_problem_with(e->x, ERR_NOT_OPEN, members, 1, "%s",
                       is_set ? "The event opens at opensAt." : "The opening time is not set yet.");
    buf_deinit(&opens);
}

static void on_entered(struct room_entering *room, enum err result) {
    struct entering *e = CONTAINER_OF(room, struct entering, room);
    if (result != ERR_OK) {
        queue_refuse(e->x, result);
        return;
    }
    switch (room->enter.outcome) {
    case ENTER_TAKEN:
    case ENTER_THERE:
        if (e->on_active != NULL && room->enter.place.status == ENTRY_ACTIVE)
            e->on_active(e);
        else
            answer_place(e);
        return;
    case ENTER_FULL:
        refuse_full(e);
        return;
    case ENTER_NOT_OPEN:
        refuse_not_open(e);
        return;
    case ENTER_CLOSED:
        reply_problem(e->x, ERR_CLOSED, "%s",
                      "The queue takes no new users. Users who already wait keep their places.");
        return;
    case ENTER_SOLD:
        e->on_sold(e);
        return;
    }
    assert(false && "every outcome has its answer");
}

void place_take(struct entering *e) {
    e->room.enter.op.event_key = e->event.key;
    e->room.enter.user = e->asker.user;
    e->room.done = on_entered;
    waiting_room_enter(&e->api->room, &e->room);
}

static void enter(struct api *api, struct exchange *x, const struct queue_event *event,
                  const struct enter_body *body, bool as_token) {
    struct entering *e = arena_new(&x->arena, sizeof *e);
    if (!fresh_rules(api, x)) return;
    if (!users_identify(api, x, body->user, &e->asker)) return;
    if (!choose_pool(x, &e->asker, body->lane, &e->room.enter.lane)) return;
    e->x = x;
    e->api = api;
    e->event = *event;
    e->as_token = as_token;
    place_take(e);
}

void queue_post_enter(struct api *api, struct exchange *x, const str *captures) {
    struct enter_body body;
    struct queue_event event;
    if (!queue_event_find(api, captures[0], captures[1], &event))
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
    else if (read_body(x, enter_fields, &body))
        enter(api, x, &event, &body, false);
}

/* The event that is meant when none is named: the configured one, or the only one. */
static bool find_default(struct api *api, struct queue_event *out) {
    str id = api->default_event;
    str type;
    if (id.len > 0) return str_split(&id, '/', &type) && queue_event_find(api, type, id, out);
    int64_t key = 0;
    catalogue_read_lock(api->events.catalogue);
    const struct event *only = catalogue_at(api->events.catalogue, 0);
    if (only != NULL && catalogue_at(api->events.catalogue, 1) == NULL) key = only->key;
    catalogue_read_unlock(api->events.catalogue);
    return queue_event_find_key(api, key, out);
}

void queue_post_token(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct enter_body body;
    struct queue_event event;
    char path[EVENT_PATH_BYTES];
    if (!read_body(x, token_fields, &body)) return;
    bool names_type = body.type[0] != '\0';
    bool names_id = body.id[0] != '\0';
    if (names_type != names_id) {
        reply_problem(x, ERR_INVALID_FIELD, "%s", "Send both eventType and eventId, or neither.");
    } else if (names_type ? !queue_event_find(api, str_of(body.type), str_of(body.id), &event)
                          : !find_default(api, &event)) {
        str name = names_type ? event_path(str_of(body.type), str_of(body.id), path) : STR("");
        if (!fresh_absence(api, x, name)) return;
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s",
                      names_type ? "GET /events lists the events that exist."
                                 : "Send eventType and eventId: there is no default event "
                                   "(queue.default_event), and not just one event.");
    } else {
        enter(api, x, &event, &body, true);
    }
}

/* ---- status ---- */

static void on_status(struct room_looking *room, enum err result) {
    struct place_query *q = CONTAINER_OF(room, struct place_query, room);
    if (result != ERR_OK) {
        queue_refuse(q->x, result);
        return;
    }
    struct queue_answer answer = place_query_answer(q);
    reply_header(q->x, STR("Cache-Control"), STR("no-store"));
    struct json_out j;
    json_out_init(&j, reply_start(q->x, 200));
    queue_answer_render(exchange_context(q->x), &j, &answer);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

static void ask_status(struct api *api, struct exchange *x, const struct queue_event *event,
                       str token, bool with_expires_in) {
    struct place_query *q = arena_new(&x->arena, sizeof *q);
    enum err refused = place_query_init(q, api, x, event, token);
    if (refused != ERR_OK) {
        queue_refuse(x, refused);
        return;
    }
    q->with_expires_in = with_expires_in;
    q->room.done = on_status;
    waiting_room_look(&api->room, &q->room);
}

void queue_get_status(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    if (queue_event_find(api, captures[0], captures[1], &event))
        ask_status(api, x, &event, queue_token_of(x, event.key), false);
    else
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
}

static void refuse_unknown_key(struct api *api, struct exchange *x, int64_t event_key) {
    char name[32];
    int len = snprintf(name, sizeof name, "event key %lld", (long long)event_key);
    if (fresh_absence(api, x, (str){name, (size_t)len})) queue_refuse(x, ERR_EVENT_NOT_FOUND);
}

/* The token itself says which event it is of; only for a cookie the default event must be known. */
void queue_get_own_status(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct token token;
    struct queue_event event;
    str text = queue_token_of(x, 0);
    if (text.at == NULL && find_default(api, &event)) text = queue_token_of(x, event.key);
    enum err refused = queue_token_judge(exchange_context(x), text, NULL, &token);
    if (refused != ERR_OK)
        queue_refuse(x, refused);
    else if (!queue_event_find_key(api, token.event_key, &event))
        refuse_unknown_key(api, x, token.event_key);
    else
        ask_status(api, x, &event, text, true);
}

/* ---- the gate ---- */

/* Whoever may not pass is told where the waiting room is. */
static void point_to_room(struct exchange *x, const struct queue_event *event) {
    char where[8 + EVENT_PATH_BYTES];
    int len = snprintf(where, sizeof where, "/e/%s/%s", event->type, event->id);
    reply_header(x, STR("Location"), (str){where, (size_t)len});
}

static void on_gate(struct room_looking *room, enum err result) {
    struct place_query *q = CONTAINER_OF(room, struct place_query, room);
    if (result == ERR_OK) q->x->user = (str){room->user, room->look.user_len};
    if (result != ERR_OK) {
        queue_refuse(q->x, result);
    } else if (room->item.place.status == ENTRY_ACTIVE) {
        reply_empty(q->x, 204);
    } else {
        str status = entry_status_words[room->item.place.status];
        point_to_room(q->x, &q->event);
        reply_problem(q->x, ERR_NOT_ACTIVE, "The entry is %.*s; only ACTIVE entries pass.",
                      (int)status.len, status.at);
    }
}

void queue_get_gate(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    if (!queue_event_find(api, captures[0], captures[1], &event)) {
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
        return;
    }
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    struct place_query *q = arena_new(&x->arena, sizeof *q);
    enum err refused = place_query_init(q, api, x, &event, queue_token_of(x, event.key));
    if (refused != ERR_OK) {
        point_to_room(x, &event);
        queue_refuse(x, refused);
        return;
    }
    q->room.done = on_gate;
    waiting_room_look(&api->room, &q->room);
}

/* ---- leave ---- */

struct place_leaving {
    struct leaving leaving;
    struct exchange *x;
};

static void on_left(struct leaving *leaving, enum err result) {
    struct place_leaving *l = CONTAINER_OF(leaving, struct place_leaving, leaving);
    l->x->user = (str){leaving->look.user, leaving->look.look.user_len};
    if (result == ERR_OK)
        reply_empty(l->x, 204);
    else
        queue_refuse(l->x, result);
}

void queue_delete_leave(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    struct token token;
    if (!queue_event_find(api, captures[0], captures[1], &event)) {
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
        return;
    }
    enum err refused = queue_token_check(api, x, queue_token_of(x, event.key), &event, &token);
    if (refused != ERR_OK) {
        queue_refuse(x, refused);
        return;
    }
    struct place_leaving *l = arena_new(&x->arena, sizeof *l);
    l->x = x;
    l->leaving.event_key = event.key;
    l->leaving.seq = token.seq;
    l->leaving.arena = &x->arena;
    l->leaving.done = on_left;
    leave_place(&api->reservations, &l->leaving);
}
