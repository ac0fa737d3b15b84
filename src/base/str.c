/* Comparing, splitting, parsing and hashing of byte strings. */
#include "base/str.h"

#include <assert.h>
#include <regex.h>

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool str_eq_nocase_of_len(const char *a, const char *b, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (a[i] != b[i] && lower(a[i]) != lower(b[i])) return false;
    return true;
}

int str_compare(str a, str b) {
    size_t shared = a.len < b.len ? a.len : b.len;
    int order = shared == 0 ? 0 : memcmp(a.at, b.at, shared);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

__extension__ typedef unsigned __int128 wide;

/* Multiply and fold, eight bytes at a time. */
uint64_t str_hash(str s, uint64_t seed) {
    uint64_t h = seed ^ s.len;
    while (s.len > 0) {
        uint64_t word = 0;
        size_t n = s.len < sizeof word ? s.len : sizeof word;
        memcpy(&word, s.at, n);
        wide product = (wide)(h ^ word ^ 0x9e3779b97f4a7c15U) * 0xd6e8feb86659fd93U;
        h = (uint64_t)product ^ (uint64_t)(product >> 64);
        s = str_skip(s, n);
    }
    return h ^ (h >> 32);
}

bool str_eq_secret(str a, str b) {
    if (a.len != b.len) return false;
    volatile unsigned char differs = 0;
    for (size_t i = 0; i < a.len; i++) differs |= (unsigned char)(a.at[i] ^ b.at[i]);
    return differs == 0;
}

bool str_split(str *rest, char separator, str *part) {
    if (rest->at == NULL) return false;
    const char *cut = rest->len == 0 ? NULL : memchr(rest->at, separator, rest->len);
    if (cut == NULL) {
        *part = *rest;
        *rest = (str){NULL, 0};
        return true;
    }
    *part = (str){rest->at, (size_t)(cut - rest->at)};
    *rest = str_skip(*rest, part->len + 1);
    return true;
}

str str_trim(str s) {
    while (s.len > 0 && (s.at[0] == ' ' || s.at[0] == '\t')) s = str_skip(s, 1);
    while (s.len > 0 && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t')) s.len--;
    return s;
}

bool str_to_i64(str s, int64_t *out) {
    bool negative = s.len > 0 && s.at[0] == '-';
    if (negative) s = str_skip(s, 1);
    if (s.len == 0) return false;
    int64_t value = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.at[i];
        if (c < '0' || c > '9') return false;
        /* Summed on the negative side, which reaches one further. */
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, c - '0', &value))
            return false;
    }
    if (!negative && __builtin_sub_overflow(0, value, &value)) return false;
    *out = value;
    return true;
}

bool str_copy(str s, char *out, size_t size) {
    if (s.len >= size) {
        if (size > 0) out[0] = '\0';
        return false;
    }
    if (s.len > 0) memcpy(out, s.at, s.len);
    out[s.len] = '\0';
    return true;
}

str str_cut(str text, size_t max) {
    if (text.len <= max) return text;
    while (max > 0 && ((unsigned char)text.at[max] & 0xc0) == 0x80) max--;
    return (str){text.at, max};
}

bool str_is_name(str s, size_t max) {
    if (s.len == 0 || s.len > max) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.at[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
        if (!ok) return false;
    }
    return true;
}

bool str_is_text(str s) {
    if (s.len == 0) return true;
    const unsigned char *p = (const unsigned char *)s.at;
    const unsigned char *end = p + s.len;
    while (p < end) {
        unsigned char lead = *p++;
        if (lead < 0x80) {
            if (lead < 0x20 || lead == 0x7f) return false;
            continue;
        }
        int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || end - p < more) return false;
        unsigned char low = 0x80;
        unsigned char high = 0xbf;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
        if (lead == 0xc2 && *p < 0xa0) return false; /* C1 controls */
        for (; more > 0; more--, low = 0x80, high = 0xbf)
            if (*p < low || *p++ > high) return false;
    }
    return true;
}

bool str_matches(const char *zero_terminated, const char *regex) {
    regex_t compiled;
    int failed = regcomp(&compiled, regex, REG_EXTENDED | REG_NOSUB);
    assert(failed == 0);
    bool does = regexec(&compiled, zero_terminated, 0, NULL, 0) == 0;
    regfree(&compiled);
    return does;
}
