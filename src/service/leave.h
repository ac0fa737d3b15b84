/*
 * leave: the use case of leaving the queue: the user's place ends, and with it every hold that was
 * made from that place. The struct is in the caller's memory and stays until `done` is called, on
 * the caller's worker: later, or before the function returns.
 */
#ifndef ADMITONE_SERVICE_LEAVE_H
#define ADMITONE_SERVICE_LEAVE_H

#include "service/reservations.h"

struct place_leave {
    int64_t event_key;
    uint64_t seq;
    struct place_proof proof;
    struct arena *arena;
    void (*done)(struct place_leave *l, enum err result);

    /* Private; but when it is done, `look` says which user had the place. */
    struct reservations *service;
    struct place_look look;
    int rounds;
    struct holds_op holds;
    struct uuid *ids; /* of those to cancel; it and the next two have room for holds.max */
    bool *cancelled;
    struct reservation_change *changes;
    struct place_end end;
    struct follow_op follow;
};

/* OK, also for a place that has ended before; or a failure. */
void leave_place(struct reservations *r, struct place_leave *l);

#endif
