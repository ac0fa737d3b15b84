/*
 * arrival: the limits on arrival: how many requests, and new places in queues, a client address and
 * its block may have in a time (service/arrivals.h). Requests with a key are not limited, nor are
 * those from the networks in limits.exempt, nor those whose client address is a trusted proxy's
 * own: that stands for all of its clients. On the exchange's worker only.
 */
#ifndef ADMITONE_API_ARRIVAL_H
#define ADMITONE_API_ARRIVAL_H

#include "api/api.h"

/* The client of a request, as the limits see it, without a key; while the handler runs. */
struct limit_client arrival_client(const struct api *api, const struct exchange *x);

/* Answers a request that was refused. Counts it, and reports the beginning in the log. */
void arrival_refuse(struct exchange *x, const struct limit_client *c, enum limit_kind kind,
                    const struct limit_verdict *why);

#endif
