/* Reads the body of a request for seats, and renders reservations. */
#include "api/reservation_json.h"

#include <assert.h>
#include <stdlib.h>

#include "api/users.h"

#define BODY(member) offsetof(struct hold_body, member)

static const struct json_field fields[] = {
    {"userId", JSON_KIND_USER, 0, 0, 0, 0, 0},
    {"eventType", JSON_KIND_NAME, BODY(type), 1, EVENT_TYPE_BYTES_MAX, 0, 0},
    {"eventId", JSON_KIND_NAME, BODY(id), 1, EVENT_ID_BYTES_MAX, 0, 0},
    {"section", JSON_KIND_NAME, BODY(section), 1, SECTION_ID_BYTES_MAX, 0, 0},
    {"quantity", JSON_KIND_I64, BODY(quantity), 1, RESERVATION_SEATS_MAX, 0, 0},
    {"seats", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {"seatId", JSON_KIND_I64, BODY(seat_id), 1, INT64_MAX, 0, 0},
    {"strategy", JSON_KIND_WORD, BODY(strategy), 0, 0, strategy_words, 0},
    {0},
};

static int seat_order(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static bool hold_body_read_seats(struct exchange *x, const json_t *array, struct hold_body *out,
                                 struct json_problem *problem) {
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count == 0 || count > RESERVATION_SEATS_MAX)
        return json_refuse(problem, ERR_INVALID_FIELD, "seats must be an array of 1 to %d numbers.",
                           RESERVATION_SEATS_MAX);
    out->seats = arena_new(&x->arena, count * sizeof *out->seats);
    out->seat_count = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *seat = json_array_get(array, i);
        int64_t number = json_integer_value(seat);
        if (!json_is_integer(seat) || number < 1 || number > SECTION_CAPACITY_MAX)
            return json_refuse(problem, ERR_INVALID_FIELD,
                               "seats[%zu] must be a whole number from 1 to %d.", i,
                               SECTION_CAPACITY_MAX);
        out->seats[i] = (uint32_t)number;
    }
    qsort(out->seats, count, sizeof *out->seats, seat_order);
    for (size_t i = 1; i < count; i++)
        if (out->seats[i] == out->seats[i - 1])
            return json_refuse(problem, ERR_INVALID_FIELD, "seats: %u is listed twice.",
                               out->seats[i]);
    return true;
}

/* Exactly one of quantity, seats and seatId; and the event and section, unless seatId implies them.
 */
static bool check_whole(const struct hold_body *b, bool by_seat_id, struct json_problem *problem) {
    bool names_event = b->type[0] != '\0' || b->id[0] != '\0';
    int ways = (b->quantity > 0) + (b->seats != NULL) + (b->seat_id > 0);
    if (ways > 1)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "Send one of quantity, seats and seatId, not several.");
    if (ways == 0 && by_seat_id && !names_event)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "seatId is required: firstSeatId in the seat map is the id of seat 1.");
    if (ways == 0) return json_refuse(problem, ERR_INVALID_FIELD, "quantity or seats is required.");
    if (b->seat_id > 0 && !names_event && b->section[0] == '\0') return true;
    if (b->type[0] == '\0' || b->id[0] == '\0')
        return json_refuse(problem, ERR_INVALID_FIELD, "eventType and eventId are required.");
    if (b->section[0] == '\0')
        return json_refuse(problem, ERR_INVALID_FIELD, "section is required.");
    return true;
}

static bool hold_body_read_simple(struct exchange *x, bool by_seat_id, struct hold_body *out) {
    struct json_problem problem;
    json_t *user = NULL;
    *out = (struct hold_body){.strategy = -1};
    bool ok = json_read_simple(x, fields, out, &user) &&
              (user == NULL || user_from_json(x, user, &out->user, &problem)) &&
              check_whole(out, by_seat_id, &problem);
    json_decref(user);
    return ok;
}

bool hold_body_read(struct exchange *x, bool by_seat_id, struct hold_body *out) {
    if (hold_body_read_simple(x, by_seat_id, out)) return true;
    *out = (struct hold_body){.strategy = -1};
    json_t *body = json_body(x);
    if (body == NULL) return false;
    struct json_problem problem;
    const json_t *user = json_object_get(body, "userId");
    const json_t *seats = json_object_get(body, "seats");
    bool ok = json_read(body, fields, out, "", &problem) &&
              (user == NULL || user_from_json(x, user, &out->user, &problem)) &&
              (seats == NULL || hold_body_read_seats(x, seats, out, &problem)) &&
              check_whole(out, by_seat_id, &problem);
    json_decref(body);
    if (!ok) reply_problem(x, problem.err, "%s", problem.detail);
    return ok;
}

/* ---- out ---- */

struct section_names reservation_names_of(struct api *api, int64_t event_key, int64_t section_key) {
    struct section_names names = {0};
    const struct section *section = NULL;
    struct catalogue *catalogue = api->events.catalogue;
    catalogue_read_lock(catalogue);
    const struct event *e = catalogue_find_key(catalogue, event_key);
    if (e != NULL) {
        memcpy(names.type, e->type, sizeof names.type);
        memcpy(names.id, e->id, sizeof names.id);
    }
    if (catalogue_find_section(catalogue, section_key, &section) != NULL)
        memcpy(names.section, section->id, sizeof names.section);
    catalogue_read_unlock(catalogue);
    return names;
}

static void name_or_null(struct json_out *j, str key, const char *name) {
    if (name[0] == '\0')
        json_out_null(j, key);
    else
        json_out_str(j, key, str_of(name));
}

void reservation_names_to_json(struct json_out *j, const struct section_names *names) {
    name_or_null(j, STR("eventType"), names->type);
    name_or_null(j, STR("eventId"), names->id);
    name_or_null(j, STR("section"), names->section);
}

void reservation_to_json(struct json_out *j, const struct reservation *r,
                         const struct section_names *names) {
    char id[UUID_TEXT_BYTES];
    uuid_format(&r->id, id);
    json_out_object(j, STR(""));
    json_out_str(j, STR("id"), (str){id, sizeof id});
    json_out_str(j, STR("status"), reservation_status_words[r->status]);
    json_out_str(j, STR("strategy"), strategy_words[r->strategy]);
    reservation_names_to_json(j, names);
    json_out_array(j, STR("seats"));
    for (uint32_t i = 0; i < r->seat_count; i++) json_out_i64(j, STR(""), r->seats[i]);
    json_out_array_end(j);
    json_out_str(j, STR("userId"), str_of(r->user));
    json_out_i64(j, STR("price"), r->price);
    json_out_str(j, STR("currency"), str_of(r->currency));
    json_out_time(j, STR("expiresAt"), r->expires_ms);
    name_or_null(j, STR("confirmationCode"), r->confirmation_code);
    json_out_time(j, STR("createdAt"), r->created_ms);
    json_out_time(j, STR("confirmedAt"), r->confirmed_ms);
    json_out_time(j, STR("endedAt"), r->ended_ms);
    json_out_object_end(j);
}
