/*
 * catalogue: the events as they are in force now, in memory, for everybody who needs one on the
 * path of a request. Filled from the ledger at start, changed after each commit.
 *
 * Changes arrive from several workers in any order; versions grow over all events and deletions,
 * so the newest always wins, and a deleted event is remembered by its version, as long as a change
 * from before its deletion may still arrive.
 *
 * Reading: between catalogue_open and catalogue_shut, on one thread, events are there and stay
 * as they are. Keep it short: changes wait meanwhile.
 */
#ifndef ADMITONE_SERVICE_CATALOGUE_H
#define ADMITONE_SERVICE_CATALOGUE_H

#include "core/event.h"

struct catalogue;

/* `in_flight_max`: how many changes may be committed and not yet have been told here. */
struct catalogue *catalogue_new(int64_t in_flight_max);
void catalogue_free(struct catalogue *c);

void catalogue_open(struct catalogue *c);
void catalogue_shut(struct catalogue *c);
/* NULL: there is none. */
const struct event *catalogue_find(struct catalogue *c, str type, str id);
/* Steps through all, in no order; *at starts at 0; NULL at the end. */
const struct event *catalogue_next(struct catalogue *c, size_t *at);

/* Takes the event over. An older version than is known changes nothing. */
void catalogue_install(struct catalogue *c, struct event *e);
void catalogue_remove(struct catalogue *c, str type, str id, int64_t version);
size_t catalogue_count(struct catalogue *c);
/* The same with the deleted ones that are still remembered. */
size_t catalogue_remembered(struct catalogue *c);

#endif
