/* Signing and verifying of entry tokens and of anonymous users' credentials. */
#include "core/token.h"

#include <assert.h>

#include "base/base64url.h"
#include "base/mem.h"
#include "core/hmac.h"

/* Version 1 had no generation. */
#define TOKEN_VERSION 2
#define PAYLOAD_BYTES 39
#define MAC_BYTES 16
#define RAW_BYTES (PAYLOAD_BYTES + MAC_BYTES)
static_assert(BASE64URL_CHARS(RAW_BYTES) == TOKEN_TEXT_BYTES, "the text's length follows");

#define CREDENTIAL_VERSION 1
#define CREDENTIAL_PAYLOAD_BYTES (2 + ANONYMOUS_BYTES)
#define CREDENTIAL_RAW_BYTES (CREDENTIAL_PAYLOAD_BYTES + MAC_BYTES)
static_assert(BASE64URL_CHARS(CREDENTIAL_RAW_BYTES) == CREDENTIAL_TEXT_BYTES, "likewise");

/* One for each purpose of the key; with their terminators, so that none is another's beginning. A
 * token with its label is one block of SHA-256. */
static const char token_label[] = "entry token";
static const char credential_label[] = "admitone anonymous user";
static const char key_user_label[] = "admitone anonymous user of an idempotency key";
static_assert(sizeof token_label + PAYLOAD_BYTES <= 64 - 9, "with the padding, one block");
#define LABEL(array) ((str){array, sizeof array})

struct signer {
    struct hmac *hmac; /* NULL: there is no such key */
    unsigned char id;
};

struct token_box {
    struct signer current;
    struct signer previous;
    struct hmac *users; /* under a public key: a digest */
};

static void mac_of(const struct signer *s, str label, const unsigned char *bytes, size_t len,
                   unsigned char out[HMAC_BYTES]) {
    hmac_of(s->hmac, label, (str){(const char *)bytes, len}, out);
}

static bool signer_init(struct signer *s, str key) {
    if (key.len == 0) return true;
    unsigned char of_nothing[HMAC_BYTES];
    s->hmac = hmac_new(key);
    if (s->hmac == NULL) return false;
    mac_of(s, LABEL(token_label), NULL, 0, of_nothing);
    s->id = of_nothing[0];
    return true;
}

struct token_box *token_box_new(str current, str previous) {
    assert(current.len > 0);
    struct token_box *box = mem_new(sizeof *box);
    box->users = hmac_new(STR("admitone user"));
    if (box->users != NULL && signer_init(&box->current, current) &&
        signer_init(&box->previous, previous))
        return box;
    token_box_free(box);
    return NULL;
}

void token_box_free(struct token_box *box) {
    if (box == NULL) return;
    hmac_free(box->current.hmac);
    hmac_free(box->previous.hmac);
    hmac_free(box->users);
    mem_free(box);
}

/* Big endian. */
static unsigned char *token_put(unsigned char *out, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) out[i] = (unsigned char)value;
    assert(value == 0);
    return out + bytes;
}

static uint64_t token_get(const unsigned char **in, int bytes) {
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | *(*in)++;
    return value;
}

void token_sign(struct token_box *box, const struct token *t, char out[TOKEN_TEXT_BYTES]) {
    unsigned char raw[PAYLOAD_BYTES + HMAC_BYTES];
    unsigned char *at = token_put(raw, TOKEN_VERSION, 1);
    at = token_put(at, box->current.id, 1);
    at = token_put(at, t->generation, 4);
    at = token_put(at, (uint64_t)t->event_key, 8);
    at = token_put(at, t->lane, 1);
    at = token_put(at, t->seq, 6);
    at = token_put(at, t->user_hash, 8);
    at = token_put(at, (uint64_t)t->issued_ms, 6);
    at = token_put(at, (uint64_t)t->ttl_s, 4);
    assert(at == raw + PAYLOAD_BYTES);
    mac_of(&box->current, LABEL(token_label), raw, PAYLOAD_BYTES, raw + PAYLOAD_BYTES);
    base64url_encode(raw, RAW_BYTES, out);
}

/* `raw`: a version, the key's id, and more, and behind `len` bytes the signature. */
static bool is_by(const struct signer *s, str label, const unsigned char *raw, size_t len) {
    unsigned char mac[HMAC_BYTES];
    if (s->hmac == NULL || raw[1] != s->id) return false;
    mac_of(s, label, raw, len, mac);
    return hmac_eq(mac, raw + len, MAC_BYTES);
}

bool token_verify(struct token_box *box, str text, struct token *out) {
    unsigned char raw[RAW_BYTES];
    if (text.len != TOKEN_TEXT_BYTES || !base64url_decode(text, raw)) return false;
    if (raw[0] != TOKEN_VERSION) return false;
    if (!is_by(&box->current, LABEL(token_label), raw, PAYLOAD_BYTES) &&
        !is_by(&box->previous, LABEL(token_label), raw, PAYLOAD_BYTES))
        return false;
    const unsigned char *at = raw + 2;
    out->generation = (uint32_t)token_get(&at, 4);
    out->event_key = (int64_t)token_get(&at, 8);
    out->lane = (unsigned)token_get(&at, 1);
    out->seq = token_get(&at, 6);
    out->user_hash = token_get(&at, 8);
    out->issued_ms = (int64_t)token_get(&at, 6);
    out->ttl_s = (int64_t)token_get(&at, 4);
    return true;
}

uint64_t token_user_hash(struct token_box *box, str user) {
    unsigned char digest[HMAC_BYTES];
    const unsigned char *at = digest;
    hmac_of(box->users, STR(""), user, digest);
    return token_get(&at, 8);
}

void credential_sign(struct token_box *box, const unsigned char user[ANONYMOUS_BYTES],
                     char out[CREDENTIAL_TEXT_BYTES]) {
    unsigned char raw[CREDENTIAL_PAYLOAD_BYTES + HMAC_BYTES] = {CREDENTIAL_VERSION,
                                                                box->current.id};
    memcpy(raw + 2, user, ANONYMOUS_BYTES);
    mac_of(&box->current, LABEL(credential_label), raw, CREDENTIAL_PAYLOAD_BYTES,
           raw + CREDENTIAL_PAYLOAD_BYTES);
    base64url_encode(raw, CREDENTIAL_RAW_BYTES, out);
}

bool credential_verify(struct token_box *box, str text, unsigned char user[ANONYMOUS_BYTES],
                       bool *is_old) {
    unsigned char raw[CREDENTIAL_RAW_BYTES];
    if (text.len != CREDENTIAL_TEXT_BYTES || !base64url_decode(text, raw)) return false;
    if (raw[0] != CREDENTIAL_VERSION) return false;
    str label = LABEL(credential_label);
    bool is_current = is_by(&box->current, label, raw, CREDENTIAL_PAYLOAD_BYTES);
    if (!is_current && !is_by(&box->previous, label, raw, CREDENTIAL_PAYLOAD_BYTES)) return false;
    memcpy(user, raw + 2, ANONYMOUS_BYTES);
    *is_old = !is_current;
    return true;
}

void credential_user_of_key(struct token_box *box, str idempotency_key,
                            unsigned char user[ANONYMOUS_BYTES]) {
    unsigned char mac[HMAC_BYTES];
    hmac_of(box->current.hmac, LABEL(key_user_label), idempotency_key, mac);
    memcpy(user, mac, ANONYMOUS_BYTES);
}
