#include "base/json_out.h"

#include <assert.h>

#include "base/clock.h"

void json_out_init(struct json_out *j, struct buf *to) {
    *j = (struct json_out){.to = to};
}

void json_out_done(const struct json_out *j) {
    assert(j->depth == 0);
}

void json_out_escape(struct buf *to, str value) {
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        buf_append(to, value.at + from, i - from);
        from = i + 1;
        if (c >= 0x20) {
            buf_add_char(to, '\\');
            buf_add_char(to, (char)c);
        } else if (c == '\n') {
            buf_add(to, STR("\\n"));
        } else {
            buf_add(to, STR("\\u00"));
            buf_add_char(to, hex[c >> 4]);
            buf_add_char(to, hex[c & 15]);
        }
    }
    if (from < value.len) buf_append(to, value.at + from, value.len - from);
}

static void key_of(struct json_out *j, str key) {
    if (j->comma) buf_add_char(j->to, ',');
    j->comma = true;
    if (key.len == 0) return;
    char *out = buf_reserve(j->to, key.len + 3);
    out[0] = '"';
    memcpy(out + 1, key.at, key.len);
    out[key.len + 1] = '"';
    out[key.len + 2] = ':';
    j->to->len += key.len + 3;
}

static void open_with(struct json_out *j, str key, char bracket) {
    key_of(j, key);
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
    key_of(j, key);
    buf_add_char(j->to, '"');
    json_out_escape(j->to, value);
    buf_add_char(j->to, '"');
}

void json_out_i64(struct json_out *j, str key, int64_t value) {
    key_of(j, key);
    buf_add_i64(j->to, value);
}

void json_out_raw(struct json_out *j, str key, str json) {
    key_of(j, key);
    buf_add(j->to, json);
}

void json_out_bool(struct json_out *j, str key, bool value) {
    json_out_raw(j, key, value ? STR("true") : STR("false"));
}

void json_out_null(struct json_out *j, str key) {
    json_out_raw(j, key, STR("null"));
}

void json_out_time(struct json_out *j, str key, int64_t ms) {
    if (ms == CLOCK_NONE_MS) {
        json_out_null(j, key);
        return;
    }
    char text[CLOCK_TEXT_BYTES];
    clock_format(ms, text);
    json_out_str(j, key, STR(text));
}
