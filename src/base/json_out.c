/* Writing of JSON into a buffer: commas, escapes and numbers. */
#include "base/json_out.h"

#include <assert.h>

#include "base/clock.h"

void json_out_init(struct json_out *j, struct buf *to) {
    *j = (struct json_out){.to = to};
}

void json_out_done(const struct json_out *j) {
    assert(j->depth == 0);
}

static bool json_is_plain(char c) {
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

static char *escape_one(char *out, char c) {
    static const char hex[] = "0123456789abcdef";
    *out++ = '\\';
    if ((unsigned char)c >= 0x20) {
        *out++ = c;
    } else if (c == '\n') {
        *out++ = 'n';
    } else {
        memcpy(out, "u00", 3);
        out[3] = hex[(unsigned char)c >> 4];
        out[4] = hex[c & 15];
        out += 5;
    }
    return out;
}

/* A byte takes 6 at most, so room is made once and the loop does not ask for more. */
void json_out_escape(struct buf *to, str value) {
    char *start = buf_reserve(to, value.len * 6);
    char *out = start;
    for (size_t i = 0; i < value.len; i++) {
        if (json_is_plain(value.at[i]))
            *out++ = value.at[i];
        else
            out = escape_one(out, value.at[i]);
    }
    to->len += (size_t)(out - start);
}

static void json_key_of(struct json_out *j, str key) {
    char *out = buf_reserve(j->to, key.len + 4);
    char *at = out;
    if (j->comma) *at++ = ',';
    j->comma = true;
    if (key.len > 0) {
        *at++ = '"';
        memcpy(at, key.at, key.len);
        at += key.len;
        *at++ = '"';
        *at++ = ':';
    }
    j->to->len += (size_t)(at - out);
}

static void open_with(struct json_out *j, str key, char bracket) {
    json_key_of(j, key);
    buf_add_char(j->to, bracket);
    j->comma = false;
    j->depth++;
}

static void close_with(struct json_out *j, char bracket) {
    assert(j->depth > 0);
    buf_add_char(j->to, bracket);
    j->comma = true;
    j->depth--;
}

void json_out_object(struct json_out *j, str key) {
    open_with(j, key, '{');
}

void json_out_object_end(struct json_out *j) {
    close_with(j, '}');
}

void json_out_array(struct json_out *j, str key) {
    open_with(j, key, '[');
}

void json_out_array_end(struct json_out *j) {
    close_with(j, ']');
}

void json_out_str(struct json_out *j, str key, str value) {
    json_key_of(j, key);
    buf_add_char(j->to, '"');
    json_out_escape(j->to, value);
    buf_add_char(j->to, '"');
}

void json_out_i64(struct json_out *j, str key, int64_t value) {
    json_key_of(j, key);
    buf_add_i64(j->to, value);
}

void json_out_f64(struct json_out *j, str key, double value) {
    json_key_of(j, key);
    buf_addf(j->to, "%.3f", value);
}

void json_out_raw(struct json_out *j, str key, str json) {
    json_key_of(j, key);
    buf_add(j->to, json);
}

void json_out_bool(struct json_out *j, str key, bool value) {
    json_out_raw(j, key, value ? STR("true") : STR("false"));
}

void json_out_null(struct json_out *j, str key) {
    json_out_raw(j, key, STR("null"));
}

void json_out_time(struct json_out *j, str key, int64_t ms) {
    if (ms == CLOCK_NONE_MS || !clock_writable(ms)) {
        json_out_null(j, key);
        return;
    }
    char text[CLOCK_TEXT_BYTES];
    clock_format(ms, text);
    json_out_str(j, key, STR(text));
}
