/*
 * live: streams of positions in a queue. Each worker has the streams of its own connections, by
 * event and in order of when they are due; one look at the queue serves a few hundred of them.
 *
 * The place is looked up each time it is sent, and not stored: an announcement only makes this
 * happen earlier, and a subscriber that missed one is sent the same at the next tick.
 */
#ifndef ADMITONE_API_LIVE_H
#define ADMITONE_API_LIVE_H

#include "api/api.h"
#include "run/worker.h"

struct live;

/* For api->workers[index]. Before the worker starts. */
struct live *live_new(struct api *api, struct worker *w, size_t index);
/* On the worker's thread, when it serves no more. The streams end by themselves. */
void live_close(struct live *l);
/* When the worker has ended. */
void live_free(struct live *l);

/* Entries have become ACTIVE or have ended: their subscribers on all workers are sent that. `to` is
 * the api; on any worker. For struct waiting_room. */
void live_announce(void *to, int64_t event_key, const uint64_t *seqs, size_t count);

/* How many streams of places in the queue of that event this process has. From any thread. */
size_t live_streams(struct api *api, int64_t event_key);

/* In how many milliseconds a client whose stream ends connects again: a random time, so that
 * clients that were disconnected together don't return together. On the worker's thread. */
int64_t live_retry_ms(struct live *l);

#endif
