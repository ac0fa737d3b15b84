/*
 * adaptive_load: how busy each `adaptive` section is, and so whether it is hot (core/adaptive.h).
 * A section has a record while requests are under way or it is hot; another section is calm.
 * Any thread may call these functions.
 */
#ifndef ADMITONE_SERVICE_ADAPTIVE_LOAD_H
#define ADMITONE_SERVICE_ADAPTIVE_LOAD_H

#include <pthread.h>

#include "base/map.h"
#include "core/adaptive.h"

struct adaptive_load {
    struct adaptive_rules rules; /* the caller fills them in */

    /* Private. */
    pthread_mutex_t lock;
    struct map sections; /* under lock: section key → struct section_load */
    size_t sections_max; /* under lock: above this, records of sections that are calm now go */
};

void adaptive_load_init(struct adaptive_load *a);
void adaptive_load_deinit(struct adaptive_load *a);

/* A request begins, while `crowd` users wait in the queue. Returns whether the section is hot. */
bool adaptive_load_begin(struct adaptive_load *a, int64_t section_key, int64_t crowd);
/* A request that has begun has waited for the section's lock. */
void adaptive_load_waited(struct adaptive_load *a, int64_t section_key, int64_t waited_ms);
/* A request that has begun is over. */
void adaptive_load_end(struct adaptive_load *a, int64_t section_key);
bool adaptive_load_is_hot(struct adaptive_load *a, int64_t section_key);

#endif
