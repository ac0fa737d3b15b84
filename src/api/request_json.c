/* Renders asynchronous requests, and answers clients that may not see one. */
#include "api/request_json.h"

#include "api/reservation_json.h"
#include "base/clock.h"

/* How long a request can be looked up after its end. */
#define SHOWN_MS (INT64_C(30) * 60 * 1000)

enum request_status request_shown_status(const struct request *r, int64_t ahead) {
    return r->status == REQUEST_PENDING && ahead == 0 ? REQUEST_PROCESSING : r->status;
}

static void add_uuid(struct json_out *j, str key, const struct uuid *id) {
    char text[UUID_TEXT_BYTES];
    uuid_format(id, text);
    json_out_str(j, key, (str){text, sizeof text});
}

void request_to_json(struct json_out *j, struct api *api, const struct request *r, int64_t ahead) {
    struct section_names names = reservation_names_of(api, r->event_key, r->section_key);
    bool is_decided = request_is_decided(r->status);
    json_out_object(j, STR(""));
    add_uuid(j, STR("requestId"), &r->id);
    json_out_str(j, STR("status"), request_status_words[request_shown_status(r, ahead)]);
    if (is_decided)
        json_out_null(j, STR("position"));
    else
        json_out_i64(j, STR("position"), ahead);
    reservation_names_to_json(j, &names);
    json_out_i64(j, STR("quantity"), r->quantity);
    if (r->seats == NULL) {
        json_out_null(j, STR("seats"));
    } else {
        json_out_array(j, STR("seats"));
        for (uint32_t i = 0; i < r->quantity; i++) json_out_i64(j, STR(""), r->seats[i]);
        json_out_array_end(j);
    }
    json_out_str(j, STR("userId"), str_of(r->user));
    if (r->status == REQUEST_SUCCESS)
        add_uuid(j, STR("reservationId"), &r->reservation);
    else
        json_out_null(j, STR("reservationId"));
    json_out_time(j, STR("expiresAt"), r->hold_expires_ms);
    if (r->reason[0] == '\0') {
        json_out_null(j, STR("reason"));
        json_out_null(j, STR("message"));
    } else {
        json_out_str(j, STR("reason"), str_of(r->reason));
        json_out_str(j, STR("message"), err_title(err_of_code(str_of(r->reason))));
    }
    json_out_time(j, STR("createdAt"), r->created_ms);
    json_out_time(j, STR("finishedAt"), r->finished_ms);
    json_out_object_end(j);
}

enum err request_check(struct exchange *x, const struct owner *o, const struct request *r) {
    if (r == NULL) return ERR_REQUEST_NOT_FOUND;
    bool is_over = request_is_decided(r->status) && r->finished_ms < clock_wall_ms() - SHOWN_MS;
    if (is_over) return ERR_REQUEST_NOT_FOUND;
    return owner_is(x, o, str_of(r->user)) ? ERR_OK : ERR_NOT_YOURS;
}

void request_refuse(struct exchange *x, enum err e) {
    if (e == ERR_REQUEST_NOT_FOUND)
        reply_problem(x, e, "%s",
                      "A requestId is in the answer to POST /api/v4/queue. It can be looked up "
                      "until 30 minutes after the request was decided.");
    else if (e == ERR_NOT_YOURS)
        reply_problem(x, e, "%s", "Only the request's own user may see it.");
    else
        reply_problem(x, e, "%s", err_effect(e));
}
