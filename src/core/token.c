#include "core/token.h"

#include <assert.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/mem.h"

#define TOKEN_VERSION 1
#define PAYLOAD_BYTES 31
#define MAC_BYTES 16
#define RAW_BYTES (PAYLOAD_BYTES + MAC_BYTES)
static_assert((RAW_BYTES * 8 + 5) / 6 == TOKEN_TEXT_BYTES, "the text's length follows");

static const char label[] = "admitone entry token";

struct signer {
    EVP_MAC_CTX *mac; /* NULL: there is no such key */
    unsigned char id;
};

struct token_box {
    struct signer current;
    struct signer previous;
};

static bool mac_of(EVP_MAC_CTX *mac, const void *bytes, size_t len, unsigned char out[32]) {
    size_t made = 0;
    /* Without a key: the context keeps the one it has, which saves most of the time. */
    return EVP_MAC_init(mac, NULL, 0, NULL) == 1 &&
           EVP_MAC_update(mac, (const unsigned char *)label, sizeof label) == 1 &&
           EVP_MAC_update(mac, bytes, len) == 1 && EVP_MAC_final(mac, out, &made, 32) == 1 &&
           made == 32;
}

static bool signer_init(struct signer *s, str key) {
    if (key.len == 0) return true;
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    unsigned char of_nothing[32];
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    s->mac = hmac == NULL ? NULL : EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    if (s->mac == NULL) return false;
    if (EVP_MAC_init(s->mac, (const unsigned char *)key.at, key.len, params) != 1) return false;
    if (!mac_of(s->mac, "", 0, of_nothing)) return false;
    s->id = of_nothing[0];
    return true;
}

struct token_box *token_box_new(str current, str previous) {
    assert(current.len > 0);
    struct token_box *box = mem_new(sizeof *box);
    if (signer_init(&box->current, current) && signer_init(&box->previous, previous)) return box;
    token_box_free(box);
    return NULL;
}

void token_box_free(struct token_box *box) {
    EVP_MAC_CTX_free(box->current.mac);
    EVP_MAC_CTX_free(box->previous.mac);
    mem_free(box);
}

/* Big endian. */
static unsigned char *put(unsigned char *out, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) out[i] = (unsigned char)value;
    assert(value == 0);
    return out + bytes;
}

static uint64_t get(const unsigned char **in, int bytes) {
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | *(*in)++;
    return value;
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void encode(const unsigned char raw[RAW_BYTES], char out[TOKEN_TEXT_BYTES]) {
    uint32_t bits = 0;
    int held = 0;
    size_t at = 0;
    for (size_t i = 0; i < RAW_BYTES; i++) {
        bits = bits << 8 | raw[i];
        held += 8;
        while (held >= 6) {
            held -= 6;
            out[at++] = alphabet[bits >> held & 63];
        }
    }
    if (held > 0) out[at++] = alphabet[bits << (6 - held) & 63];
    assert(at == TOKEN_TEXT_BYTES);
}

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* One text per token: bits that stand for nothing must be 0. */
static bool decode(str text, unsigned char raw[RAW_BYTES]) {
    if (text.len != TOKEN_TEXT_BYTES) return false;
    uint32_t bits = 0;
    int held = 0;
    size_t at = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_of(text.at[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        raw[at++] = (unsigned char)(bits >> held);
    }
    assert(at == RAW_BYTES);
    return (bits & ((1U << held) - 1)) == 0;
}

void token_sign(struct token_box *box, const struct token *t, char out[TOKEN_TEXT_BYTES]) {
    unsigned char raw[PAYLOAD_BYTES + 32];
    unsigned char *at = put(raw, TOKEN_VERSION, 1);
    at = put(at, box->current.id, 1);
    at = put(at, (uint64_t)t->event_key, 8);
    at = put(at, t->lane, 1);
    at = put(at, t->seq, 6);
    at = put(at, t->user_hash, 8);
    at = put(at, (uint64_t)t->issued_ms, 6);
    assert(at == raw + PAYLOAD_BYTES);
    bool made = mac_of(box->current.mac, raw, PAYLOAD_BYTES, raw + PAYLOAD_BYTES);
    assert(made);
    encode(raw, out);
}

static bool is_by(const struct signer *s, const unsigned char raw[RAW_BYTES]) {
    unsigned char mac[32];
    return s->mac != NULL && raw[1] == s->id && mac_of(s->mac, raw, PAYLOAD_BYTES, mac) &&
           CRYPTO_memcmp(mac, raw + PAYLOAD_BYTES, MAC_BYTES) == 0;
}

bool token_verify(struct token_box *box, str text, struct token *out) {
    unsigned char raw[RAW_BYTES];
    if (!decode(text, raw) || raw[0] != TOKEN_VERSION) return false;
    if (!is_by(&box->current, raw) && !is_by(&box->previous, raw)) return false;
    const unsigned char *at = raw + 2;
    out->event_key = (int64_t)get(&at, 8);
    out->lane = (unsigned)get(&at, 1);
    out->seq = get(&at, 6);
    out->user_hash = get(&at, 8);
    out->issued_ms = (int64_t)get(&at, 6);
    return true;
}

uint64_t token_user_hash(str user) {
    return str_hash(user, 0);
}
