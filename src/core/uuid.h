/*
 * uuid: names that need no counter: 48 bits of time in milliseconds, then random ones (RFC 9562,
 * version 7). So they grow with time, and rows under them append. A value; no I/O but the system's
 * random numbers, of which each thread keeps a few in advance.
 */
#ifndef ADMITONE_CORE_UUID_H
#define ADMITONE_CORE_UUID_H

#include "base/str.h"

/* "018f3c6e-7d2a-7b3c-9d4e-5f60718293a4", without a terminator. */
#define UUID_TEXT_BYTES 36

struct uuid {
    unsigned char bytes[16];
};

struct uuid uuid_new(int64_t now_ms);
/* The one that belongs to a digest, of which it uses the first 16 bytes (RFC 9562, version 8). */
struct uuid uuid_of_digest(const unsigned char *digest);
void uuid_format(const struct uuid *u, char out[UUID_TEXT_BYTES]);
/* Only the form that uuid_format writes, and only versions 7 and 8; letters in either case. */
bool uuid_parse(str text, struct uuid *out);

/* When it was made. */
static inline int64_t uuid_time_ms(const struct uuid *u) {
    int64_t ms = 0;
    for (size_t i = 0; i < 6; i++) ms = ms << 8 | u->bytes[i];
    return ms;
}

static inline bool uuid_eq(const struct uuid *a, const struct uuid *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

#endif
