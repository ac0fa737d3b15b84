/*
 * journey: the scenario of a user who wants tickets: takes a place as an anonymous user, waits on
 * the stream of the place (or asks again and again), looks at the event when admitted, chooses a
 * section and seats, reserves, thinks, and buys or goes.
 */
#ifndef ADMITONE_CROWD_JOURNEY_H
#define ADMITONE_CROWD_JOURNEY_H

struct scenario;

extern const struct scenario scenario_journey;

#endif
