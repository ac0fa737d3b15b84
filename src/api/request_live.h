/*
 * request_live: the paths that show an asynchronous request: its status, and a stream of its
 * changes until its result. Each worker has the streams of its own connections.
 *
 * A request is looked up each time it is sent, and not stored: an announcement only makes this
 * happen earlier, and a subscriber that missed one is sent the same at the next tick.
 */
#ifndef ADMITONE_API_REQUEST_LIVE_H
#define ADMITONE_API_REQUEST_LIVE_H

#include "api/api.h"
#include "run/worker.h"

struct request_live;

/* For api->workers[index]. Before the worker starts. */
struct request_live *request_live_new(struct api *api, struct worker *w, size_t index);
/* On the worker's thread, when it serves no more. The streams end by themselves. */
void request_live_close(struct request_live *l);
/* When the worker has ended. */
void request_live_free(struct request_live *l);

/* Requests were decided, here or on another node: their subscribers on all workers are sent that.
 * `to` is the api; on any thread. For struct requests. */
void request_live_announce(void *to, const struct uuid *ids, size_t count);

#endif
