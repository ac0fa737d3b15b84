#include "http1_feeding.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"

void feeding_init(struct feeding *f) {
    memset(f, 0, sizeof *f);
    http1_init(&f->p);
}

/* The block moves, and its size is exact, so that stale pointers and reads beyond the end are
 * seen by the address sanitizer. */
void feeding_add(struct feeding *f, str more) {
    char *moved = mem_new(f->len + more.len + (f->len + more.len == 0));
    if (f->len > 0) memcpy(moved, f->block, f->len);
    if (more.len > 0) memcpy(moved + f->len, more.at, more.len);
    mem_free(f->block);
    f->block = moved;
    f->len += more.len;
    f->step = http1_feed(&f->p, f->block, f->len);
    if (f->step == HTTP1_CONTINUE) {
        f->continues++;
        f->step = HTTP1_MORE;
    }
}

/* All that the parser found out, as text. */
static void describe(const struct feeding *f, struct buf *out) {
    const struct http1 *p = &f->p;
    buf_addf(out, "step %d error %s phase %d method %d keep-alive %d", (int)f->step,
             err_code(p->error).at, (int)p->phase, (int)p->method, p->keep_alive);
    buf_addf(out, " used %u scanned %u line %u body %u+%u-%u left %u %u trailers %u\n", p->used,
             p->scanned, p->line, p->body, p->body_len, p->body_left, p->headers_left,
             p->chunk_lines_left, (unsigned)p->trailer_count);
    for (size_t i = 0; i < p->header_count; i++) {
        buf_append(out, f->block + p->headers[i].name.at, p->headers[i].name.len);
        buf_add(out, STR("="));
        buf_append(out, f->block + p->headers[i].value.at, p->headers[i].value.len);
        buf_add(out, STR("\n"));
    }
    buf_append(out, f->block + p->path.at, p->path.len);
    buf_add(out, STR("?"));
    buf_append(out, f->block + p->query.at, p->query.len);
    buf_add(out, STR("\n"));
    buf_append(out, f->block + p->body, p->body_len);
}

static void feed_all(struct feeding *f, str input, size_t first, size_t step) {
    feeding_init(f);
    feeding_add(f, (str){input.at, first});
    for (size_t at = first; at < input.len; at += step)
        feeding_add(f, (str){input.at + at, step < input.len - at ? step : input.len - at});
}

static void same_when_cut(str input, const struct buf *whole, size_t first, size_t step) {
    struct feeding f;
    struct buf cut = {0};
    feed_all(&f, input, first, step);
    describe(&f, &cut);
    if (!str_eq(buf_str(&cut), buf_str(whole)))
        fail_msg("cut at %zu, then every %zu:\n%s\nbut whole:\n%.*s", first, step, buf_cstr(&cut),
                 (int)whole->len, whole->bytes);
    assert_true(f.continues <= 1);
    buf_deinit(&cut);
    mem_free(f.block);
}

void feeding_parse(struct feeding *f, str input) {
    feed_all(f, input, input.len, 1);
    struct buf whole = {0};
    describe(f, &whole);
    if (input.len < 2048) {
        for (size_t cut = 0; cut < input.len; cut++) same_when_cut(input, &whole, cut, input.len);
        same_when_cut(input, &whole, 0, 1);
    } else {
        /* Long requests test limits: all cuts near the end are tried. */
        for (size_t cut = input.len - 64; cut < input.len; cut++)
            same_when_cut(input, &whole, cut, input.len);
        same_when_cut(input, &whole, 1, 997);
        same_when_cut(input, &whole, input.len - 128, 1);
    }
    buf_deinit(&whole);
}

void feeding_refused(enum err expected, str input) {
    struct feeding f;
    feeding_parse(&f, input);
    if (f.step != HTTP1_FAIL || f.p.error != expected)
        fail_msg("step %d, %s, but %s was expected of:\n%.*s", (int)f.step, err_code(f.p.error).at,
                 err_code(expected).at, (int)(input.len < 400 ? input.len : 400), input.at);
    assert_int_equal(http1_feed(&f.p, f.block, f.len), HTTP1_FAIL);
    mem_free(f.block);
}

struct http_request feeding_accepted(struct feeding *f, str input, size_t behind) {
    feeding_parse(f, input);
    if (f->step != HTTP1_DONE)
        fail_msg("step %d, %s:\n%.*s", (int)f->step, err_code(f->p.error).at,
                 (int)(input.len < 400 ? input.len : 400), input.at);
    assert_int_equal(f->p.used, input.len - behind);
    assert_int_equal(http1_feed(&f->p, f->block, f->len), HTTP1_DONE);
    return http1_request(&f->p, f->block);
}
