/*
 * keys: the keys by which requests get rights: the admin key, and the named keys, which may be
 * replaced while the server runs. Safe from any thread.
 */
#ifndef ADMITONE_API_KEYS_H
#define ADMITONE_API_KEYS_H

#include "base/err.h"
#include "core/key_ring.h"
#include "net/address.h"

/* The name of the admin key, whose role is `own`. */
#define ADMIN_KEY_NAME "admin"

/* A copy: the keys may be replaced while the request is under way. */
struct key_holder {
    enum key_role role;
    char name[KEY_NAME_BYTES_MAX + 1];
};

struct keys;

struct keys *keys_new(str admin_key);
void keys_free(struct keys *k);
/* Replaces the named keys. */
void keys_set(struct keys *k, const struct key_ring *named);

/* Whether the text has the form of a key: on paths where a key is not required, a client may send
 * other things in its place. */
bool keys_is_candidate(const struct keys *k, str text);

/* Finds the key. OK, or ADMIN_KEY_REQUIRED: it is no key, which counts against the client unless
 * `counts` is false; or TOO_MANY_WRONG_KEYS: it was not looked at, and may be sent again after
 * *wait_s. */
enum err keys_find(struct keys *k, str text, const struct address *client, bool counts,
                   struct key_holder *out, int64_t *wait_s);

#endif
