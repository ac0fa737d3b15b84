/*
 * rankings_live: streams of the ranking boards. Each worker has the streams of its own connections,
 * by board. While a board has watchers, it is read and rendered once a second; watchers that have
 * not been sent this version are sent it, each at most once a second.
 *
 * A slow watcher delays no other: it is sent the version that is current when it is due. While the
 * store can't be asked, the streams stay open and send nothing.
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
