/*
 * redis_fixture: a real Redis for tests of the adapter (support/services.h), in an incarnation that
 * the test begins, with events in it; and a separate blocking connection with which the test reads
 * the keys.
 */
#ifndef ADMITONE_TEST_REDIS_FIXTURE_H
#define ADMITONE_TEST_REDIS_FIXTURE_H

#include <hiredis/hiredis.h>

#include "hot/redis/store.h"

/* A node's store, in no incarnation yet. */
struct redis_store *redis_fixture_store(bool redis_clock);
/* The same with limits on arrival, and with the time of its operations. */
struct redis_store *redis_fixture_limited_store(const struct limit_rules *rules);
/* The store forgets everything, and a incarnation begins in it, in which there is the event T/1. */
void redis_fixture_begin(struct redis_store *s, uint32_t epoch);
/* The incarnation that has begun is open to this node, too. */
void redis_fixture_join(struct redis_store *s);

/* Attaches the thread, and turns its loop until calls pass. */
void redis_fixture_attach(struct redis_store *s, uv_loop_t *loop);
/* Waits until that many nodes listen to announcements. */
void redis_fixture_await_listeners(size_t count);

/* A command, which must not fail. The caller frees the reply; or only its number is wanted. */
redisReply *redis_fixture_command(const char *format, ...);
int64_t redis_fixture_number(const char *format, ...);
/* Until it is so. */
void redis_fixture_await_number(int64_t wanted, const char *command);

#endif
