/*
 * jwt: JSON Web Tokens as far as others need to make or read ours: HS256 and nothing else, in the
 * compact form. What a token's header says never chooses how it is verified. Claims are the
 * caller's: here they are text.
 *
 * A box has one key and is used by one thread at a time: one per worker.
 */
#ifndef ADMITONE_CORE_JWT_H
#define ADMITONE_CORE_JWT_H

#include "base/buf.h"

/* Longer ones are refused unseen. */
#define JWT_TEXT_BYTES_MAX 4096

struct jwt_box;

/* The key is not empty. NULL when libcrypto has no HMAC-SHA-256. */
struct jwt_box *jwt_box_new(str key);
void jwt_box_free(struct jwt_box *box); /* or NULL */

/* Appends the token to `out`. Its header is {"alg":"HS256","typ":"JWT"}. */
void jwt_sign(struct jwt_box *box, str payload_json, struct buf *out);

/* True: the key's owner signed it, and `header` and `payload` hold what stands in it, which the
 * caller still has to read: JSON or not, "alg" or not. False: both are empty. */
bool jwt_verify(struct jwt_box *box, str text, struct buf *header, struct buf *payload);

#endif
