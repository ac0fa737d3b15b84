/*
 * key_ring: keys with names and roles, as lines of text and in memory. Only their digests are kept:
 * a reader of the file or of the memory cannot use them.
 *
 *     # comment
 *     NAME ROLE sha256:HEX
 *
 * A plain SHA-256 is enough, because a key is random (key_text_new), so it cannot be found by
 * trying likely ones.
 */
#ifndef ADMITONE_CORE_KEY_RING_H
#define ADMITONE_CORE_KEY_RING_H

#include "base/buf.h"
#include "core/sha256.h"

/* X(symbol, word) */
#define KEY_ROLE_MAP(X)                                                                            \
    X(READ, "read")                                                                                \
    X(SHOP, "shop")                                                                                \
    X(OPERATE, "operate")                                                                          \
    X(OWN, "own")

enum key_role {
#define KEY_ROLE_ENUM(symbol, word) KEY_ROLE_##symbol,
    KEY_ROLE_MAP(KEY_ROLE_ENUM)
#undef KEY_ROLE_ENUM
};

/* In order of the enum, ended by a str whose `at` is NULL. */
extern const str key_role_words[];

/* Whether a key of the role `has` may do what needs the role `needed`: `own` may do everything, and
 * `operate` what `read` may. */
bool key_role_includes(enum key_role has, enum key_role needed);

#define KEY_RING_MAX 100
#define KEY_NAME_BYTES_MAX 32
/* Keys that are made by admitone begin like this. */
#define KEY_PREFIX "admitone_"
#define KEY_RANDOM_BYTES 32
#define KEY_TEXT_BYTES 52

struct key {
    char name[KEY_NAME_BYTES_MAX + 1];
    enum key_role role;
    unsigned char digest[SHA256_BYTES];
};

/* Zeroed is empty. */
struct key_ring {
    struct key keys[KEY_RING_MAX];
    size_t count;
};

/* Whether a key may have this name: letters, digits, '_', '-' and '.'. Names by which the audit
 * trail knows other actors are not allowed. */
bool key_name_ok(str name);
/* The name with which a line begins; empty for a comment or a blank line. */
str key_line_name(str line);
void key_line_add(struct buf *out, str name, enum key_role role,
                  const unsigned char digest[SHA256_BYTES]);

/* Replaces *out by the keys of the lines. False: `why` names the line. */
bool key_ring_parse(str text, struct key_ring *out, struct buf *why);
/* The key of that name; NULL: there is none. */
const struct key *key_ring_named(const struct key_ring *ring, str name);
/* The key with this digest; NULL: there is none. Takes the same time whichever it is. */
const struct key *key_ring_find(const struct key_ring *ring,
                                const unsigned char digest[SHA256_BYTES]);

/* A key's text, from random bytes; without a terminator. */
void key_text_from(const unsigned char random[KEY_RANDOM_BYTES], char out[KEY_TEXT_BYTES]);

#endif
