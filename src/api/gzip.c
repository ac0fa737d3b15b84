/* Calls zlib. */
#include "api/gzip.h"

#include <assert.h>
#include <zlib.h>

/* A window of 32 KiB; with a gzip header and trailer, or with neither. */
#define GZIP_WINDOW (15 + 16)
#define RAW_WINDOW (-15)
#define MEM_LEVEL 9

static void compress_bytes(str bytes, int window, int flush, struct buf *out) {
    z_stream z = {0};
    int result =
        deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, window, MEM_LEVEL, Z_DEFAULT_STRATEGY);
    assert(result == Z_OK && bytes.len < UINT32_MAX / 2);
    size_t room = deflateBound(&z, (uLong)bytes.len) + 16; /* a flush adds a few bytes */
    z.next_in = (Bytef *)(uintptr_t)bytes.at;
    z.avail_in = (uInt)bytes.len;
    z.next_out = (Bytef *)buf_reserve(out, room);
    z.avail_out = (uInt)room;
    result = deflate(&z, flush);
    assert(z.avail_in == 0 && z.avail_out > 0);
    assert(result == (flush == Z_FINISH ? Z_STREAM_END : Z_OK));
    out->len += room - z.avail_out;
    deflateEnd(&z);
}

void gzip_compress(str bytes, struct buf *out) {
    compress_bytes(bytes, GZIP_WINDOW, Z_FINISH, out);
}

static uint32_t crc_of(str bytes) {
    return (uint32_t)crc32(0, (const Bytef *)bytes.at, (uInt)bytes.len);
}

void gzip_part_init(struct gzip_part *part, str bytes, bool is_last) {
    *part = (struct gzip_part){.crc = crc_of(bytes), .len = bytes.len};
    /* A full flush ends at a whole byte, and nothing behind it refers to what is before it. */
    compress_bytes(bytes, RAW_WINDOW, is_last ? Z_FINISH : Z_FULL_FLUSH, &part->deflated);
}

void gzip_part_deinit(struct gzip_part *part) {
    buf_deinit(&part->deflated);
}

static void add_little_endian(struct buf *out, uint32_t n, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) buf_add_char(out, (char)(n >> (8 * i) & 0xff));
}

void gzip_join(const struct gzip_part *first, str middle, const struct gzip_part *last,
               struct buf *out) {
    static const char header[10] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 2, 3};
    assert(middle.len <= GZIP_MIDDLE_BYTES_MAX);
    uint32_t len = (uint32_t)middle.len;
    buf_append(out, header, sizeof header);
    buf_add(out, buf_str(&first->deflated));
    /* A block that is not compressed, and not the last one (RFC 1951, 3.2.4). */
    buf_add_char(out, 0);
    add_little_endian(out, len, 2);
    add_little_endian(out, ~len & 0xffff, 2);
    buf_add(out, middle);
    buf_add(out, buf_str(&last->deflated));
    uLong crc = crc32_combine(first->crc, crc_of(middle), (z_off_t)middle.len);
    crc = crc32_combine(crc, last->crc, (z_off_t)last->len);
    add_little_endian(out, (uint32_t)crc, 4);
    add_little_endian(out, (uint32_t)(first->len + middle.len + last->len), 4);
}
