/* Sealing and opening of entry tokens. */
#include "core/token.h"

#include <assert.h>

#include "base/base64url.h"
#include "base/mem.h"
#include "core/hmac.h"

#define TOKEN_VERSION 1
#define PAYLOAD_BYTES 31
#define MAC_BYTES 16
#define RAW_BYTES (PAYLOAD_BYTES + MAC_BYTES)
static_assert(BASE64URL_CHARS(RAW_BYTES) == TOKEN_TEXT_BYTES, "the text's length follows");

/* With its terminator. */
static const char label[] = "admitone entry token";

struct signer {
    struct hmac *hmac; /* NULL: there is no such key */
    unsigned char id;
};

struct token_box {
    struct signer current;
    struct signer previous;
    struct hmac *users; /* under a public key: a digest */
};

static void mac_of(const struct signer *s, const unsigned char *bytes, size_t len,
                   unsigned char out[HMAC_BYTES]) {
    hmac_of(s->hmac, (str){label, sizeof label}, (str){(const char *)bytes, len}, out);
}

static bool signer_init(struct signer *s, str key) {
    if (key.len == 0) return true;
    unsigned char of_nothing[HMAC_BYTES];
    s->hmac = hmac_new(key);
    if (s->hmac == NULL) return false;
    mac_of(s, NULL, 0, of_nothing);
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
    at = token_put(at, (uint64_t)t->event_key, 8);
    at = token_put(at, t->lane, 1);
    at = token_put(at, t->seq, 6);
    at = token_put(at, t->user_hash, 8);
    at = token_put(at, (uint64_t)t->issued_ms, 6);
    assert(at == raw + PAYLOAD_BYTES);
    mac_of(&box->current, raw, PAYLOAD_BYTES, raw + PAYLOAD_BYTES);
    base64url_encode(raw, RAW_BYTES, out);
}

static bool is_by(const struct signer *s, const unsigned char raw[RAW_BYTES]) {
    unsigned char mac[HMAC_BYTES];
    if (s->hmac == NULL || raw[1] != s->id) return false;
    mac_of(s, raw, PAYLOAD_BYTES, mac);
    return hmac_eq(mac, raw + PAYLOAD_BYTES, MAC_BYTES);
}

bool token_verify(struct token_box *box, str text, struct token *out) {
    unsigned char raw[RAW_BYTES];
    if (text.len != TOKEN_TEXT_BYTES || !base64url_decode(text, raw)) return false;
    if (raw[0] != TOKEN_VERSION) return false;
    if (!is_by(&box->current, raw) && !is_by(&box->previous, raw)) return false;
    const unsigned char *at = raw + 2;
    out->event_key = (int64_t)token_get(&at, 8);
    out->lane = (unsigned)token_get(&at, 1);
    out->seq = token_get(&at, 6);
    out->user_hash = token_get(&at, 8);
    out->issued_ms = (int64_t)token_get(&at, 6);
    return true;
}

uint64_t token_user_hash(struct token_box *box, str user) {
    unsigned char digest[HMAC_BYTES];
    const unsigned char *at = digest;
    hmac_of(box->users, STR(""), user, digest);
    return token_get(&at, 8);
}
