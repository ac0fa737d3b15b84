/*
 * gzip: compresses bytes as RFC 1952 says. For bytes that are compressed once and sent often.
 */
#ifndef ADMITONE_API_GZIP_H
#define ADMITONE_API_GZIP_H

#include "base/buf.h"

void gzip_compress(str bytes, struct buf *out);

/* The beginning or the end of a text whose middle is known later. Compressed once; then any middle
 * can be put between the two without compressing them again. */
struct gzip_part {
    struct buf deflated; /* owned */
    uint32_t crc;
    size_t len; /* of the text */
};
void gzip_part_init(struct gzip_part *part, str bytes, bool is_last);
void gzip_part_deinit(struct gzip_part *part);

#define GZIP_MIDDLE_BYTES_MAX 65535
/* The whole text as gzip; `middle` has at most that many bytes, and is not compressed. */
void gzip_join(const struct gzip_part *first, str middle, const struct gzip_part *last,
               struct buf *out);

#endif
