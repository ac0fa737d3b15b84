/*
 * queue_enter: takes a place in a queue for a request: one to enter or, where an event has
 * autoEnter, one for seats.
 */
#ifndef ADMITONE_API_QUEUE_ENTER_H
#define ADMITONE_API_QUEUE_ENTER_H

#include "api/arrival.h"
#include "api/queue_answer.h"
#include "api/queue_token.h"
#include "api/users.h"

/* In the request's arena. */
struct enter_request {
    struct place_enter room; /* room.enter.lane and section_key are the caller's */
    struct exchange *x;
    struct api *api;
    struct queue_event event;
    struct requester requester;
    struct limit_client client; /* whose new places are limited: enter_request_init */
    bool as_token;              /* POST /queue/token */
    /* NULL: the answer is always the place. Else called instead of the answer when it is ACTIVE. */
    void (*on_active)(struct enter_request *e);
    /* With on_active: called when no place was taken because the request for seats cannot succeed:
     * the outcome is SOLD or LIMIT. */
    void (*on_useless)(struct enter_request *e);
    void *caller_data;

    /* Private. */
    struct limit_verdict limited; /* wait_ns 0: it may take a new place, and it was charged */
};

/* For a request that is zeroed, while its handler runs. */
void enter_request_init(struct enter_request *e, struct api *api, struct exchange *x);

/* Takes a place, or finds the one that the user has, and answers. */
void place_take(struct enter_request *e);
/* The token of the place that was taken, signed now. Adds the cookies that go with it to the
 * answer.
 */
str place_token(struct enter_request *e, int64_t now_ms, char out[TOKEN_TEXT_BYTES]);

#endif
