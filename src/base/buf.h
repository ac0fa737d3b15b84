/*
 * buf: bytes that grow at the end. Owns its memory; not shared between threads.
 * `bytes` is NULL while nothing was ever written. Appending never fails (base/mem.h).
 */
#ifndef ADMITONE_BASE_BUF_H
#define ADMITONE_BASE_BUF_H

#include <assert.h>

#include "base/str.h"

struct buf {
    char *bytes;
    size_t len;
    size_t cap;
};

void buf_deinit(struct buf *b);
/* The part of buf_reserve that is not taken often. */
void buf_grow(struct buf *b, size_t more);
void buf_add_i64(struct buf *b, int64_t value);
void buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);

/* Makes room for `more` bytes behind `len`, and returns where they go. */
static inline char *buf_reserve(struct buf *b, size_t more) {
    assert(b->len <= b->cap);
    if (b->cap - b->len < more) buf_grow(b, more);
    return b->bytes + b->len;
}

static inline void buf_append(struct buf *b, const void *bytes, size_t len) {
    if (len == 0) return;
    memcpy(buf_reserve(b, len), bytes, len);
    b->len += len;
}

static inline void buf_add(struct buf *b, str s) {
    buf_append(b, s.at, s.len);
}

static inline void buf_add_char(struct buf *b, char c) {
    *buf_reserve(b, 1) = c;
    b->len++;
}

static inline void buf_clear(struct buf *b) {
    b->len = 0;
}

static inline str buf_str(const struct buf *b) {
    return (str){b->bytes, b->len};
}

/* The contents as a C string; the terminator is not counted in len. */
static inline const char *buf_cstr(struct buf *b) {
    *buf_reserve(b, 1) = '\0';
    return b->bytes;
}

#endif
