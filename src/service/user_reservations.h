/*
 * user_reservations: the live reservations of a user, in all events.
 */
#ifndef ADMITONE_SERVICE_USER_RESERVATIONS_H
#define ADMITONE_SERVICE_USER_RESERVATIONS_H

#include "service/events.h"
#include "service/reservations.h"

/* In the caller's memory until `done` is called, on the caller's worker: later, or before the
 * function returns. */
struct user_reservations {
    /* The caller fills in user, max, arena and done. By event, in the order of GET /events; of one
     * event the newest first. */
    struct listing listing;

    /* Below: private. */
    struct events *events;
    struct reservations *service;
    struct buyer_op buyer;
    int64_t *event_keys; /* in which the user has reservations */
    size_t event_count;
    size_t event_cap;
};
void user_reservations_list(struct events *ev, struct reservations *r, struct user_reservations *u);

#endif
