/* Server-sent events, line by line. */
#include "crowd/events.h"

/* The line at *at, without its end, and *at moves behind it. False: it is not whole. */
static bool take_line(const struct buf *in, size_t *at, str *line) {
    const char *from = in->bytes + *at;
    const char *lf = *at == in->len ? NULL : memchr(from, '\n', in->len - *at);
    if (lf == NULL) return false;
    *line = (str){from, (size_t)(lf - from)};
    *at += line->len + 1;
    if (line->len > 0 && line->at[line->len - 1] == '\r') line->len--;
    return true;
}

/* The value of the line if it is of that field: "data: x", "data:x", or "data". */
static bool is_field(str line, str name, str *value) {
    if (!str_starts(line, name)) return false;
    *value = str_skip(line, name.len);
    if (value->len == 0) return true;
    if (value->at[0] != ':') return false;
    *value = str_skip(*value, 1);
    if (value->len > 0 && value->at[0] == ' ') *value = str_skip(*value, 1);
    return true;
}

/* Appends the value to the data, which lies before it in the buffer: its "data" makes room. */
static void add_data(struct buf *in, size_t start, struct stream_event *e, str value) {
    char *to = in->bytes + start;
    if (e->data.at == NULL)
        e->data = (str){to, 0};
    else
        to[e->data.len++] = '\n';
    if (value.len > 0) memmove(to + e->data.len, value.at, value.len);
    e->data.len += value.len;
}

/* One event, or only comments, up to an empty line. False: it is not whole. */
static bool take_event(struct buf *in, size_t *at, struct stream_event *out) {
    size_t start = *at;
    size_t end = start;
    str line;
    do
        if (!take_line(in, &end, &line)) return false;
    while (line.len > 0);
    /* It is whole: only now may its bytes be moved. */
    *out = (struct stream_event){0};
    size_t data_start = start;
    for (size_t next = start; next < end;) {
        size_t begin = next;
        str value;
        take_line(in, &next, &line);
        if (is_field(line, STR("data"), &value)) {
            if (out->data.at == NULL) data_start = begin;
            add_data(in, data_start, out, value);
        } else if (is_field(line, STR("event"), &value)) {
            str_copy(value, out->name, sizeof out->name);
        }
    }
    *at = end;
    return true;
}

bool events_take(struct buf *in, size_t *at, struct stream_event *out) {
    while (take_event(in, at, out))
        if (out->data.at != NULL) return true;
    return false;
}
