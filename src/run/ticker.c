/* A repeating timer on a loop. */
#include "run/ticker.h"

static void ticker_on_timer(uv_timer_t *timer) {
    struct ticker *t = timer->data;
    t->tick(t->to);
}

void ticker_init(struct ticker *t, uv_loop_t *loop, void (*tick)(void *to), void *to) {
    uv_timer_init(loop, &t->timer);
    t->timer.data = t;
    t->tick = tick;
    t->to = to;
}

void ticker_start(struct ticker *t, int64_t every_ms) {
    uv_timer_start(&t->timer, ticker_on_timer, (uint64_t)every_ms, (uint64_t)every_ms);
}

void ticker_stop(struct ticker *t) {
    uv_timer_stop(&t->timer);
}

bool ticker_runs(const struct ticker *t) {
    return uv_is_active((const uv_handle_t *)&t->timer);
}

void ticker_close(struct ticker *t) {
    if (!uv_is_closing((uv_handle_t *)&t->timer)) uv_close((uv_handle_t *)&t->timer, NULL);
}
