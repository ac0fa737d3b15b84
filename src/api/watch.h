/*
 * watch: streams that are sent the same text whenever it has changed. Each worker has the streams
 * of its own connections. While a watch has streams, its text is read once a second; streams that
 * have not been sent this version are sent it, each at most once a second.
 *
 * A slow stream delays no other: it is sent the version that is current when it is due. While the
 * text can't be read, the streams stay open and are sent nothing.
 *
 * On the worker's thread, unless stated otherwise.
 */
#ifndef ADMITONE_API_WATCH_H
#define ADMITONE_API_WATCH_H

#include "api/live.h"
#include "base/list.h"
#include "net/stream.h"
#include "run/ticker.h"

/* A text is read, and a stream is sent it, this often at the most. */
#define WATCH_INTERVAL_MS 1000

/* The watches of one worker. */
struct watches {
    struct live *live;
    struct ticker ticker;
    struct list all;
    struct buf text; /* of the event being written */
    bool closed;
};

struct watch {
    struct watches *of;
    /* Begins to read: watch_take or watch_fail is called once for each, before it returns or later.
     */
    void (*read)(struct watch *w);
    /* Frees the struct, after watch_deinit: when it has no streams any more, or the worker has
     * ended. NULL: it stays. */
    void (*idle)(struct watch *w);

    /* Private. */
    struct list link;
    /* In order of version, and so of due_ms: one that is sent the text becomes the last. */
    struct list watchers;
    size_t count;
    bool reading;
    bool failed;      /* the last read */
    int64_t read_ms;  /* when it began; by the steady clock */
    uint64_t version; /* one more with each change */
    struct buf text;  /* the event, as it is sent */
    size_t compared;  /* bytes of the text that make a new version when they change */
};

/* Before the worker starts. */
void watches_init(struct watches *ws, struct live *live, uv_loop_t *loop);
/* When the worker serves no more. The streams end by themselves. */
void watches_close(struct watches *ws);
/* When the worker has ended. Calls `idle` of each watch that has it. */
void watches_deinit(struct watches *ws);

/* `read` and `idle` are filled in, the rest is zeroed. */
void watch_init(struct watch *w, struct watches *of);
void watch_deinit(struct watch *w);

/* Answers the request with a stream of the watch. */
void watch_open(struct watch *w, struct exchange *x);

/* What was read: one event of the stream. It is a new version if its first `compared` bytes differ
 * from before. */
void watch_take(struct watch *w, str text, size_t compared);
/* It can't be read now. */
void watch_fail(struct watch *w);

#endif
