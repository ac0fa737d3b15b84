/*
 * key_guard: slows down a client that tries keys. After a few wrong keys from one address, further
 * ones are not even looked at until some time has passed, which doubles with each wrong key. The
 * table of addresses has a fixed size; IPv6 addresses count by their /64. Safe from any thread.
 */
#ifndef ADMITONE_API_KEY_GUARD_H
#define ADMITONE_API_KEY_GUARD_H

#include "net/address.h"

/* So many wrong keys of one address have no consequence but a line in the log. */
#define KEY_GUARD_FREE 4
#define KEY_GUARD_WAIT_MS_MAX 64000
/* An address without a wrong key for so long is forgotten. */
#define KEY_GUARD_MEMORY_MS 600000
#define KEY_GUARD_WARN_EVERY_MS 60000

struct key_guard;

struct key_guard *key_guard_new(void);
void key_guard_free(struct key_guard *g);

/* How long the address must still wait; 0: its next key is looked at. `now_ms` is steady. */
int64_t key_guard_wait_ms(struct key_guard *g, const struct address *a, int64_t now_ms);
/* The address sent a wrong key. Returns how many it has sent since the last line in the log; 0:
 * it is too early for another line. */
int64_t key_guard_wrong(struct key_guard *g, const struct address *a, int64_t now_ms);

#endif
