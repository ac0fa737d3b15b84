/*
 * stats: GET /admin/stats and its stream, on service/stats.h: the figures of all events, which are
 * rendered once a second for all streams of the node; or of one event.
 */
#ifndef ADMITONE_API_STATS_H
#define ADMITONE_API_STATS_H

#include "api/api.h"
#include "run/worker.h"
#include "service/stats.h"

/* For struct stats: `to` is the api. */
void stats_render(void *to, struct stats_figures *f);

struct stats_live;

/* The streams of api->workers[index], which has its `live` already. Before the worker starts. */
struct stats_live *stats_live_new(struct api *api, struct worker *w, size_t index);
/* On the worker's thread, when it serves no more. The streams end by themselves. */
void stats_live_close(struct stats_live *l);
/* When the worker has ended. */
void stats_live_free(struct stats_live *l);

#endif
