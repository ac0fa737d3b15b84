/*
 * HMAC-SHA256 (RFC 2104). The key is hashed once: a sum begins with a copy of the state behind the
 * key's block.
 *
 * OpenSSL's own HMAC and the functions that it recommends since version 3 (EVP) allocate and free
 * two such copies for each sum, which takes more time than the hashing itself.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "core/hmac.h"

#include <assert.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/mem.h"
#include "core/sha256.h"

#define BLOCK_BYTES 64
#define INNER_PAD 0x36
#define OUTER_PAD 0x5c

struct hmac {
    SHA256_CTX inner; /* behind the key and its inner padding */
    SHA256_CTX outer;
};

static bool hmac_begin(SHA256_CTX *state, const unsigned char key[BLOCK_BYTES], unsigned char pad) {
    unsigned char block[BLOCK_BYTES];
    for (size_t i = 0; i < BLOCK_BYTES; i++) block[i] = key[i] ^ pad;
    bool ok = SHA256_Init(state) == 1 && SHA256_Update(state, block, sizeof block) == 1;
    OPENSSL_cleanse(block, sizeof block);
    return ok;
}

struct hmac *hmac_new(str key) {
    assert(key.len > 0);
    unsigned char block[BLOCK_BYTES] = {0};
    struct hmac *h = mem_new(sizeof *h);
    if (key.len > BLOCK_BYTES)
        sha256_of(key, block);
    else
        memcpy(block, key.at, key.len);
    bool ok = hmac_begin(&h->inner, block, INNER_PAD) && hmac_begin(&h->outer, block, OUTER_PAD);
    OPENSSL_cleanse(block, sizeof block);
    if (ok) return h;
    hmac_free(h);
    return NULL;
}

void hmac_free(struct hmac *h) {
    if (h == NULL) return;
    OPENSSL_cleanse(h, sizeof *h);
    mem_free(h);
}

void hmac_of(const struct hmac *h, str label, str text, unsigned char out[HMAC_BYTES]) {
    SHA256_CTX inner = h->inner;
    SHA256_CTX outer = h->outer;
    unsigned char digest[SHA256_BYTES];
    static_assert(HMAC_BYTES == SHA256_BYTES, "a sum is a digest");
    bool ok = SHA256_Update(&inner, label.at, label.len) == 1 &&
              SHA256_Update(&inner, text.at, text.len) == 1 && SHA256_Final(digest, &inner) == 1 &&
              SHA256_Update(&outer, digest, sizeof digest) == 1 && SHA256_Final(out, &outer) == 1;
    assert(ok);
}

bool hmac_eq(const unsigned char *a, const unsigned char *b, size_t len) {
    return CRYPTO_memcmp(a, b, len) == 0;
}
