/* Making, writing and reading of UUIDs. */
#include "core/uuid.h"

#include <assert.h>
#include <sys/random.h>

#define TIME_BYTES 6
/* As many as getrandom never gives in part. */
#define RANDOM_AT_ONCE 256

static const char hex[] = "0123456789abcdef";

static bool has_dash_before(size_t byte) {
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

/* To ask the system costs several times as much as all the rest, so it is asked for many. */
static void random_take(unsigned char *out, size_t count) {
    static _Thread_local unsigned char ready[RANDOM_AT_ONCE];
    static _Thread_local size_t left;
    if (left < count) {
        ssize_t got = getrandom(ready, sizeof ready, 0);
        assert(got == sizeof ready); /* so few bytes come at once or not at all */
        left = sizeof ready;
    }
    left -= count;
    memcpy(out, ready + left, count);
}

/* And the variant, which is the same for all. */
static void uuid_set_version(struct uuid *u, int version) {
    u->bytes[6] = (unsigned char)((u->bytes[6] & 0x0f) | version << 4);
    u->bytes[8] = (unsigned char)((u->bytes[8] & 0x3f) | 0x80);
}

struct uuid uuid_new(int64_t now_ms) {
    struct uuid u;
    for (int i = 0; i < TIME_BYTES; i++)
        u.bytes[i] = (unsigned char)((uint64_t)now_ms >> (40 - 8 * i));
    random_take(u.bytes + TIME_BYTES, sizeof u.bytes - TIME_BYTES);
    uuid_set_version(&u, 7);
    return u;
}

struct uuid uuid_of_digest(const unsigned char *digest) {
    struct uuid u;
    memcpy(u.bytes, digest, sizeof u.bytes);
    uuid_set_version(&u, 8);
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

static int uuid_digit(char c) {
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
        int high = uuid_digit(at[0]);
        int low = uuid_digit(at[1]);
        if (high < 0 || low < 0) return false;
        out->bytes[i] = (unsigned char)(high << 4 | low);
        at += 2;
    }
    int version = out->bytes[6] >> 4;
    return (version == 7 || version == 8) && out->bytes[8] >> 6 == 2;
}
