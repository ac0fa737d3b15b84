/* SHA-256 by OpenSSL. */
#include "core/sha256.h"

#include <assert.h>

#include <openssl/evp.h>

void sha256_of(str text, unsigned char out[SHA256_BYTES]) {
    size_t made = 0;
    int done =
        EVP_Q_digest(NULL, "SHA256", NULL, text.len == 0 ? "" : text.at, text.len, out, &made);
    assert(done == 1 && made == SHA256_BYTES);
}
