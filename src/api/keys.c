/* The keys that are in force, under a read-write lock, and the answer to a text that claims to be
 * one. */
#include "api/keys.h"

#include <pthread.h>

#include "api/key_guard.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"

struct keys {
    size_t admin_len;
    struct key admin;
    struct key_guard *guard;
    pthread_rwlock_t lock;
    struct key_ring named; /* under lock */
};

struct keys *keys_new(str admin_key) {
    struct keys *k = mem_new(sizeof *k);
    k->admin_len = admin_key.len;
    k->admin = (struct key){.name = ADMIN_KEY_NAME, .role = KEY_ROLE_OWN};
    sha256_of(admin_key, k->admin.digest);
    k->guard = key_guard_new();
    pthread_rwlock_init(&k->lock, NULL);
    return k;
}

void keys_free(struct keys *k) {
    if (k == NULL) return;
    key_guard_free(k->guard);
    pthread_rwlock_destroy(&k->lock);
    mem_free(k);
}

void keys_set(struct keys *k, const struct key_ring *named) {
    pthread_rwlock_wrlock(&k->lock);
    k->named = *named;
    pthread_rwlock_unlock(&k->lock);
}

bool keys_is_candidate(const struct keys *k, str text) {
    return text.len == k->admin_len || str_starts(text, STR(KEY_PREFIX));
}

/* The digests are compared, and always all of them. So the time shows neither how much of a key is
 * right nor which key it is. */
static bool keys_look_up(struct keys *k, str text, struct key_holder *out) {
    unsigned char digest[SHA256_BYTES];
    sha256_of(text, digest);
    pthread_rwlock_rdlock(&k->lock);
    const struct key *named = key_ring_find(&k->named, digest);
    bool is_admin = str_eq_secret((str){(const char *)digest, sizeof digest},
                                  (str){(const char *)k->admin.digest, sizeof digest});
    const struct key *found = is_admin ? &k->admin : named;
    if (found != NULL) {
        out->role = found->role;
        memcpy(out->name, found->name, sizeof out->name);
    }
    pthread_rwlock_unlock(&k->lock);
    return found != NULL;
}

static void keys_note_wrong(struct keys *k, const struct address *client, int64_t now_ms) {
    int64_t wrong = key_guard_wrong(k->guard, client, now_ms);
    count(COUNT_ADMIN_KEYS_WRONG, 1);
    if (wrong == 0) return;
    char text[ADDRESS_TEXT_BYTES];
    address_format(client, text);
    log_warn(msg("a client sent a wrong key"), kv("client", text), kv_i64("wrong_keys", wrong));
}

enum err keys_find(struct keys *k, str text, const struct address *client, bool counts,
                   struct key_holder *out, int64_t *wait_s) {
    int64_t now_ms = clock_steady_ms();
    int64_t wait_ms = counts ? key_guard_wait_ms(k->guard, client, now_ms) : 0;
    *wait_s = (wait_ms + 999) / 1000;
    if (wait_ms > 0) {
        count(COUNT_ADMIN_KEYS_DELAYED, 1);
        return ERR_TOO_MANY_WRONG_KEYS;
    }
    if (keys_look_up(k, text, out)) return ERR_OK;
    if (counts) keys_note_wrong(k, client, now_ms);
    return ERR_ADMIN_KEY_REQUIRED;
}
