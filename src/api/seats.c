/* The map of a section's seats. */
#include "api/api.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"
#include "core/seat_id.h"

/* So many are read in one step, for meanwhile everybody else has to wait for the event. The largest
 * section takes 16 steps: also when they are answered at once, one inside the other, that is fine.
 */
#define LETTERS_PER_STEP 65536

struct map_query {
    struct render_op render;
    struct exchange *x;
    struct seats *seats;
    char section[SECTION_ID_BYTES_MAX + 1];
    char *quoted; /* the letters as JSON, with room for `capacity` of them */
    size_t capacity;
    size_t count; /* letters that are there */
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

static void answer_map(struct map_query *q) {
    struct seat_counts counts = count_letters(q->quoted + 1, q->count);
    struct json_out j;
    q->quoted[q->count + 1] = '"';
    reply_header(q->x, STR("Cache-Control"), STR("no-store"));
    json_out_init(&j, reply_start(q->x, 200));
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("section"), str_of(q->section));
    json_out_i64(&j, STR("capacity"), (int64_t)q->count);
    json_out_i64(&j, STR("firstSeatId"), seat_id(q->render.section_key, 1));
    json_out_i64(&j, STR("available"), counts.available);
    json_out_i64(&j, STR("held"), counts.held);
    json_out_i64(&j, STR("confirmed"), counts.confirmed);
    json_out_raw(&j, STR("seats"), (str){q->quoted, q->count + 2});
    json_out_object_end(&j);
    json_out_done(&j);
    reply_send(q->x, STR("application/json"));
}

static void refuse(struct exchange *x, enum err e) {
    const char *what_to_do = "The map can't be read now.";
    if (e == ERR_EVENT_NOT_FOUND) what_to_do = "GET /events lists the events that exist.";
    if (e == ERR_SECTION_NOT_FOUND)
        what_to_do = "GET /events/{type}/{id} lists the sections of the event.";
    reply_problem(x, e, "%s", what_to_do);
}

static void on_rendered(struct render_op *r);

static void render_next(struct map_query *q) {
    size_t left = q->capacity - q->count;
    q->render.op.now_ms = clock_wall_ms();
    q->render.first = (uint32_t)q->count + 1;
    q->render.letters = q->quoted + 1 + q->count;
    q->render.max = left < LETTERS_PER_STEP ? left : LETTERS_PER_STEP;
    q->render.done = on_rendered;
    seats_render(q->seats, &q->render);
}

static void on_rendered(struct render_op *r) {
    struct map_query *q = CONTAINER_OF(r, struct map_query, render);
    if (r->op.result != ERR_OK) {
        refuse(q->x, r->op.result);
        return;
    }
    q->count += r->count;
    /* None were left when the section has shrunk meanwhile. */
    if (r->count == 0 || q->count == q->capacity)
        answer_map(q);
    else
        render_next(q);
}

/* False: `refused` says what there is none of. */
static bool find_section(struct catalogue *c, const str *captures, struct map_query *q,
                         enum err *refused) {
    catalogue_open(c);
    const struct event *e = catalogue_find(c, captures[0], captures[1]);
    const struct section *s = e == NULL ? NULL : event_section(e, captures[2]);
    if (s != NULL) {
        memcpy(q->section, s->id, sizeof q->section);
        q->capacity = (size_t)s->capacity;
        q->render.op.event_key = e->key;
        q->render.section_key = s->key;
    }
    catalogue_shut(c);
    *refused = e == NULL ? ERR_EVENT_NOT_FOUND : ERR_SECTION_NOT_FOUND;
    return s != NULL;
}

void seats_get(struct api *api, struct exchange *x, const str *captures) {
    struct map_query *q = arena_new(&x->arena, sizeof *q);
    enum err refused;
    if (!find_section(api->events.catalogue, captures, q, &refused)) {
        refuse(x, refused);
        return;
    }
    q->x = x;
    q->seats = api->events.seats;
    q->quoted = arena_new(&x->arena, q->capacity + 2);
    q->quoted[0] = '"';
    render_next(q);
}
