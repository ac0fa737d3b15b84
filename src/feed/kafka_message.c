/* Reads and writes the JSON of a request. Every field of a message that is read is checked, since
 * any program with access to the topic may have written it. */
#include "feed/kafka_message.h"

#include <jansson.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "base/mem.h"
#include "core/event.h"

#define DIGEST_TEXT_BYTES (2 * REQUEST_DIGEST_BYTES)

static bool is_one_seat(const struct request *r) {
    return r->seats != NULL && r->quantity == 1;
}

void kafka_message_key(const struct request *r, const struct section_names *names,
                       struct buf *out) {
    buf_addf(out, "%s/%s/%s", names->type, names->id, names->section);
    if (is_one_seat(r)) buf_addf(out, "/%u", r->seats[0]);
}

static void digest_format(const unsigned char *digest, char out[DIGEST_TEXT_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < REQUEST_DIGEST_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool digest_parse(str text, unsigned char *out) {
    if (text.len != DIGEST_TEXT_BYTES) return false;
    for (size_t i = 0; i < REQUEST_DIGEST_BYTES; i++) {
        int high = digit_of(text.at[2 * i]);
        int low = digit_of(text.at[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

void kafka_message_write(const struct request *r, const struct section_names *names,
                         struct buf *out) {
    char id[UUID_TEXT_BYTES];
    char digest[DIGEST_TEXT_BYTES];
    struct json_out j;
    uuid_format(&r->id, id);
    digest_format(r->digest, digest);
    json_out_init(&j, out);
    json_out_object(&j, STR(""));
    json_out_i64(&j, STR("version"), KAFKA_MESSAGE_VERSION);
    json_out_str(&j, STR("requestId"), (str){id, sizeof id});
    json_out_str(&j, STR("userId"), str_of(r->user));
    json_out_str(&j, STR("eventType"), str_of(names->type));
    json_out_str(&j, STR("eventId"), str_of(names->id));
    json_out_str(&j, STR("section"), str_of(names->section));
    if (r->seats != NULL) {
        json_out_array(&j, STR("seats"));
        for (uint32_t i = 0; i < r->quantity; i++) json_out_i64(&j, STR(""), r->seats[i]);
        json_out_array_end(&j);
    } else {
        json_out_i64(&j, STR("quantity"), r->quantity);
    }
    if (r->strategy != STRATEGY_QUEUE)
        json_out_str(&j, STR("strategy"), strategy_words[r->strategy]);
    json_out_time(&j, STR("createdAt"), r->created_ms);
    json_out_i64(&j, STR("eventKey"), r->event_key);
    json_out_i64(&j, STR("sectionKey"), r->section_key);
    json_out_i64(&j, STR("entrySeq"), (int64_t)r->entry_seq);
    json_out_str(&j, STR("bodyDigest"), (str){digest, sizeof digest});
    json_out_object_end(&j);
    json_out_done(&j);
}

/* ---- reading ---- */

static str text_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value)) return (str){NULL, 0};
    return (str){json_string_value(value), json_string_length(value)};
}

/* A positive number, or 0 if it is absent; -1: it is something else. */
static int64_t number_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    if (value == NULL) return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 1) return -1;
    return json_integer_value(value);
}

static bool name_read(const json_t *object, const char *name, size_t max, char *out) {
    str text = text_of(object, name);
    return event_name_ok(text, max) && str_copy(text, out, max + 1);
}

/* Ascending, each once. */
static bool seats_read(const json_t *seats, struct request *r) {
    for (uint32_t i = 0; i < r->quantity; i++) {
        const json_t *seat = json_array_get(seats, i);
        int64_t number = json_is_integer(seat) ? json_integer_value(seat) : 0;
        if (number < 1 || number > SECTION_CAPACITY_MAX) return false;
        if (i > 0 && number <= r->seats[i - 1]) return false;
        r->seats[i] = (uint32_t)number;
    }
    return true;
}

/* With its seats or its quantity. NULL: they are missing or not valid. */
static struct request *request_with_seats(const json_t *object) {
    const json_t *seats = json_object_get(object, "seats");
    int64_t quantity = number_of(object, "quantity");
    size_t named = json_array_size(seats);
    bool is_named = json_is_array(seats) && quantity == 0 && named > 0;
    if (is_named) quantity = (int64_t)named;
    if ((seats != NULL && !is_named) || quantity < 1 || quantity > RESERVATION_SEATS_MAX)
        return NULL;
    struct request *r = request_new(is_named ? (uint32_t)named : 0);
    r->quantity = (uint32_t)quantity;
    if (!is_named || seats_read(seats, r)) return r;
    mem_free(r);
    return NULL;
}

static bool strategy_read(const json_t *object, struct request *r) {
    if (json_object_get(object, "strategy") == NULL) return true;
    int strategy = word_index(strategy_words, text_of(object, "strategy"));
    if (strategy >= 0) r->strategy = (enum strategy)strategy;
    return strategy >= 0;
}

/* All of our keys, or none of them. */
static bool keys_read(const json_t *object, struct request *r) {
    int64_t event = number_of(object, "eventKey");
    int64_t section = number_of(object, "sectionKey");
    int64_t entry = number_of(object, "entrySeq");
    bool has_all = event > 0 && section > 0 && entry > 0;
    if (!has_all && (event != 0 || section != 0 || entry != 0)) return false;
    r->event_key = event;
    r->section_key = section;
    r->entry_seq = (uint64_t)entry;
    if (has_all) r->partition = request_partition(section, r->seats, r->quantity);
    return true;
}

/* Without one, the id takes its place, as in a request over HTTP without an Idempotency-Key. */
static bool digest_read(const json_t *object, struct request *r) {
    if (json_object_get(object, "bodyDigest") != NULL)
        return digest_parse(text_of(object, "bodyDigest"), r->digest);
    memcpy(r->digest, r->id.bytes, sizeof r->id.bytes);
    return true;
}

static bool time_read(const json_t *object, int64_t at_ms, struct request *r) {
    r->created_ms = clock_writable(at_ms) && at_ms >= 0 ? at_ms : 0;
    if (json_object_get(object, "createdAt") == NULL) return true;
    return clock_parse(text_of(object, "createdAt"), &r->created_ms);
}

static bool user_read(const json_t *object, struct request *r) {
    str user = text_of(object, "userId");
    return user.len > 0 && str_is_text(user) && str_copy(user, r->user, sizeof r->user);
}

/* NULL, or the name of the field that is missing or not valid. */
static const char *wrong_field(const json_t *o, int64_t at_ms, struct request *r,
                               struct section_names *names) {
    if (!uuid_parse(text_of(o, "requestId"), &r->id)) return "requestId";
    if (!user_read(o, r)) return "userId";
    if (!name_read(o, "eventType", EVENT_TYPE_BYTES_MAX, names->type)) return "eventType";
    if (!name_read(o, "eventId", EVENT_ID_BYTES_MAX, names->id)) return "eventId";
    if (!name_read(o, "section", SECTION_ID_BYTES_MAX, names->section)) return "section";
    if (!strategy_read(o, r)) return "strategy";
    if (!time_read(o, at_ms, r)) return "createdAt";
    if (!keys_read(o, r)) return "eventKey, sectionKey or entrySeq";
    return digest_read(o, r) ? NULL : "bodyDigest";
}

static struct request *object_read(const json_t *object, int64_t at_ms, struct section_names *names,
                                   struct buf *why) {
    const json_t *version = json_object_get(object, "version");
    if (!json_is_integer(version) || json_integer_value(version) != KAFKA_MESSAGE_VERSION) {
        buf_addf(why, "version is not %d", KAFKA_MESSAGE_VERSION);
        return NULL;
    }
    struct request *r = request_with_seats(object);
    if (r == NULL) {
        buf_add(why, STR("seats or quantity is missing or not valid"));
        return NULL;
    }
    const char *wrong = wrong_field(object, at_ms, r, names);
    if (wrong == NULL) return r;
    buf_addf(why, "%s is missing or not valid", wrong);
    mem_free(r);
    return NULL;
}

struct request *kafka_message_read(str value, int64_t at_ms, struct section_names *names,
                                   struct buf *why) {
    json_error_t error;
    if (value.len > KAFKA_MESSAGE_BYTES_MAX) {
        buf_addf(why, "longer than %d bytes", KAFKA_MESSAGE_BYTES_MAX);
        return NULL;
    }
    json_t *json =
        value.len == 0 ? NULL : json_loadb(value.at, value.len, JSON_REJECT_DUPLICATES, &error);
    struct request *r = NULL;
    if (json_is_object(json))
        r = object_read(json, at_ms, names, why);
    else
        buf_add(why, STR("not a JSON object"));
    json_decref(json);
    return r;
}
