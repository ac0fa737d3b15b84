/*
 * queue_enter: taking a place on behalf of a request, be it one to enter or, where an event has
 * autoEnter, one for seats.
 */
#ifndef ADMITONE_API_QUEUE_ENTER_H
#define ADMITONE_API_QUEUE_ENTER_H

#include "api/queue_answer.h"
#include "api/users.h"

/* In the request's arena. */
struct entering {
    struct room_entering room; /* room.enter.lane and section_key are the caller's */
    struct exchange *x;
    struct api *api;
    struct queue_event event;
    struct asker asker;
    bool as_token; /* POST /queue/token */
    /* NULL: the answer is the place, whatever it is. Else called instead when it is ACTIVE. */
    void (*on_active)(struct entering *e);
    /* Where section_key is set: called when all its seats are CONFIRMED, and no place was taken. */
    void (*on_sold)(struct entering *e);
    void *own; /* the caller's */
};

/* Takes the place, or finds the one that is there, and answers. */
void place_take(struct entering *e);
/* The token of the place that was taken, signed now; the answer sets the cookies that belong to it.
 */
str place_token(struct entering *e, int64_t now_ms, char out[TOKEN_TEXT_BYTES]);

#endif
