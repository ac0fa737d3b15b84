/* The limits on arrival, and the timer that shares their counts (arrivals.h). */
#include "service/arrivals.h"

#include "base/clock.h"
#include "base/list.h"

/* A client of no address is not limited. */
struct limit_verdict arrivals_take(const struct arrivals *a, const struct limit_client *c,
                                   enum limit_kind kind, int64_t units) {
    if (c->of[LIMIT_ADDRESS].bits == 0) return (struct limit_verdict){0};
    return limits_take(a->limits, c, kind, units, clock_steady_ns());
}

void arrivals_give_back(const struct arrivals *a, const struct limit_client *c,
                        enum limit_kind kind, int64_t units) {
    if (c->of[LIMIT_ADDRESS].bits == 0) return;
    limits_give_back(a->limits, c, kind, units, clock_steady_ns());
}

/* What could not be shared stays this node's own knowledge: the log says already that the hot store
 * cannot be reached. */
static void arrivals_on_shared(struct limits_share_op *s) {
    CONTAINER_OF(s, struct arrivals, share)->is_sharing = false;
}

static void arrivals_on_tick(void *to) {
    struct arrivals *a = to;
    if (a->is_sharing) return;
    a->is_sharing = true;
    a->share = (struct limits_share_op){.now_ns = clock_steady_ns(), .done = arrivals_on_shared};
    limits_share(a->limits, &a->share);
}

void arrivals_start(struct arrivals *a, uv_loop_t *loop) {
    if (a->limits == NULL) return;
    ticker_init(&a->ticker, loop, arrivals_on_tick, a);
    ticker_start(&a->ticker, ARRIVALS_SHARE_MS);
}

void arrivals_stop(struct arrivals *a) {
    if (a->limits != NULL) ticker_close(&a->ticker);
}
