/* Growing and appending of byte buffers. */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

void buf_deinit(struct buf *b) {
    mem_free(b->bytes);
    *b = (struct buf){0};
}

void buf_grow(struct buf *b, size_t more) {
    assert(b->cap - b->len < more);
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap - b->len < more) cap *= 2;
    b->bytes = mem_grow(b->bytes, cap);
    b->cap = cap;
}

void buf_add_i64(struct buf *b, int64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) digits[--at] = '-';
    buf_append(b, digits + at, sizeof digits - at);
}

void buf_addf(struct buf *b, const char *format, ...) {
    assert(format != NULL);
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    assert(len >= 0);
    vsnprintf(buf_reserve(b, (size_t)len + 1), (size_t)len + 1, format, again);
    b->len += (size_t)len;
    va_end(again);
    va_end(args);
}

void buf_consume(struct buf *b, size_t n) {
    assert(n <= b->len);
    b->len -= n;
    if (b->len > 0) memmove(b->bytes, b->bytes + n, b->len);
}
