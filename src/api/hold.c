/* POST /reservations and the paths of single strategies: one request for seats, from its body to
 * its answer. It is one struct that lives in the request's arena. With the strategy `queue` it is
 * accepted instead of held, and decided later (service/requests.h). */
#include <assert.h>

#include "api/freshness.h"
#include "api/queue_enter.h"
#include "api/reservation_json.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/seat_id.h"
#include "core/sha256.h"

#define IDEMPOTENCY_KEY_BYTES_MAX 255
/* How many places one request takes at the most, when each ends before seats are claimed. */
#define PLACES_MAX 3

struct hold_request {
    struct hold hold;
    struct exchange *x;
    struct api *api;
    struct queue_event event;
    bool auto_enter;
    bool is_queued;    /* the strategy is `queue`: hold.strategy is the one that decides later */
    bool is_active;    /* its place was looked at and is ACTIVE */
    enum err not_sold; /* CLOSED, SECTION_CLOSED; OK: the section is on sale */
    bool may_enter;    /* its user is proven as entering the queue requires */
    int64_t capacity;
    int64_t max_per_user;
    struct hold_body body;
    struct section_names names;
    struct idempotency idempotency;
    struct enter_request *enter; /* where the event has autoEnter */
    int places;                  /* that were taken or found for this request, by autoEnter */
    struct repair_waiter repair;
    uint64_t user_hash; /* of the token that names the place */
};
/* With all else that is allocated for a request, so that the arena keeps its chunk for the next. */
static_assert(sizeof(struct hold_request) <= ARENA_CHUNK_BYTES * 3 / 4, "it fits the usual chunk");

/* The steps that a request goes through, and the answers that it waits for. */
static void hold_request_identify(struct hold_request *q);
static void on_user_looked(struct place_look *look, enum err result);
static void with_user(struct hold_request *q, str user);
static void hold_request_on_key_read(struct hold *h, enum err result);
static void look_at_first_request(struct hold_request *q);
static void on_first_request_looked(struct requests_look *look, enum err result);
static void answer_accepted(struct hold_request *q, const struct uuid *id, int64_t ahead,
                            bool is_new);
static void hold_request_begin(struct hold_request *q);
static void on_place_looked(struct place_look *look, enum err result);
static void enter_first(struct hold_request *q, bool may);
static void on_active(struct enter_request *e);
static void on_useless(struct enter_request *e);
static void on_queued_place_looked(struct place_look *look, enum err result);
static void hold_request_run(struct hold_request *q);
static void hold_request_accept(struct hold_request *q);
static void hold_request_on_accepted(struct request_acceptance *a);
static void hold_request_on_held(struct hold *h, enum err result);
static void on_place_repaired(struct repair_waiter *repair);
static enum err judge_repeated(struct reservation_action *d, const struct reservation *r);
static void on_repeated_found(struct reservation_action *d, enum err result);
static void answer_held(struct hold_request *q);
static void answer_hold(struct hold_request *q, enum err result);

/* ---- refusals ---- */

static const char *what_to_do(const struct hold_request *q, enum err e) {
    switch (e) {
    case ERR_NOT_ACTIVE:
        return "Only ACTIVE users may hold seats. GET /queue/{type}/{id}/status shows the "
               "position.";
    case ERR_SOLD_OUT:
        return "No seat was held. Fewer seats, or seats in another section, may still be free.";
    case ERR_LIMIT_EXCEEDED:
        return "No seat was held. The event's maxPerUser counts held and confirmed seats.";
    case ERR_HOLD_LIMIT:
        return "No seat was held. The event's maxHoldsPerStay counts the holds of this place; "
               "enter "
               "again for another one.";
    case ERR_CONFLICT:
        return "No seat was held: other requests took the seats at each attempt. Try again.";
    case ERR_LOCK_TIMEOUT:
        return "No seat was held: other requests held the lock until the wait timed out. Try "
               "again.";
    case ERR_LOCK_LOST:
        return "No seat was held: the lock expired before the write. Try again.";
    case ERR_CLOSED:
        return "The event sells no seats now. Held seats can still be confirmed.";
    case ERR_SECTION_NOT_FOUND:
        return "GET /events/{type}/{id} lists the event's sections.";
    case ERR_SECTION_CLOSED:
        return "The section sells no seats now.";
    case ERR_IDEMPOTENCY_MISMATCH:
        return "Use a new Idempotency-Key for another request.";
    case ERR_STRATEGY_NOT_ALLOWED:
        return q->hold.terms.mode == SECTION_MODE_SEAT
                   ? "This section allows optimistic, pessimistic and distributed-lock."
                   : "This section allows one strategy, which is its mode; omit strategy, or send "
                     "that one.";
    default:
        return err_effect(e);
    }
}

/* With the seats that could not be held, where the request named seats. */
static void refuse_seats(struct hold_request *q, enum err e) {
    struct buf list = {0};
    struct json_out j;
    json_out_init(&j, &list);
    json_out_array(&j, STR(""));
    for (size_t i = 0; i < q->hold.refused_count; i++)
        json_out_i64(&j, STR(""), q->hold.refused[i]);
    json_out_array_end(&j);
    json_out_done(&j);
    struct buf again = {0};
    json_out_init(&j, &again);
    json_out_time(&j, STR(""), q->hold.free_at_ms);
    json_out_done(&j);
    bool is_given_up = e == ERR_SEAT_GIVEN_UP;
    struct problem_member members[] = {{STR("seats"), buf_str(&list)},
                                       {STR("availableAt"), buf_str(&again)}};
    reply_problem_with(q->x, e, members, is_given_up ? 2 : 1, "No seat was held. %s",
                       is_given_up ? "The user has held the seats listed in `seats` and not bought "
                                     "them, so others get them first, until `availableAt`."
                       : e == ERR_SEAT_TAKEN ? "The seats listed in `seats` are taken."
                                             : "The seats listed in `seats` do not exist.");
    buf_deinit(&list);
    buf_deinit(&again);
}

static void hold_request_refuse(struct hold_request *q, enum err e) {
    if (e == ERR_SEAT_TAKEN || e == ERR_SEAT_NOT_FOUND || e == ERR_SEAT_GIVEN_UP)
        refuse_seats(q, e);
    else if (e == ERR_EVENT_NOT_FOUND || err_status(e) == 401)
        queue_refuse(q->x, e);
    else
        reply_problem(q->x, e, "%s", what_to_do(q, e));
}

static void refuse_seat_id(struct hold_request *q) {
    reply_problem(q->x, ERR_SEAT_NOT_FOUND, "%s",
                  "No seat has this seatId. firstSeatId in the seat map is the id of seat 1.");
}

/* ---- the body ---- */

/* False: the problem has been answered. */
static bool hold_request_read_key(struct hold_request *q, str route) {
    str key = http_header(&q->x->request, STR("Idempotency-Key"));
    if (key.at == NULL) return true;
    if (key.len == 0 || key.len > IDEMPOTENCY_KEY_BYTES_MAX || !str_is_text(key) ||
        http_header_count(&q->x->request, STR("Idempotency-Key")) > 1) {
        reply_problem(q->x, ERR_BAD_REQUEST,
                      "Idempotency-Key must be sent once, with 1 to %d bytes.",
                      IDEMPOTENCY_KEY_BYTES_MAX);
        return false;
    }
    struct idempotency *i = &q->idempotency;
    unsigned char digest[SHA256_BYTES];
    static_assert(SHA256_BYTES == IDEMPOTENCY_DIGEST_BYTES, "the same digest");
    i->route = route;
    i->key = arena_copy(&q->x->arena, key);
    sha256_of(q->x->request.body, i->digest);
    struct buf scope = {0};
    buf_add(&scope, route);
    buf_add_char(&scope, '\n');
    buf_add(&scope, key);
    sha256_of(buf_str(&scope), digest);
    buf_deinit(&scope);
    memcpy(&q->hold.key.key, digest, sizeof q->hold.key.key);
    memcpy(&q->hold.key.request, i->digest, sizeof q->hold.key.request);
    if (q->hold.key.key == 0) q->hold.key.key = 1; /* 0 is none */
    q->hold.idempotency = i;
    return true;
}

static const struct event *hold_request_find_event(struct hold_request *q,
                                                   const struct section **section) {
    struct catalogue *c = q->api->events.catalogue;
    const struct hold_body *b = &q->body;
    int64_t section_key = 0;
    uint32_t seat = 0;
    *section = NULL;
    if (b->type[0] == '\0') {
        bool is_id = seat_id_split(b->seat_id, &section_key, &seat);
        return is_id ? catalogue_find_section(c, section_key, section) : NULL;
    }
    const struct event *e = catalogue_find(c, str_of(b->type), str_of(b->id));
    if (e != NULL) *section = event_section(e, str_of(b->section));
    return e;
}

static void copy_terms(struct hold_request *q, const struct event *e, const struct section *s) {
    hold_terms_copy(&q->hold.terms, e, s);
    memcpy(q->names.type, e->type, sizeof q->names.type);
    memcpy(q->names.id, e->id, sizeof q->names.id);
    memcpy(q->names.section, s->id, sizeof q->names.section);
    q->auto_enter = e->auto_enter;
    if (!event_state_sells(event_effective_state(e, clock_wall_ms())))
        q->not_sold = ERR_CLOSED;
    else if (!section_status_sells(s->status))
        q->not_sold = ERR_SECTION_CLOSED;
    q->capacity = s->capacity;
    q->max_per_user = e->max_per_user;
}

/* The event's name, as the request gives it. */
static str asked_event(struct hold_request *q) {
    const struct hold_body *b = &q->body;
    char *text = arena_new(&q->x->arena, EVENT_PATH_BYTES);
    if (b->type[0] != '\0') return event_path(str_of(b->type), str_of(b->id), text);
    int len = snprintf(text, EVENT_PATH_BYTES, "seatId %lld", (long long)b->seat_id);
    return (str){text, (size_t)len};
}

/* Users who entered before an event became a draft know its sections. */
static bool has_token_of_event(const struct hold_request *q) {
    struct token token;
    str text = queue_token_of(q->x, q->event.key);
    return queue_token_judge(exchange_context(q->x), text, &q->event, &token) == ERR_OK;
}

/* Shows nothing of a draft, whatever section, seat or strategy is asked for. */
static void refuse_draft(struct hold_request *q) {
    if (q->body.type[0] == '\0')
        refuse_seat_id(q);
    else
        hold_request_refuse(q, ERR_CLOSED);
}

/* Copies what the section sells, and on what terms. False: the problem has been answered. */
static bool find_terms(struct hold_request *q) {
    const struct section *section;
    catalogue_read_lock(q->api->events.catalogue);
    const struct event *e = hold_request_find_event(q, &section);
    bool is_hidden = e != NULL && !api_shows(q->x, e);
    if (e != NULL) queue_event_copy(e, &q->x->arena, &q->event);
    if (e != NULL && section != NULL) copy_terms(q, e, section);
    catalogue_read_unlock(q->api->events.catalogue);
    if (is_hidden && !has_token_of_event(q)) {
        if (fresh_rules(q->api, q->x)) refuse_draft(q);
        return false;
    }
    if (section != NULL) return fresh_rules(q->api, q->x);
    if (e == NULL ? !fresh_absence(q->api, q->x, asked_event(q)) : !fresh_rules(q->api, q->x))
        return false;
    if (q->body.type[0] == '\0')
        refuse_seat_id(q);
    else
        hold_request_refuse(q, e == NULL ? ERR_EVENT_NOT_FOUND : ERR_SECTION_NOT_FOUND);
    return false;
}

static bool hold_request_choose_seats(struct hold_request *q) {
    struct hold *h = &q->hold;
    const struct hold_body *b = &q->body;
    int64_t section_key = 0;
    h->count = (uint32_t)(b->seats != NULL ? (int64_t)b->seat_count : b->quantity);
    h->named = b->seats;
    if (b->seat_id == 0) return true;
    uint32_t *seat = arena_new(&q->x->arena, sizeof *seat);
    h->count = 1;
    h->named = seat;
    if (seat_id_split(b->seat_id, &section_key, seat) && section_key == h->terms.section_key)
        return true;
    refuse_seat_id(q);
    return false;
}

/* The strategy that decides later: the one that the body names, or the section's default. */
static bool choose_queued_strategy(struct hold_request *q) {
    int named = q->body.strategy == STRATEGY_QUEUE ? -1 : q->body.strategy;
    enum section_mode mode = q->hold.terms.mode;
    q->hold.strategy = named >= 0 ? (enum strategy)named : strategy_default(mode);
    if (strategy_fits(mode, q->hold.strategy)) return true;
    hold_request_refuse(q, ERR_STRATEGY_NOT_ALLOWED);
    return false;
}

/* `fixed`: the strategy of the path; -1: that of the request, or the section's default. */
static bool choose_strategy(struct hold_request *q, int fixed) {
    int named = q->body.strategy;
    q->is_queued = fixed == STRATEGY_QUEUE || (fixed < 0 && named == STRATEGY_QUEUE);
    if (q->is_queued) return choose_queued_strategy(q);
    if (fixed >= 0 && named >= 0 && named != fixed) {
        reply_problem(q->x, ERR_INVALID_FIELD, "strategy: this path always uses %s.",
                      strategy_words[fixed].at);
        return false;
    }
    int wanted = fixed >= 0 ? fixed : named;
    enum section_mode mode = q->hold.terms.mode;
    q->hold.strategy = wanted >= 0 ? (enum strategy)wanted : strategy_default(mode);
    if (strategy_fits(mode, q->hold.strategy)) return true;
    hold_request_refuse(q, ERR_STRATEGY_NOT_ALLOWED);
    return false;
}

static void hold_request_post(struct api *api, struct exchange *x, str route, int fixed) {
    struct hold_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->api = api;
    q->hold.arena = &x->arena;
    if (hold_body_read(x, fixed >= 0, &q->body) && hold_request_read_key(q, route) &&
        find_terms(q) && hold_request_choose_seats(q) && choose_strategy(q, fixed))
        hold_request_identify(q);
}

void reservations_post(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    hold_request_post(api, x, STR("/reservations"), -1);
}

void optimistic_post(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    hold_request_post(api, x, STR("/api/v1/optimistic"), STRATEGY_OPTIMISTIC);
}

void pessimistic_post(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    hold_request_post(api, x, STR("/api/v2/pessimistic"), STRATEGY_PESSIMISTIC);
}

void distributed_lock_post(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    hold_request_post(api, x, STR("/api/v3/distributed-lock"), STRATEGY_DISTRIBUTED_LOCK);
}

void request_post(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    hold_request_post(api, x, STR(REQUEST_ROUTE), STRATEGY_QUEUE);
}

/* ---- the user ---- */

/* A look at the request's place. */
struct request_place_look {
    struct place_look look;
    struct hold_request *request;
};

static struct hold_request *request_of(struct place_look *look) {
    return CONTAINER_OF(look, struct request_place_look, look)->request;
}

static void look_at_place(struct hold_request *q,
                          void (*done)(struct place_look *look, enum err result)) {
    const struct api_worker *w = exchange_context(q->x);
    struct request_place_look *l = arena_new(&q->x->arena, sizeof *l);
    l->request = q;
    l->look.look.op.event_key = q->event.key;
    l->look.item.seq = q->hold.entry_seq;
    l->look.proof = (struct place_proof){w->tokens, q->user_hash};
    l->look.done = done;
    waiting_room_look(&q->api->room, &l->look);
}

/* For an event with autoEnter: whether the request may take a place. With a token it needs none,
 * and the token alone takes no new one where an enter would need more than that. True: go on with
 * the token. */
static bool enter_may_follow(struct hold_request *q, bool has_token) {
    struct json_problem problem;
    q->enter = arena_new(&q->x->arena, sizeof *q->enter);
    enter_request_init(q->enter, q->api, q->x);
    struct requester *requester = &q->enter->requester;
    bool is_known = users_know(q->api, q->x, q->body.user, requester, &problem);
    q->may_enter = is_known;
    if (has_token) {
        q->may_enter = q->api->users_auth == USERS_TRUSTED || (is_known && !requester->fresh);
        return true;
    }
    if (is_known)
        with_user(q, requester->user);
    else
        users_refuse(q->x, &problem);
    return false;
}

/* Finds the user: that of the token's place. An event with autoEnter needs no token. */
static void hold_request_identify(struct hold_request *q) {
    struct exchange *x = q->x;
    struct token token;
    str text = queue_token_of(x, q->event.key);
    if (q->auto_enter && !enter_may_follow(q, queue_token_is_sent(x, text))) return;
    enum err refused = queue_token_judge(exchange_context(x), text, &q->event, &token);
    if (refused == ERR_OK) refused = users_disagree(q->api, x, q->body.user, token.user_hash);
    if (refused == ERR_OK && users_come_from_elsewhere(q->api, x)) refused = ERR_FOREIGN_ORIGIN;
    if (refused != ERR_OK) {
        queue_refuse(x, refused);
        return;
    }
    q->hold.entry_seq = token.seq;
    q->user_hash = token.user_hash;
    if (q->body.user.at != NULL) {
        with_user(q, q->body.user);
        return;
    }
    look_at_place(q, on_user_looked);
}

static void on_user_looked(struct place_look *look, enum err result) {
    struct hold_request *q = request_of(look);
    str user = {look->user, look->look.user_len}; /* which stays in the arena */
    if (result == ERR_OK && user.len == 0) result = ERR_NOT_ACTIVE;
    q->is_active = result == ERR_OK && look->item.place.status == ENTRY_ACTIVE;
    if (result != ERR_OK)
        hold_request_refuse(q, result);
    else
        with_user(q, user);
}

/* The user is known. A request that was sent before with the same key is answered again: the key
 * may belong to a hold or, where the strategy may be `queue`, to a request. */
static void with_user(struct hold_request *q, str user) {
    q->hold.user = user;
    q->x->user = user;
    q->idempotency.user = user;
    q->hold.done = hold_request_on_key_read;
    if (q->hold.idempotency == NULL)
        hold_request_begin(q);
    else if (str_eq(q->idempotency.route, STR(REQUEST_ROUTE)))
        look_at_first_request(q);
    else
        hold_replay(&q->api->reservations, &q->hold);
}

struct first_request_look {
    struct requests_look look;
    struct hold_request *request;
    struct uuid id;
    struct request *found;
    int64_t ahead;
};

/* A hold with another strategy does not need the feed, and works without it. A key that belongs to
 * a request of `queue` in it is found when that is decided. */
static void look_at_first_request(struct hold_request *q) {
    struct api_worker *w = exchange_context(q->x);
    struct first_request_look *l = arena_new(&q->x->arena, sizeof *l);
    const struct idempotency *i = &q->idempotency;
    l->request = q;
    l->id = requests_id_of_key(i->user, i->route, i->key);
    l->look = (struct requests_look){.ids = &l->id,
                                     .count = 1,
                                     .found = &l->found,
                                     .ahead = &l->ahead,
                                     .skips_feed = !q->is_queued,
                                     .done = on_first_request_looked};
    requests_look(&w->requests, &l->look);
}

static void on_first_request_looked(struct requests_look *look, enum err result) {
    struct first_request_look *l = CONTAINER_OF(look, struct first_request_look, look);
    struct hold_request *q = l->request;
    struct request *first = l->found;
    bool is_same = first != NULL && q->is_queued &&
                   memcmp(first->digest, q->idempotency.digest, sizeof first->digest) == 0;
    if (result != ERR_OK)
        hold_request_refuse(q, result);
    else if (first == NULL)
        hold_request_begin(q);
    else if (is_same)
        answer_accepted(q, &first->id, first->ahead, false);
    else
        hold_request_refuse(q, ERR_IDEMPOTENCY_MISMATCH);
    mem_free(first);
}

static void hold_request_on_key_read(struct hold *h, enum err result) {
    struct hold_request *q = CONTAINER_OF(h, struct hold_request, hold);
    if (result != ERR_OK)
        hold_request_refuse(q, result);
    else if (q->idempotency.replayed)
        answer_held(q);
    else if (str_eq(q->idempotency.route, STR("/reservations")))
        look_at_first_request(q);
    else
        hold_request_begin(q);
}

/* ---- the place ---- */

static void hold_request_begin(struct hold_request *q) {
    if (!q->auto_enter && q->is_queued && !q->is_active)
        look_at_place(q, on_queued_place_looked);
    else if (!q->auto_enter)
        hold_request_run(q);
    else if (q->hold.entry_seq != 0)
        look_at_place(q, on_place_looked);
    else
        enter_first(q, q->may_enter);
}

/* Where no seats are claimed now, the place is looked at. */
static void on_queued_place_looked(struct place_look *look, enum err result) {
    struct hold_request *q = request_of(look);
    if (result == ERR_OK && look->item.place.status != ENTRY_ACTIVE) result = ERR_NOT_ACTIVE;
    if (result == ERR_OK)
        hold_request_run(q);
    else
        hold_request_refuse(q, result);
}

/* A place that has ended is replaced by a new one; one that is lost later is not. */
static void on_place_looked(struct place_look *look, enum err result) {
    struct hold_request *q = request_of(look);
    if (result != ERR_OK)
        hold_request_refuse(q, result);
    else if (look->item.place.status == ENTRY_ACTIVE)
        hold_request_run(q);
    else
        enter_first(q, q->may_enter || look->item.place.status == ENTRY_WAITING);
}

/* Whether the request can succeed at all: otherwise it takes no place in the queue. */
static enum err precheck(struct hold_request *q) {
    struct hold *h = &q->hold;
    if (h->count > q->max_per_user) return ERR_LIMIT_EXCEEDED;
    if (h->named == NULL || h->named[h->count - 1] <= q->capacity) return ERR_OK;
    h->refused = arena_new(&q->x->arena, h->count * sizeof *h->refused);
    for (uint32_t i = 0; i < h->count; i++)
        if (h->named[i] > q->capacity) h->refused[h->refused_count++] = h->named[i];
    return ERR_SEAT_NOT_FOUND;
}

/* Takes a place for the request's user, who then holds seats at once or waits. */
static void enter_first(struct hold_request *q, bool may) {
    struct enter_request *e = q->enter;
    enum err refused = may ? precheck(q) : ERR_NOT_ACTIVE;
    if (refused != ERR_OK) {
        hold_request_refuse(q, refused);
        return;
    }
    e->requester.fresh = e->requester.fresh && q->hold.entry_seq == 0;
    /* With a token of another user, the cookie's user is not the one who enters. */
    if (!str_eq(e->requester.user, q->hold.user)) e->requester.is_anonymous = false;
    e->requester.user = q->hold.user;
    e->room.enter.lane = e->requester.lane >= 0 ? (unsigned)e->requester.lane : LANE_DEFAULT;
    e->event = q->event;
    /* That all is sold is a result of a queued request, not a reason to refuse it. */
    e->room.enter.section_key = q->is_queued ? 0 : q->hold.terms.section_key;
    e->on_active = on_active;
    e->on_useless = on_useless;
    e->caller_data = q;
    place_take(e);
}

static void on_active(struct enter_request *e) {
    struct hold_request *q = e->caller_data;
    q->places++;
    q->hold.entry_seq = e->room.enter.place.seq;
    hold_request_run(q);
}

/* All seats of the section are confirmed, or the user has as many as one user may have: refused
 * without a place and without a write. */
static void on_useless(struct enter_request *e) {
    struct hold_request *q = e->caller_data;
    struct hold *h = &q->hold;
    h->done = hold_request_on_held;
    if (e->room.enter.outcome == ENTER_LIMIT) {
        hold_refuse(&q->api->reservations, h, ERR_LIMIT_EXCEEDED);
        return;
    }
    if (h->named != NULL) {
        h->refused = arena_new(&q->x->arena, h->count * sizeof *h->refused);
        memcpy(h->refused, h->named, h->count * sizeof *h->refused);
        h->refused_count = h->count;
    }
    hold_refuse(&q->api->reservations, h, h->named != NULL ? ERR_SEAT_TAKEN : ERR_SOLD_OUT);
}

/* ---- the seats ---- */

static void hold_request_run(struct hold_request *q) {
    struct api_worker *w = exchange_context(q->x);
    if (q->is_queued) {
        hold_request_accept(q);
        return;
    }
    q->hold.done = hold_request_on_held;
    hold_seats(&q->api->reservations, &w->lock_client, &q->hold);
}

/* A place that was ACTIVE a moment ago may have ended before the seats were claimed: another
 * request of the user has confirmed what it held, or its time was over. Then this one takes a new
 * place, as it would have done a moment later. */
static void hold_request_on_held(struct hold *h, enum err result) {
    struct hold_request *q = CONTAINER_OF(h, struct hold_request, hold);
    if (result != ERR_NOT_ACTIVE || q->places == 0 || q->places == PLACES_MAX) {
        answer_hold(q, result);
        return;
    }
    q->repair = (struct repair_waiter){
        .event_key = q->event.key, .seq = h->entry_seq, .done = on_place_repaired};
    repair_queue_add_then(&q->api->room.repairs, &q->repair);
}

/* A user who has left in the meantime does not want another place. */
static void on_place_repaired(struct repair_waiter *repair) {
    struct hold_request *q = CONTAINER_OF(repair, struct hold_request, repair);
    if (repair->status == ENTRY_LEFT || repair->status == ENTRY_NONE)
        answer_hold(q, ERR_NOT_ACTIVE);
    else
        place_take(q->enter);
}

static void add_location(struct exchange *x, const char *prefix, const struct uuid *id) {
    char where[64];
    size_t prefix_len = strlen(prefix);
    assert(prefix_len + UUID_TEXT_BYTES <= sizeof where);
    memcpy(where, prefix, prefix_len);
    uuid_format(id, where + prefix_len);
    reply_header(x, STR("Location"), (str){where, prefix_len + UUID_TEXT_BYTES});
}

/* ---- the strategy `queue`: accepted now, decided later ---- */

struct hold_acceptance {
    struct request_acceptance accept;
    struct hold_request *request;
};

/* In the arena. A request with an Idempotency-Key has the id that belongs to the key, so sending it
 * again finds the first one. */
static struct request *hold_request_copy(struct hold_request *q) {
    const struct hold *h = &q->hold;
    size_t seats_size = h->named == NULL ? 0 : h->count * sizeof *h->named;
    struct request *r = arena_new(&q->x->arena, sizeof *r + seats_size);
    int64_t now_ms = clock_wall_ms();
    *r = (struct request){.event_key = h->terms.event_key,
                          .section_key = h->terms.section_key,
                          .entry_seq = h->entry_seq,
                          .strategy = STRATEGY_QUEUE,
                          .quantity = h->count,
                          .partition = request_partition(h->terms.section_key, h->named, h->count),
                          .created_ms = now_ms,
                          .finished_ms = CLOCK_NONE_MS,
                          .hold_expires_ms = CLOCK_NONE_MS};
    bool fits = str_copy(h->user, r->user, sizeof r->user);
    assert(fits);
    if (h->named != NULL) {
        r->seats = (uint32_t *)(r + 1);
        memcpy(r->seats, h->named, seats_size);
    }
    if (q->body.strategy >= 0) r->strategy = (enum strategy)q->body.strategy;
    if (h->idempotency == NULL) {
        r->id = uuid_new(now_ms);
        memcpy(r->digest, r->id.bytes, sizeof r->id.bytes);
    } else {
        const struct idempotency *i = &q->idempotency;
        r->id = requests_id_of_key(i->user, i->route, i->key);
        memcpy(r->digest, i->digest, sizeof r->digest);
    }
    return r;
}

static void hold_request_accept(struct hold_request *q) {
    enum err refused = q->not_sold != ERR_OK ? q->not_sold : precheck(q);
    if (refused != ERR_OK) {
        answer_hold(q, refused);
        return;
    }
    struct api_worker *w = exchange_context(q->x);
    struct hold_acceptance *a = arena_new(&q->x->arena, sizeof *a);
    a->request = q;
    a->accept.publish.request = hold_request_copy(q);
    a->accept.publish.names = &q->names;
    a->accept.publish.may_rename = q->hold.idempotency == NULL;
    a->accept.done = hold_request_on_accepted;
    requests_accept(&w->requests, &a->accept);
}

/* Any answer, also a refusal, carries the token of a place that was taken for the request. */
static void add_queue_token(struct hold_request *q) {
    char token[TOKEN_TEXT_BYTES];
    bool has_place = q->places > 0 && q->enter->room.enter.outcome != ENTER_SOLD &&
                     q->enter->room.enter.outcome != ENTER_LIMIT;
    if (has_place)
        reply_header(q->x, STR("X-Queue-Token"), place_token(q->enter, clock_wall_ms(), token));
}

/* A repeated request of an anonymous user without the cookie: the first answer, which set it, was
 * lost. */
static void hold_request_add_cookie(struct hold_request *q) {
    if (q->enter != NULL && q->places == 0 && q->hold.entry_seq == 0)
        users_set_cookie(q->x, &q->enter->requester);
}

/* If it is not known whether the request was accepted, the client gets its id all the same, and can
 * ask. */
static void answer_perhaps_accepted(struct hold_request *q, const struct uuid *id,
                                    enum err result) {
    char quoted[UUID_TEXT_BYTES + 2] = {'"'};
    uuid_format(id, quoted + 1);
    quoted[sizeof quoted - 1] = '"';
    add_queue_token(q);
    struct problem_member members[] = {{STR("requestId"), {quoted, sizeof quoted}}};
    reply_problem_with(q->x, result, members, 1, "%s",
                       "GET /api/v4/status/{requestId} shows whether the request was accepted; "
                       "404: it was not.");
}

static void hold_request_on_accepted(struct request_acceptance *a) {
    struct hold_request *q = CONTAINER_OF(a, struct hold_acceptance, accept)->request;
    const struct feed_publish *p = &a->publish;
    if (p->result == ERR_OK)
        answer_accepted(q, &p->id, p->ahead, p->is_new);
    else if (p->result == ERR_FEED_UNKNOWN)
        answer_perhaps_accepted(q, &p->id, p->result);
    else
        answer_hold(q, p->result);
}

/* The answer to a repeated request is that of the first one. */
static void answer_accepted(struct hold_request *q, const struct uuid *request, int64_t ahead,
                            bool is_new) {
    struct exchange *x = q->x;
    char id[UUID_TEXT_BYTES];
    uuid_format(request, id);
    add_queue_token(q);
    if (!is_new) hold_request_add_cookie(q);
    if (!is_new) reply_header(x, STR("Idempotency-Replayed"), STR("true"));
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    add_location(x, "/api/v4/status/", request);
    struct json_out j;
    json_out_init(&j, reply_start(x, 202));
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("requestId"), (str){id, sizeof id});
    json_out_str(&j, STR("status"), request_status_words[REQUEST_PENDING]);
    json_out_i64(&j, STR("position"), ahead);
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}

/* ---- the answer ---- */

static void answer_created(struct hold_request *q, const struct reservation *r) {
    struct exchange *x = q->x;
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    add_location(x, "/reservations/", &r->id);
    struct json_out j;
    json_out_init(&j, reply_start(x, 201));
    reservation_to_json(&j, r, &q->names);
    json_out_done(&j);
    reply_send(x, STR("application/json"));
}

/* A repeated request reads the reservation that the first one made, to answer it again. */
struct repeated_hold {
    struct reservation_action find;
    struct hold_request *request;
};

static void answer_held(struct hold_request *q) {
    if (!q->idempotency.replayed) {
        answer_created(q, &q->hold.reservation);
        return;
    }
    struct repeated_hold *again = arena_new(&q->x->arena, sizeof *again);
    again->request = q;
    again->find = (struct reservation_action){
        .id = q->idempotency.reservation, .judge = judge_repeated, .done = on_repeated_found};
    reservations_find(&q->api->reservations, &again->find);
}

static enum err judge_repeated(struct reservation_action *d, const struct reservation *r) {
    const struct hold_request *q = CONTAINER_OF(d, struct repeated_hold, find)->request;
    return str_eq(q->idempotency.user, str_of(r->user)) ? ERR_OK : ERR_NOT_YOURS;
}

/* The answer is the first one, byte for byte: the reservation as it was created. Nothing else of it
 * ever changes, and the same body names the same event and section. */
static void on_repeated_found(struct reservation_action *d, enum err result) {
    struct hold_request *q = CONTAINER_OF(d, struct repeated_hold, find)->request;
    struct reservation *r = d->reservation;
    if (result != ERR_OK) {
        /* The ledger keeps it as long as its key: only a replica that lags does not have it. */
        hold_request_refuse(q, result == ERR_RESERVATION_NOT_FOUND ? ERR_LEDGER_FAILED : result);
        return;
    }
    r->status = RESERVATION_HELD;
    r->confirmed_ms = r->ended_ms = CLOCK_NONE_MS;
    r->confirmation_code[0] = '\0';
    hold_request_add_cookie(q);
    reply_header(q->x, STR("Idempotency-Replayed"), STR("true"));
    answer_created(q, r);
    mem_free(r);
}

static void answer_hold(struct hold_request *q, enum err result) {
    add_queue_token(q);
    if (result == ERR_OK)
        answer_held(q);
    else
        hold_request_refuse(q, result);
}
