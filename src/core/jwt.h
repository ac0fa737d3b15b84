/*
 * jwt: JSON Web Tokens, for exchange with other systems: only HS256, in the compact form. A token's
 * header never decides how the token is verified. Claims are the caller's: here they are text.
 *
 * A box has one key and is used by one thread at a time: one per worker.
 */
#ifndef ADMITONE_CORE_JWT_H
#define ADMITONE_CORE_JWT_H

#include "base/buf.h"

/* Longer tokens are refused without verifying them. */
#define JWT_TEXT_BYTES_MAX 4096

struct jwt_box;

/* The key is not empty. NULL when libcrypto has no HMAC-SHA-256. */
struct jwt_box *jwt_box_new(str key);
void jwt_box_free(struct jwt_box *box); /* or NULL */

/* Appends the token to `out`. Its header is {"alg":"HS256","typ":"JWT"}. */
void jwt_sign(struct jwt_box *box, str payload_json, struct buf *out);

/* True: it was signed with the key; `header` and `payload` are its decoded parts. The caller still
 * has to check that they are JSON, and "alg". False: both are empty. */
bool jwt_verify(struct jwt_box *box, str text, struct buf *header, struct buf *payload);

#endif
