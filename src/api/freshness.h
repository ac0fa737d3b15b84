/*
 * freshness: where several nodes change events, whether this node's catalogue is current enough for
 * a request (service/event_sync.h). On a single node it always is.
 */
#ifndef ADMITONE_API_FRESHNESS_H
#define ADMITONE_API_FRESHNESS_H

#include "api/api.h"

/* For requests that depend on the event's rules and prices. False: the node may have missed a
 * change, and the problem has been answered. */
bool fresh_rules(struct api *api, struct exchange *x);

/* Before a request is answered with "there is no such event". False: the handler returns; either
 * the problem has been answered, or the request continues when the ledger has been asked. */
bool fresh_absence(struct api *api, struct exchange *x, str event);

#endif
