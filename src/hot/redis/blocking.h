/*
 * blocking: a connection to the master for threads that may wait: found by its address or through
 * Sentinels, and after the handshake, as that of a link. The caller frees it with redisFree.
 */
#ifndef ADMITONE_HOT_REDIS_BLOCKING_H
#define ADMITONE_HOT_REDIS_BLOCKING_H

#include <hiredis/hiredis.h>

#include "hot/redis/address.h"
#include "port/hot.h"

/* `step_ms`: the timeout of each connection, and of each reply. NULL: `why` says why, for people.
 */
redisContext *blocking_connect(const struct redis_address *address, int64_t step_ms,
                               char identity[HOT_IDENTITY_BYTES], struct buf *why);

#endif
