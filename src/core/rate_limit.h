/*
 * rate_limit: token buckets of client addresses, and of the blocks that addresses belong to, in a
 * table of a fixed size. Pure: the clock is an argument. One thread at a time: the owner has a
 * lock.
 *
 * A bucket is stored as the time at which it will be full again. What is taken moves that time by
 * its cost; it is refused where that would be further away than the bucket's capacity. So a full
 * bucket needs no record, and the time to wait is known exactly.
 *
 * The table is divided into sets of buckets. A new bucket takes the place of one in its set that
 * is full, or else of the one that is full soonest, which is then forgotten. So a flood of
 * addresses costs no memory, and makes the table forget clients that have taken little before it
 * forgets those that are being refused.
 *
 * For a table that shares its counts with other nodes, the buckets also count what the other nodes
 * have not been told yet.
 */
#ifndef ADMITONE_CORE_RATE_LIMIT_H
#define ADMITONE_CORE_RATE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is limited. */
enum limit_kind { LIMIT_PLACES, LIMIT_REQUESTS, LIMIT_KINDS };
/* An address of IPv4, or a /64 of IPv6; and its /24, or its /56. */
enum limit_scope { LIMIT_ADDRESS, LIMIT_BLOCK, LIMIT_SCOPES };

/* A place is one unit. A request is several, so that one that costs little can be fewer. */
#define LIMIT_REQUEST_UNITS 10
#define LIMIT_READ_UNITS 1

/* The first bits of an address: 24 or 32 of IPv4, 56 or 64 of IPv6. */
struct limit_key {
    uint64_t prefix; /* the first 64 bits of IPv6, or IPv4 as a number; the other bits are 0 */
    uint8_t bits;    /* 0: the client is not limited */
};

struct limit_client {
    struct limit_key of[LIMIT_SCOPES];
};

/* The client of a 4-byte address of IPv4, or of a 16-byte one of IPv6. */
struct limit_client limit_client_v4(const unsigned char address[4]);
struct limit_client limit_client_v6(const unsigned char address[16]);

struct limit_rule {
    int64_t cost_ns;     /* of a unit: how long it takes until it is free again; 0: no limit */
    int64_t capacity_ns; /* cost of a burst */
};

struct limit_rules {
    struct limit_rule of[LIMIT_KINDS][LIMIT_SCOPES];
};

struct limit_settings {
    int64_t places_per_minute; /* of an address; 0: no limit */
    int64_t places_burst;
    int64_t requests_per_second; /* likewise */
    int64_t requests_burst;
    int64_t block_factor; /* so many times as much for a block */
};

struct limit_rules limit_rules_of(const struct limit_settings *s);
/* Whether they limit anything. */
bool limit_rules_any(const struct limit_rules *r);

struct limit_verdict {
    int64_t wait_ns;     /* 0: it was taken; else nothing was, and this is when it can be */
    enum limit_scope by; /* the bucket with the longer wait */
    bool begins;         /* nothing was refused to the block in the last minute, as far as known */
};

/* How often refusals of one block may be reported. */
#define LIMIT_REPORT_NS INT64_C(60000000000)

/* Other nodes are told what was taken from a bucket when that is this part of its capacity. */
#define LIMIT_SHARE_PART 8

/* What was taken from a bucket and not shared yet; negative if more was given back. */
struct limit_spend {
    struct limit_key key;
    enum limit_kind kind;
    int64_t spent_ns;
    int64_t since_ns; /* the time of the first of it */
};

/* The longest time in which a bucket becomes full, whatever other nodes say. */
#define LIMIT_DEBT_NS_MAX INT64_C(100000000000000000)

#define RATE_TABLE_SET 8

struct rate_table;

/* `shares`: counts what other nodes have to be told. Each kind of bucket has so many sets. */
struct rate_table *rate_table_new(const struct limit_rules *rules, size_t address_sets,
                                  size_t block_sets, uint64_t seed, bool shares);
void rate_table_free(struct rate_table *t);

/* Takes units from the client's two buckets, or from neither. */
struct limit_verdict rate_table_take(struct rate_table *t, const struct limit_client *c,
                                     enum limit_kind kind, int64_t units, int64_t now_ns);
/* What was taken turned out not to be needed. */
void rate_table_give_back(struct rate_table *t, const struct limit_client *c, enum limit_kind kind,
                          int64_t units, int64_t now_ns);

/* What has to be shared, `max` at the most; from now on it counts as shared. Returns how many. */
size_t rate_table_collect(struct rate_table *t, struct limit_spend *out, size_t max);
/* All nodes together have taken so much that the bucket will be full after that time. */
void rate_table_learn(struct rate_table *t, const struct limit_key *key, enum limit_kind kind,
                      int64_t debt_ns, int64_t now_ns);

/* Spreads keys over sets, and sets over tables. */
uint64_t limit_key_hash(const struct limit_key *key, uint64_t seed);

#endif
