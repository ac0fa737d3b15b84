/*
 * log: writes one line per message to stderr, as logfmt or JSON. Safe from any thread; lines are
 * written one after the other and never mix. Levels below the configured one cost a compare.
 *
 *     log_info(msg("listening"), kv("addr", addr), kv_i64("workers", n));
 *
 * No field may contain a secret: the target of a request is logged with kv_path, which hides entry
 * tokens.
 */
#ifndef ADMITONE_BASE_LOG_H
#define ADMITONE_BASE_LOG_H

#include "base/str.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log_field {
    const char *key;
    str text;
    int64_t number;
    enum { FIELD_TEXT, FIELD_NUMBER, FIELD_PATH } kind;
};

static inline struct log_field kv_str(const char *key, str value) {
    return (struct log_field){.key = key, .text = value, .kind = FIELD_TEXT};
}

static inline struct log_field kv(const char *key, const char *value) {
    return kv_str(key, str_of(value));
}

static inline struct log_field msg(const char *text) {
    return kv("msg", text);
}

static inline struct log_field kv_i64(const char *key, int64_t value) {
    return (struct log_field){.key = key, .number = value, .kind = FIELD_NUMBER};
}

/* A request target: entry tokens in it are replaced by "***". */
static inline struct log_field kv_path(const char *key, str value) {
    return (struct log_field){.key = key, .text = value, .kind = FIELD_PATH};
}

#define LOG_AT(level, ...)                                                                         \
    log_write(level, (const struct log_field[]){__VA_ARGS__},                                      \
              sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG)) LOG_AT(LOG_DEBUG, __VA_ARGS__);                                \
    } while (0)
#define log_info(...) LOG_AT(LOG_INFO, __VA_ARGS__)
#define log_warn(...) LOG_AT(LOG_WARN, __VA_ARGS__)
#define log_error(...) LOG_AT(LOG_ERROR, __VA_ARGS__)

/* Once, before other threads are started. */
void log_setup(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const struct log_field *fields, size_t count);

#endif
