/*
 * memory_limits: the limits on arrival in this process (port/limits.h), in tables of a fixed size,
 * each with a lock: MEMORY_LIMITS_ADDRESSES addresses and MEMORY_LIMITS_BLOCKS blocks, of which
 * only the pages that were used take memory. An address is in the table of its block. Safe from any
 * thread.
 */
#ifndef ADMITONE_HOT_MEMORY_LIMITS_H
#define ADMITONE_HOT_MEMORY_LIMITS_H

#include "port/limits.h"

#define MEMORY_LIMITS_ADDRESSES 65536
#define MEMORY_LIMITS_BLOCKS 32768

struct memory_limits;

/* `shares`: for an adapter that shares the counts with other nodes, by the two functions below. */
struct memory_limits *memory_limits_new(const struct limit_rules *rules, bool shares);
void memory_limits_free(struct memory_limits *m);

struct limits *memory_limits_port(struct memory_limits *m);

/* As rate_table_collect and rate_table_learn. Only one thread at a time collects. */
size_t memory_limits_collect(struct memory_limits *m, struct limit_spend *out, size_t max);
void memory_limits_learn(struct memory_limits *m, const struct limit_spend *s, int64_t debt_ns,
                         int64_t now_ns);

#endif
