/* /queue and /gate: entering the waiting room, asking for the position, passing the gate, leaving.
 * Each request is one struct that lives in its arena from the handler to the answer. */
#include <ctype.h>
#include <stdio.h>

#include "api/freshness.h"
#include "api/json_in.h"
#include "api/queue_enter.h"
#include "api/users.h"
#include "base/clock.h"
#include "base/list.h"
#include "service/leave.h"

/* ---- enter ---- */

/* The fields of the body of an enter. */
struct enter_body {
    str user; /* `at` NULL: not named */
    int64_t lane;
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
};

#define BODY(member) offsetof(struct enter_body, member)
static const struct json_field enter_fields[] = {
    {"userId", JSON_KIND_USER, 0, 0, 0, 0, 0},
    {"lane", JSON_KIND_I64, BODY(lane), 0, LANES - 1, 0, 0},
    {0},
};
static const struct json_field token_fields[] = {
    {"userId", JSON_KIND_USER, 0, 0, 0, 0, 0},
    {"lane", JSON_KIND_I64, BODY(lane), 0, LANES - 1, 0, 0},
    {"eventType", JSON_KIND_NAME, BODY(type), 1, EVENT_TYPE_BYTES_MAX, 0, 0},
    {"eventId", JSON_KIND_NAME, BODY(id), 1, EVENT_ID_BYTES_MAX, 0, 0},
    {0},
};

static bool read_simple_body(struct exchange *x, const struct json_field *fields,
                             struct enter_body *out) {
    struct json_problem problem;
    json_t *user = NULL;
    *out = (struct enter_body){.lane = -1};
    bool ok = json_read_simple(x, fields, out, &user) &&
              (user == NULL || user_from_json(x, user, &out->user, &problem));
    json_decref(user);
    return ok;
}

/* A user who is known without userId needs no body. False: the problem has been answered. */
static bool read_body(struct exchange *x, const struct json_field *fields, struct enter_body *out) {
    if (read_simple_body(x, fields, out)) return true;
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

/* Only a key of the shop or its assertion chooses another lane than the default. */
static bool choose_lane(struct exchange *x, const struct requester *who, int64_t wanted,
                        unsigned *lane) {
    *lane = who->lane >= 0 ? (unsigned)who->lane : LANE_DEFAULT;
    if (wanted < 0 || wanted == (int64_t)*lane) return true;
    if (!who->shop) {
        reply_problem(
            x, ERR_LANE_NOT_ALLOWED,
            "Only a key of the shop or a signed assertion may choose a lane; yours is %u.", *lane);
        return false;
    }
    *lane = (unsigned)wanted;
    return true;
}

/* A place before others is an act of the key, which can be looked up. */
static void note_lane(struct enter_request *e) {
    struct audit_note *note = arena_new(&e->x->arena, sizeof *note);
    str subject = admin_event_subject(e->x, str_of(e->event.type), str_of(e->event.id));
    *note = admin_note(e->x, "queue.enter", subject);
    e->room.note = note;
}

static void queue_take_place(struct api *api, struct exchange *x, const struct queue_event *event,
                             const struct enter_body *body, bool as_token) {
    struct enter_request *e = arena_new(&x->arena, sizeof *e);
    if (!fresh_rules(api, x)) return;
    if (!users_identify(api, x, body->user, &e->requester)) return;
    if (!choose_lane(x, &e->requester, body->lane, &e->room.enter.lane)) return;
    enter_request_init(e, api, x);
    e->event = *event;
    if (e->requester.shop && e->room.enter.lane != LANE_DEFAULT) note_lane(e);
    e->as_token = as_token;
    place_take(e);
}

void queue_post_enter(struct api *api, struct exchange *x, const str *captures) {
    struct enter_body body;
    struct queue_event event;
    if (!queue_event_find(api, captures[0], captures[1], &x->arena, &event))
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
    else if (read_body(x, enter_fields, &body))
        queue_take_place(api, x, &event, &body, false);
}

/* 0: there is none, or several. */
static int64_t only_event(struct api *api, bool with_drafts) {
    int64_t now_ms = clock_wall_ms();
    int64_t key = 0;
    bool is_only = true;
    const struct event *e;
    catalogue_read_lock(api->events.catalogue);
    for (size_t at = 0; is_only && (e = catalogue_at(api->events.catalogue, at)) != NULL; at++) {
        if (!with_drafts && !event_is_public(e, now_ms)) continue;
        is_only = key == 0;
        key = e->key;
    }
    catalogue_read_unlock(api->events.catalogue);
    return is_only ? key : 0;
}

/* The event that is meant when none is named: the configured one, or the only public one. */
static bool find_default(struct api *api, struct arena *a, struct queue_event *out) {
    str id = api->default_event;
    str type;
    if (id.len > 0) return str_split(&id, '/', &type) && queue_event_find(api, type, id, a, out);
    return queue_event_find_key(api, only_event(api, false), a, out);
}

/* The event whose cookie is read when none is named. A user may have a place in a draft that was
 * public before. */
static bool find_default_of_cookie(struct api *api, struct arena *a, struct queue_event *out) {
    if (find_default(api, a, out)) return true;
    return api->default_event.len == 0 && queue_event_find_key(api, only_event(api, true), a, out);
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
    } else if (names_type
                   ? !queue_event_find(api, str_of(body.type), str_of(body.id), &x->arena, &event)
                   : !find_default(api, &x->arena, &event)) {
        str name = names_type ? event_path(str_of(body.type), str_of(body.id), path) : STR("");
        if (!fresh_absence(api, x, name)) return;
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s",
                      names_type ? "GET /events lists the events that exist."
                                 : "Send eventType and eventId: no default event is set "
                                   "(queue.default_event), and there are no events or several.");
    } else {
        queue_take_place(api, x, &event, &body, true);
    }
}

/* ---- status ---- */

static void queue_on_status(struct place_look *room, enum err result) {
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

static void queue_ask_status(struct api *api, struct exchange *x, const struct queue_event *event,
                             str token, bool with_expires_in) {
    struct place_query *q = arena_new(&x->arena, sizeof *q);
    enum err refused = place_query_init(q, api, x, event, token);
    if (refused != ERR_OK) {
        queue_refuse(x, refused);
        return;
    }
    q->with_expires_in = with_expires_in;
    q->room.done = queue_on_status;
    waiting_room_look(&api->room, &q->room);
}

void queue_get_status(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    if (queue_event_find(api, captures[0], captures[1], &x->arena, &event))
        queue_ask_status(api, x, &event, queue_token_of(x, event.key), false);
    else
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
}

static void refuse_unknown_key(struct api *api, struct exchange *x, int64_t event_key) {
    char name[32];
    int len = snprintf(name, sizeof name, "event key %lld", (long long)event_key);
    if (fresh_absence(api, x, (str){name, (size_t)len})) queue_refuse(x, ERR_EVENT_NOT_FOUND);
}

/* The token names its event; only for a cookie the default event must be known. */
void queue_get_own_status(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct token token;
    struct queue_event event;
    str text = queue_token_of(x, 0);
    if (text.at == NULL && find_default_of_cookie(api, &x->arena, &event))
        text = queue_token_of(x, event.key);
    enum err refused = queue_token_read(exchange_context(x), text, &token);
    bool exists =
        refused == ERR_OK && queue_event_find_key(api, token.event_key, &x->arena, &event);
    if (refused == ERR_OK && !exists)
        refused = queue_token_judge(exchange_context(x), text, NULL, &token);
    if (exists)
        queue_ask_status(api, x, &event, text, true);
    else if (refused != ERR_OK)
        queue_refuse(x, refused);
    else
        refuse_unknown_key(api, x, token.event_key);
}

/* ---- the gate ---- */

/* The part of a URL that a proxy asks about, so that the user can come back to it. */
#define ASKED_BYTES_MAX 2048

struct gate_query {
    struct place_query place;
    str asked; /* the path and the query; empty: the proxy does not say */
};

static str asked_of(const struct exchange *x) {
    str asked = http_header(&x->request, STR("X-Original-URI"));
    if (asked.len == 0) asked = http_header(&x->request, STR("X-Forwarded-Uri"));
    bool is_path = asked.len > 0 && asked.len <= ASKED_BYTES_MAX && asked.at[0] == '/';
    return is_path ? asked : (str){NULL, 0};
}

static void add_percent_encoded(struct buf *out, str text) {
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        if (isalnum((unsigned char)c) || strchr("-._~/", c) != NULL)
            buf_add_char(out, c);
        else
            buf_addf(out, "%%%02X", (unsigned char)c);
    }
}

/* A user who may not pass is sent to the waiting room's page. */
static void point_to_room(struct exchange *x, const struct queue_event *event, str asked) {
    struct buf where = {0};
    buf_addf(&where, "/e/%s/%s", event->type, event->id);
    if (asked.len > 0) {
        buf_add(&where, STR("?rd="));
        add_percent_encoded(&where, asked);
    }
    reply_header(x, STR("Location"), buf_str(&where));
    buf_deinit(&where);
}

static void queue_on_gate(struct place_look *room, enum err result) {
    struct gate_query *g = CONTAINER_OF(room, struct gate_query, place.room);
    struct exchange *x = g->place.x;
    if (result == ERR_OK) x->user = (str){room->user, room->look.user_len};
    if (result != ERR_OK) {
        queue_refuse(x, result);
    } else if (room->item.place.status == ENTRY_ACTIVE) {
        reply_empty(x, 204);
    } else {
        str status = entry_status_words[room->item.place.status];
        point_to_room(x, &g->place.event, g->asked);
        reply_problem(x, ERR_NOT_ACTIVE, "The entry is %.*s; only ACTIVE entries pass.",
                      (int)status.len, status.at);
    }
}

void queue_get_gate(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    if (!queue_event_find(api, captures[0], captures[1], NULL, &event)) {
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
        return;
    }
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    struct gate_query *g = arena_new(&x->arena, sizeof *g);
    str asked = asked_of(x);
    enum err refused = place_query_init(&g->place, api, x, &event, queue_token_of(x, event.key));
    if (refused != ERR_OK) {
        point_to_room(x, &event, asked);
        queue_refuse(x, refused);
        return;
    }
    if (asked.len > 0) g->asked = arena_copy(&x->arena, asked);
    g->place.room.done = queue_on_gate;
    waiting_room_look(&api->room, &g->place.room);
}

/* ---- leave ---- */

struct leave_request {
    struct place_leave leave;
    struct exchange *x;
};

static void queue_on_left(struct place_leave *leave, enum err result) {
    struct leave_request *l = CONTAINER_OF(leave, struct leave_request, leave);
    l->x->user = (str){leave->look.user, leave->look.look.user_len};
    if (result == ERR_OK)
        reply_empty(l->x, 204);
    else
        queue_refuse(l->x, result);
}

void queue_delete_leave(struct api *api, struct exchange *x, const str *captures) {
    struct queue_event event;
    struct token token;
    if (!queue_event_find(api, captures[0], captures[1], NULL, &event)) {
        queue_refuse(x, ERR_EVENT_NOT_FOUND);
        return;
    }
    const struct api_worker *w = exchange_context(x);
    enum err refused = queue_token_check(api, x, queue_token_of(x, event.key), &event, &token);
    if (refused == ERR_OK && users_come_from_elsewhere(api, x)) refused = ERR_FOREIGN_ORIGIN;
    if (refused != ERR_OK) {
        queue_refuse(x, refused);
        return;
    }
    struct leave_request *l = arena_new(&x->arena, sizeof *l);
    l->x = x;
    l->leave.event_key = event.key;
    l->leave.seq = token.seq;
    l->leave.proof = (struct place_proof){w->tokens, token.user_hash};
    l->leave.arena = &x->arena;
    l->leave.done = queue_on_left;
    leave_place(&api->reservations, &l->leave);
}
