#include "api/event_json.h"

#define EVENTS_PAGE_MAX 1000
/* A page ends early when it has grown to this: one that does not read it costs no more. */
#define EVENTS_PAGE_BYTES_MAX 65536

/* What a page of the list shows. */
struct list_query {
    str type;       /* `at` NULL: all */
    str after_type; /* only what stands behind this one */
    str after_id;
    int64_t limit;
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
                      "type must be an event's type, after the `next` of the page before.");
        return false;
    }
    return query_i64(x, STR("limit"), 1, EVENTS_PAGE_MAX, 100, &q->limit);
}

static bool is_asked_for(const struct list_query *q, const struct event *e) {
    return e != NULL && (q->type.at == NULL || str_eq(q->type, str_of(e->type)));
}

/* A page costs what it shows, however many events there are. */
static void render_page(struct catalogue *c, const struct list_query *q, struct buf *out) {
    size_t at = catalogue_behind(c, q->after_type, q->after_id);
    if (q->type.at != NULL) {
        size_t first = catalogue_behind(c, q->type, STR(""));
        if (first > at) at = first;
    }
    const struct event *last = NULL;
    struct json_out j;
    json_out_init(&j, out);
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("events"));
    for (int64_t shown = 0; shown < q->limit && out->len < EVENTS_PAGE_BYTES_MAX; shown++, at++) {
        const struct event *e = catalogue_at(c, at);
        if (!is_asked_for(q, e)) break;
        event_to_json(&j, STR(""), e, false);
        last = e;
    }
    json_out_array_end(&j);
    if (last != NULL && is_asked_for(q, catalogue_at(c, at))) {
        char path[EVENT_PATH_BYTES];
        json_out_str(&j, STR("next"), event_path(str_of(last->type), str_of(last->id), path));
    } else {
        json_out_null(&j, STR("next"));
    }
    json_out_object_end(&j);
    json_out_done(&j);
}

void events_list(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct list_query query;
    if (!read_query(x, &query)) return;
    struct catalogue *catalogue = api->events.catalogue;
    catalogue_open(catalogue);
    render_page(catalogue, &query, reply_start(x, 200));
    catalogue_shut(catalogue);
    reply_send(x, STR("application/json"));
}

/* For everybody, or with everything for the admin. */
static void show(struct api *api, struct exchange *x, const str *captures, bool admin) {
    struct catalogue *catalogue = api->events.catalogue;
    catalogue_open(catalogue);
    const struct event *e = catalogue_find(catalogue, captures[0], captures[1]);
    if (e != NULL) {
        struct json_out j;
        json_out_init(&j, reply_start(x, 200));
        event_to_json(&j, STR(""), e, admin);
        json_out_done(&j);
    }
    catalogue_shut(catalogue);
    if (e == NULL)
        reply_problem(x, ERR_EVENT_NOT_FOUND, "%s", "GET /events lists the events that exist.");
    else
        reply_send(x, STR("application/json"));
}

void events_get(struct api *api, struct exchange *x, const str *captures) {
    show(api, x, captures, false);
}

void admin_event_get(struct api *api, struct exchange *x, const str *captures) {
    show(api, x, captures, true);
}
