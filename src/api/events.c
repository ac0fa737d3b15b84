#include <stdlib.h>

#include "api/event_json.h"
#include "base/mem.h"

#define EVENTS_PAGE_MAX 1000
/* A page ends early when it has grown to this: one that does not read it costs no more. */
#define EVENTS_PAGE_BYTES_MAX 65536

static int compare_names(str type, str id, str other_type, str other_id) {
    int order = str_compare(type, other_type);
    return order != 0 ? order : str_compare(id, other_id);
}

static int by_name(const void *a, const void *b) {
    const struct event *one = *(const struct event *const *)a;
    const struct event *two = *(const struct event *const *)b;
    return compare_names(str_of(one->type), str_of(one->id), str_of(two->type), str_of(two->id));
}

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

/* The events that the query asks for, in order, without its limit; mem_free frees the array. */
static const struct event **select_events(struct catalogue *c, const struct list_query *q,
                                          size_t *count) {
    size_t room = 0;
    size_t at = 0;
    const struct event *e;
    while (catalogue_next(c, &at) != NULL) room++;
    const struct event **found = mem_new((room + 1) * sizeof *found);
    *count = 0;
    at = 0;
    while ((e = catalogue_next(c, &at)) != NULL)
        if ((q->type.at == NULL || str_eq(q->type, str_of(e->type))) &&
            compare_names(str_of(e->type), str_of(e->id), q->after_type, q->after_id) > 0)
            found[(*count)++] = e;
    qsort(found, *count, sizeof *found, by_name);
    return found;
}

static void render_page(struct buf *out, const struct event **found, size_t count, int64_t limit) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("events"));
    size_t shown = 0;
    while (shown < count && shown < (size_t)limit && out->len < EVENTS_PAGE_BYTES_MAX)
        event_to_json(&j, STR(""), found[shown++], false);
    json_out_array_end(&j);
    if (shown < count) {
        char path[EVENT_PATH_BYTES];
        const struct event *last = found[shown - 1];
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
    size_t count;
    catalogue_open(catalogue);
    const struct event **found = select_events(catalogue, &query, &count);
    render_page(reply_start(x, 200), found, count, query.limit);
    catalogue_shut(catalogue);
    mem_free(found);
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
