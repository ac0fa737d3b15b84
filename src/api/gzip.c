/* Calls zlib. */
#include "api/gzip.h"

#include <assert.h>
#include <zlib.h>

#define GZIP_WINDOW_BITS (15 + 16) /* 16: with a gzip header and trailer */
#define MEM_LEVEL 9

void gzip_compress(str bytes, struct buf *out) {
    z_stream z = {0};
    int result = deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS, MEM_LEVEL,
                              Z_DEFAULT_STRATEGY);
    assert(result == Z_OK && bytes.len < UINT32_MAX);
    size_t room = deflateBound(&z, (uLong)bytes.len);
    z.next_in = (Bytef *)(uintptr_t)bytes.at;
    z.avail_in = (uInt)bytes.len;
    z.next_out = (Bytef *)buf_reserve(out, room);
    z.avail_out = (uInt)room;
    result = deflate(&z, Z_FINISH);
    assert(result == Z_STREAM_END);
    out->len += room - z.avail_out;
    deflateEnd(&z);
}
