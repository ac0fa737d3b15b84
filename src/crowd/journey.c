/* The steps of a journey: what each one sends, and what its answer means. */
#include "crowd/journey.h"

#include <jansson.h>
#include <stdio.h>

#include "crowd/internal.h"

/* How often a user chooses other seats after somebody else has taken the chosen ones. */
#define TRIES_MAX 6
/* How many seats one user wants at most. */
#define SEATS_MAX 2
/* The part of a seat map that a user looks at. */
#define MAP_SEATS 1000
/* Before it looks again whether seats have come back, or opens its stream again. */
#define LOOK_AGAIN_MS 2000
/* Between two looks at an asynchronous request without a stream. */
#define RESULT_POLL_MS 1000
/* Before it chooses other seats. */
#define TRY_AGAIN_MS 200

#define USER_COOKIE "admitone_user="

enum journey_step {
    STEP_ENTER,
    STEP_QUEUE,
    STEP_EVENT,
    STEP_SEATS,
    STEP_RESERVE,
    STEP_RESULT,
    STEP_DECIDE,
    STEP_CONFIRM,
    STEP_LEAVE,
};

static struct user *user_of(struct client_request *r) {
    return CONTAINER_OF(r, struct user, request);
}

/* ---- requests ---- */

/* Behind the method and the path. */
static void write_headers(const struct user *u, struct buf *out) {
    buf_addf(
        out,
        " HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nUser-Agent: admitone-crowd/" ADMITONE_VERSION
        "\r\n",
        user_host(u), user_host(u));
    if (u->cookie[0] != '\0') buf_addf(out, "Cookie: %s\r\n", u->cookie);
    if (u->token[0] != '\0') buf_addf(out, "X-Queue-Token: %s\r\n", u->token);
}

static void write_end(struct buf *out, str body) {
    if (body.len > 0) buf_add(out, STR("Content-Type: application/json\r\n"));
    buf_addf(out, "Content-Length: %zu\r\n\r\n", body.len);
    buf_add(out, body);
}

static void write_get_end(struct buf *out) {
    buf_add(out, STR("\r\n"));
}

/* ---- answers ---- */

/* NULL: it is no JSON object. json_decref it. */
static json_t *json_of(str text) {
    json_t *json = text.len == 0 ? NULL : json_loadb(text.at, text.len, 0, NULL);
    if (json_is_object(json)) return json;
    json_decref(json);
    return NULL;
}

static str text_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return (str){json_string_value(value), json_string_length(value)};
}

static int64_t number_of(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}

/* What the answer about a place means. */
static enum outcome judge_place(struct user *u, const json_t *place) {
    str status = text_of(place, "status");
    if (str_eq(status, STR("ACTIVE"))) {
        user_enter_state(u, CROWD_ACTIVE);
        return OUTCOME_OK;
    }
    /* LEFT, EXPIRED, COMPLETED, NONE; or there is nothing left to wait for. */
    if (!str_eq(status, STR("WAITING")) || json_is_true(json_object_get(place, "soldOut")))
        return OUTCOME_REFUSED;
    if (u->state == CROWD_ARRIVING) user_enter_state(u, CROWD_WAITING);
    return OUTCOME_WAIT;
}

/* ---- enter ---- */

static void enter_write(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "POST /queue/%s/enter", user_options(u)->event);
    write_headers(u, out);
    buf_addf(out, "Idempotency-Key: %s\r\n", u->key);
    write_end(out, (str){0});
}

/* A random UUID, so that a repeated enter is of the same user, although it had no cookie yet. */
static enum outcome enter_begin(struct user *u) {
    if (u->key[0] == '\0')
        snprintf(u->key, sizeof u->key, "%08x-%04x-4%03x-8%03x-%06x%06x",
                 (unsigned)user_random(u, UINT32_MAX), (unsigned)user_random(u, 1U << 16),
                 (unsigned)user_random(u, 1U << 12), (unsigned)user_random(u, 1U << 12),
                 (unsigned)user_random(u, 1U << 24), (unsigned)user_random(u, 1U << 24));
    return user_ask(u, enter_write);
}

static void enter_keep_cookie(struct user *u, str cookies) {
    str one;
    while (str_split(&cookies, ';', &one)) {
        one = str_trim(one);
        if (str_starts(one, STR(USER_COOKIE))) str_copy(one, u->cookie, sizeof u->cookie);
    }
}

static enum outcome enter_answered(struct user *u, const struct answer *a) {
    if (a->status != 200 && a->status != 202) return OUTCOME_REFUSED;
    enter_keep_cookie(u, a->cookies);
    json_t *place = json_of(a->body);
    bool ok = str_copy(text_of(place, "entryToken"), u->token, sizeof u->token) &&
              u->token[0] != '\0' && u->cookie[0] != '\0';
    enum outcome outcome = ok ? judge_place(u, place) : OUTCOME_FAILED;
    json_decref(place);
    return outcome;
}

/* ---- wait ---- */

static void queue_write_stream(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "GET /queue/%s/subscribe/%s", user_options(u)->event, u->token);
    write_headers(u, out);
    write_get_end(out);
}

static void queue_write_status(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "GET /queue/%s/status", user_options(u)->event);
    write_headers(u, out);
    write_get_end(out);
}

static bool queue_on_event(struct client_request *r, const struct stream_event *e) {
    struct user *u = user_of(r);
    json_t *place = json_of(e->data);
    u->heard = place == NULL ? OUTCOME_FAILED : judge_place(u, place);
    json_decref(place);
    if (u->heard != OUTCOME_WAIT) return false;
    u->heard = OUTCOME_PENDING;
    return true;
}

static enum outcome queue_begin(struct user *u) {
    if (user_listen(u, queue_write_stream, queue_on_event)) return OUTCOME_PENDING;
    return user_ask(u, queue_write_status);
}

/* Of a stream that ended without news, or of a look at the place. */
static enum outcome queue_answered(struct user *u, const struct answer *a) {
    if (u->request.is_stream && (a->status == 200 || a->status == 204)) {
        u->delay_ms = LOOK_AGAIN_MS / 2 + (int64_t)user_random(u, LOOK_AGAIN_MS);
        return OUTCOME_WAIT;
    }
    if (a->status != 200) return OUTCOME_REFUSED;
    json_t *place = json_of(a->body);
    enum outcome outcome = place == NULL ? OUTCOME_FAILED : judge_place(u, place);
    json_decref(place);
    int64_t poll_ms = user_poll_ms(u);
    if (outcome == OUTCOME_WAIT)
        u->delay_ms = poll_ms * 3 / 4 + (int64_t)user_random(u, (uint64_t)poll_ms / 2);
    return outcome;
}

/* ---- look at the event ---- */

static void event_write(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "GET /events/%s", user_options(u)->event);
    write_headers(u, out);
    write_get_end(out);
}

static enum outcome event_begin(struct user *u) {
    return user_ask(u, event_write);
}

/* Whether seats of the section can be had by that strategy. */
static bool strategy_goes(str mode, str strategy) {
    if (strategy.len == 0 || str_eq(strategy, STR("queue"))) return true;
    if (!str_eq(mode, STR("seat"))) return str_eq(mode, strategy);
    return str_eq(strategy, STR("optimistic")) || str_eq(strategy, STR("pessimistic")) ||
           str_eq(strategy, STR("distributed-lock"));
}

static bool section_goes(const struct user *u, const json_t *section) {
    str strategy = str_of(user_options(u)->strategy);
    return str_eq(text_of(section, "status"), STR("open")) &&
           strategy_goes(text_of(section, "mode"), strategy);
}

/* Takes one of the sections that have free seats. *held: how many seats may come back. */
static const json_t *choose_section(struct user *u, const json_t *sections, int64_t *held) {
    const json_t *chosen = NULL;
    uint64_t seen = 0;
    *held = 0;
    for (size_t i = 0; i < json_array_size(sections); i++) {
        const json_t *section = json_array_get(sections, i);
        if (!section_goes(u, section)) continue;
        *held += number_of(section, "held");
        if (number_of(section, "available") <= 0) continue;
        seen++;
        if (user_random(u, seen) == 0) chosen = section;
    }
    return chosen;
}

static enum outcome choose(struct user *u, const json_t *event) {
    int64_t held;
    const json_t *section = choose_section(u, json_object_get(event, "sections"), &held);
    if (section == NULL) {
        u->delay_ms = LOOK_AGAIN_MS;
        return held > 0 ? OUTCOME_AGAIN : OUTCOME_REFUSED;
    }
    int64_t most = number_of(event, "maxPerUser");
    if (most > number_of(section, "available")) most = number_of(section, "available");
    if (most > SEATS_MAX) most = SEATS_MAX;
    if (most < 1 || !str_copy(text_of(section, "id"), u->section, sizeof u->section))
        return OUTCOME_FAILED;
    u->quantity = 1 + (uint32_t)user_random(u, (uint64_t)most);
    u->picks = user_random(u, 2) == 0;
    u->first_seat = 0;
    return OUTCOME_OK;
}

static enum outcome event_answered(struct user *u, const struct answer *a) {
    json_t *event = a->status == 200 ? json_of(a->body) : NULL;
    if (event == NULL) return a->status == 200 ? OUTCOME_FAILED : OUTCOME_REFUSED;
    enum outcome outcome = choose(u, event);
    json_decref(event);
    return outcome;
}

/* ---- look at the seats ---- */

static void seats_write(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "GET /events/%s/sections/%s/seats?form=runs&limit=%d", user_options(u)->event,
             u->section, MAP_SEATS);
    write_headers(u, out);
    write_get_end(out);
}

static enum outcome seats_begin(struct user *u) {
    return u->picks ? user_ask(u, seats_write) : OUTCOME_OK;
}

/* Seats beside each other, somewhere in one of the free runs; else any. */
static void choose_seats(struct user *u, const json_t *runs) {
    uint64_t seen = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        int64_t spare = number_of(run, "count") - u->quantity;
        if (!str_eq(text_of(run, "state"), STR("A")) || spare < 0) continue;
        seen++;
        if (user_random(u, seen) == 0)
            u->first_seat = number_of(run, "from") + (int64_t)user_random(u, (uint64_t)spare + 1);
    }
}

static enum outcome seats_answered(struct user *u, const struct answer *a) {
    json_t *map = a->status == 200 ? json_of(a->body) : NULL;
    if (map != NULL) choose_seats(u, json_object_get(map, "runs"));
    json_decref(map);
    return OUTCOME_OK;
}

/* ---- reserve ---- */

static bool is_queued(const struct user *u) {
    return str_eq(str_of(user_options(u)->strategy), STR("queue"));
}

static void reserve_write_body(const struct user *u, struct buf *out) {
    str id = str_of(user_options(u)->event);
    str type;
    str_split(&id, '/', &type);
    buf_addf(out, "{\"eventType\":\"%.*s\",\"eventId\":\"%.*s\",\"section\":\"%s\"", (int)type.len,
             type.at, (int)id.len, id.at, u->section);
    if (user_options(u)->strategy[0] != '\0' && !is_queued(u))
        buf_addf(out, ",\"strategy\":\"%s\"", user_options(u)->strategy);
    if (u->first_seat == 0) {
        buf_addf(out, ",\"quantity\":%u}", (unsigned)u->quantity);
        return;
    }
    buf_add(out, STR(",\"seats\":["));
    for (uint32_t i = 0; i < u->quantity; i++)
        buf_addf(out, "%s%lld", i == 0 ? "" : ",", (long long)u->first_seat + i);
    buf_add(out, STR("]}"));
}

static void reserve_write(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    struct buf body = {0};
    reserve_write_body(u, &body);
    buf_add(out, is_queued(u) ? STR("POST /api/v4/queue") : STR("POST /reservations"));
    write_headers(u, out);
    buf_addf(out, "Idempotency-Key: try-%u\r\n", (unsigned)u->tries);
    write_end(out, buf_str(&body));
    buf_deinit(&body);
}

static enum outcome reserve_begin(struct user *u) {
    return user_ask(u, reserve_write);
}

static enum outcome hold_begun(struct user *u, str reservation) {
    if (reservation.len == 0 || !str_copy(reservation, u->id, sizeof u->id)) return OUTCOME_FAILED;
    int64_t mean_ms = user_options(u)->think_ms;
    u->delay_ms = mean_ms / 2 + (int64_t)user_random(u, (uint64_t)mean_ms + 1);
    user_enter_state(u, CROWD_HOLDING);
    return OUTCOME_OK;
}

/* Seats that others were faster for. */
static enum outcome choose_again(struct user *u) {
    u->delay_ms = TRY_AGAIN_MS + (int64_t)user_random(u, TRY_AGAIN_MS);
    return ++u->tries < TRIES_MAX ? OUTCOME_AGAIN : OUTCOME_REFUSED;
}

static enum outcome reserve_answered(struct user *u, const struct answer *a) {
    if (a->status == 409 || a->status == 410) return choose_again(u);
    if (a->status != 201 && a->status != 202) return OUTCOME_REFUSED;
    json_t *json = json_of(a->body);
    enum outcome outcome = OUTCOME_FAILED;
    if (a->status == 201)
        outcome = hold_begun(u, text_of(json, "id"));
    else if (str_copy(text_of(json, "requestId"), u->id, sizeof u->id) && u->id[0] != '\0')
        outcome = OUTCOME_WAIT;
    json_decref(json);
    return outcome;
}

/* ---- the result of an asynchronous request ---- */

static void result_write_stream(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "GET /api/v4/subscribe/%s", u->id);
    write_headers(u, out);
    write_get_end(out);
}

static void result_write_status(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "GET /api/v4/status/%s", u->id);
    write_headers(u, out);
    write_get_end(out);
}

static enum outcome judge_result(struct user *u, str text) {
    json_t *request = json_of(text);
    str status = text_of(request, "status");
    enum outcome outcome = OUTCOME_FAILED;
    if (str_eq(status, STR("PENDING")) || str_eq(status, STR("PROCESSING")))
        outcome = OUTCOME_WAIT;
    else if (str_eq(status, STR("SUCCESS")))
        outcome = hold_begun(u, text_of(request, "reservationId"));
    else if (str_eq(status, STR("FAIL_SOLD_OUT")) || str_eq(status, STR("FAIL_CONFLICT")) ||
             str_eq(status, STR("FAIL_ALREADY_RESERVED")))
        outcome = choose_again(u);
    else if (str_starts(status, STR("FAIL")))
        outcome = OUTCOME_REFUSED;
    json_decref(request);
    return outcome;
}

static bool result_on_event(struct client_request *r, const struct stream_event *e) {
    struct user *u = user_of(r);
    u->heard = judge_result(u, e->data);
    if (u->heard != OUTCOME_WAIT) return false;
    u->heard = OUTCOME_PENDING;
    return true;
}

static enum outcome result_begin(struct user *u) {
    if (user_listen(u, result_write_stream, result_on_event)) return OUTCOME_PENDING;
    return user_ask(u, result_write_status);
}

static enum outcome result_answered(struct user *u, const struct answer *a) {
    bool stream_ended = u->request.is_stream && (a->status == 200 || a->status == 204);
    if (!stream_ended && a->status != 200) return OUTCOME_REFUSED;
    enum outcome outcome = stream_ended ? OUTCOME_WAIT : judge_result(u, a->body);
    if (outcome == OUTCOME_WAIT) u->delay_ms = RESULT_POLL_MS;
    return outcome;
}

/* ---- think, and buy ---- */

/* The user has thought: the step before has set the delay. */
static enum outcome decide_begin(struct user *u) {
    return (int64_t)user_random(u, 100) < user_buy_percent(u) ? OUTCOME_OK : OUTCOME_NO;
}

static void confirm_write(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "POST /reservations/%s/confirm", u->id);
    write_headers(u, out);
    write_end(out, (str){0});
}

static enum outcome confirm_begin(struct user *u) {
    return user_ask(u, confirm_write);
}

static enum outcome confirm_answered(struct user *u, const struct answer *a) {
    if (a->status != 200) return OUTCOME_REFUSED;
    user_enter_state(u, CROWD_BOUGHT);
    user_count_seats(u, u->quantity);
    return OUTCOME_OK;
}

/* ---- leave ---- */

static void leave_write(struct client_request *r, struct buf *out) {
    const struct user *u = user_of(r);
    buf_addf(out, "DELETE /queue/%s/leave", user_options(u)->event);
    write_headers(u, out);
    write_get_end(out);
}

/* Also gives back the seats that it holds. */
static enum outcome leave_begin(struct user *u) {
    if (u->state < CROWD_BOUGHT) user_enter_state(u, u->end);
    return u->token[0] == '\0' ? OUTCOME_OK : user_ask(u, leave_write);
}

static enum outcome leave_answered(struct user *u, const struct answer *a) {
    (void)u;
    (void)a;
    return OUTCOME_OK;
}

/* ---- the table ---- */

#define NEXT(ok, wait, again)                                                                      \
    {                                                                                              \
        [OUTCOME_OK] = (ok), [OUTCOME_WAIT] = (wait), [OUTCOME_AGAIN] = (again),                   \
        [OUTCOME_NO] = STEP_LEAVE, [OUTCOME_REFUSED] = STEP_LEAVE, [OUTCOME_FAILED] = STEP_LEAVE,  \
    }

static const struct step journey_steps[] = {
    /*                                                          OK            WAIT  AGAIN */
    [STEP_ENTER] = {.name = "enter",
                    .begin = enter_begin,
                    .answered = enter_answered,
                    .next = NEXT(STEP_EVENT, STEP_QUEUE, STEP_LEAVE)},
    [STEP_QUEUE] = {.name = "queue",
                    .begin = queue_begin,
                    .answered = queue_answered,
                    .next = NEXT(STEP_EVENT, STEP_QUEUE, STEP_LEAVE)},
    [STEP_EVENT] = {.name = "event",
                    .begin = event_begin,
                    .answered = event_answered,
                    .next = NEXT(STEP_SEATS, STEP_LEAVE, STEP_EVENT)},
    [STEP_SEATS] = {.name = "seats",
                    .begin = seats_begin,
                    .answered = seats_answered,
                    .next = NEXT(STEP_RESERVE, STEP_LEAVE, STEP_LEAVE)},
    [STEP_RESERVE] = {.name = "reserve",
                      .begin = reserve_begin,
                      .answered = reserve_answered,
                      .next = NEXT(STEP_DECIDE, STEP_RESULT, STEP_EVENT)},
    [STEP_RESULT] = {.name = "result",
                     .begin = result_begin,
                     .answered = result_answered,
                     .next = NEXT(STEP_DECIDE, STEP_RESULT, STEP_EVENT)},
    [STEP_DECIDE] = {.name = "decide",
                     .begin = decide_begin,
                     .next = NEXT(STEP_CONFIRM, STEP_LEAVE, STEP_LEAVE)},
    [STEP_CONFIRM] = {.name = "confirm",
                      .begin = confirm_begin,
                      .answered = confirm_answered,
                      .next = NEXT(STEP_END, STEP_LEAVE, STEP_LEAVE)},
    [STEP_LEAVE] = {.name = "leave",
                    .begin = leave_begin,
                    .answered = leave_answered,
                    .is_parting = true,
                    .next = {STEP_END, STEP_END, STEP_END, STEP_END, STEP_END, STEP_END}},
};

const struct scenario scenario_journey = {
    .name = "journey", .steps = journey_steps, .parting = STEP_LEAVE};
