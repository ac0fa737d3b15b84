/*
 * ticker: calls a function on a worker's loop again and again.
 */
#ifndef ADMITONE_RUN_TICKER_H
#define ADMITONE_RUN_TICKER_H

#include <stdbool.h>

#include <uv.h>

struct ticker {
    uv_timer_t timer;
    void (*tick)(void *to);
    void *to;
};

/* On a worker's loop, before it starts or on its thread. Does not tick yet. */
void ticker_init(struct ticker *t, uv_loop_t *loop, void (*tick)(void *to), void *to);
/* Every so often from now on, in place of what was set before. Before the worker starts, or on its
 * thread, like the rest. */
void ticker_start(struct ticker *t, int64_t every_ms);
void ticker_stop(struct ticker *t);
bool ticker_runs(const struct ticker *t);
/* For good: without it the worker does not end. The memory stays until the worker has. */
void ticker_close(struct ticker *t);

#endif
