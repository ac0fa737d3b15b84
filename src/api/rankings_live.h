/*
 * rankings_live: streams of the ranking boards: one watch (api/watch.h) for each board. An event is
 * sent when the board has changed; the time in it alone is no change.
 */
#ifndef ADMITONE_API_RANKINGS_LIVE_H
#define ADMITONE_API_RANKINGS_LIVE_H

#include "api/api.h"
#include "run/worker.h"

struct rankings_live;

/* For api->workers[index], which has its `live` already. Before the worker starts. */
struct rankings_live *rankings_live_new(struct api *api, struct worker *w, size_t index);
/* On the worker's thread, when it serves no more. The streams end by themselves. */
void rankings_live_close(struct rankings_live *r);
/* When the worker has ended. */
void rankings_live_free(struct rankings_live *r);

#endif
