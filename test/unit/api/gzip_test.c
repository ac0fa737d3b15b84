#include "api/gzip.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/mem.h"

static void assert_unzips_to(const struct buf *gzip, str text) {
    char *out = mem_new(text.len + 1);
    z_stream z = {.next_in = (Bytef *)gzip->bytes,
                  .avail_in = (uInt)gzip->len,
                  .next_out = (Bytef *)out,
                  .avail_out = (uInt)text.len + 1};
    assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK); /* only gzip; it checks length and CRC */
    assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(z.avail_in, 0);
    assert_int_equal(z.total_out, text.len);
    if (text.len > 0) assert_memory_equal(out, text.at, text.len);
    inflateEnd(&z);
    mem_free(out);
}

static struct buf text_of_len(size_t len) {
    struct buf text = {0};
    for (size_t i = 0; text.len < len; i++) buf_addf(&text, "<p>%zu</p>\n", i * i % 977);
    text.len = len;
    return text;
}

static void what_is_compressed_comes_out_again(void **state) {
    static const size_t lengths[] = {0, 1, 100, 70000};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct buf text = text_of_len(lengths[i]);
        struct buf gzip = {0};
        gzip_compress(buf_str(&text), &gzip);
        assert_unzips_to(&gzip, buf_str(&text));
        buf_deinit(&text);
        buf_deinit(&gzip);
    }
}

static void any_middle_fits_between_two_parts(void **state) {
    static const size_t lengths[] = {0, 1, 300, GZIP_MIDDLE_BYTES_MAX};
    (void)state;
    for (size_t i = 0; i < 64; i++) {
        struct buf first = text_of_len(lengths[i & 3]);
        struct buf middle = text_of_len(lengths[i >> 2 & 3]);
        struct buf last = text_of_len(lengths[i >> 4 & 3]);
        struct buf whole = {0};
        struct buf gzip = {0};
        struct gzip_part parts[2];
        gzip_part_init(&parts[0], buf_str(&first), false);
        gzip_part_init(&parts[1], buf_str(&last), true);
        gzip_join(&parts[0], buf_str(&middle), &parts[1], &gzip);
        buf_add(&whole, buf_str(&first));
        buf_add(&whole, buf_str(&middle));
        buf_add(&whole, buf_str(&last));
        assert_unzips_to(&gzip, buf_str(&whole));
        for (size_t k = 0; k < 2; k++) gzip_part_deinit(&parts[k]);
        struct buf *const all[] = {&first, &middle, &last, &whole, &gzip};
        for (size_t k = 0; k < 5; k++) buf_deinit(all[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_compressed_comes_out_again),
        cmocka_unit_test(any_middle_fits_between_two_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
