/* HMAC-SHA256 by OpenSSL. */
#include "core/hmac.h"

#include <assert.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/mem.h"

struct hmac {
    EVP_MAC_CTX *mac;
};

static bool sum(EVP_MAC_CTX *mac, str label, str text, unsigned char out[HMAC_BYTES]) {
    size_t made = 0;
    /* Without a key: the context keeps the one it has. */
    return EVP_MAC_init(mac, NULL, 0, NULL) == 1 &&
           EVP_MAC_update(mac, (const unsigned char *)label.at, label.len) == 1 &&
           EVP_MAC_update(mac, (const unsigned char *)text.at, text.len) == 1 &&
           EVP_MAC_final(mac, out, &made, HMAC_BYTES) == 1 && made == HMAC_BYTES;
}

struct hmac *hmac_new(str key) {
    assert(key.len > 0);
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    unsigned char of_nothing[HMAC_BYTES];
    struct hmac *h = mem_new(sizeof *h);
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    h->mac = algorithm == NULL ? NULL : EVP_MAC_CTX_new(algorithm);
    EVP_MAC_free(algorithm);
    if (h->mac != NULL &&
        EVP_MAC_init(h->mac, (const unsigned char *)key.at, key.len, params) == 1 &&
        sum(h->mac, STR(""), STR(""), of_nothing))
        return h;
    hmac_free(h);
    return NULL;
}

void hmac_free(struct hmac *h) {
    if (h == NULL) return;
    EVP_MAC_CTX_free(h->mac);
    mem_free(h);
}

void hmac_of(struct hmac *h, str label, str text, unsigned char out[HMAC_BYTES]) {
    bool made = sum(h->mac, label, text, out);
    assert(made); /* as in hmac_new */
}

bool hmac_eq(const unsigned char *a, const unsigned char *b, size_t len) {
    return CRYPTO_memcmp(a, b, len) == 0;
}
