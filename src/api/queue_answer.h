/*
 * queue_answer: a place in a queue as JSON, for all paths that show one, and the request that looks
 * at a place by its token.
 */
#ifndef ADMITONE_API_QUEUE_ANSWER_H
#define ADMITONE_API_QUEUE_ANSWER_H

#include "api/queue_token.h"
#include "base/json_out.h"
#include "service/waiting_room.h"

struct queue_answer {
    const struct queue_event *event;
    str token;
    str user; /* empty: not known */
    const struct place *place;
    uint64_t waiting;
    bool reserving;
    struct seat_counts seats;
    bool has_stock;
    uint64_t stays_ended;
    int64_t now_ms;
    int64_t issued_ms;    /* the token */
    bool with_expires_in; /* /queue/token and /queue/status */
    bool degraded;        /* nothing is known of seats */
};

/* Whether users who wait are being admitted: the event's state allows it, and the seats do, as
 * queue_has_stock says. With a degraded answer, as far as it is known. */
bool queue_answer_admits(const struct queue_answer *a);
void queue_answer_render(struct api_worker *w, struct json_out *j, const struct queue_answer *a);

/* A look at one place, named by its token. In the request's arena. */
struct place_query {
    struct place_look room; /* its `done` is the caller's */
    struct exchange *x;
    struct queue_event event;
    str token;
    int64_t issued_ms; /* the token */
    unsigned lane;     /* likewise */
    bool with_expires_in;
};
/* Ready for waiting_room_look; or what queue_token_check says. */
enum err place_query_init(struct place_query *q, struct api *api, struct exchange *x,
                          const struct queue_event *event, str token);
struct queue_answer place_query_answer(const struct place_query *q);

#endif
