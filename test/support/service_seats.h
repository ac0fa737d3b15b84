/*
 * service_seats: short functions for the use cases of seats on a service_fixture. Sections are
 * given by number (0 is "A"), users by name, seats by lists that end with a 0. Functions without a
 * lock_client among their arguments run on the test's own thread and wait for the answer.
 */
#ifndef ADMITONE_TEST_SERVICE_SEATS_H
#define ADMITONE_TEST_SERVICE_SEATS_H

#include "service_fixture.h"

/* A section has no more. */
#define FIXTURE_SEATS_MAX 100
#define SEATS(...) ((const uint32_t[]){__VA_ARGS__, 0})

/* The event as the fixture has it; mem_free frees it. */
struct event *fixture_event(struct fixture *h);
/* The event becomes that, in the ledger and then everywhere. */
enum err fixture_put(struct fixture *h, const struct event *wanted);
/* The number of a new ACTIVE entry, or of the one that the user has. */
uint64_t fixture_admit(struct fixture *h, const char *user);

/* ---- hold ---- */

struct hold_spec {
    const char *user;
    uint64_t seq; /* of the user's entry */
    size_t section;
    enum strategy strategy;
    uint32_t quantity;     /* any seats, this many; or */
    const uint32_t *seats; /* these */
    const char *key;       /* NULL: no idempotency key */
    unsigned char body;    /* stands for the request's body */
};

/* One request, from the spec to its answer. Stays where it is from prepare to end. */
struct fixture_hold {
    struct hold hold;
    struct arena arena;
    struct idempotency idempotency;
    _Atomic bool back;
    enum err result;
    void (*done)(struct fixture_hold *x); /* NULL, or called on the worker when it is back */
};

/* From any thread; the spec may go then, but for the texts in it. */
void fixture_hold_prepare(struct fixture *h, struct fixture_hold *x, const struct hold_spec *w);
/* On the thread of the lock_client. */
void fixture_hold_start(struct fixture *h, struct lock_client *d, struct fixture_hold *x);
bool fixture_hold_is_back(void *hold); /* for harness_wait */
/* Whether it was answered as the request that made that reservation. Before its end. */
bool fixture_hold_replays(const struct fixture_hold *x, const struct uuid *id);
void fixture_hold_end(struct fixture_hold *x);

/* All of it, at the fixture's lock_client. *out (may be NULL), on OK and not replayed: mem_free
 * frees it. */
enum err fixture_hold(struct fixture *h, const struct hold_spec *w, struct reservation **out);
/* The same for a hold that must succeed. */
struct uuid fixture_held(struct fixture *h, const struct hold_spec *w);

/* ---- and after ---- */

/* *out (may be NULL) is as it is then, or NULL; mem_free frees it. */
enum err fixture_confirm(struct fixture *h, const struct uuid *id, const char *user,
                         struct reservation **out);
enum err fixture_cancel(struct fixture *h, const struct uuid *id, const char *user,
                        struct reservation **out);
/* The reservation in the ledger; NULL: there is none. mem_free frees it. */
struct reservation *fixture_find(struct fixture *h, const struct uuid *id);
enum err fixture_leave(struct fixture *h, uint64_t seq);
/* One tick of the expiry, to its end. */
void fixture_expire(struct fixture *h);

/* ---- the seats ---- */

/* The hot store's map: one letter per seat, with a terminator. Valid until the next call. */
const char *fixture_map(struct fixture *h, size_t section);
/* HELD and CONFIRMED seats in both stores; in the hot store including pending ones. */
void fixture_assert_seats(struct fixture *h, size_t section, int64_t held, int64_t confirmed);
/* Live reservations of the user in the hot store; writes `max` of them at the most. */
size_t fixture_holds(struct fixture *h, const char *user, struct claim_info *out, size_t max);
/* Fails the test unless ledger and hot store have the same seats and reservations. Part of
 * fixture_assert_agreement. */
void fixture_assert_same_seats(struct fixture *h);

#endif
