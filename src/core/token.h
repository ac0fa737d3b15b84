/*
 * token: the signed, opaque proof of a place in a queue. It names the place and its user, not the
 * place's status, which is looked up by its number. There is no algorithm field that an attacker
 * could change: the signature is a 128-bit truncated HMAC-SHA-256 with a purpose label, compared in
 * constant time.
 *
 * Two keys may live at once: the current one signs, both verify. The key's id in the token is made
 * from the key itself, so every node agrees on it. A box keeps the contexts that libcrypto needs
 * and is used by one thread at a time: one per worker.
 */
#ifndef ADMITONE_CORE_TOKEN_H
#define ADMITONE_CORE_TOKEN_H

#include "base/str.h"

/* In base64url, without padding and terminator. */
#define TOKEN_TEXT_BYTES 63

struct token {
    int64_t event_key;
    uint64_t seq;
    unsigned lane;
    uint64_t user_hash; /* token_user_hash */
    int64_t issued_ms;
};

struct token_box;

/* `previous` may be empty. NULL when libcrypto has no HMAC-SHA-256. */
struct token_box *token_box_new(str current, str previous);
void token_box_free(struct token_box *box); /* or NULL */

void token_sign(struct token_box *box, const struct token *t, char out[TOKEN_TEXT_BYTES]);
/* False: forged, altered, of another key, or no token at all. */
bool token_verify(struct token_box *box, str text, struct token *out);

/* The same on every node, under every key and after every restart. No user can choose a name that
 * has the hash of another's. */
uint64_t token_user_hash(struct token_box *box, str user);

#endif
