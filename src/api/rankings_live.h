/*
 * rankings_live: the streams of those who watch the boards. Each worker has the ones of its own
 * connections, by board. While anybody watches one it is looked at once a second and written once;
 * whoever does not know it so yet is sent that, at most once a second.
 *
 * Nothing waits for anybody: who is late is told how it stands by then. While the store can't be
 * asked the streams stay, and say nothing.
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
