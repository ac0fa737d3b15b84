/* GET /events/{type}/{id}/sections/{section}/seats: the map of a section's seats. */
#include "api/arrival.h"
#include "api/freshness.h"
#include "api/users.h"
#include "base/json_out.h"
#include "base/list.h"
#include "core/seat_id.h"
#include "service/seat_map_read.h"

/* A page of runs ends here, at about 400 KB: seats that alternate would make a run each. */
#define RUNS_MAX 10000
/* For the limits on arrival. */
#define SEATS_PER_READ 100000

struct map_request {
    struct seat_map_read map;
    struct exchange *x;
    char section[SECTION_ID_BYTES_MAX + 1];
    bool as_runs;
    char *quoted; /* the letters as JSON */
};

static void map_refuse(struct exchange *x, enum err e) {
    const char *what_to_do = "The seat map cannot be read now. Try again.";
    if (e == ERR_EVENT_NOT_FOUND) what_to_do = "GET /events lists the events that exist.";
    if (e == ERR_SECTION_NOT_FOUND)
        what_to_do = "GET /events/{type}/{id} lists the sections of the event.";
    reply_problem(x, e, "%s", what_to_do);
}

/* False: `refused` says whether the event or the section does not exist. */
static bool map_find_section(struct api *api, struct exchange *x, const str *captures,
                             struct map_request *q, enum err *refused) {
    struct catalogue *c = api->events.catalogue;
    catalogue_read_lock(c);
    const struct event *e = catalogue_find(c, captures[0], captures[1]);
    if (e != NULL && !api_shows(x, e)) e = NULL;
    const struct section *s = e == NULL ? NULL : event_section(e, captures[2]);
    if (s != NULL) {
        memcpy(q->section, s->id, sizeof q->section);
        q->map.capacity = (size_t)s->capacity;
        q->map.event_key = e->key;
        q->map.section_key = s->key;
    }
    catalogue_read_unlock(c);
    *refused = e == NULL ? ERR_EVENT_NOT_FOUND : ERR_SECTION_NOT_FOUND;
    return s != NULL;
}

/* Which seats, and in which form. False: the problem has been answered. */
static bool map_read_query(struct exchange *x, struct map_request *q) {
    int64_t from = 0;
    int64_t limit = 0;
    int64_t capacity = (int64_t)q->map.capacity;
    bool bad;
    str form = query_value(x, STR("form"), &bad);
    q->as_runs = str_eq(form, STR("runs"));
    if (bad || (form.at != NULL && !q->as_runs && !str_eq(form, STR("letters")))) {
        reply_problem(x, ERR_INVALID_PARAMETER, "%s", "form must be letters or runs.");
        return false;
    }
    if (!query_i64(x, STR("from"), 1, capacity, 1, &from) ||
        !query_i64(x, STR("limit"), 1, SECTION_CAPACITY_MAX, SECTION_CAPACITY_MAX, &limit))
        return false;
    int64_t left = capacity - from + 1;
    q->map.from = (size_t)from;
    q->map.wanted = (size_t)(limit < left ? limit : left);
    q->map.runs_max = q->as_runs ? RUNS_MAX : 0;
    return true;
}

/* One read was taken on arrival: a map of a million seats costs 1.5 ms, and also when it is short
 * as runs. False: the problem has been answered. */
static bool map_may_read(struct api *api, struct exchange *x, const struct map_request *q) {
    int64_t reads = ((int64_t)q->map.wanted - 1) / SEATS_PER_READ;
    if (reads == 0 || api->arrivals.limits == NULL || users_key(x) != NULL) return true;
    struct limit_client client = arrival_client(api, x);
    struct limit_verdict v =
        arrivals_take(&api->arrivals, &client, LIMIT_REQUESTS, reads * LIMIT_READ_UNITS);
    if (v.wait_ns > 0) arrival_refuse(x, &client, LIMIT_REQUESTS, &v);
    return v.wait_ns == 0;
}

static void map_on_read(struct seat_map_read *map, enum err result);

void seats_get(struct api *api, struct exchange *x, const str *captures) {
    struct map_request *q = arena_new(&x->arena, sizeof *q);
    enum err refused;
    if (!map_find_section(api, x, captures, q, &refused)) {
        if (fresh_rules(api, x)) map_refuse(x, refused);
        return;
    }
    if (!map_read_query(x, q) || !map_may_read(api, x, q)) return;
    q->x = x;
    q->quoted = arena_new(&x->arena, q->map.wanted + 2);
    q->map.letters = q->quoted + 1;
    q->map.done = map_on_read;
    seat_map_read(api->events.seats, &q->map);
}

/* The states may have changed between two steps: the numbers are those of the map that is shown. */
static struct seat_counts map_count(const struct seat_map_read *map) {
    struct seat_counts c = {0};
    for (size_t i = 0; i < map->count; i++) {
        c.held += map->letters[i] == SEAT_HELD;
        c.confirmed += map->letters[i] == SEAT_CONFIRMED;
    }
    c.available = (uint32_t)map->count - c.held - c.confirmed;
    return c;
}

/* [{"state":"A","from":1,"count":12}, …] */
static void map_add_runs(struct json_out *j, const struct seat_map_read *map) {
    const char *letters = map->letters;
    json_out_array(j, STR("runs"));
    for (size_t begin = 0, end; begin < map->count; begin = end) {
        for (end = begin + 1; end < map->count && letters[end] == letters[begin];) end++;
        json_out_object(j, STR(""));
        json_out_str(j, STR("state"), (str){letters + begin, 1});
        json_out_i64(j, STR("from"), (int64_t)(map->from + begin));
        json_out_i64(j, STR("count"), (int64_t)(end - begin));
        json_out_object_end(j);
    }
    json_out_array_end(j);
}

static void map_on_read(struct seat_map_read *map, enum err result) {
    struct map_request *q = CONTAINER_OF(map, struct map_request, map);
    if (result != ERR_OK) {
        map_refuse(q->x, result);
        return;
    }
    struct seat_counts counts = map_count(map);
    size_t next = map->from + map->count;
    struct json_out j;
    reply_header(q->x, STR("Cache-Control"), STR("no-store"));
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("section"), str_of(q->section));
    json_out_i64(&j, STR("capacity"), (int64_t)map->capacity);
    json_out_i64(&j, STR("firstSeatId"), seat_id(map->section_key, 1));
    json_out_i64(&j, STR("from"), (int64_t)map->from);
    json_out_i64(&j, STR("count"), (int64_t)map->count);
    if (next <= map->capacity)
        json_out_i64(&j, STR("next"), (int64_t)next);
    else
        json_out_null(&j, STR("next"));
    json_out_i64(&j, STR("available"), counts.available);
    json_out_i64(&j, STR("held"), counts.held);
    json_out_i64(&j, STR("confirmed"), counts.confirmed);
    if (q->as_runs) {
        map_add_runs(&j, map);
    } else {
        q->quoted[0] = '"';
        q->quoted[map->count + 1] = '"';
        json_out_raw(&j, STR("seats"), (str){q->quoted, map->count + 2});
    }
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}
