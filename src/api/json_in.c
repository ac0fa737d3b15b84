/* Reads one field after the other, and says what is wrong with it. */
#include "api/json_in.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/event.h"

bool json_refuse(struct json_problem *problem, enum err err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    problem->err = err;
    vsnprintf(problem->detail, sizeof problem->detail, format, args);
    /* It may contain text of the client, which may have been cut. */
    str whole = str_cut(str_of(problem->detail), sizeof problem->detail - 4);
    problem->detail[whole.len] = '\0';
    va_end(args);
    return false;
}

static bool is_json(str content_type) {
    str rest = content_type;
    str type;
    return str_split(&rest, ';', &type) && str_eq_nocase(str_trim(type), STR("application/json"));
}

static bool is_json_body(const struct exchange *x) {
    return x->has_json_body || is_json(http_header(&x->request, STR("Content-Type")));
}

json_t *json_body(struct exchange *x) {
    if (!is_json_body(x)) {
        reply_problem(x, ERR_UNSUPPORTED_MEDIA_TYPE, "%s",
                      "Send the body with 'Content-Type: application/json'.");
        return NULL;
    }
    json_error_t why;
    str body = x->request.body;
    json_t *json = json_loadb(body.len == 0 ? "" : body.at, body.len, JSON_REJECT_DUPLICATES, &why);
    if (json == NULL) {
        /* Some of the library's texts are for programmers. */
        const char *text =
            strstr(why.text, "\\u0000") != NULL ? "\\u0000 is not allowed" : why.text;
        reply_problem(x, ERR_BAD_JSON, "Line %d, column %d: %s.", why.line, why.column, text);
        return NULL;
    }
    if (!json_is_object(json)) {
        json_decref(json);
        reply_problem(x, ERR_BAD_JSON, "%s", "The body must be a JSON object.");
        return NULL;
    }
    return json;
}

/* A value of a field, of a tree or of a simple body. */
struct json_value {
    json_type type;
    str text;           /* of a string */
    int64_t number;     /* of an integer */
    const json_t *tree; /* NULL: of a simple body, so no object or array */
};

static struct json_value json_value_of(const json_t *tree) {
    return (struct json_value){.type = json_typeof(tree),
                               .text = {json_string_value(tree), json_string_length(tree)},
                               .number = json_integer_value(tree),
                               .tree = tree};
}

static bool read_i64(const struct json_field *f, const struct json_value *value, void *at,
                     const char *where, struct json_problem *problem) {
    if (value->type != JSON_INTEGER || value->number < f->min || value->number > f->max)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "%s%s must be a whole number from %lld to %lld.", where, f->name,
                           (long long)f->min, (long long)f->max);
    *(int64_t *)at = value->number;
    return true;
}

static bool read_bool(const struct json_field *f, const struct json_value *value, void *at,
                      const char *where, struct json_problem *problem) {
    if (value->type != JSON_TRUE && value->type != JSON_FALSE)
        return json_refuse(problem, ERR_INVALID_FIELD, "%s%s must be true or false.", where,
                           f->name);
    *(bool *)at = value->type == JSON_TRUE;
    return true;
}

static bool json_read_text(const struct json_field *f, const struct json_value *value, void *at,
                           const char *where, struct json_problem *problem) {
    str text = value->text;
    if (value->type != JSON_STRING || text.len < (size_t)f->min || text.len > (size_t)f->max ||
        !str_is_text(text))
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "%s%s must be a string of %lld to %lld bytes without control "
                           "characters.",
                           where, f->name, (long long)f->min, (long long)f->max);
    return str_copy(text, at, (size_t)f->max + 1);
}

static bool read_name(const struct json_field *f, const struct json_value *value, void *at,
                      const char *where, struct json_problem *problem) {
    str text = value->text;
    if (value->type != JSON_STRING || !event_name_ok(text, (size_t)f->max))
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "%s%s must be 1 to %lld letters, digits, '_', '-' or '.'.", where,
                           f->name, (long long)f->max);
    return str_copy(text, at, (size_t)f->max + 1);
}

static bool read_money(const struct json_field *f, const struct json_value *value, void *at,
                       const char *where, struct json_problem *problem) {
    str text = value->text;
    if (value->type != JSON_STRING || !event_currency_ok(text))
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "%s%s must be three capital letters, as in \"KRW\".", where, f->name);
    return str_copy(text, at, 4);
}

static bool read_time(const struct json_field *f, const struct json_value *value, void *at,
                      const char *where, struct json_problem *problem) {
    if (value->type == JSON_NULL) {
        *(int64_t *)at = CLOCK_NONE_MS;
        return true;
    }
    if (value->type != JSON_STRING || !clock_parse(value->text, at))
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "%s%s must be null or a time as in \"2026-12-25T10:00:00Z\".", where,
                           f->name);
    return true;
}

static bool read_word(const struct json_field *f, const struct json_value *value, void *at,
                      const char *where, struct json_problem *problem) {
    bool may_be_null = f->words[0].len == 0;
    int index = value->type == JSON_STRING ? word_index(f->words, value->text) : -1;
    if (may_be_null && index <= 0) index = value->type == JSON_NULL ? 0 : -1;
    if (index < 0) {
        char list[128] = "";
        size_t len = 0;
        for (const str *w = f->words; w->at != NULL && len < sizeof list; w++) {
            const char *quote = w->len == 0 ? "" : "\"";
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s%s%s",
                                    w == f->words ? "" : ", ", quote, w->len == 0 ? "null" : w->at,
                                    quote);
        }
        return json_refuse(problem, ERR_INVALID_FIELD, "%s%s must be one of %s.", where, f->name,
                           list);
    }
    memcpy(at, &(unsigned){(unsigned)index}, sizeof(unsigned));
    return true;
}

static bool read_object(const struct json_field *f, const struct json_value *value, void *into,
                        const char *where, struct json_problem *problem) {
    char inner[64];
    if (value->type != JSON_OBJECT)
        return json_refuse(problem, ERR_INVALID_FIELD, "%s%s must be an object.", where, f->name);
    snprintf(inner, sizeof inner, "%s%s.", where, f->name);
    return json_read(value->tree, f->fields, into, inner, problem);
}

static bool json_read_field(const struct json_field *f, const struct json_value *value, void *into,
                            const char *where, struct json_problem *problem) {
    void *at = (char *)into + f->offset;
    switch (f->kind) {
    case JSON_KIND_I64:
        return read_i64(f, value, at, where, problem);
    case JSON_KIND_BOOL:
        return read_bool(f, value, at, where, problem);
    case JSON_KIND_TEXT:
        return json_read_text(f, value, at, where, problem);
    case JSON_KIND_NAME:
        return read_name(f, value, at, where, problem);
    case JSON_KIND_MONEY:
        return read_money(f, value, at, where, problem);
    case JSON_KIND_TIME:
        return read_time(f, value, at, where, problem);
    case JSON_KIND_WORD:
        return read_word(f, value, at, where, problem);
    case JSON_KIND_OBJECT:
        return read_object(f, value, into, where, problem);
    case JSON_KIND_SHOWN:
        if (value->type != JSON_ARRAY && value->type != JSON_OBJECT) return true;
        return json_refuse(problem, ERR_INVALID_FIELD, "%s%s cannot be set: leave it out.", where,
                           f->name);
    case JSON_KIND_USER:
    case JSON_KIND_OTHER:
        return true;
    }
    assert(false && "no such kind");
    return false;
}

bool json_read(const json_t *object, const struct json_field *fields, void *into, const char *where,
               struct json_problem *problem) {
    assert(json_is_object(object));
    const char *key;
    json_t *tree;
    json_object_foreach((json_t *)(uintptr_t)object, key, tree) {
        struct json_value value = json_value_of(tree);
        const struct json_field *f = fields;
        while (f->name != NULL && strcmp(f->name, key) != 0) f++;
        if (f->name == NULL)
            return json_refuse(problem, ERR_UNKNOWN_FIELD, "%s%.*s is not a field here.", where,
                               (int)str_cut(str_of(key), 64).len, key);
        if (!json_read_field(f, &value, into, where, problem)) return false;
    }
    return true;
}

/* ---- simple bodies ---- */

#define SIMPLE_DIGITS_MAX 18

struct json_scan {
    const char *at;
    const char *end;
};

static void scan_space(struct json_scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

static bool scan_char(struct json_scan *s, char wanted) {
    scan_space(s);
    if (s->at == s->end || *s->at != wanted) return false;
    s->at++;
    return true;
}

/* ASCII only, behind its first quotation mark. */
static bool scan_text(struct json_scan *s, str *out) {
    const char *begin = s->at;
    while (s->at < s->end && *s->at >= ' ' && *s->at <= '~' && *s->at != '"' && *s->at != '\\')
        s->at++;
    *out = (str){begin, (size_t)(s->at - begin)};
    return s->at < s->end && *s->at++ == '"';
}

static bool scan_number(struct json_scan *s, int64_t *out) {
    const char *begin = s->at;
    *out = 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - begin < SIMPLE_DIGITS_MAX)
        *out = *out * 10 + (*s->at++ - '0');
    return s->at > begin && (*begin != '0' || s->at == begin + 1);
}

static bool scan_value(struct json_scan *s, struct json_value *out) {
    bool is_text = scan_char(s, '"');
    *out = (struct json_value){.type = is_text ? JSON_STRING : JSON_INTEGER};
    return is_text ? scan_text(s, &out->text) : scan_number(s, &out->number);
}

/* Of a field that was not seen before. */
static bool scan_field(struct json_scan *s, const struct json_field *fields, void *into,
                       uint64_t *seen, json_t **user) {
    struct json_problem problem;
    struct json_value value;
    str key;
    if (!scan_char(s, '"') || !scan_text(s, &key) || !scan_char(s, ':')) return false;
    const struct json_field *f = fields;
    while (f->name != NULL && !str_eq(str_of(f->name), key)) f++;
    uint64_t bit = UINT64_C(1) << (f - fields);
    if (f->name == NULL || f->kind == JSON_KIND_OTHER || (*seen & bit) != 0) return false;
    *seen |= bit;
    if (!scan_value(s, &value)) return false;
    if (f->kind == JSON_KIND_USER)
        *user = value.type == JSON_STRING ? json_stringn_nocheck(value.text.at, value.text.len)
                                          : json_integer(value.number);
    return json_read_field(f, &value, into, "", &problem);
}

bool json_read_simple(const struct exchange *x, const struct json_field *fields, void *into,
                      json_t **user) {
    str body = x->request.body;
    struct json_scan s = {body.at, body.at + body.len};
    uint64_t seen = 0;
    *user = NULL;
    if (body.len == 0 || !is_json_body(x) || !scan_char(&s, '{')) return false;
    bool ok = true;
    do {
        ok = scan_field(&s, fields, into, &seen, user);
    } while (ok && scan_char(&s, ','));
    ok = ok && scan_char(&s, '}');
    scan_space(&s);
    if (ok && s.at == s.end) return true;
    json_decref(*user);
    *user = NULL;
    return false;
}
