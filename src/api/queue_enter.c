/* Takes a place for a request and answers with it, or with the reason why there is none. */
#include "api/queue_enter.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/list.h"

str place_token(struct enter_request *e, int64_t now_ms, char out[TOKEN_TEXT_BYTES]) {
    str token = queue_token_sign(exchange_context(e->x), &e->event, e->requester.user,
                                 &e->room.enter.place, now_ms, out);
    users_set_cookie(e->x, &e->requester);
    /* In front of browsers; a shop's back end keeps it itself. */
    if (e->api->users_auth != USERS_TRUSTED || e->requester.is_anonymous)
        queue_token_set_cookie(e->x, &e->event, token);
    return token;
}

static void queue_enter_on_entered(struct place_enter *room, enum err result);

void enter_request_init(struct enter_request *e, struct api *api, struct exchange *x) {
    e->x = x;
    e->api = api;
    if (api->arrivals.limits != NULL && users_key(x) == NULL) e->client = arrival_client(api, x);
}

/* A client that may take no new place gets the one that its user has. */
void place_take(struct enter_request *e) {
    e->limited = arrivals_take(&e->api->arrivals, &e->client, LIMIT_PLACES, 1);
    e->room.enter.only_there = e->limited.wait_ns > 0;
    e->room.enter.op.event_key = e->event.key;
    e->room.enter.user = e->requester.user;
    e->room.done = queue_enter_on_entered;
    waiting_room_enter(&e->api->room, &e->room);
}

static void queue_enter_answer(struct enter_request *e) {
    const struct place *place = &e->room.enter.place;
    int64_t now_ms = clock_wall_ms();
    char token[TOKEN_TEXT_BYTES];
    struct queue_answer answer = {.event = &e->event,
                                  .token = place_token(e, now_ms, token),
                                  .user = e->requester.user,
                                  .place = place,
                                  .waiting = place->waiting,
                                  .reserving = e->room.enter.reserving,
                                  .seats = e->room.enter.seats,
                                  .has_stock = e->room.enter.has_stock,
                                  .stays_ended = e->room.enter.stays_ended,
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

static void queue_enter_refuse_full(struct enter_request *e) {
    char max[24];
    snprintf(max, sizeof max, "%lld", (long long)e->event.rules.max_waiting);
    e->x->retry_after_s = e->event.rules.entry_interval_s;
    struct problem_member members[] = {{STR("entryStatus"), STR("\"REJECTED\"")},
                                       {STR("maxWaiting"), str_of(max)}};
    reply_problem_with(e->x, ERR_QUEUE_FULL, members, 2, "%s",
                       "The queue has reached maxWaiting. Try again after Retry-After seconds.");
}

static bool queue_enter_shows_event(const struct enter_request *e) {
    catalogue_read_lock(e->api->events.catalogue);
    const struct event *event = catalogue_find_key(e->api->events.catalogue, e->event.key);
    bool shows = event != NULL && api_shows(e->x, event);
    catalogue_read_unlock(e->api->events.catalogue);
    return shows;
}

/* Of a draft, the answer shows only that the name is in use: it is the same with and without an
 * opening time. */
static void queue_enter_refuse_not_open(struct enter_request *e) {
    if (!queue_enter_shows_event(e)) {
        reply_problem(e->x, ERR_NOT_OPEN, "%s", "The event is not open yet.");
        return;
    }
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

static void queue_enter_refuse_limit(struct enter_request *e) {
    e->x->problem_status = 403;
    reply_problem(e->x, ERR_LIMIT_EXCEEDED, "%s",
                  "The user has maxPerUser seats of this event, and could not hold more.");
}

/* Whether a new place was taken, or may have been. */
static bool queue_enter_has_taken(const struct enter_request *e, enum err result) {
    if (result == ERR_OK) return e->room.enter.outcome == ENTER_TAKEN;
    return result == ERR_LEDGER_UNKNOWN || result == ERR_HOT_UNKNOWN;
}

static void queue_enter_on_entered(struct place_enter *room, enum err result) {
    struct enter_request *e = CONTAINER_OF(room, struct enter_request, room);
    if (e->limited.wait_ns == 0 && !queue_enter_has_taken(e, result))
        arrivals_give_back(&e->api->arrivals, &e->client, LIMIT_PLACES, 1);
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
            queue_enter_answer(e);
        return;
    case ENTER_FULL:
        queue_enter_refuse_full(e);
        return;
    case ENTER_NOT_OPEN:
        queue_enter_refuse_not_open(e);
        return;
    case ENTER_CLOSED:
        reply_problem(e->x, ERR_CLOSED, "%s",
                      "The queue takes no new users. Users who already wait keep their places.");
        return;
    case ENTER_SOLD:
    case ENTER_LIMIT:
        if (e->on_useless != NULL)
            e->on_useless(e);
        else
            queue_enter_refuse_limit(e);
        return;
    case ENTER_NONE:
        arrival_refuse(e->x, &e->client, LIMIT_PLACES, &e->limited);
        return;
    }
    assert(false && "every outcome has its answer");
}
