/*
 * json_in: reads JSON objects into structs by tables of fields, and says precisely what is wrong:
 * which field, and what it should be. A field that is absent leaves the struct as it was, so
 * defaults are filled in before.
 */
#ifndef ADMITONE_API_JSON_IN_H
#define ADMITONE_API_JSON_IN_H

#include <jansson.h>

#include "net/exchange.h"

struct json_problem {
    enum err err;
    char detail[256];
};

enum json_kind {
    JSON_KIND_I64,    /* int64_t, min to max */
    JSON_KIND_BOOL,   /* bool */
    JSON_KIND_TEXT,   /* char[max + 1]: min to max bytes of UTF-8 without control characters */
    JSON_KIND_NAME,   /* char[max + 1]: as event_name_ok */
    JSON_KIND_MONEY,  /* char[4]: a currency */
    JSON_KIND_TIME,   /* int64_t ms: RFC 3339 or null */
    JSON_KIND_WORD,   /* an enum: one of `words`; null if the first word is empty */
    JSON_KIND_OBJECT, /* `fields` of the same struct */
    JSON_KIND_SHOWN,  /* only in answers: ignored, unless it is an array or object */
    JSON_KIND_USER,   /* userId: the caller reads it */
    JSON_KIND_OTHER,  /* the caller reads it */
};

struct json_field {
    const char *name;
    enum json_kind kind;
    size_t offset;
    int64_t min;
    int64_t max;
    const str *words;
    const struct json_field *fields; /* ends with a field without a name */
};

/* The body of the request, or NULL when the problem has been answered: not JSON by its
 * Content-Type, not JSON by its text, not an object. json_decref it. */
json_t *json_body(struct exchange *x);

/* `fields` ends with a field without a name. `where` is put before names in messages ("",
 * "sections[2]."). False: *problem says why, and `into` is not to be used. */
bool json_read(const json_t *object, const struct json_field *fields, void *into, const char *where,
               struct json_problem *problem);

/* The same for the body of a request that is as simple as most are, without a tree of it, which
 * takes a good part of the CPU time of a small request: an object of strings without escapes and of
 * whole numbers. *user: the value of the field of JSON_KIND_USER, or NULL; json_decref it. False:
 * the body may be valid all the same; json_body and json_read know, and say what is wrong. `into`
 * may have been changed then. */
bool json_read_simple(const struct exchange *x, const struct json_field *fields, void *into,
                      json_t **user);

/* False, with the problem filled in. */
bool json_refuse(struct json_problem *problem, enum err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
