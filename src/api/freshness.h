/*
 * freshness: on a node among several, whether its catalogue of events can be relied on for a
 * request (service/event_sync.h). Alone, it always can.
 */
#ifndef ADMITONE_API_FRESHNESS_H
#define ADMITONE_API_FRESHNESS_H

#include "api/api.h"

/* For what is taken by the event's rules and prices. False: the node may have missed a change, and
 * the problem has been answered. */
bool fresh_rules(struct api *api, struct exchange *x);

/* Before "there is no such event" is answered. False: the handler returns; either the problem has
 * been answered, or the request was put off until the ledger was asked. */
bool fresh_absence(struct api *api, struct exchange *x, str event);

#endif
