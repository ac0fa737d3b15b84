/*
 * redis_probe: a test's own connection to a Redis server, to read and to damage its data. A failure
 * fails the test.
 */
#ifndef ADMITONE_TEST_REDIS_PROBE_H
#define ADMITONE_TEST_REDIS_PROBE_H

#include <hiredis/hiredis.h>

#include "hot/redis/address.h"

struct redis_address probe_address(const char *url);
/* To the first host of the address, and without its password. Freed with redisFree. */
redisContext *probe_connect(const struct redis_address *address);

/* Fails the test if the reply is an error. The next call of probe_do or probe_number frees the
 * reply. */
const redisReply *probe_do(redisContext *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* An integer, or a text that is one. */
int64_t probe_number(redisContext *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The number behind "name:" in INFO. */
int64_t probe_info(redisContext *c, const char *name);
/* Frees what probe_do keeps. */
void probe_end(redisContext *c);

/* Waits until the predicate holds; fails the test with `what` if that takes more than ten
 * seconds. */
void probe_wait(bool (*holds)(void *of), void *of, const char *what);

#endif
