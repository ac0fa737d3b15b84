/* Bodies that json_read_simple reads are read as the general reader reads them, and no others. */
#include "api/json_in.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "core/event.h"
#include "splitmix.h"

#define ROUNDS 40000
#define RANDOM_BYTES_MAX 400

struct body {
    int64_t quantity;
    char name[9];
    char text[17];
    char money[4];
    int64_t time_ms;
    int word;
    bool is_true;
};

#define BODY(member) offsetof(struct body, member)
static const str words[] = {{"one", 3}, {"two", 3}, {NULL, 0}};
static const struct json_field fields[] = {
    {"userId", JSON_KIND_USER, 0, 0, 0, 0, 0},
    {"quantity", JSON_KIND_I64, BODY(quantity), 1, INT64_MAX, 0, 0},
    {"name", JSON_KIND_NAME, BODY(name), 1, 8, 0, 0},
    {"text", JSON_KIND_TEXT, BODY(text), 1, 16, 0, 0},
    {"money", JSON_KIND_MONEY, BODY(money), 0, 0, 0, 0},
    {"time", JSON_KIND_TIME, BODY(time_ms), 0, 0, 0, 0},
    {"word", JSON_KIND_WORD, BODY(word), 0, 0, words, 0},
    {"isTrue", JSON_KIND_BOOL, BODY(is_true), 0, 0, 0, 0},
    {"list", JSON_KIND_OTHER, 0, 0, 0, 0, 0},
    {0},
};

/* The exchange of a request with that body; the block holds its head. */
static void ask(struct exchange *x, char *block, size_t size, const char *type, str body) {
    memset(x, 0, sizeof *x);
    http1_init(&x->parser);
    int len = snprintf(block, size, "GET / HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n\r\n", type);
    assert_int_equal(http1_feed(&x->parser, block, (size_t)len), HTTP1_DONE);
    x->request = http1_request(&x->parser, block);
    x->request.body = body;
}

static bool read_simple(const char *type, str body, struct body *out, json_t **user) {
    struct exchange x;
    char block[200];
    /* An exact block, so that the sanitizer sees a byte too far. */
    char *exact = malloc(body.len + (body.len == 0));
    assert_non_null(exact);
    if (body.len > 0) memcpy(exact, body.at, body.len);
    ask(&x, block, sizeof block, type, (str){exact, body.len});
    *out = (struct body){0};
    bool ok = json_read_simple(&x, fields, out, user);
    if (!ok) assert_null(*user);
    free(exact);
    return ok;
}

static bool read_whole(str body, struct body *out, json_t **user) {
    struct json_problem problem;
    json_error_t error;
    json_t *json = json_loadb(body.at, body.len, JSON_REJECT_DUPLICATES, &error);
    *out = (struct body){0};
    *user = NULL;
    bool ok = json_is_object(json) && json_read(json, fields, out, "", &problem);
    if (ok) *user = json_incref(json_object_get(json, "userId"));
    json_decref(json);
    return ok;
}

/* Whether it was read without a tree. */
static bool assert_agreement(str body) {
    struct body simple;
    struct body whole;
    json_t *users[2];
    bool is_simple = read_simple("application/json", body, &simple, &users[0]);
    if (!is_simple) return false;
    if (!read_whole(body, &whole, &users[1]) || memcmp(&simple, &whole, sizeof whole) != 0 ||
        json_equal(users[0], users[1]) != (users[1] != NULL))
        fail_msg("read differently: %.*s", (int)body.len, body.at);
    json_decref(users[0]);
    json_decref(users[1]);
    return true;
}

static void usual_bodies_are_simple(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{}",
        "{\"userId\":\"ann\"}",
        " { \"userId\" : 17 , \"quantity\" : 1 } \r\n\t",
        "{\"quantity\":999999999999999999,\"name\":\"A-1_.x\",\"text\":\"a b, "
        "c\",\"money\":\"KRW\","
        "\"time\":\"2026-12-25T10:00:00Z\",\"word\":\"two\"}",
    };
    struct body out;
    json_t *user;
    for (size_t i = 1; i < sizeof bodies / sizeof *bodies; i++)
        if (!assert_agreement(str_of(bodies[i]))) fail_msg("not simple: %s", bodies[i]);
    assert_false(read_simple("text/plain", str_of(bodies[1]), &out, &user));
    assert_false(read_simple("application/json", str_of(""), &out, &user));
}

static void all_others_are_left_to_the_general_reader(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"quantity\":1,\"quantity\":1}",
        "{\"quantity\":01}",
        "{\"quantity\":0}",
        "{\"quantity\":1.0}",
        "{\"quantity\":1e1}",
        "{\"quantity\":-1}",
        "{\"quantity\":9999999999999999999}",
        "{\"name\":\"a\\u0062\"}",
        "{\"name\":\"\xc3\xa4\"}",
        "{\"text\":\"a\nb\"}",
        "{\"other\":1}",
        "{\"list\":[1]}",
        "{\"isTrue\":true}",
        "{\"time\":null}",
        "{\"quantity\":1,}",
        "{\"quantity\":1}}",
        "{\"quantity\":1} x",
        "{\"quantity\" 1}",
        "[]",
        "{\"name\":\"toolonganame\"}",
        "{\"userId\":\"a\"",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (assert_agreement(str_of(bodies[i]))) fail_msg("taken for simple: %s", bodies[i]);
}

/* Bodies made of pieces that mean something, with and without mistakes. */
static void random_bodies_are_read_as_by_the_general_reader(void **state) {
    (void)state;
    static const char *const pieces[] = {
        "{",
        "}",
        "\"",
        ":",
        ",",
        " ",
        "\"quantity\":",
        "\"name\":",
        "\"text\":",
        "\"userId\":",
        "\"word\":",
        "\"money\":",
        "1",
        "0",
        "-3",
        "12345678901234567",
        "\"A\"",
        "\"one\"",
        "\"KRW\"",
        "\"\\n\"",
        "true",
        "null",
        "[1]",
        "\xc3\xa4",
        "\x01",
        "\"a b\"",
        ".5",
        "\"time\":",
        "\"2026-12-25T10:00:00Z\"",
    };
    uint64_t random = (uint64_t)time(NULL);
    size_t simple = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char body[RANDOM_BYTES_MAX] = "{";
        size_t len = 1;
        size_t wanted = next_random(&random) % 6;
        for (size_t i = 0; i < wanted; i++) {
            /* Mostly a field and a value of it. */
            static const char *const good[] = {"\"quantity\":4", "\"name\":\"B\"",
                                               "\"userId\":7",   "\"word\":\"two\"",
                                               "\"text\":\"x\"", "\"userId\":\"ann\""};
            bool is_good = next_random(&random) % 8 != 0;
            const char *piece =
                is_good ? good[next_random(&random) % 6]
                        : pieces[next_random(&random) % (sizeof pieces / sizeof *pieces)];
            len += (size_t)snprintf(body + len, sizeof body - len, "%s%s", i > 0 ? "," : "", piece);
        }
        len += (size_t)snprintf(body + len, sizeof body - len, "}");
        if (next_random(&random) % 8 == 0)
            body[next_random(&random) % len] = (char)next_random(&random);
        simple += assert_agreement((str){body, len});
    }
    assert_in_range(simple, ROUNDS / 20, ROUNDS - ROUNDS / 20); /* both kinds occur */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_bodies_are_simple),
        cmocka_unit_test(all_others_are_left_to_the_general_reader),
        cmocka_unit_test(random_bodies_are_read_as_by_the_general_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
