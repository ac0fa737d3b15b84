/* Collects what the page shows, step by step; and passes forms on to the API. */
#include "api/plain_page.h"

#include <assert.h>
#include <stdio.h>

#include "api/pages.h"
#include "api/plain_view.h"
#include "api/queue_answer.h"
#include "api/users.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/event_page.h"
#include "service/event_views.h"

/* How many reservations the page shows. */
#define LIST_MAX 20

/* In the request's arena. */
struct plain_request {
    struct exchange *x;
    struct api *api;
    struct page_set *set;
    struct plain_view view;
    struct event_views views;
    struct place_query place;
    bool has_token;
    struct listing listing;
};

/* ---- the answer ---- */

/* The handlers of the API have added headers of theirs. */
static void start_page(struct plain_request *q) {
    q->x->present = NULL;
    reply_drop_header(q->x, STR("Cache-Control"));
    reply_drop_header(q->x, STR("Location"));
    pages_add_headers(q->x, q->set->texts.codes[q->view.language], STR("no-store"));
}

/* A header and not a meta element, which checkers of accessibility refuse without a look at what
 * the page is for. */
static void add_refresh(struct plain_request *q, int64_t reload_s) {
    char text[24];
    if (reload_s == 0) return;
    snprintf(text, sizeof text, "%lld", (long long)reload_s);
    reply_header(q->x, STR("Refresh"), str_of(text));
}

static void send_page(struct plain_request *q, int status) {
    struct pages *pages = q->api->pages;
    struct page_set *set = q->set;
    start_page(q);
    add_refresh(q, plain_view_reload_s(&q->view));
    plain_view_add(&q->view, reply_start(q->x, status));
    reply_send(q->x, STR("text/html; charset=utf-8"));
    pages_give_back(pages, set);
}

/* After a form the browser loads the page, so that to load it again does not send the form again.
 */
static void send_redirect(struct plain_request *q) {
    struct pages *pages = q->api->pages;
    struct page_set *set = q->set;
    struct buf url = {0};
    start_page(q);
    plain_view_add_url(&q->view, &url);
    reply_header(q->x, STR("Location"), buf_str(&url));
    buf_deinit(&url);
    reply_empty(q->x, 303);
    pages_give_back(pages, set);
}

static void send_problem(struct plain_request *q, int status) {
    struct pages *pages = q->api->pages;
    struct page_set *set = q->set;
    start_page(q);
    add_refresh(q, plain_view_problem_reload_s(q->x->problem));
    plain_view_add_problem(&q->view, q->x->problem, reply_start(q->x, status));
    reply_send(q->x, STR("text/html; charset=utf-8"));
    pages_give_back(pages, set);
}

static void present_answer(struct exchange *x, int status) {
    if (x->problem == ERR_OK)
        send_redirect(x->present_data);
    else
        send_problem(x->present_data, status);
}

/* ---- the request ---- */

/* While the handler runs. NULL: the request has been answered. */
static struct plain_request *plain_request_new(struct api *api, struct exchange *x, str type,
                                               str id) {
    struct page_set *set = pages_take(api->pages, x);
    if (set == NULL) return NULL;
    struct plain_request *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->api = api;
    q->set = set;
    q->view = (struct plain_view){.set = set,
                                  .language = pages_language(set, x),
                                  .type = arena_copy(&x->arena, type),
                                  .id = arena_copy(&x->arena, id),
                                  .now_ms = clock_wall_ms(),
                                  .return_query = arena_copy(&x->arena, pages_return_query(x))};
    x->present = present_answer;
    x->present_data = q;
    return q;
}

void plain_page_present(struct exchange *x, int status) {
    const struct api_worker *w = exchange_context(x);
    struct plain_request *q = plain_request_new(w->api, x, STR(""), STR(""));
    if (q != NULL) send_problem(q, status);
}

/* ---- what the page shows ---- */

static void plain_on_counted(struct event_views *views, enum err result);
static void plain_on_looked(struct place_look *look, enum err result);
static void plain_on_listed(struct listing *l, enum err result);

/* A user who has a place sees the event also when it has become a draft. */
static void find_event(struct plain_request *q) {
    bool bad;
    str return_url = query_value(q->x, STR("rd"), &bad);
    struct queue_event event;
    catalogue_read_lock(q->api->events.catalogue);
    const struct event *e = catalogue_find(q->api->events.catalogue, q->view.type, q->view.id);
    if (e != NULL) {
        queue_event_copy(e, &q->x->arena, &event);
        q->view.notice = event.notice;
        if (event_may_return_to(e, return_url, http_header(&q->x->request, STR("Host"))))
            q->view.return_url = return_url;
        q->has_token = place_query_init(&q->place, q->api, q->x, &event,
                                        queue_token_of(q->x, event.key)) == ERR_OK;
    }
    if (e != NULL && (q->has_token || event_is_public(e, q->view.now_ms)))
        event_views_add(&q->views, &q->x->arena, e);
    catalogue_read_unlock(q->api->events.catalogue);
}

void plain_page_get(struct api *api, struct exchange *x, const str *captures) {
    struct plain_request *q = plain_request_new(api, x, captures[0], captures[1]);
    if (q == NULL) return;
    q->views.seats = true;
    q->views.done = plain_on_counted;
    find_event(q);
    if (q->views.count == 0)
        send_page(q, 404);
    else
        event_views_count(&q->views, &api->events, NULL);
}

static void plain_on_counted(struct event_views *views, enum err result) {
    struct plain_request *q = CONTAINER_OF(views, struct plain_request, views);
    struct plain_view *v = &q->view;
    if (views->first == NULL) {
        send_page(q, 404);
        return;
    }
    const struct event *e = views->first->event;
    v->event = e;
    v->state = event_effective_state(e, v->now_ms);
    v->degraded = result != ERR_OK;
    v->may_confirm =
        confirm_by_resolve(e->confirm_by, q->api->users_auth == USERS_TRUSTED) == CONFIRM_BY_USER;
    for (size_t i = 0; i < e->section_count; i++) {
        v->seats.available += (uint32_t)section_available(&e->sections[i]);
        v->seats.held += (uint32_t)e->sections[i].held;
        v->seats.confirmed += (uint32_t)e->sections[i].confirmed;
    }
    if (!q->has_token) {
        send_page(q, 200);
        return;
    }
    q->place.room.done = plain_on_looked;
    waiting_room_look(&q->api->room, &q->place.room);
}

static void plain_on_looked(struct place_look *look, enum err result) {
    struct plain_request *q = CONTAINER_OF(look, struct plain_request, place.room);
    struct plain_view *v = &q->view;
    if (result != ERR_OK && err_status(result) >= 500) {
        queue_refuse(q->x, result);
        return;
    }
    struct queue_answer answer = place_query_answer(&q->place);
    v->has_place = result == ERR_OK;
    v->place = look->item.place;
    v->admits = queue_answer_admits(&answer);
    v->degraded |= look->degraded;
    str user = {look->user, look->look.user_len};
    if (!v->has_place || user.len == 0 || v->place.status == ENTRY_WAITING) {
        send_page(q, 200);
        return;
    }
    q->listing = (struct listing){.event_keys = &q->place.event.key,
                                  .event_count = 1,
                                  .user = user,
                                  .max = LIST_MAX,
                                  .arena = &q->x->arena,
                                  .done = plain_on_listed};
    reservations_list(&q->api->reservations, &q->listing);
}

static void free_reservations(struct listing *l) {
    for (size_t i = 0; i < l->count; i++) mem_free(l->found[i]);
    l->count = 0;
}

/* Without the list the page still says that the user may stay. */
static void plain_on_listed(struct listing *l, enum err result) {
    struct plain_request *q = CONTAINER_OF(l, struct plain_request, listing);
    struct buf page = {0};
    if (result == ERR_OK) {
        q->view.reservations = l->found;
        q->view.reservation_count = l->count;
    } else {
        q->view.degraded = true;
    }
    plain_view_add(&q->view, &page);
    int64_t reload_s = plain_view_reload_s(&q->view);
    free_reservations(l);
    struct pages *pages = q->api->pages;
    struct page_set *set = q->set;
    start_page(q);
    add_refresh(q, reload_s);
    reply_bytes(q->x, 200, STR("text/html; charset=utf-8"), buf_str(&page));
    pages_give_back(pages, set);
    buf_deinit(&page);
}

/* ---- forms ---- */

static str form_value(struct exchange *x, str name) {
    bool bad;
    return param_value(x, x->request.body, name, &bad);
}

/* The form for seats as the body that the API reads. */
static void hold(struct plain_request *q) {
    struct exchange *x = q->x;
    struct buf body = {0};
    struct json_out j;
    int64_t quantity = 0;
    str section = form_value(x, STR("section"));
    str_to_i64(form_value(x, STR("quantity")), &quantity);
    json_out_init(&j, &body);
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("eventType"), q->view.type);
    json_out_str(&j, STR("eventId"), q->view.id);
    json_out_str(&j, STR("section"), section);
    json_out_i64(&j, STR("quantity"), quantity);
    json_out_object_end(&j);
    json_out_done(&j);
    x->request.body = arena_copy(&x->arena, buf_str(&body));
    x->has_json_body = true;
    buf_deinit(&body);
    reservations_post(q->api, x, NULL);
}

void plain_page_post(struct api *api, struct exchange *x, const str *captures) {
    struct plain_request *q = plain_request_new(api, x, captures[0], captures[1]);
    if (q == NULL) return;
    str action = form_value(x, STR("action"));
    str reservation = form_value(x, STR("reservation"));
    if (users_come_from_elsewhere(api, x)) {
        queue_refuse(x, ERR_FOREIGN_ORIGIN);
        return;
    }
    struct queue_event event;
    if (!queue_event_find(api, captures[0], captures[1], NULL, &event)) {
        queue_refuse(x, ERR_EVENT_NOT_FOUND); /* before the path becomes part of a Location */
        return;
    }
    if (str_eq(action, STR("hold"))) {
        hold(q);
        return;
    }
    x->request.body = (str){NULL, 0};
    if (str_eq(action, STR("enter")))
        queue_post_enter(api, x, captures);
    else if (str_eq(action, STR("leave")))
        queue_delete_leave(api, x, captures);
    else if (str_eq(action, STR("confirm")))
        reservation_confirm(api, x, &reservation);
    else if (str_eq(action, STR("cancel")))
        reservation_cancel(api, x, &reservation);
    else
        reply_problem(x, ERR_INVALID_FIELD, "%s",
                      "action must be enter, leave, hold, confirm or cancel.");
}
