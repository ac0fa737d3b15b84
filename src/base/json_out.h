/*
 * json_out: writes JSON straight into a buf, with commas and escapes taken care of. The caller
 * keeps objects and arrays balanced; json_out_done asserts it. Strings are UTF-8 already
 * (whatever came in was checked); control characters, quotes and backslashes are escaped.
 */
#ifndef ADMITONE_BASE_JSON_OUT_H
#define ADMITONE_BASE_JSON_OUT_H

#include "base/buf.h"

struct json_out {
    struct buf *to;
    int depth;
    bool comma; /* the next value has one before it */
};

void json_out_init(struct json_out *j, struct buf *to);
void json_out_done(const struct json_out *j);

/* `key` is a literal of ours, never escaped; an empty one writes a bare value (in an array). */
void json_out_object(struct json_out *j, str key);
void json_out_object_end(struct json_out *j);
void json_out_array(struct json_out *j, str key);
void json_out_array_end(struct json_out *j);
void json_out_str(struct json_out *j, str key, str value);
void json_out_i64(struct json_out *j, str key, int64_t value);
/* With three decimals. */
void json_out_f64(struct json_out *j, str key, double value);
void json_out_bool(struct json_out *j, str key, bool value);
void json_out_null(struct json_out *j, str key);
/* RFC 3339, or null for CLOCK_NONE_MS and for a time that can't be written so. */
void json_out_time(struct json_out *j, str key, int64_t ms);
/* Text that is JSON already. */
void json_out_raw(struct json_out *j, str key, str json);

/* The escaped value between its quotes, for writers of other formats. */
void json_out_escape(struct buf *to, str value);

#endif
