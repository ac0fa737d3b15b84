/*
 * str: a view of bytes that the caller does not own. Not zero-terminated, may hold any byte. Passed
 * by value; valid only as long as the bytes are.
 */
#ifndef ADMITONE_BASE_STR_H
#define ADMITONE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct str {
    const char *at;
    size_t len;
} str;

/* A string literal, or a char array that is full but for its terminator, as a str. */
#define STR(literal) ((str){(literal), sizeof(literal) - 1})
/* The same for static tables, where C17 wants a constant initialiser. */
#define STR_INIT(literal)                                                                          \
    { (literal), sizeof(literal) - 1 }

static inline str str_of(const char *zero_terminated) {
    return (str){zero_terminated, zero_terminated == NULL ? 0 : strlen(zero_terminated)};
}

static inline bool str_eq(str a, str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

/* Returns less than, equal to or greater than 0: compares byte by byte; a prefix comes before a
 * longer text. */
int str_compare(str a, str b);

/* For hash tables; the seed is random, so that no client can choose texts that collide. */
uint64_t str_hash(str s, uint64_t seed);

/* For secrets: takes the same time wherever they differ; only the length may be observed. */
bool str_eq_secret(str a, str b);

static inline bool str_starts(str s, str prefix) {
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.at, prefix.at, prefix.len) == 0);
}

/* The rest of s behind its first n bytes. */
static inline str str_skip(str s, size_t n) {
    if (s.len == 0) return s; /* `at` may be NULL, to which C adds nothing, not even 0 */
    return n >= s.len ? (str){s.at + s.len, 0} : (str){s.at + n, s.len - n};
}

/* ASCII only: case in HTTP names and configuration words, never in people's text. */
bool str_eq_nocase_of_len(const char *a, const char *b, size_t len);
static inline bool str_eq_nocase(str a, str b) {
    return a.len == b.len && str_eq_nocase_of_len(a.at, b.at, a.len);
}

/* Cuts *rest at the first `separator`: returns what stood before it and leaves what follows.
 * Returns false when *rest was already used up (its `at` is NULL then). */
bool str_split(str *rest, char separator, str *part);

/* Without spaces and tabs at either end. */
str str_trim(str s);

/* A whole decimal number, nothing before or behind it; false on anything else or overflow. */
bool str_to_i64(str s, int64_t *out);

/* Copies into a fixed array and terminates; false (and an empty string) when it does not fit. */
bool str_copy(str s, char *out, size_t size);

/* The longest beginning of a UTF-8 text that has at most `max` bytes and no half character. */
str str_cut(str text, size_t max);

/* 1 to `max` letters, digits, '_', '-' and '.': what may stand anywhere without being escaped. */
bool str_is_name(str s, size_t max);

/* Whether it matches a POSIX extended regular expression, which must be a sound one. Slow: for
 * settings. */
bool str_matches(const char *zero_terminated, const char *regex);

/* Well-formed UTF-8 (no surrogates, no overlong forms) without control characters. */
bool str_is_text(str s);

#endif
