#include "base/log.h"

#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_out.h"

static enum log_level threshold = LOG_INFO;
static enum log_format format = LOG_LOGFMT;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level level, enum log_format wanted) {
    threshold = level;
    format = wanted;
}

bool log_enabled(enum log_level level) {
    return level >= threshold;
}

/* Entry tokens stand behind "/subscribe/" and in the parameter "token". */
static void add_redacted(struct buf *out, str path) {
    static const str marks[] = {STR_INIT("/subscribe/"), STR_INIT("token=")};
    while (path.len > 0) {
        str mark = {NULL, 0};
        for (size_t i = 0; i < sizeof marks / sizeof marks[0] && mark.len == 0; i++)
            if (str_starts(path, marks[i])) mark = marks[i];
        if (mark.len == 0) {
            buf_add_char(out, path.at[0]);
            path = str_skip(path, 1);
            continue;
        }
        buf_add(out, mark);
        buf_add(out, STR("***"));
        path = str_skip(path, mark.len);
        while (path.len > 0 && strchr("/?&#", path.at[0]) == NULL) path = str_skip(path, 1);
    }
}

static bool is_plain(str value) {
    if (value.len == 0) return false;
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if (c <= 0x20 || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
    }
    return true;
}

static void add_logfmt(struct buf *line, const char *key, str value) {
    buf_add_char(line, ' ');
    buf_add(line, str_of(key));
    buf_add_char(line, '=');
    if (is_plain(value)) {
        buf_add(line, value);
        return;
    }
    buf_add_char(line, '"');
    json_escape(line, value);
    buf_add_char(line, '"');
}

static void add_field(struct buf *line, struct json_out *json, const struct log_field *f) {
    struct buf redacted = {0};
    str text = f->text;
    if (f->kind == FIELD_PATH) {
        add_redacted(&redacted, text);
        text = buf_str(&redacted);
    }
    if (format == LOG_JSON && f->kind == FIELD_NUMBER) {
        json_i64(json, str_of(f->key), f->number);
    } else if (format == LOG_JSON) {
        json_str(json, str_of(f->key), text);
    } else if (f->kind == FIELD_NUMBER) {
        buf_add_char(line, ' ');
        buf_add(line, str_of(f->key));
        buf_add_char(line, '=');
        buf_add_i64(line, f->number);
    } else {
        add_logfmt(line, f->key, text);
    }
    buf_deinit(&redacted);
}

void log_write(enum log_level level, const struct log_field *fields, size_t count) {
    if (!log_enabled(level)) return;
    char now[CLOCK_TEXT_BYTES];
    clock_format(clock_wall_ms(), now);

    struct buf line = {0};
    struct json_out json;
    json_out_init(&json, &line);
    if (format == LOG_JSON) {
        json_object(&json, STR(""));
        json_str(&json, STR("time"), STR(now));
        json_str(&json, STR("level"), str_of(level_names[level]));
    } else {
        buf_addf(&line, "time=%s level=%s", now, level_names[level]);
    }
    for (size_t i = 0; i < count; i++) add_field(&line, &json, &fields[i]);
    if (format == LOG_JSON) json_object_end(&json);
    json_out_done(&json);
    buf_add_char(&line, '\n');

    /* A log that can't be written has nowhere to be reported. */
    ssize_t ignored = write(STDERR_FILENO, line.bytes, line.len);
    (void)ignored;
    buf_deinit(&line);
}
