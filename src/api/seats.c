/* The map of a section's seats. */
#include "api/freshness.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"
#include "core/seat_id.h"

/* So many are read in one step, for meanwhile everybody else has to wait for the event. The largest
 * section takes 16 steps: also when they are answered at once, one inside the other, that is fine.
 */
#define LETTERS_PER_STEP 65536
/* A page of runs ends here, at about 400 KB: seats that alternate would make a run each. */
#define RUNS_MAX 10000

struct map_query {
    struct render_op render;
    struct exchange *x;
    struct seats *seats;
    char section[SECTION_ID_BYTES_MAX + 1];
    bool as_runs;
    size_t capacity; /* of the section */
    size_t from;     /* the first seat that is asked for, and how many */
    size_t wanted;
    char *quoted; /* the letters as JSON, with room for `wanted` of them */
    size_t count; /* letters that are there, and the runs in them */
    size_t run_count;
    bool is_full; /* there is no room for further runs */
};

/* Whatever changed between the steps: the numbers are those of the map that is shown. */
static struct seat_counts count_letters(const char *letters, size_t count) {
    struct seat_counts c = {0};
    for (size_t i = 0; i < count; i++) {
        c.held += letters[i] == SEAT_HELD;
        c.confirmed += letters[i] == SEAT_CONFIRMED;
    }
    c.available = (uint32_t)count - c.held - c.confirmed;
    return c;
}

/* [{"state":"A","from":1,"count":12}, …] */
static void add_runs(struct json_out *j, const struct map_query *q) {
    const char *letters = q->quoted + 1;
    json_out_array(j, STR("runs"));
    for (size_t begin = 0, end; begin < q->count; begin = end) {
        for (end = begin + 1; end < q->count && letters[end] == letters[begin];) end++;
        json_out_object(j, STR(""));
        json_out_str(j, STR("state"), (str){letters + begin, 1});
        json_out_i64(j, STR("from"), (int64_t)(q->from + begin));
        json_out_i64(j, STR("count"), (int64_t)(end - begin));
        json_out_object_end(j);
    }
    json_out_array_end(j);
}

static void answer_map(struct map_query *q) {
    struct seat_counts counts = count_letters(q->quoted + 1, q->count);
    size_t next = q->from + q->count;
    struct json_out j;
    reply_header(q->x, STR("Cache-Control"), STR("no-store"));
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("section"), str_of(q->section));
    json_out_i64(&j, STR("capacity"), (int64_t)q->capacity);
    json_out_i64(&j, STR("firstSeatId"), seat_id(q->render.section_key, 1));
    json_out_i64(&j, STR("from"), (int64_t)q->from);
    json_out_i64(&j, STR("count"), (int64_t)q->count);
    if (next <= q->capacity)
        json_out_i64(&j, STR("next"), (int64_t)next);
    else
        json_out_null(&j, STR("next"));
    json_out_i64(&j, STR("available"), counts.available);
    json_out_i64(&j, STR("held"), counts.held);
    json_out_i64(&j, STR("confirmed"), counts.confirmed);
    if (q->as_runs) {
        add_runs(&j, q);
    } else {
        q->quoted[q->count + 1] = '"';
        json_out_raw(&j, STR("seats"), (str){q->quoted, q->count + 2});
    }
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

static void refuse(struct exchange *x, enum err e) {
    const char *what_to_do = "The seat map cannot be read now. Try again.";
    if (e == ERR_EVENT_NOT_FOUND) what_to_do = "GET /events lists the events that exist.";
    if (e == ERR_SECTION_NOT_FOUND)
        what_to_do = "GET /events/{type}/{id} lists the sections of the event.";
    reply_problem(x, e, "%s", what_to_do);
}

static void on_rendered(struct render_op *r);

static void render_next(struct map_query *q) {
    size_t left = q->wanted - q->count;
    q->render.op.now_ms = clock_wall_ms();
    q->render.first = (uint32_t)(q->from + q->count);
    q->render.letters = q->quoted + 1 + q->count;
    q->render.max = left < LETTERS_PER_STEP ? left : LETTERS_PER_STEP;
    q->render.done = on_rendered;
    seats_render(q->seats, &q->render);
}

/* Takes the letters that have been read, as far as there is room for their runs. */
static void take_letters(struct map_query *q, size_t count) {
    if (!q->as_runs) {
        q->count += count;
        return;
    }
    const char *letters = q->quoted + 1;
    for (size_t end = q->count + count; q->count < end && !q->is_full;) {
        bool begins = q->count == 0 || letters[q->count] != letters[q->count - 1];
        q->is_full = begins && q->run_count == RUNS_MAX;
        if (q->is_full) break;
        q->run_count += begins;
        q->count++;
    }
}

static void on_rendered(struct render_op *r) {
    struct map_query *q = CONTAINER_OF(r, struct map_query, render);
    if (r->op.result != ERR_OK) {
        refuse(q->x, r->op.result);
        return;
    }
    take_letters(q, r->count);
    /* None were left when the section has shrunk meanwhile. */
    if (r->count == 0) q->capacity = q->from + q->count - 1;
    if (r->count == 0 || q->count == q->wanted || q->is_full)
        answer_map(q);
    else
        render_next(q);
}

/* False: `refused` says what there is none of. */
static bool find_section(struct catalogue *c, const str *captures, struct map_query *q,
                         enum err *refused) {
    catalogue_read_lock(c);
    const struct event *e = catalogue_find(c, captures[0], captures[1]);
    const struct section *s = e == NULL ? NULL : event_section(e, captures[2]);
    if (s != NULL) {
        memcpy(q->section, s->id, sizeof q->section);
        q->capacity = (size_t)s->capacity;
        q->render.op.event_key = e->key;
        q->render.section_key = s->key;
    }
    catalogue_read_unlock(c);
    *refused = e == NULL ? ERR_EVENT_NOT_FOUND : ERR_SECTION_NOT_FOUND;
    return s != NULL;
}

/* Which seats, and in which form. False: the problem has been answered. */
static bool read_window(struct exchange *x, struct map_query *q) {
    int64_t from = 0;
    int64_t limit = 0;
    int64_t capacity = (int64_t)q->capacity;
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
    q->from = (size_t)from;
    q->wanted = (size_t)(limit < left ? limit : left);
    return true;
}

void seats_get(struct api *api, struct exchange *x, const str *captures) {
    struct map_query *q = arena_new(&x->arena, sizeof *q);
    enum err refused;
    if (!find_section(api->events.catalogue, captures, q, &refused)) {
        if (fresh_rules(api, x)) refuse(x, refused);
        return;
    }
    if (!read_window(x, q)) return;
    q->x = x;
    q->seats = api->events.seats;
    q->quoted = arena_new(&x->arena, q->wanted + 2);
    q->quoted[0] = '"';
    render_next(q);
}
