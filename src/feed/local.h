/*
 * local: the feed in the ledger: a request is a row, which is undecided until its result is written
 * to it (port/feed.h). Nothing else is stored, so there is nothing to acknowledge: a request that
 * was delivered and not decided is read again after a restart.
 *
 * Where several nodes share the ledger, a node works on the partitions of which it has the lease
 * (ledger_request_lease). It renews its leases every second; the partitions of a node that has died
 * or stands still are taken over by the others when its leases have ended. The result of a request
 * is written with the lease's fence, so a node that has lost the lease decides nothing.
 */
#ifndef ADMITONE_FEED_LOCAL_H
#define ADMITONE_FEED_LOCAL_H

#include "port/feed.h"

/* `is_shared`: other nodes may work on the same ledger. */
struct feed *local_feed_new(struct ledger *ledger, size_t workers, bool is_shared);

#endif
