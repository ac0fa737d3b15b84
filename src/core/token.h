/*
 * token: what the server signs for users: the entry token, which proves a place in a queue, and the
 * credential of an anonymous user. Neither has an algorithm field that an attacker could change:
 * the signature is a 128-bit truncated HMAC-SHA-256 with a label for its purpose, compared in
 * constant time.
 *
 * A token names the place and its user, not the place's status, which is looked up by its number.
 * It also names the generation of the ledger that gave out the number: a ledger that was restored
 * from a backup has another one (port/ledger.h), so tokens from before the restore are refused.
 *
 * Two keys may live at once: the current one signs, both verify. The key's id in the text is made
 * from the key itself, so every node agrees on it. A box keeps the contexts that libcrypto needs
 * and is used by one thread at a time: one per worker.
 */
#ifndef ADMITONE_CORE_TOKEN_H
#define ADMITONE_CORE_TOKEN_H

#include "base/str.h"

/* In base64url, without padding and terminator. */
#define TOKEN_TEXT_BYTES 74

struct token {
    uint32_t generation; /* of the ledger */
    int64_t event_key;
    uint64_t seq;
    unsigned lane;
    uint64_t user_hash; /* token_user_hash */
    int64_t issued_ms;
    int64_t ttl_s; /* as the event had it then, for when the event is gone; 0: no end */
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

/* An anonymous user has a random number, of which the public user id is made. Knowing the id is no
 * proof: that is the credential, the number with a signature. */
#define ANONYMOUS_BYTES 16
/* In base64url, without padding and terminator. */
#define CREDENTIAL_TEXT_BYTES 46

void credential_sign(struct token_box *box, const unsigned char user[ANONYMOUS_BYTES],
                     char out[CREDENTIAL_TEXT_BYTES]);
/* False: forged, altered, of another key, or no credential at all. *is_old: the previous key has
 * signed it. */
bool credential_verify(struct token_box *box, str text, unsigned char user[ANONYMOUS_BYTES],
                       bool *is_old);
/* The number of the new user who sends this Idempotency-Key: the same each time it is sent. */
void credential_user_of_key(struct token_box *box, str idempotency_key,
                            unsigned char user[ANONYMOUS_BYTES]);

#endif
