/*
 * house_seats: the use cases of seats on a service_house, in short words. Sections are told by
 * number (0 is "A"), users by name, seats by lists that end with a 0. What has no desk in its
 * arguments happens on the test's own thread and waits for its answer.
 */
#ifndef ADMITONE_TEST_HOUSE_SEATS_H
#define ADMITONE_TEST_HOUSE_SEATS_H

#include "service_house.h"

/* A section has no more. */
#define HOUSE_SEATS_MAX 100
#define SEATS(...) ((const uint32_t[]){__VA_ARGS__, 0})

/* The event as the house has it; mem_free frees it. */
struct event *house_event(struct house *h);
/* The event becomes that, in the ledger and then everywhere. */
enum err house_put(struct house *h, const struct event *wanted);
/* The number of a new ACTIVE entry, or of the one that the user has. */
uint64_t house_let_in(struct house *h, const char *user);

/* ---- hold ---- */

struct wish {
    const char *user;
    uint64_t seq; /* of the user's entry */
    size_t section;
    enum strategy strategy;
    uint32_t quantity;     /* any so many, or */
    const uint32_t *seats; /* these */
    const char *key;       /* NULL: no idempotency key */
    unsigned char body;    /* stands for the request's body */
};

/* One request, from the wish to its answer. Stays where it is from prepare to end. */
struct house_hold {
    struct holding holding;
    struct arena arena;
    struct idempotency idempotency;
    _Atomic bool back;
    enum err result;
    void (*done)(struct house_hold *x); /* NULL, or called on the worker when it is back */
};

/* From any thread; the wish may go then, but for the texts in it. */
void house_hold_prepare(struct house *h, struct house_hold *x, const struct wish *w);
/* On the thread of the desk. */
void house_hold_start(struct house *h, struct desk *d, struct house_hold *x);
bool house_hold_is_back(void *hold); /* for harness_wait */
/* Whether it was answered as the request that made that reservation. Before its end. */
bool house_hold_replays(const struct house_hold *x, const struct uuid *id);
void house_hold_end(struct house_hold *x);

/* All of it, at the house's desk. *out (may be NULL), on OK and not replayed: mem_free frees it. */
enum err house_hold(struct house *h, const struct wish *w, struct reservation **out);
/* The same for a hold that must succeed. */
struct uuid house_held(struct house *h, const struct wish *w);

/* ---- and after ---- */

/* *out (may be NULL) is as it is then, or NULL; mem_free frees it. */
enum err house_confirm(struct house *h, const struct uuid *id, const char *user,
                       struct reservation **out);
enum err house_cancel(struct house *h, const struct uuid *id, const char *user,
                      struct reservation **out);
/* As the ledger has it; NULL: there is none. mem_free frees it. */
struct reservation *house_find(struct house *h, const struct uuid *id);
enum err house_leave(struct house *h, uint64_t seq);
/* One tick of the expiry, to its end. */
void house_expire(struct house *h);

/* ---- the seats ---- */

/* Of the hot store: one letter per seat, with a terminator. The text lives until the next call. */
const char *house_map(struct house *h, size_t section);
/* Of both stores: how many seats are HELD and CONFIRMED, pending ones included in the hot one. */
void house_assert_seats(struct house *h, size_t section, int64_t held, int64_t confirmed);
/* Live reservations of the user in the hot store; writes `max` of them at the most. */
size_t house_holds(struct house *h, const char *user, struct claim_info *out, size_t max);
/* Fails the test unless ledger and hot store have the same seats and reservations. Part of
 * house_assert_agreement. */
void house_assert_same_seats(struct house *h);

#endif
