/*
 * crowd: many virtual users of one server, over HTTP, in one thread of their own.
 *
 * The users arrive in an open loop: at a rate, whatever the server does. Each then goes through the
 * steps of a scenario (crowd/journey.h). A latency is counted from the moment at which the request
 * was due, so that a server which stalls is charged with the requests that could not be sent in the
 * meantime (no coordinated omission).
 *
 * All users share one loop, a bounded number of connections (crowd/client.h) and one heap of times.
 * A user takes less than a kilobyte, from its arrival to its end.
 *
 * The functions may be called from any thread, one call at a time; crowd_read from any thread at
 * any time before crowd_free.
 */
#ifndef ADMITONE_CROWD_CROWD_H
#define ADMITONE_CROWD_CROWD_H

#include <netinet/in.h>

#include "base/str.h"
#include "crowd/latency.h"

#define CROWD_USERS_MAX 20000
#define CROWD_EVENT_BYTES 128
#define CROWD_STRATEGY_BYTES 24

/* X(symbol, word): where a user is. From BOUGHT on, the user has ended. */
#define CROWD_STATE_MAP(X)                                                                         \
    X(ARRIVING, "arriving") /* not yet there, or asks for a place */                               \
    X(WAITING, "waiting")                                                                          \
    X(ACTIVE, "active")   /* admitted; chooses, or waits for the result of a request */            \
    X(HOLDING, "holding") /* has seats, and thinks */                                              \
    X(BOUGHT, "bought")                                                                            \
    X(GAVE_UP, "gaveUp")  /* by its own decision: patience, or no wish to buy */                   \
    X(REFUSED, "refused") /* the server said no: sold out, closed, a limit */                      \
    X(FAILED, "errors")   /* no answer, an answer that makes no sense, or 503 for too long */

enum crowd_state {
#define CROWD_STATE_ENUM(symbol, word) CROWD_##symbol,
    CROWD_STATE_MAP(CROWD_STATE_ENUM)
#undef CROWD_STATE_ENUM
        CROWD_STATES
};

/* By state. */
extern const str crowd_state_words[];

/* The settings that can be changed while the crowd is there. */
struct crowd_plan {
    int64_t arrivals_per_s;
    int64_t patience_ms; /* from the arrival; it ends the waiting, not a purchase */
    int64_t buy_percent; /* how many of those who hold seats buy them */
};

struct scenario;

struct crowd_options {
    const struct scenario *scenario;
    struct sockaddr_storage server;
    char event[CROWD_EVENT_BYTES];       /* "CONCERT/1"; names need no escapes */
    char strategy[CROWD_STRATEGY_BYTES]; /* empty: that of the section */
    int64_t users;                       /* 1 to CROWD_USERS_MAX */
    int64_t think_ms;                    /* mean; each user takes 0.5 to 1.5 times that */
    struct crowd_plan plan;
    size_t connections_max; /* for requests, at least 1 */
    size_t streams_max;     /* further users poll */
    int64_t timeout_ms;     /* of a request */
};

struct crowd_numbers {
    int64_t users[CROWD_STATES]; /* together: all */
    int64_t seats_bought;
    int64_t requests;   /* answered, or failed */
    int64_t unanswered; /* of these */
    /* Of the last five to ten seconds; when it has ended: of all the time. */
    double requests_per_s;
    uint64_t p50_us;
    uint64_t p99_us;
    size_t connections; /* open, those of streams included */
    size_t streams;
    bool is_leaving; /* crowd_leave has been called */
    bool has_ended;  /* every user has ended; nothing changes any more */
};

struct crowd;

/* NULL: no thread or no file can be opened. */
struct crowd *crowd_start(const struct crowd_options *options);
void crowd_change(struct crowd *c, const struct crowd_plan *plan);
/* Stops arrivals and lets all users give back their places. The crowd has ended within ten seconds.
 */
void crowd_leave(struct crowd *c);
void crowd_read(struct crowd *c, struct crowd_numbers *out);
/* When it has ended: all latencies, of requests that are no streams. */
const struct latency *crowd_latency(const struct crowd *c);
/* Closes every connection at once, ends the thread, and frees it. */
void crowd_free(struct crowd *c);

#endif
