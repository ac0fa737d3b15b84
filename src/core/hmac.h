/*
 * hmac: HMAC-SHA-256 under one key. It keeps the hash's state behind the key, which saves most of
 * the time. Any number of threads may use it.
 */
#ifndef ADMITONE_CORE_HMAC_H
#define ADMITONE_CORE_HMAC_H

#include "base/str.h"

#define HMAC_BYTES 32

struct hmac;

/* The key is not empty. NULL when libcrypto has no HMAC-SHA-256. */
struct hmac *hmac_new(str key);
void hmac_free(struct hmac *h); /* or NULL */

/* Of `label` and `text`, one behind the other. */
void hmac_of(const struct hmac *h, str label, str text, unsigned char out[HMAC_BYTES]);
/* In constant time. */
bool hmac_eq(const unsigned char *a, const unsigned char *b, size_t len);

#endif
