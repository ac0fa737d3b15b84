/* When the loss and the return of a dependency are logged. */
#include "base/outage.h"

#include "base/clock.h"
#include "base/log.h"

#define REMIND_MS 60000
/* Lost again within this, it is reported only when that lasts for as long. */
#define CALM_MS 5000

void outage_init(struct outage *o, const char *name, const char *meaning) {
    *o = (struct outage){.name = name, .meaning = meaning};
    pthread_mutex_init(&o->lock, NULL);
}

void outage_deinit(struct outage *o) {
    pthread_mutex_destroy(&o->lock);
}

void outage_lost(struct outage *o, const char *address, const char *why) {
    int64_t now_ms = clock_steady_ms();
    pthread_mutex_lock(&o->lock);
    if (!atomic_exchange(&o->is_lost, true)) {
        o->since_ms = now_ms;
        o->is_told = false;
    }
    bool was_told = o->is_told;
    bool was_calm = o->back_ms == 0 || o->since_ms - o->back_ms >= CALM_MS;
    int64_t lasts_ms = now_ms - o->since_ms;
    bool tells = was_told ? now_ms - o->told_ms >= REMIND_MS : was_calm || lasts_ms >= CALM_MS;
    if (tells) {
        o->is_told = true;
        o->told_ms = now_ms;
        str_copy(str_of(address), o->address, sizeof o->address);
    }
    pthread_mutex_unlock(&o->lock);
    if (!tells) return;
    log_error(msg(was_told ? "a dependency is still unavailable" : "a dependency is unavailable"),
              kv("dependency", o->name), kv("address", address), kv_i64("seconds", lasts_ms / 1000),
              kv("error", why), kv("meaning", o->meaning));
}

bool outage_back(struct outage *o) {
    if (!atomic_load_explicit(&o->is_lost, memory_order_relaxed)) return false;
    char address[sizeof o->address];
    pthread_mutex_lock(&o->lock);
    bool was_lost = atomic_exchange(&o->is_lost, false);
    bool tells = was_lost && o->is_told;
    if (was_lost) o->back_ms = clock_steady_ms();
    int64_t seconds = (o->back_ms - o->since_ms) / 1000;
    str_copy(str_of(o->address), address, sizeof address);
    pthread_mutex_unlock(&o->lock);
    if (tells)
        log_info(msg("a dependency is available again"), kv("dependency", o->name),
                 kv("address", address), kv_i64("seconds", seconds));
    return was_lost;
}
