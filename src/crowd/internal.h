/*
 * internal: what scenarios see of the crowd: a user, and what it can do.
 *
 * A scenario is a table of steps. Each step has a function that begins it (it sends a request, or
 * only decides) and one that judges the answer; both return an outcome, and the table says which
 * step follows each outcome. Only the crowd's thread calls them.
 */
#ifndef ADMITONE_CROWD_INTERNAL_H
#define ADMITONE_CROWD_INTERNAL_H

#include "crowd/client.h"
#include "crowd/crowd.h"

enum outcome {
    OUTCOME_OK,
    OUTCOME_WAIT,    /* not yet */
    OUTCOME_AGAIN,   /* another choice may succeed */
    OUTCOME_NO,      /* the user gives up */
    OUTCOME_REFUSED, /* the server says no */
    OUTCOME_FAILED,
    OUTCOMES,
    OUTCOME_PENDING, /* the answer is awaited */
};

struct user;

/* As `next`: the user ends. After NO, REFUSED or FAILED, here or before, as such; else as BOUGHT.
 */
#define STEP_END 255

struct step {
    const char *name;
    enum outcome (*begin)(struct user *u);
    enum outcome (*answered)(struct user *u, const struct answer *a);
    /* Any answer will do, also none: the crowd does not try again. */
    bool is_parting;
    unsigned char next[OUTCOMES];
};

struct scenario {
    const char *name;
    const struct step *steps; /* it begins with the first */
    /* Where a user goes who gives up in the middle. */
    unsigned char parting;
};

#define USER_COOKIE_BYTES 80
#define USER_TOKEN_BYTES 80
#define USER_ID_BYTES 40
#define USER_SECTION_BYTES 33

struct user {
    struct client_request request; /* first */
    struct crowd *crowd;
    struct list link;
    uint32_t number;
    uint32_t wake; /* number of the latest wake-up; earlier ones are ignored */
    int64_t arrived_ns;
    int64_t due_ns;   /* when what it does now should have been done */
    int64_t delay_ms; /* how long to sleep before the next step */
    enum crowd_state state;
    enum crowd_state end;
    unsigned char step;
    unsigned char failures; /* in a row */
    unsigned char tries;    /* to reserve */
    bool is_asleep;
    bool is_asking;     /* a request or stream is under way */
    enum outcome heard; /* of a stream: what its last event means */

    /* For the scenario. */
    uint32_t quantity;
    int64_t first_seat;             /* 0: any */
    bool picks;                     /* names its seats */
    char cookie[USER_COOKIE_BYTES]; /* "name=value" */
    char token[USER_TOKEN_BYTES];
    char id[USER_ID_BYTES]; /* of the asynchronous request, then of the reservation */
    char section[USER_SECTION_BYTES];
    char key[37]; /* Idempotency-Key of its enter */
};

const struct crowd_options *user_options(const struct user *u);
/* "127.0.0.1:8080" */
const char *user_host(const struct user *u);
int64_t user_buy_percent(const struct user *u);
/* Until the patience is over; 0 or less: it is. */
int64_t user_patience_ms(const struct user *u);
/* How long a user who has no stream sleeps before it asks again: longer when many do. */
int64_t user_poll_ms(const struct user *u);
/* A random number below `below`. */
uint64_t user_random(struct user *u, uint64_t below);
void user_enter_state(struct user *u, enum crowd_state state);
void user_count_seats(struct user *u, int64_t bought);
/* Sends a request; its latency is counted. Returns OUTCOME_PENDING. */
enum outcome user_ask(struct user *u, void (*write)(struct client_request *r, struct buf *out));
/* Opens a stream, if there is room for one more (false: not); the patience ends it. `on_event`
 * returns false after it has set u->heard, which becomes the outcome. */
bool user_listen(struct user *u, void (*write)(struct client_request *r, struct buf *out),
                 bool (*on_event)(struct client_request *r, const struct stream_event *e));

#endif
