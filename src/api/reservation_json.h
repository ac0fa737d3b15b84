/*
 * reservation_json: the JSON body of a request for seats, and a reservation as JSON.
 */
#ifndef ADMITONE_API_RESERVATION_JSON_H
#define ADMITONE_API_RESERVATION_JSON_H

#include "api/api.h"
#include "api/json_in.h"
#include "base/json_out.h"
#include "core/reservation.h"

/* The body of a request for seats. */
struct hold_body {
    str user; /* `at` NULL: not named */
    char type[EVENT_TYPE_BYTES_MAX + 1];
    char id[EVENT_ID_BYTES_MAX + 1];
    char section[SECTION_ID_BYTES_MAX + 1];
    int64_t seat_id;  /* 0: not given */
    int64_t quantity; /* 0: not given */
    uint32_t *seats;  /* ascending, each once, in the arena; NULL: not given */
    size_t seat_count;
    int strategy; /* enum strategy; -1: not given */
};

/* Reads and checks the body; a seatId implies event and section. `by_seat_id`: on this path it is
 * the usual form, so the problem names it when no seats are named at all. False: the problem has
 * been answered. */
bool hold_body_read(struct exchange *x, bool by_seat_id, struct hold_body *out);

/* For the keys in a reservation or an asynchronous request. */
struct section_names reservation_names_of(struct api *api, int64_t event_key, int64_t section_key);
/* eventType, eventId and section. */
void reservation_names_to_json(struct json_out *j, const struct section_names *names);

void reservation_to_json(struct json_out *j, const struct reservation *r,
                         const struct section_names *names);

#endif
