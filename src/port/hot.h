/*
 * hot: what the operations on an event's hot state have in common, be they about its queue or its
 * seats. The contracts are in port/queue.h and port/seats.h.
 */
#ifndef ADMITONE_PORT_HOT_H
#define ADMITONE_PORT_HOT_H

#include "base/err.h"

struct hot_op {
    int64_t event_key;
    int64_t now_ms;
    enum err result; /* out */
};

#endif
