/*
 * local: the feed in the ledger: a request is a row, which is undecided until its result is written
 * to it (port/feed.h). Nothing else is stored, so there is nothing to acknowledge: a request that
 * was delivered and not decided is read again after a restart.
 */
#ifndef ADMITONE_FEED_LOCAL_H
#define ADMITONE_FEED_LOCAL_H

#include "port/feed.h"

struct feed *local_feed_new(struct ledger *ledger, size_t workers);

#endif
