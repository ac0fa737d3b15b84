#include <stdlib.h>

#include "api/event_json.h"
#include "base/mem.h"

#define EVENTS_PAGE_MAX 1000

static int compare_names(str type, str id, str other_type, str other_id) {
    int order = str_compare(type, other_type);
    return order != 0 ? order : str_compare(id, other_id);
}

static int by_name(const void *a, const void *b) {
    const struct event *one = *(const struct event *const *)a;
    const struct event *two = *(const struct event *const *)b;
    return compare_names(str_of(one->type), str_of(one->id), str_of(two->type), str_of(two->id));
}

void events_list(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    int64_t limit;
    bool bad_type;
    bool bad_after;
    str type = query_value(x, STR("type"), &bad_type);
    str after = query_value(x, STR("after"), &bad_after);
    str after_id = after;
    str after_type = {NULL, 0};
    if (bad_type || bad_after ||
        (after.at != NULL && (!str_split(&after_id, '/', &after_type) || after_id.at == NULL))) {
        reply_problem(x, ERR_INVALID_PARAMETER, "%s",
                      "type must be an event's type, after the `next` of the page before.");
        return;
    }
    if (!query_i64(x, STR("limit"), 1, EVENTS_PAGE_MAX, 100, &limit)) return;

    struct catalogue *catalogue = api->events.catalogue;
    size_t room = 0;
    size_t count = 0;
    size_t at = 0;
    const struct event *e;
    catalogue_open(catalogue);
    while (catalogue_next(catalogue, &at) != NULL) room++;
    const struct event **found = mem_new((room + 1) * sizeof *found);
    at = 0;
    while ((e = catalogue_next(catalogue, &at)) != NULL)
        if ((type.at == NULL || str_eq(type, str_of(e->type))) &&
            compare_names(str_of(e->type), str_of(e->id), after_type, after_id) > 0)
            found[count++] = e;
    qsort(found, count, sizeof *found, by_name);

    struct json_out j;
    json_out_init(&j, reply_start(x, 200));
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("events"));
    size_t shown = count < (size_t)limit ? count : (size_t)limit;
    for (size_t i = 0; i < shown; i++) event_to_json(&j, STR(""), found[i], false);
    json_out_array_end(&j);
    if (shown < count) {
        char path[EVENT_PATH_BYTES];
        json_out_str(
            &j, STR("next"),
            event_path(str_of(found[shown - 1]->type), str_of(found[shown - 1]->id), path));
    } else {
        json_out_null(&j, STR("next"));
    }
    json_out_object_end(&j);
    json_out_done(&j);
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
