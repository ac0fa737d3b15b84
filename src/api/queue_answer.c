/* Renders a place, and prepares the look at one. */
#include "api/queue_answer.h"

#include "api/event_page_json.h"
#include "base/clock.h"
#include "core/jwt.h"

/* ---- the answer ---- */

/* For origins that verify offline: the user, the event, and until when the user is admitted. */
static void render_pass(struct api_worker *w, struct json_out *j, const struct queue_answer *a) {
    char path[EVENT_PATH_BYTES];
    struct buf claims = {0};
    struct buf pass = {0};
    struct json_out c;
    json_out_init(&c, &claims);
    json_out_object(&c, STR(""));
    json_out_str(&c, STR("sub"), a->user);
    json_out_str(&c, STR("evt"), event_path(str_of(a->event->type), str_of(a->event->id), path));
    json_out_i64(&c, STR("exp"), a->place->expires_ms / 1000);
    json_out_object_end(&c);
    json_out_done(&c);
    jwt_sign(w->passes, buf_str(&claims), &pass);
    json_out_str(j, STR("admissionPass"), buf_str(&pass));
    buf_deinit(&claims);
    buf_deinit(&pass);
}

static int64_t seconds_left(int64_t until_ms, int64_t now_ms) {
    return until_ms > now_ms ? (until_ms - now_ms + 999) / 1000 : 0;
}

/* How long the place lasts if its user does nothing more. */
static int64_t expires_in_s(const struct queue_answer *a) {
    const struct queue_rules *rules = &a->event->rules;
    int64_t left_s = 0;
    if (a->place->status == ENTRY_ACTIVE) left_s = seconds_left(a->place->expires_ms, a->now_ms);
    if (a->place->status == ENTRY_WAITING) left_s = rules->grace_s;
    if (rules->token_ttl_s == 0) return left_s;
    int64_t token_left_s = seconds_left(a->issued_ms + rules->token_ttl_s * 1000, a->now_ms);
    return token_left_s < left_s ? token_left_s : left_s;
}

bool queue_answer_admits(const struct queue_answer *a) {
    return (a->has_stock || a->degraded) &&
           event_state_admits(queue_event_state(a->event, a->now_ms));
}

static void json_out_i64_if(struct json_out *j, str key, bool is_known, int64_t value) {
    if (is_known)
        json_out_i64(j, key, value);
    else
        json_out_null(j, key);
}

/* What is left for those who wait. Nothing is known of seats while the answer is degraded, and an
 * event without sections has none. */
static void render_stock(struct json_out *j, const struct queue_answer *a) {
    const struct place *p = a->place;
    bool has_seats = !a->degraded && seat_counts_sum(&a->seats) > 0;
    bool is_live = p->status == ENTRY_WAITING || p->status == ENTRY_ACTIVE;
    uint64_t ahead = p->status == ENTRY_WAITING ? p->position - 1 : 0;
    int64_t seats_ahead = queue_seats_ahead(ahead, a->seats.confirmed, a->stays_ended);
    json_out_i64_if(j, STR("seatsAhead"), has_seats && is_live && seats_ahead >= 0, seats_ahead);
    json_out_i64_if(j, STR("remainingSeats"), has_seats, a->seats.available);
    json_out_i64_if(j, STR("heldSeats"), has_seats, a->seats.held);
    if (a->degraded)
        json_out_null(j, STR("soldOut"));
    else
        json_out_bool(j, STR("soldOut"), seat_counts_sold_out(&a->seats));
}

void queue_answer_render(struct api_worker *w, struct json_out *j, const struct queue_answer *a) {
    const struct place *p = a->place;
    bool waits = p->status == ENTRY_WAITING;
    bool active = p->status == ENTRY_ACTIVE;
    enum event_state state = queue_event_state(a->event, a->now_ms);
    bool admits = queue_answer_admits(a);
    json_out_object(j, STR(""));
    json_out_str(j, STR("entryToken"), a->token);
    if (a->with_expires_in) {
        json_out_str(j, STR("token"), a->token);
        json_out_i64(j, STR("expiresIn"), expires_in_s(a));
    }
    json_out_str(j, STR("eventType"), str_of(a->event->type));
    json_out_str(j, STR("eventId"), str_of(a->event->id));
    json_out_str(j, STR("eventState"), event_state_words[state]);
    if (admits && a->degraded)
        json_out_null(j, STR("admitting"));
    else
        json_out_bool(j, STR("admitting"), admits);
    notice_to_json(j, a->event->notice);
    if (a->user.len > 0)
        json_out_str(j, STR("userId"), a->user);
    else
        json_out_null(j, STR("userId"));
    json_out_str(j, STR("status"), entry_status_words[p->status]);
    if (waits || active) {
        json_out_i64(j, STR("position"), (int64_t)p->position);
        json_out_i64(j, STR("ahead"), waits ? (int64_t)p->position - 1 : 0);
    } else {
        json_out_null(j, STR("position"));
        json_out_null(j, STR("ahead"));
    }
    json_out_i64(j, STR("totalWaiting"), (int64_t)a->waiting);
    if ((waits && admits) || active)
        json_out_i64(j, STR("estimatedWaitSeconds"), waits ? p->estimate_s : 0);
    else
        json_out_null(j, STR("estimatedWaitSeconds"));
    json_out_time(j, STR("activeExpiresAt"), active ? p->expires_ms : CLOCK_NONE_MS);
    if (a->degraded)
        json_out_null(j, STR("reserving"));
    else
        json_out_bool(j, STR("reserving"), a->reserving);
    render_stock(j, a);
    if (a->degraded) json_out_bool(j, STR("degraded"), true);
    if (active) render_pass(w, j, a);
    json_out_time(j, STR("serverTime"), a->now_ms);
    json_out_object_end(j);
}

/* ---- one place ---- */

enum err place_query_init(struct place_query *q, struct api *api, struct exchange *x,
                          const struct queue_event *event, str token) {
    struct token parts;
    const struct api_worker *w = exchange_context(x);
    enum err refused = queue_token_check(api, x, token, event, &parts);
    if (refused != ERR_OK) return refused;
    q->x = x;
    q->event = *event;
    q->token = arena_copy(&x->arena, token);
    q->issued_ms = parts.issued_ms;
    q->lane = parts.lane;
    q->room.look.op.event_key = event->key;
    q->room.item.seq = parts.seq;
    q->room.item.seen = true;
    q->room.proof = (struct place_proof){w->tokens, parts.user_hash};
    return ERR_OK;
}

struct queue_answer place_query_answer(const struct place_query *q) {
    q->x->user = (str){q->room.user, q->room.look.user_len};
    return (struct queue_answer){.event = &q->event,
                                 .token = q->token,
                                 .user = {q->room.user, q->room.look.user_len},
                                 .place = &q->room.item.place,
                                 .waiting = q->room.look.counts.waiting,
                                 .reserving = q->room.item.reserving,
                                 .seats = q->room.look.seats,
                                 .has_stock = q->room.look.has_stock,
                                 .stays_ended = queue_stays_ended(&q->room.look.counts),
                                 .issued_ms = q->issued_ms,
                                 .with_expires_in = q->with_expires_in,
                                 .degraded = q->room.degraded,
                                 .now_ms = q->room.look.op.now_ms};
}
