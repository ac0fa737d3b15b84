/*
 * Mutated requests, and properties that hold for every input: the result does not depend on how the
 * bytes are split or on what follows the request, nothing is read or written outside the block
 * (the address sanitizer checks this), and accepted requests keep the promises of net/http1.h.
 *
 *   fuzz_http1_fuzz [seed [case]]    FUZZ_SEED and FUZZ_CASES do the same from the environment
 *
 * A failure prints the seed and the case, which run it again alone. With -DLIBFUZZER this is a
 * libFuzzer target instead: clang -fsanitize=fuzzer,address.
 */
#include "net/http1.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "splitmix.h"

struct outcome {
    struct http1 p;
    enum http1_step step;
    char *block;
    size_t len;
};

static size_t below(uint64_t *state, size_t bound) {
    return bound == 0 ? 0 : (size_t)(next_random(state) % bound);
}

/* An exact block each time, so that the sanitizer sees a byte too far and a stale pointer. */
static void grow(struct outcome *o, const uint8_t *more, size_t len) {
    char *moved = mem_new(o->len + len + (o->len + len == 0));
    if (o->len > 0) memcpy(moved, o->block, o->len);
    if (len > 0) memcpy(moved + o->len, more, len);
    mem_free(o->block);
    o->block = moved;
    o->len += len;
}

/* Pieces of up to `piece_max` bytes until all is fed; even when the verdict comes earlier. */
static void feed_in_pieces(struct outcome *o, const uint8_t *input, size_t len, size_t piece_max,
                           uint64_t *random) {
    memset(o, 0, sizeof *o);
    http1_init(&o->p);
    int continues = 0;
    size_t at = 0;
    do {
        size_t piece = piece_max >= len ? len : below(random, piece_max + 1);
        if (piece > len - at) piece = len - at;
        grow(o, input + at, piece);
        at += piece;
        o->step = http1_feed(&o->p, o->block, o->len);
        if (o->step == HTTP1_CONTINUE) {
            assert(++continues == 1);
            assert(o->p.used == o->len);
            o->step = HTTP1_MORE;
        }
    } while (at < len);
}

static void check_same(const struct outcome *a, const struct outcome *b) {
    const struct http1 *p = &a->p;
    const struct http1 *q = &b->p;
    assert(a->step == b->step && p->error == q->error && p->phase == q->phase);
    assert(p->used == q->used && p->line == q->line && p->scanned == q->scanned);
    assert(p->method == q->method && p->keep_alive == q->keep_alive && p->http10 == q->http10);
    assert(p->headers_left == q->headers_left && p->chunk_lines_left == q->chunk_lines_left);
    assert(p->body == q->body && p->body_len == q->body_len && p->body_left == q->body_left);
    assert(memcmp(&p->path, &q->path, sizeof p->path) == 0);
    assert(memcmp(&p->query, &q->query, sizeof p->query) == 0);
    assert(p->header_count == q->header_count && p->trailer_count == q->trailer_count);
    assert(memcmp(p->headers, q->headers, p->header_count * sizeof *p->headers) == 0);
    assert(p->body_len == 0 || memcmp(a->block + p->body, b->block + q->body, p->body_len) == 0);
}

static void check_inside(str part, const struct http_request *r) {
    assert(part.at >= r->block && part.at + part.len <= r->block + r->head->body);
    for (size_t i = 0; i < part.len; i++) {
        unsigned char c = (unsigned char)part.at[i];
        assert((c >= 0x20 && c != 0x7f) || c == '\t');
    }
}

static void check_request(const struct http1 *p, const char *block) {
    struct http_request r = http1_request(p, block);
    assert(r.path.len > 0 && (r.path.at[0] == '/' || str_eq(r.path, STR("*"))));
    assert(memchr(r.path.at, '?', r.path.len) == NULL &&
           memchr(r.path.at, ' ', r.path.len) == NULL);
    assert(p->query.len == 0 || r.query.at[-1] == '?');
    check_inside(r.path, &r);
    if (p->query.len > 0) check_inside(r.query, &r);
    for (size_t i = 0; i < p->header_count; i++) {
        str name = {block + p->headers[i].name.at, p->headers[i].name.len};
        str value = {block + p->headers[i].value.at, p->headers[i].value.len};
        check_inside(name, &r);
        check_inside(value, &r);
        assert(name.len > 0 && str_trim(value).len == value.len);
        assert(http_header(&r, name).at != NULL);
    }

    /* Parts of request smuggling attacks. */
    str length = http_header(&r, STR("content-length"));
    str coding = http_header(&r, STR("transfer-encoding"));
    int64_t bytes = 0;
    assert(length.at == NULL || coding.at == NULL);
    assert(coding.at == NULL || str_eq_nocase(coding, STR("chunked")));
    if (length.at != NULL) assert(str_to_i64(length, &bytes));
    if (coding.at == NULL) assert((uint64_t)bytes == r.body.len);
    assert(p->http10 || http_header(&r, STR("host")).len > 0);

    char *decoded = mem_new(r.path.len + r.query.len + 1);
    assert(http_percent_decode(r.path, decoded, false) <= (int64_t)r.path.len);
    assert(http_percent_decode(r.query, decoded, true) <= (int64_t)r.query.len);
    mem_free(decoded);
}

static void check_bounds(const struct outcome *o) {
    const struct http1 *p = &o->p;
    assert(p->used <= o->len && p->used <= HTTP1_BLOCK_BYTES_MAX);
    assert(p->body + p->body_len <= p->used || p->body_len == 0);
    assert(p->body_len <= BODY_BYTES_MAX);
    assert(p->header_count + p->trailer_count <= HTTP1_HEADERS_MAX);
    assert((o->step == HTTP1_FAIL) == (p->error != ERR_OK));
    assert((o->step == HTTP1_DONE) == (p->phase == HTTP1_WHOLE));
    if (o->step == HTTP1_MORE) assert(o->len < HTTP1_BLOCK_BYTES_MAX);
    if (o->step == HTTP1_DONE) check_request(p, o->block);
}

static void one_input(const uint8_t *input, size_t len) {
    uint64_t random = len;
    for (size_t i = 0; i < len; i++) random = random * 31 + input[i];

    struct outcome whole;
    feed_in_pieces(&whole, input, len, len, &random);
    check_bounds(&whole);

    const size_t piece_max[] = {1, 7, 1 + below(&random, 64), 1 + len / 2};
    for (size_t i = 0; i < sizeof piece_max / sizeof *piece_max; i++) {
        /* Byte by byte costs the square of the length. */
        if (len / piece_max[i] > 1024) continue;
        struct outcome pieces;
        feed_in_pieces(&pieces, input, len, piece_max[i], &random);
        check_same(&whole, &pieces);
        mem_free(pieces.block);
    }

    if (whole.step == HTTP1_DONE) {
        /* Done exactly at its last byte: not without it, and whatever comes behind. */
        struct outcome part;
        feed_in_pieces(&part, input, whole.p.used, whole.p.used, &random);
        check_same(&whole, &part);
        mem_free(part.block);
        feed_in_pieces(&part, input, whole.p.used - 1, whole.p.used, &random);
        assert(part.step == HTTP1_MORE);
        mem_free(part.block);
    }
    mem_free(whole.block);
}

#ifdef LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t len) {
    one_input(input, len);
    return 0;
}

#else

#define POST "POST /reservations HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const str seeds[] = {
    STR_INIT("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    STR_INIT("GET / HTTP/1.0\r\n\r\n"),
    STR_INIT("\r\nHEAD /health HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n"),
    STR_INIT("GET /queue/c/1/status?lane=1&x=%20+ HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"),
    STR_INIT("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    STR_INIT("GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    STR_INIT("GET https://a.example?y HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    STR_INIT("DELETE /queue/c/1/leave HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
    STR_INIT("GET / HTTP/1.0\r\nConnection: keep-alive, x\r\n\r\n"),
    STR_INIT(POST "Content-Length: 12\r\n\r\n{\"userId\":1}"),
    STR_INIT(POST "Content-Length: 0\r\n\r\n"),
    STR_INIT(POST "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    STR_INIT(POST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"),
    STR_INIT(POST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    STR_INIT(CHUNKED "5\r\nhello\r\n0\r\n\r\n"),
    STR_INIT(CHUNKED "5;a=b\r\nhello\r\nA\r\n0123456789\r\n00\r\nT: u\r\nV: w\r\n\r\n"),
    STR_INIT(CHUNKED "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\nGET / HTTP/1.1\r\n"),
    STR_INIT(CHUNKED "10000\r\nx"),
    STR_INIT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    STR_INIT(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    STR_INIT(POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    STR_INIT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    STR_INIT(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    STR_INIT(POST "Content-Length: 65537\r\n\r\n"),
    STR_INIT("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n"),
    STR_INIT("GET / HTTP/1.1\nHost: a\n\n"),
    STR_INIT("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    STR_INIT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    STR_INIT("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    STR_INIT("PATCH /a%2fb%00?c HTTP/1.1\r\nHost: a\r\nX:\x80\xff\t\r\n\r\n"),
    STR_INIT("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    STR_INIT(""),
};

/* Bytes that change the meaning of a request. */
static const str words[] = {STR_INIT("\r\n"),
                            STR_INIT("\r\n\r\n"),
                            STR_INIT("\n"),
                            STR_INIT("\r"),
                            STR_INIT(" "),
                            STR_INIT("\t"),
                            STR_INIT(":"),
                            STR_INIT("0\r\n\r\n"),
                            STR_INIT("1\r\nx\r\n"),
                            STR_INIT("%"),
                            STR_INIT("%00"),
                            STR_INIT("%41"),
                            STR_INIT("?"),
                            STR_INIT(";"),
                            STR_INIT(","),
                            STR_INIT("\0"),
                            STR_INIT("\xff"),
                            STR_INIT("ffffffffffffffff"),
                            STR_INIT("HTTP/1.0"),
                            STR_INIT("Host: b\r\n"),
                            STR_INIT("Content-Length: 1\r\n"),
                            STR_INIT("Expect: 100-continue\r\n"),
                            STR_INIT("Connection: close\r\n"),
                            STR_INIT("Transfer-Encoding: chunked\r\n"),
                            STR_INIT("a: b\r\n")};

#define SEEDS (sizeof seeds / sizeof *seeds)
#define WORDS (sizeof words / sizeof *words)
#define CASES_DEFAULT 25000
#define INPUT_BYTES_MAX (2 * HTTP1_BLOCK_BYTES_MAX)

struct input {
    uint8_t bytes[INPUT_BYTES_MAX];
    size_t len;
};

static uint64_t run_seed = 20261225;
static uint64_t run_case;

static void say_how_to_replay(int signal_number) {
    (void)signal_number;
    char text[96];
    int len =
        snprintf(text, sizeof text, "replay with: %" PRIu64 " %" PRIu64 "\n", run_seed, run_case);
    if (len > 0 && write(STDERR_FILENO, text, (size_t)len) < 0) _exit(2);
}

/* `count` times `bytes`, put in at `at`; less when there is no room. */
static void insert(struct input *in, size_t at, str bytes, size_t count) {
    assert(at <= in->len);
    if (bytes.len == 0) return;
    size_t room = (INPUT_BYTES_MAX - in->len) / bytes.len;
    if (count > room) count = room;
    memmove(in->bytes + at + count * bytes.len, in->bytes + at, in->len - at);
    for (size_t i = 0; i < count; i++) memcpy(in->bytes + at + i * bytes.len, bytes.at, bytes.len);
    in->len += count * bytes.len;
}

static void cut_out(struct input *in, size_t at, size_t count) {
    if (count > in->len - at) count = in->len - at;
    memmove(in->bytes + at, in->bytes + at + count, in->len - at - count);
    in->len -= count;
}

static void mutate(struct input *in, uint64_t *random) {
    size_t at = below(random, in->len + 1);
    str word = words[below(random, WORDS)];
    str seed = seeds[below(random, SEEDS)];
    switch (below(random, 16)) {
    case 0:
    case 1:
    case 2:
        if (at < in->len) in->bytes[at] ^= (uint8_t)(1U << below(random, 8));
        break;
    case 3:
    case 4:
        if (at < in->len) in->bytes[at] = (uint8_t)next_random(random);
        break;
    case 5:
    case 6:
    case 7:
        insert(in, at, word, 1);
        break;
    case 8:
    case 9:
        cut_out(in, at, 1 + below(random, 4));
        break;
    case 10:
        cut_out(in, at, 1 + below(random, in->len + 1));
        break;
    case 11:
        insert(in, at, str_skip(seed, below(random, seed.len + 1)), 1);
        break;
    case 12: /* a piece of itself once more */
        if (at < in->len) {
            char piece[64];
            size_t len = 1 + below(random, sizeof piece);
            if (len > in->len - at) len = in->len - at;
            memcpy(piece, in->bytes + at, len);
            insert(in, below(random, in->len + 1), (str){piece, len}, 1);
        }
        break;
    case 13:
        in->len = at;
        break;
    case 14:
        insert(in, at, word, below(random, 80));
        break;
    default: /* seldom towards the limits: it is slow */
        if (below(random, 40) == 0) insert(in, at, word, below(random, HTTP1_BLOCK_BYTES_MAX));
        break;
    }
}

static void run_one(uint64_t number) {
    static struct input in;
    run_case = number;
    uint64_t random = run_seed ^ (number * UINT64_C(0xd1342543de82ef95));
    str seed = seeds[number % SEEDS];
    memcpy(in.bytes, seed.at, seed.len);
    in.len = seed.len;
    /* The first round is the seeds as they are. */
    for (size_t n = number < SEEDS ? 0 : 1 + below(&random, 6); n > 0; n--) mutate(&in, &random);
    one_input(in.bytes, in.len);
}

static uint64_t number_from(const char *text, uint64_t otherwise) {
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

int main(int argc, char **argv) {
    uint64_t cases = number_from(getenv("FUZZ_CASES"), CASES_DEFAULT);
    run_seed = number_from(argc > 1 ? argv[1] : getenv("FUZZ_SEED"), run_seed);
    signal(SIGABRT, say_how_to_replay);
    printf("seed %" PRIu64 ", %" PRIu64 " cases\n", run_seed, cases);
    fflush(stdout);
    if (argc > 2)
        run_one(number_from(argv[2], 0));
    else
        for (uint64_t i = 0; i < cases; i++) run_one(i);
    return 0;
}

#endif
