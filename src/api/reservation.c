/* The paths of reservations that exist: confirm, cancel, look up one, list all of a user. Each
 * request is one struct that lives in its arena from the handler to the answer. */
#include "api/freshness.h"
#include "api/owner.h"
#include "api/reservation_json.h"
#include "api/shop_right.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "service/user_reservations.h"

/* How many reservations a list shows. */
#define LIST_MAX 100

/* ---- the user ---- */

/* The userId of the body, if there is a body, or of the query. */
static bool read_named(struct exchange *x, str *named) {
    static const struct json_field fields[] = {{"userId", JSON_KIND_OTHER, 0, 0, 0, 0, 0}, {0}};
    if (!owner_query_named(x, named)) return false;
    if (x->request.body.len == 0) return true;
    json_t *body = json_body(x);
    if (body == NULL) return false;
    struct json_problem problem;
    const json_t *user = json_object_get(body, "userId");
    bool ok = json_read(body, fields, NULL, "", &problem) &&
              (user == NULL || user_from_json(x, user, named, &problem));
    json_decref(body);
    if (!ok) reply_problem(x, problem.err, "%s", problem.detail);
    return ok;
}

/* ---- one reservation ---- */

struct reservation_request {
    struct reservation_action action;
    struct audit_note note;
    struct exchange *x;
    struct api *api;
    struct owner owner;
    struct shop_right shop;
    struct json_problem problem; /* of a confirmation for another price */
};

/* What users may do with reservations of the event. One that was deleted has no live ones. */
static void reservation_user_rights(struct api *api, int64_t event_key, bool *may_confirm,
                                    bool *may_end_confirmed) {
    enum confirm_by by = CONFIRM_BY_UNSET;
    *may_end_confirmed = false;
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find_key(api->events.catalogue, event_key);
    if (e != NULL) {
        by = e->confirm_by;
        *may_end_confirmed = e->cancel_confirmed;
    }
    catalogue_read_unlock(api->events.catalogue);
    by = confirm_by_resolve(by, api->users_auth == USERS_TRUSTED);
    *may_confirm = by == CONFIRM_BY_USER;
}

static enum err reservation_judge_look(struct reservation_action *a, const struct reservation *r) {
    struct reservation_request *q = CONTAINER_OF(a, struct reservation_request, action);
    return owner_is(q->x, &q->owner, str_of(r->user)) ? ERR_OK : ERR_NOT_YOURS;
}

/* Whether a CONFIRMED reservation may be cancelled depends on its status, so the ledger decides. */
static enum err reservation_judge_act(struct reservation_action *a, const struct reservation *r,
                                      enum shop_act act) {
    struct reservation_request *q = CONTAINER_OF(a, struct reservation_request, action);
    bool may_confirm;
    bool is_shop = shop_right_is_given(&q->shop);
    enum err refused = reservation_judge_look(a, r);
    if (refused != ERR_OK) return refused;
    if (!shop_right_fits(&q->shop, r, &q->problem)) return q->problem.err;
    reservation_user_rights(q->api, r->event_key, &may_confirm, &a->may_end_confirmed);
    a->may_end_confirmed |= is_shop;
    return act == SHOP_CANCELS || is_shop || may_confirm ? ERR_OK : ERR_CONFIRM_BY_SHOP;
}

static enum err reservation_judge_confirm(struct reservation_action *a,
                                          const struct reservation *r) {
    return reservation_judge_act(a, r, SHOP_CONFIRMS);
}

static enum err reservation_judge_cancel(struct reservation_action *a,
                                         const struct reservation *r) {
    return reservation_judge_act(a, r, SHOP_CANCELS);
}

/* A hold past its time is EXPIRED: its row says so a moment later, or when a server runs again. It
 * ended at its time, whenever the row was written. */
static void reservation_end_now(struct reservation *r) {
    if (reservation_is_over(r, clock_wall_ms())) r->status = RESERVATION_EXPIRED;
    if (r->status == RESERVATION_EXPIRED) r->ended_ms = r->expires_ms;
}

static void reservation_on_done(struct reservation_action *a, enum err result) {
    struct reservation_request *q = CONTAINER_OF(a, struct reservation_request, action);
    struct exchange *x = q->x;
    struct reservation *r = a->reservation; /* `q` and `a` are freed with the answer */
    reply_header(x, STR("Cache-Control"), STR("no-store"));
    if (result == ERR_OK && !q->owner.is_shop) x->user = str_of(r->user);
    if (result == ERR_OK) reservation_end_now(r);
    if (result == ERR_OK) {
        struct section_names names = reservation_names_of(q->api, r->event_key, r->section_key);
        struct json_out j;
        json_out_init(&j, reply_start(x, 200));
        reservation_to_json(&j, r, &names);
        json_out_done(&j);
        reply_send(x, STR("application/json"));
    } else if (result == ERR_HOLD_EXPIRED) {
        reply_problem(x, result, "%s",
                      "The hold has expired; do not charge for it. Hold seats again.");
    } else if (result == ERR_RESERVATION_ENDED) {
        reply_problem(x, result, "%s", "The reservation was cancelled; do not charge for it.");
    } else if (result == ERR_NOT_YOURS) {
        reply_problem(x, result, "%s", "Only the reservation's own user may see or change it.");
    } else if (result == ERR_CONFIRM_BY_SHOP) {
        reply_problem(x, result, "%s",
                      "Send a key of the shop, or in X-Shop-Confirmation a JWT that the shop has "
                      "signed for this reservation. Nothing was changed.");
    } else if (result == ERR_CANCEL_BY_SHOP) {
        reply_problem(x, result, "%s",
                      "The reservation is CONFIRMED. Send a key of the shop, or in "
                      "X-Shop-Confirmation a JWT that the shop has signed for cancelling it. "
                      "Nothing was changed.");
    } else if (result == ERR_CONFIRMATION_MISMATCH) {
        reply_problem(x, result, "%s", q->problem.detail);
    } else {
        reply_problem(x, result, "%s", err_effect(result));
    }
    mem_free(r);
}

/* "reservations/019a…" */
static str reservation_subject(struct exchange *x, const struct uuid *id) {
    static const char folder[] = "reservations/";
    char text[sizeof folder - 1 + UUID_TEXT_BYTES];
    memcpy(text, folder, sizeof folder - 1);
    uuid_format(id, text + sizeof folder - 1);
    return arena_copy(&x->arena, (str){text, sizeof text});
}

/* NULL: the problem has been answered. */
static struct reservation_request *reservation_request_new(struct api *api, struct exchange *x,
                                                           str id, str named) {
    struct reservation_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->api = api;
    q->action.done = reservation_on_done;
    if (!owner_of(api, x, named, &q->owner)) return NULL;
    if (uuid_parse(id, &q->action.id)) return q;
    reply_problem(x, ERR_RESERVATION_NOT_FOUND, "%s",
                  "A reservation's id is a UUID: see the answer to POST /reservations.");
    return NULL;
}

static void reservation_act(struct api *api, struct exchange *x, str id, enum shop_act act) {
    str named;
    if (!read_named(x, &named)) return;
    struct reservation_request *q = reservation_request_new(api, x, id, named);
    if (q == NULL || !shop_right_read(api, x, &q->action.id, act, &q->shop)) return;
    /* What users may do is a setting of the event, which this node may have missed a change of. */
    if (!shop_right_is_given(&q->shop) && !fresh_rules(api, x)) return;
    bool confirms = act == SHOP_CONFIRMS;
    q->action.judge = confirms ? reservation_judge_confirm : reservation_judge_cancel;
    if (q->owner.is_shop) {
        q->note = admin_note(x, confirms ? "reservation.confirm" : "reservation.cancel",
                             reservation_subject(x, &q->action.id));
        q->action.note = &q->note;
    }
    (confirms ? reservations_confirm : reservations_cancel)(&api->reservations, &q->action);
}

void reservation_confirm(struct api *api, struct exchange *x, const str *captures) {
    reservation_act(api, x, captures[0], SHOP_CONFIRMS);
}

void reservation_cancel(struct api *api, struct exchange *x, const str *captures) {
    reservation_act(api, x, captures[0], SHOP_CANCELS);
}

void reservation_get_one(struct api *api, struct exchange *x, const str *captures) {
    str named;
    if (!owner_query_named(x, &named)) return;
    struct reservation_request *q = reservation_request_new(api, x, captures[0], named);
    if (q == NULL) return;
    q->action.judge = reservation_judge_look;
    reservations_find(&api->reservations, &q->action);
}

/* ---- the user's own ---- */

struct list_request {
    struct user_reservations list;
    struct exchange *x;
    struct api *api;
    struct owner owner;
    struct place_look look;
};

static void list_on_user_looked(struct place_look *look, enum err result);
static void list_on_listed(struct listing *l, enum err result);

void reservations_get_own(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    str named;
    const struct api_worker *w = exchange_context(x);
    struct list_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->api = api;
    if (!owner_query_named(x, &named) || !owner_of(api, x, named, &q->owner)) return;
    q->list.listing = (struct listing){
        .user = q->owner.user, .max = LIST_MAX, .arena = &x->arena, .done = list_on_listed};
    if (q->owner.user.at != NULL) {
        user_reservations_list(&api->events, &api->reservations, &q->list);
    } else if (q->owner.is_shop) {
        reply_problem(x, ERR_INVALID_PARAMETER, "%s",
                      "Send userId: the user whose reservations to list.");
    } else {
        q->look = (struct place_look){.look.op.event_key = q->owner.token.event_key,
                                      .item.seq = q->owner.token.seq,
                                      .proof = {w->tokens, q->owner.token.user_hash},
                                      .done = list_on_user_looked};
        waiting_room_look(&api->room, &q->look);
    }
}

/* A token proves a place in one event, and the place names the user. */
static void list_on_user_looked(struct place_look *look, enum err result) {
    struct list_request *q = CONTAINER_OF(look, struct list_request, look);
    struct listing *l = &q->list.listing;
    if (result != ERR_OK) {
        queue_refuse(q->x, result);
        return;
    }
    l->user = (str){look->user, look->look.user_len};
    l->event_keys = &look->look.op.event_key;
    l->event_count = l->user.len == 0 ? 0 : 1;
    reservations_list(&q->api->reservations, l);
}

static void list_on_listed(struct listing *l, enum err result) {
    struct list_request *q = CONTAINER_OF(l, struct list_request, list.listing);
    struct json_out j;
    reply_header(q->x, STR("Cache-Control"), STR("no-store"));
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("reservations"));
    for (size_t i = 0; i < l->count; i++) {
        struct reservation *r = l->found[i];
        struct section_names names = reservation_names_of(q->api, r->event_key, r->section_key);
        reservation_to_json(&j, r, &names);
        mem_free(r);
    }
    json_out_array_end(&j);
    json_out_object_end(&j);
    json_out_done(&j);
    if (result == ERR_OK)
        reply_send(q->x, STR("application/json"));
    else
        queue_refuse(q->x, result);
}
