/*
 * handshake: the first commands on a new connection, and the replies that are required: the login
 * is accepted, the server is a master, and it sends which run of the server it is (its identity).
 * Does no I/O. Also the question to a Sentinel.
 */
#ifndef ADMITONE_HOT_REDIS_HANDSHAKE_H
#define ADMITONE_HOT_REDIS_HANDSHAKE_H

#include <hiredis/hiredis.h>

#include "hot/redis/address.h"
#include "port/hot.h"

#define HANDSHAKE_STEPS_MAX 6

enum handshake_answer { HANDSHAKE_MORE, HANDSHAKE_DONE, HANDSHAKE_REFUSED };

struct handshake {
    int steps[HANDSHAKE_STEPS_MAX];
    size_t ends[HANDSHAKE_STEPS_MAX]; /* where each step's command ends in the output of
                                         handshake_begin */
    size_t count;
    size_t answered;
    char run_id[HOT_IDENTITY_BYTES / 2 - 1];
    char replication_id[HOT_IDENTITY_BYTES / 2 - 1];
    char identity[HOT_IDENTITY_BYTES]; /* when DONE: "run id/replication id" */
};

/* Appends all commands to `out`; the replies go to handshake_read, in order. */
void handshake_begin(struct handshake *g, const struct redis_address *address, struct buf *out);
/* REFUSED: `why` says why, for people. */
enum handshake_answer handshake_read(struct handshake *g, const redisReply *reply, struct buf *why);

/* The command that asks a Sentinel where the master is, and its reply. */
void sentinel_ask(const struct redis_address *address, struct buf *out);
bool sentinel_read(const redisReply *reply, struct redis_host *master, struct buf *why);

#endif
