/*
 * ticker: calls a function on a worker's loop at an interval.
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
/* Ticks every `every_ms` from now on; replaces the interval that was set before. This and the
 * functions below: before the worker starts, or on its thread. */
void ticker_start(struct ticker *t, int64_t every_ms);
void ticker_stop(struct ticker *t);
bool ticker_runs(const struct ticker *t);
/* Closes it for good; the worker does not end before that. The struct must stay until the worker
 * has ended. */
void ticker_close(struct ticker *t);

#endif
