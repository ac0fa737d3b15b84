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

static int base64url_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool base64url_decode(str text, void *out) {
    unsigned char *to = out;
    uint32_t bits = 0;
    int held = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = base64url_digit(text.at[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        *to++ = (unsigned char)(bits >> held);
    }
    /* 6 bits left over are a superfluous character. */
    return held < 6 && (bits & ((1U << held) - 1)) == 0;
}
