/*
 * blocking: a connection to the master for threads that may wait: greeted, and by its address or
 * through Sentinels, as a link's. The caller frees it with redisFree.
 */
#ifndef ADMITONE_HOT_REDIS_BLOCKING_H
#define ADMITONE_HOT_REDIS_BLOCKING_H

#include <hiredis/hiredis.h>

#include "hot/redis/address.h"
#include "port/hot.h"

/* `step_ms`: for each connection, and each answer on it. NULL: `why` says why, for people. */
redisContext *blocking_connect(const struct redis_address *address, int64_t step_ms,
                               char identity[HOT_IDENTITY_BYTES], struct buf *why);

#endif
