/* Formatting of log lines in logfmt and JSON, and what of a path may be logged. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
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

/* Entry tokens stand behind "/subscribe/" and in the parameter "token". An escape could hide such
 * a mark from us, though not from the router: nothing is shown from the first one on. */
static void add_redacted(struct buf *out, str path) {
    static const struct {
        str mark;
        str ends; /* what may end the token that follows */
    } places[] = {{STR_INIT("/subscribe/"), STR_INIT("/?#")}, {STR_INIT("token="), STR_INIT("&#")}};
    while (path.len > 0) {
        size_t i = 0;
        if (path.at[0] == '%') {
            buf_add(out, STR("***"));
            return;
        }
        while (i < sizeof places / sizeof places[0] && !str_starts(path, places[i].mark)) i++;
        if (i == sizeof places / sizeof places[0]) {
            buf_add_char(out, path.at[0]);
            path = str_skip(path, 1);
            continue;
        }
        buf_add(out, places[i].mark);
        buf_add(out, STR("***"));
        path = str_skip(path, places[i].mark.len);
        while (path.len > 0 && memchr(places[i].ends.at, path.at[0], places[i].ends.len) == NULL)
            path = str_skip(path, 1);
    }
}

static bool log_is_plain(str value) {
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
    if (log_is_plain(value)) {
        buf_add(line, value);
        return;
    }
    buf_add_char(line, '"');
    json_out_escape(line, value);
    buf_add_char(line, '"');
}

static void log_add_field(struct buf *line, struct json_out *json, const struct log_field *f) {
    struct buf redacted = {0};
    str text = f->text;
    if (f->kind == FIELD_PATH) {
        add_redacted(&redacted, text);
        text = buf_str(&redacted);
    }
    if (format == LOG_JSON && f->kind == FIELD_NUMBER) {
        json_out_i64(json, str_of(f->key), f->number);
    } else if (format == LOG_JSON) {
        json_out_str(json, str_of(f->key), text);
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

/* Under a lock: a pipe takes long lines in pieces. A log that can't be written has nowhere to be
 * reported. */
static void write_line(str line) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    while (line.len > 0) {
        ssize_t n = write(STDERR_FILENO, line.at, line.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        line = str_skip(line, (size_t)n);
    }
    pthread_mutex_unlock(&lock);
}

void log_write(enum log_level level, const struct log_field *fields, size_t count) {
    if (!log_enabled(level)) return;
    char now[CLOCK_TEXT_BYTES];
    clock_format(clock_wall_ms(), now);

    struct buf line = {0};
    struct json_out json;
    json_out_init(&json, &line);
    if (format == LOG_JSON) {
        json_out_object(&json, STR(""));
        json_out_str(&json, STR("time"), STR(now));
        json_out_str(&json, STR("level"), str_of(level_names[level]));
    } else {
        buf_addf(&line, "time=%s level=%s", now, level_names[level]);
    }
    for (size_t i = 0; i < count; i++) log_add_field(&line, &json, &fields[i]);
    if (format == LOG_JSON) json_out_object_end(&json);
    json_out_done(&json);
    buf_add_char(&line, '\n');

    write_line(buf_str(&line));
    buf_deinit(&line);
}
