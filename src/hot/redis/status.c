/* The shared status of the Redis server (status.h), and the log messages about its changes. */
#include "hot/redis/status.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"

void redis_status_init(struct redis_status *s, const struct redis_address *address) {
    *s = (struct redis_status){0};
    redis_address_format(address, s->address);
    outage_init(
        &s->outage, "redis",
        "entering and reserving are refused; holds can be confirmed and cancelled, positions are "
        "estimates");
    pthread_mutex_init(&s->lock, NULL);
}

void redis_status_deinit(struct redis_status *s) {
    outage_deinit(&s->outage);
    pthread_mutex_destroy(&s->lock);
}

void redis_status_open(struct redis_status *s, const struct hot_incarnation *incarnation) {
    assert(incarnation == NULL || incarnation->epoch > 0);
    pthread_mutex_lock(&s->lock);
    s->incarnation = incarnation == NULL ? (struct hot_incarnation){0} : *incarnation;
    s->version++;
    pthread_mutex_unlock(&s->lock);
}

struct hot_incarnation redis_status_incarnation(struct redis_status *s) {
    pthread_mutex_lock(&s->lock);
    struct hot_incarnation incarnation = s->incarnation;
    pthread_mutex_unlock(&s->lock);
    return incarnation;
}

void redis_status_unreachable(struct redis_status *s, const struct redis_host *host,
                              const char *why) {
    char address[REDIS_TEXT_BYTES + 16];
    snprintf(address, sizeof address, "%s:%u", host->name, host->port);
    outage_lost(&s->outage, address, why);
}

static const struct {
    const char *code; /* the first word of the error replies of Redis */
    const char *word;
    const char *meaning;
} states[] = {
#define STATE_ROW(symbol, word, meaning) [HOT_STATE_##symbol] = {#symbol, word, meaning},
    HOT_STATE_MAP(STATE_ROW)
#undef STATE_ROW
};

static void redis_status_set_state(struct redis_status *s, enum hot_state state) {
    if (atomic_exchange(&s->state, (int)state) == (int)state) return;
    if (state == HOT_STATE_OK)
        log_info(msg("redis accepts writes again"), kv("address", s->address));
    else
        log_warn(msg("redis refuses writes"), kv("state", states[state].word),
                 kv("address", s->address), kv("meaning", states[state].meaning));
}

enum hot_state redis_status_refused(struct redis_status *s, str error) {
    enum hot_state state = HOT_STATE_OK + 1;
    while (state < HOT_STATES && !str_starts(error, str_of(states[state].code))) state++;
    if (state == HOT_STATES) return HOT_STATE_OK;
    atomic_store(&s->refused, true);
    redis_status_set_state(s, state);
    return state;
}

void redis_status_accepted(struct redis_status *s) {
    if (!atomic_exchange(&s->refused, false)) redis_status_set_state(s, HOT_STATE_OK);
}

bool redis_status_allows_updates(struct redis_status *s) {
    int state = atomic_load_explicit(&s->state, memory_order_relaxed);
    return state == HOT_STATE_OK || state == HOT_STATE_OOM;
}

void redis_status_lost(struct redis_status *s) {
    atomic_store(&s->state, HOT_STATE_OK);
}
