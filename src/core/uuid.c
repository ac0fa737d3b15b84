#include "core/uuid.h"

#include <assert.h>
#include <sys/random.h>

static const char hex[] = "0123456789abcdef";

static bool has_dash_before(size_t byte) {
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

struct uuid uuid_new(int64_t now_ms) {
    struct uuid u;
    ssize_t got = getrandom(u.bytes, sizeof u.bytes, 0);
    assert(got == sizeof u.bytes); /* so few bytes come at once or not at all */
    for (int i = 0; i < 6; i++) u.bytes[i] = (unsigned char)((uint64_t)now_ms >> (40 - 8 * i));
    u.bytes[6] = (unsigned char)((u.bytes[6] & 0x0f) | 0x70); /* the version */
    u.bytes[8] = (unsigned char)((u.bytes[8] & 0x3f) | 0x80); /* the variant */
    return u;
}

void uuid_format(const struct uuid *u, char out[UUID_TEXT_BYTES]) {
    char *to = out;
    for (size_t i = 0; i < sizeof u->bytes; i++) {
        if (has_dash_before(i)) *to++ = '-';
        *to++ = hex[u->bytes[i] >> 4];
        *to++ = hex[u->bytes[i] & 15];
    }
    assert(to == out + UUID_TEXT_BYTES);
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool uuid_parse(str text, struct uuid *out) {
    if (text.len != UUID_TEXT_BYTES) return false;
    const char *at = text.at;
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        if (has_dash_before(i) && *at++ != '-') return false;
        int high = digit_of(at[0]);
        int low = digit_of(at[1]);
        if (high < 0 || low < 0) return false;
        out->bytes[i] = (unsigned char)(high << 4 | low);
        at += 2;
    }
    return out->bytes[6] >> 4 == 7 && out->bytes[8] >> 6 == 2;
}
