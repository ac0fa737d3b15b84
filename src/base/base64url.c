/* Encoding and decoding of base64url without padding. */
#include "base/base64url.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void base64url_encode(const void *bytes, size_t len, char *out) {
    const unsigned char *in = bytes;
    uint32_t bits = 0;
    int held = 0;
    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | in[i];
        held += 8;
        while (held >= 6) {
            held -= 6;
            *out++ = alphabet[bits >> held & 63];
        }
    }
    if (held > 0) *out = alphabet[bits << (6 - held) & 63];
}

/* One more than the digit; 0: no digit. A table, because a token's characters are random: branches
 * on them would be mispredicted. */
/* clang-format off */
static const unsigned char digits[256] = {
    ['A'] = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
        21, 22, 23, 24, 25, 26,
    ['a'] = 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46,
        47, 48, 49, 50, 51, 52,
    ['0'] = 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, ['-'] = 63, ['_'] = 64,
};
/* clang-format on */

bool base64url_decode(str text, void *out) {
    unsigned char *to = out;
    uint32_t bits = 0;
    int held = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = digits[(unsigned char)text.at[i]];
        if (digit == 0) return false;
        bits = bits << 6 | (digit - 1);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        *to++ = (unsigned char)(bits >> held);
    }
    /* 6 bits left over are a superfluous character. */
    return held < 6 && (bits & ((1U << held) - 1)) == 0;
}
