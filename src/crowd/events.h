/*
 * events: reads server-sent events (text/event-stream) from the bytes that have arrived. Pure.
 */
#ifndef ADMITONE_CROWD_EVENTS_H
#define ADMITONE_CROWD_EVENTS_H

#include "base/buf.h"

#define STREAM_EVENT_NAME_BYTES 32

struct stream_event {
    char name[STREAM_EVENT_NAME_BYTES]; /* empty: it has none, or a longer one */
    str data; /* its lines, joined with '\n'; a view into the buffer, until that changes */
};

/* Reads the next event that is whole, from *at on, and moves *at behind it; rewrites the bytes in
 * between. Comments, and events without data, are skipped. False: there is none; the bytes before
 * *at are no longer needed. */
bool events_take(struct buf *in, size_t *at, struct stream_event *out);

#endif
