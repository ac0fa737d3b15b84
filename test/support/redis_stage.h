/*
 * redis_stage: a real Redis for tests of what nodes do with it (support/services.h), in a life that
 * the test begins, with events in it; and a blocking connection of the test's own, to look at what
 * is there.
 */
#ifndef ADMITONE_TEST_REDIS_STAGE_H
#define ADMITONE_TEST_REDIS_STAGE_H

#include <hiredis/hiredis.h>

#include "hot/redis/store.h"

/* A node's store, in no life yet. */
struct redis_store *stage_store(bool own_clock);
/* The store forgets everything, and a life begins in it, in which there is the event T/1. */
void stage_begin_life(struct redis_store *s, uint32_t epoch);
/* The life that has begun is open to this node, too. */
void stage_join_life(struct redis_store *s);

/* Attaches the thread, and turns its loop until calls pass. */
void stage_attach(struct redis_store *s, uv_loop_t *loop);
/* Until so many nodes hear announcements. */
void stage_await_listeners(size_t count);

/* A command, which must not fail. The caller frees the reply; or only its number is wanted. */
redisReply *stage_command(const char *format, ...);
int64_t stage_number(const char *format, ...);
/* Until it is so. */
void stage_await_number(int64_t wanted, const char *command);

#endif
