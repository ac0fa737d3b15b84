/* GET /events and GET /events/{type}/{id}, and one event as the admin sees it. */
#include "api/event_json.h"
#include "api/users.h"
#include "base/clock.h"
#include "base/list.h"
#include "service/event_views.h"

#define EVENTS_PAGE_MAX 1000
/* A page ends early at about this size, so that a client that does not read costs little. */
#define EVENTS_PAGE_BYTES_MAX 65536

/* The filter of one page of the list. */
struct list_query {
    str type;       /* `at` NULL: all */
    str after_type; /* only events behind this one */
    str after_id;
    int64_t limit;
    bool with_drafts; /* for the admin */
    int64_t now_ms;
};

/* False: the problem has been answered. */
static bool read_query(struct exchange *x, struct list_query *q) {
    bool bad_type;
    bool bad_after;
    *q = (struct list_query){.type = query_value(x, STR("type"), &bad_type)};
    q->after_id = query_value(x, STR("after"), &bad_after);
    bool has_after = q->after_id.at != NULL;
    if (bad_type || bad_after ||
        (has_after && (!str_split(&q->after_id, '/', &q->after_type) || q->after_id.at == NULL))) {
        reply_problem(x, ERR_INVALID_PARAMETER, "%s",
                      "type must be the type of an event; after must be the value of `next` in the "
                      "previous page.");
        return false;
    }
    return query_i64(x, STR("limit"), 1, EVENTS_PAGE_MAX, 100, &q->limit);
}

/* The number of the first event from `at` on that the list shows, or any other number behind its
 * last event: events_at returns NULL then. */
static size_t events_next(struct catalogue *c, const struct list_query *q, size_t at) {
    const struct event *e;
    while ((e = catalogue_at(c, at)) != NULL && !q->with_drafts && !event_is_public(e, q->now_ms))
        at++;
    return at;
}

static const struct event *events_at(struct catalogue *c, const struct list_query *q, size_t at) {
    const struct event *e = catalogue_at(c, at);
    return e != NULL && (q->type.at == NULL || str_eq(q->type, str_of(e->type))) ? e : NULL;
}

/* ---- the answers ---- */

/* A request, from the look into the catalogue to the answer. */
struct view_query {
    struct event_views views;
    struct exchange *x;
    bool admin;                  /* shows everything */
    char next[EVENT_PATH_BYTES]; /* the `next` of a page; empty: it is the last */
};

static void events_refuse(struct exchange *x, enum err e) {
    reply_problem(x, e, "%s",
                  e == ERR_EVENT_NOT_FOUND ? "GET /events lists the events that exist."
                                           : "The seats cannot be counted now. Try again.");
}

static struct api *api_of(const struct exchange *x) {
    const struct api_worker *w = exchange_context(x);
    return w->api;
}

static void events_on_page(struct event_views *views, enum err result) {
    struct view_query *q = CONTAINER_OF(views, struct view_query, views);
    if (result != ERR_OK) {
        events_refuse(q->x, result);
        return;
    }
    struct json_out j;
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("events"));
    for (const struct event_view *view = views->first; view != NULL; view = view->next)
        event_to_json(&j, STR(""), view->event, EVENT_JSON_LISTED, api_of(q->x));
    json_out_array_end(&j);
    if (q->next[0] != '\0')
        json_out_str(&j, STR("next"), str_of(q->next));
    else
        json_out_null(&j, STR("next"));
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

static void events_on_event(struct event_views *views, enum err result) {
    struct view_query *q = CONTAINER_OF(views, struct view_query, views);
    if (result == ERR_OK && views->first == NULL) result = ERR_EVENT_NOT_FOUND;
    if (result != ERR_OK) {
        events_refuse(q->x, result);
        return;
    }
    struct json_out j;
    if (q->admin) admin_etag(q->x, views->first->event->version);
    json_out_init(&j, reply_start(q->x, 200));
    event_to_json(&j, STR(""), views->first->event, q->admin ? EVENT_JSON_ADMIN : EVENT_JSON_PUBLIC,
                  api_of(q->x));
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

/* ---- the events that are asked for ---- */

/* A page costs what it shows, and the drafts between, however many events there are. */
static void events_gather_page(struct catalogue *c, const struct list_query *list,
                               struct view_query *q) {
    size_t at = catalogue_after(c, list->after_type, list->after_id);
    if (list->type.at != NULL) {
        size_t first = catalogue_after(c, list->type, STR(""));
        if (first > at) at = first;
    }
    const struct event *last = NULL;
    size_t bytes = 0;
    at = events_next(c, list, at);
    for (int64_t shown = 0; shown < list->limit && bytes < EVENTS_PAGE_BYTES_MAX; shown++) {
        const struct event *e = events_at(c, list, at);
        if (e == NULL) break;
        at = events_next(c, list, at + 1);
        event_views_add(&q->views, &q->x->arena, e);
        bytes += event_json_bytes(e);
        last = e;
    }
    if (last != NULL && events_at(c, list, at) != NULL)
        event_path(str_of(last->type), str_of(last->id), q->next);
}

static struct view_query *view_query_new(struct exchange *x,
                                         void (*done)(struct event_views *v, enum err result)) {
    struct view_query *q = arena_new(&x->arena, sizeof *q);
    q->x = x;
    q->views.seats = true;
    q->views.done = done;
    return q;
}

void events_list(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct list_query list;
    if (!read_query(x, &list)) return;
    list.with_drafts = users_key_allows(x, KEY_ROLE_READ);
    list.now_ms = clock_wall_ms();
    struct view_query *q = view_query_new(x, events_on_page);
    catalogue_read_lock(api->events.catalogue);
    events_gather_page(api->events.catalogue, &list, q);
    catalogue_read_unlock(api->events.catalogue);
    event_views_count(&q->views, &api->events, api->snapshot);
}

/* Shows the public fields, or with `admin` all. */
static void events_show(struct api *api, struct exchange *x, const str *captures, bool admin) {
    struct view_query *q = view_query_new(x, events_on_event);
    q->admin = admin;
    q->views.texts = true;
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, captures[0], captures[1]);
    if (e != NULL && api_shows(x, e)) event_views_add(&q->views, &x->arena, e);
    catalogue_read_unlock(api->events.catalogue);
    event_views_count(&q->views, &api->events, NULL);
}

void events_get(struct api *api, struct exchange *x, const str *captures) {
    events_show(api, x, captures, false);
}

void admin_event_get(struct api *api, struct exchange *x, const str *captures) {
    events_show(api, x, captures, true);
}
