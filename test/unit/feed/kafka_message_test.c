/* A request as a message of Kafka: what is written is read again, and a message that is not valid
 * is refused with the name of the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "feed/kafka_message.h"

#define ID "01890000-0000-7000-8000-000000000001"
#define AT_MS 1700000000000

static const struct section_names names = {"CONCERT", "1", "A"};

static struct request *read_text(str text, struct buf *why) {
    struct section_names read;
    struct request *r = kafka_message_read(text, AT_MS, &read, why);
    assert_true((r == NULL) == (why->len > 0));
    return r;
}

static void assert_refused(str text, const char *reason) {
    struct buf why = {0};
    struct request *r = read_text(text, &why);
    if (r != NULL || strcmp(buf_cstr(&why), reason) != 0)
        fail_msg("%.*s: \"%s\" instead of \"%s\"", (int)(text.len < 200 ? text.len : 200), text.at,
                 buf_cstr(&why), reason);
    buf_deinit(&why);
}

static void assert_read(const char *text) {
    struct buf why = {0};
    struct request *r = read_text(str_of(text), &why);
    if (r == NULL) fail_msg("%s: %s", text, buf_cstr(&why));
    mem_free(r);
    buf_deinit(&why);
}

/* ---- messages that are written ---- */

static struct request *example(uint32_t named) {
    struct request *r = request_new(named);
    assert_true(uuid_parse(STR(ID), &r->id));
    assert_true(str_copy(STR("jos\xc3\xa9 \"\\/"), r->user, sizeof r->user));
    r->event_key = 7;
    r->section_key = 9;
    r->entry_seq = 11;
    r->quantity = named > 0 ? named : 3;
    for (uint32_t i = 0; i < named; i++) r->seats[i] = 5 + 2 * i;
    r->partition = request_partition(r->section_key, r->seats, r->quantity);
    for (size_t i = 0; i < sizeof r->digest; i++) r->digest[i] = (unsigned char)(i * 9);
    r->strategy = STRATEGY_QUEUE;
    r->created_ms = AT_MS - 123;
    return r;
}

static void assert_same(const struct request *a, const struct request *b) {
    assert_true(uuid_eq(&a->id, &b->id));
    assert_int_equal(a->partition, b->partition);
    assert_int_equal(a->event_key, b->event_key);
    assert_int_equal(a->section_key, b->section_key);
    assert_string_equal(a->user, b->user);
    assert_int_equal(a->entry_seq, b->entry_seq);
    assert_int_equal(a->strategy, b->strategy);
    assert_int_equal(a->quantity, b->quantity);
    assert_true((a->seats == NULL) == (b->seats == NULL));
    if (a->seats != NULL) assert_memory_equal(a->seats, b->seats, a->quantity * sizeof *a->seats);
    assert_memory_equal(a->digest, b->digest, sizeof a->digest);
    assert_int_equal(a->created_ms, b->created_ms);
    assert_int_equal(b->status, REQUEST_PENDING);
    assert_int_equal(b->finished_ms, CLOCK_NONE_MS);
}

static void assert_round_trip(struct request *r) {
    struct buf text = {0};
    struct buf why = {0};
    struct section_names read;
    kafka_message_write(r, &names, &text);
    assert_true(text.len <= KAFKA_MESSAGE_BYTES_MAX);
    struct request *again = kafka_message_read(buf_str(&text), 0, &read, &why);
    if (again == NULL) fail_msg("%s: %s", buf_cstr(&text), buf_cstr(&why));
    assert_same(r, again);
    assert_string_equal(read.type, names.type);
    assert_string_equal(read.id, names.id);
    assert_string_equal(read.section, names.section);
    mem_free(again);
    mem_free(r);
    buf_deinit(&text);
    buf_deinit(&why);
}

static void a_request_that_is_written_is_read_again(void **state) {
    (void)state;
    assert_round_trip(example(0));
    assert_round_trip(example(1));
    assert_round_trip(example(RESERVATION_SEATS_MAX));
    for (int s = 0; strategy_words[s].at != NULL; s++) {
        struct request *r = example(2);
        r->strategy = (enum strategy)s;
        assert_round_trip(r);
    }
    struct request *r = example(0);
    memset(r->user, 'u', USER_ID_BYTES_MAX);
    assert_round_trip(r);
}

static void assert_key(struct request *r, const char *expected) {
    struct buf key = {0};
    kafka_message_key(r, &names, &key);
    assert_string_equal(buf_cstr(&key), expected);
    buf_deinit(&key);
    mem_free(r);
}

static void requests_for_the_same_have_the_same_key(void **state) {
    (void)state;
    assert_key(example(0), "CONCERT/1/A");
    assert_key(example(1), "CONCERT/1/A/5");
    assert_key(example(2), "CONCERT/1/A"); /* several seats: of the section */
}

/* ---- messages of other programs ---- */

#define VERSION "\"version\":1,"
#define REQUEST "\"requestId\":\"" ID "\","
#define USER "\"userId\":\"ann\","
#define TYPE "\"eventType\":\"CONCERT\","
#define EVENT "\"eventId\":\"1\","
#define SECTION "\"section\":\"A\","
#define QUANTITY "\"quantity\":2"
#define HEAD VERSION REQUEST USER TYPE EVENT SECTION
#define KEYS ",\"eventKey\":7,\"sectionKey\":9,\"entrySeq\":11"

static void a_message_without_our_keys_is_read_by_its_names(void **state) {
    (void)state;
    struct buf why = {0};
    struct section_names read;
    str text = STR("{" HEAD QUANTITY ",\"unknown\":{\"is\":[\"ignored\"]}}");
    struct request *r = kafka_message_read(text, AT_MS, &read, &why);
    assert_non_null(r);
    assert_int_equal(r->event_key, 0);
    assert_int_equal(r->section_key, 0);
    assert_int_equal(r->entry_seq, 0);
    assert_int_equal(r->quantity, 2);
    assert_null(r->seats);
    assert_int_equal(r->strategy, STRATEGY_QUEUE);
    assert_int_equal(r->created_ms, AT_MS); /* as the broker says */
    assert_memory_equal(r->digest, r->id.bytes, sizeof r->id.bytes);
    assert_string_equal(read.section, "A");
    mem_free(r);
    buf_deinit(&why);
    assert_read("{" HEAD "\"seats\":[1,2,1000000]}");
    assert_read(" \n{" HEAD QUANTITY KEYS "}\n");
    assert_read("{" HEAD QUANTITY ",\"createdAt\":\"2026-01-01T00:00:00.123456789+02:00\"}");
    assert_read("{" HEAD QUANTITY ",\"strategy\":\"pessimistic\"}");
}

static void every_field_is_checked(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *reason;
    } rows[] = {
        {"{" REQUEST USER TYPE EVENT SECTION QUANTITY "}", "version is not 1"},
        {"{\"version\":2," REQUEST USER TYPE EVENT SECTION QUANTITY "}", "version is not 1"},
        {"{\"version\":1.0," REQUEST USER TYPE EVENT SECTION QUANTITY "}", "version is not 1"},
        {"{\"version\":\"1\"," REQUEST USER TYPE EVENT SECTION QUANTITY "}", "version is not 1"},
        {"{" VERSION USER TYPE EVENT SECTION QUANTITY "}", "requestId is missing or not valid"},
        {"{" VERSION "\"requestId\":1," USER TYPE EVENT SECTION QUANTITY "}",
         "requestId is missing or not valid"},
        {"{" VERSION
         "\"requestId\":\"01890000-0000-4000-8000-000000000001\"," USER TYPE EVENT SECTION QUANTITY
         "}",
         "requestId is missing or not valid"}, /* of another version of UUIDs */
        {"{" VERSION "\"requestId\":\"" ID "0\"," USER TYPE EVENT SECTION QUANTITY "}",
         "requestId is missing or not valid"},
        {"{" VERSION REQUEST TYPE EVENT SECTION QUANTITY "}", "userId is missing or not valid"},
        {"{" VERSION REQUEST "\"userId\":\"\"," TYPE EVENT SECTION QUANTITY "}",
         "userId is missing or not valid"},
        {"{" VERSION REQUEST "\"userId\":\"a\\tb\"," TYPE EVENT SECTION QUANTITY "}",
         "userId is missing or not valid"},
        {"{" VERSION REQUEST "\"userId\":[\"ann\"]," TYPE EVENT SECTION QUANTITY "}",
         "userId is missing or not valid"},
        {"{" VERSION REQUEST USER EVENT SECTION QUANTITY "}", "eventType is missing or not valid"},
        {"{" VERSION REQUEST USER "\"eventType\":\"A B\"," EVENT SECTION QUANTITY "}",
         "eventType is missing or not valid"},
        {"{" VERSION REQUEST USER TYPE SECTION QUANTITY "}", "eventId is missing or not valid"},
        {"{" VERSION REQUEST USER TYPE "\"eventId\":1," SECTION QUANTITY "}",
         "eventId is missing or not valid"},
        {"{" VERSION REQUEST USER TYPE "\"eventId\":\"..\"," SECTION QUANTITY "}",
         "eventId is missing or not valid"},
        {"{" VERSION REQUEST USER TYPE EVENT QUANTITY "}", "section is missing or not valid"},
        {"{" VERSION REQUEST USER TYPE EVENT "\"section\":\"A/B\"," QUANTITY "}",
         "section is missing or not valid"},
        {"{" HEAD "\"x\":1}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"quantity\":0}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"quantity\":-1}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"quantity\":1.5}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"quantity\":\"2\"}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"quantity\":4294967297}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":{\"0\":1}}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":1}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[0]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[1000001]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[4294967297]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[2,1]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[2,2]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[1,\"2\"]}", "seats or quantity is missing or not valid"},
        {"{" HEAD "\"seats\":[1]," QUANTITY "}", "seats or quantity is missing or not valid"},
        {"{" HEAD QUANTITY ",\"strategy\":\"none\"}", "strategy is missing or not valid"},
        {"{" HEAD QUANTITY ",\"strategy\":1}", "strategy is missing or not valid"},
        {"{" HEAD QUANTITY ",\"createdAt\":\"yesterday\"}", "createdAt is missing or not valid"},
        {"{" HEAD QUANTITY ",\"createdAt\":1700000000}", "createdAt is missing or not valid"},
        {"{" HEAD QUANTITY ",\"eventKey\":7}",
         "eventKey, sectionKey or entrySeq is missing or not valid"},
        {"{" HEAD QUANTITY ",\"eventKey\":7,\"sectionKey\":9}",
         "eventKey, sectionKey or entrySeq is missing or not valid"},
        {"{" HEAD QUANTITY ",\"eventKey\":7,\"sectionKey\":9,\"entrySeq\":0}",
         "eventKey, sectionKey or entrySeq is missing or not valid"},
        {"{" HEAD QUANTITY ",\"eventKey\":7,\"sectionKey\":9,\"entrySeq\":\"11\"}",
         "eventKey, sectionKey or entrySeq is missing or not valid"},
        {"{" HEAD QUANTITY ",\"eventKey\":-7,\"sectionKey\":9,\"entrySeq\":11}",
         "eventKey, sectionKey or entrySeq is missing or not valid"},
        {"{" HEAD QUANTITY ",\"bodyDigest\":\"00\"}", "bodyDigest is missing or not valid"},
        {"{" HEAD QUANTITY ",\"bodyDigest\":1}", "bodyDigest is missing or not valid"},
        {"{" HEAD QUANTITY ",\"bodyDigest\":"
         "\"000000000000000000000000000000000000000000000000000000000000000g\"}",
         "bodyDigest is missing or not valid"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(str_of(rows[i].text), rows[i].reason);
}

/* One byte more than a field may have; with one less it is read. */
static void assert_length(const char *before, size_t max, const char *after, const char *reason) {
    for (size_t extra = 0; extra < 2; extra++) {
        struct buf text = {0};
        buf_add(&text, str_of(before));
        for (size_t i = 0; i < max + extra; i++) buf_add_char(&text, 'x');
        buf_add(&text, str_of(after));
        if (extra == 0)
            assert_read(buf_cstr(&text));
        else
            assert_refused(buf_str(&text), reason);
        buf_deinit(&text);
    }
}

static void a_field_that_is_too_long_is_refused(void **state) {
    (void)state;
    assert_length("{" VERSION REQUEST "\"userId\":\"", USER_ID_BYTES_MAX,
                  "\"," TYPE EVENT SECTION QUANTITY "}", "userId is missing or not valid");
    assert_length("{" VERSION REQUEST USER "\"eventType\":\"", EVENT_TYPE_BYTES_MAX,
                  "\"," EVENT SECTION QUANTITY "}", "eventType is missing or not valid");
    assert_length("{" VERSION REQUEST USER TYPE "\"eventId\":\"", EVENT_ID_BYTES_MAX,
                  "\"," SECTION QUANTITY "}", "eventId is missing or not valid");
    assert_length("{" VERSION REQUEST USER TYPE EVENT "\"section\":\"", SECTION_ID_BYTES_MAX,
                  "\"," QUANTITY "}", "section is missing or not valid");
    struct buf seats = {0};
    buf_add(&seats, STR("{" HEAD "\"seats\":[1"));
    for (int i = 2; i <= RESERVATION_SEATS_MAX + 1; i++) buf_addf(&seats, ",%d", i);
    buf_add(&seats, STR("]}"));
    assert_refused(buf_str(&seats), "seats or quantity is missing or not valid");
    buf_deinit(&seats);
}

static void what_is_no_json_object_is_refused(void **state) {
    (void)state;
    static const char *rows[] = {
        "",
        " ",
        "null",
        "1",
        "[]",
        "[{}]",
        "\"{}\"",
        "{",
        "{" HEAD QUANTITY,
        "{" HEAD QUANTITY "}x",
        "{" HEAD QUANTITY "}{}",
        "{'version':1}",
        "\xff\xfe{}",
        "{" HEAD "\"quantity\":99999999999999999999}",
        "{" HEAD QUANTITY ",\"x\":\"\\u0000\"}",
        "{" HEAD QUANTITY ",\"x\":\"\xff\"}",
        /* A key that is there twice: readers would not agree which one counts. */
        "{" HEAD QUANTITY "," QUANTITY "}",
        "{" USER HEAD QUANTITY "}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(str_of(rows[i]), "not a JSON object");
    assert_refused((str){NULL, 0}, "not a JSON object"); /* a tombstone */
    assert_refused((str){"\0{}", 3}, "not a JSON object");
    struct buf deep = {0};
    for (int i = 0; i < 30000; i++) buf_add_char(&deep, '[');
    assert_refused(buf_str(&deep), "not a JSON object");
    buf_deinit(&deep);
}

static void a_huge_message_is_refused_unread(void **state) {
    (void)state;
    struct buf text = {0};
    buf_add(&text, STR("{" HEAD QUANTITY ",\"x\":\""));
    while (text.len < KAFKA_MESSAGE_BYTES_MAX - 2) buf_add_char(&text, 'x');
    buf_add(&text, STR("\"}"));
    assert_int_equal(text.len, KAFKA_MESSAGE_BYTES_MAX);
    assert_read(buf_cstr(&text));
    buf_add_char(&text, ' ');
    assert_refused(buf_str(&text), "longer than 65536 bytes");
    buf_deinit(&text);
}

/* Of any time that a broker gives, the ledger and JSON can write what is stored. */
static void a_time_that_cannot_be_written_is_not_taken(void **state) {
    (void)state;
    static const int64_t times[] = {-1, INT64_MIN, INT64_MAX, 253402300800000};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct buf why = {0};
        struct section_names read;
        struct request *r = kafka_message_read(STR("{" HEAD QUANTITY "}"), times[i], &read, &why);
        assert_non_null(r);
        assert_int_equal(r->created_ms, 0);
        mem_free(r);
        buf_deinit(&why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_is_written_is_read_again),
        cmocka_unit_test(requests_for_the_same_have_the_same_key),
        cmocka_unit_test(a_message_without_our_keys_is_read_by_its_names),
        cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(a_field_that_is_too_long_is_refused),
        cmocka_unit_test(what_is_no_json_object_is_refused),
        cmocka_unit_test(a_huge_message_is_refused_unread),
        cmocka_unit_test(a_time_that_cannot_be_written_is_not_taken),
    };
    return cmocka_run_group_tests_name("kafka messages", tests, NULL, NULL);
}
