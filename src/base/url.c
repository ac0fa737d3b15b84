/* Parsing of store URLs, so that passwords stay out of messages. */
#include "base/url.h"

struct url_parts {
    str scheme; /* with the "://"; empty: the text is no URL */
    str login;  /* at == NULL: none */
    str place;  /* host, port and path */
    str query;  /* at == NULL: none */
    bool is_ambiguous;
};

static size_t url_find(str s, char c) {
    const char *at = s.len == 0 ? NULL : memchr(s.at, c, s.len);
    return at == NULL ? s.len : (size_t)(at - s.at);
}

static struct url_parts url_split(str url) {
    struct url_parts p = {0};
    const char *slashes = url.len == 0 ? NULL : memmem(url.at, url.len, "://", 3);
    if (slashes != NULL) p.scheme = (str){url.at, (size_t)(slashes - url.at) + 3};
    str rest = str_skip(url, p.scheme.len);
    size_t slash = url_find(rest, '/');
    size_t mark = url_find(rest, '?');
    size_t end = slash < mark ? slash : mark;
    size_t at = url_find(rest, '@');
    if (at < end) {
        p.login = (str){rest.at, at};
        rest = str_skip(rest, at + 1);
    }
    p.is_ambiguous = url_find(rest, '@') < rest.len;
    str_split(&rest, '?', &p.place);
    p.query = rest;
    return p;
}

/* Such as "password" and "sslpassword". A name with an escape (%) may be one of them. */
static bool may_be_password(str name) {
    return name.len > 0 &&
           (memmem(name.at, name.len, "pass", 4) != NULL || url_find(name, '%') < name.len);
}

static void add_parameters(str query, struct buf *out) {
    str one;
    for (char separator = '?'; str_split(&query, '&', &one); separator = '&') {
        str name;
        buf_add_char(out, separator);
        str_split(&one, '=', &name);
        buf_add(out, name);
        if (one.at == NULL) continue;
        buf_add_char(out, '=');
        buf_add(out, may_be_password(name) ? STR("***") : one);
    }
}

bool url_is_ambiguous(str url) {
    return url_split(url).is_ambiguous;
}

void url_redact(str url, struct buf *out) {
    struct url_parts p = url_split(url);
    if (p.scheme.len == 0) {
        buf_add(out, url);
        return;
    }
    buf_add(out, p.scheme);
    if (p.is_ambiguous) {
        buf_add(out, STR("***"));
        return;
    }
    if (p.login.at != NULL) {
        str user;
        str_split(&p.login, ':', &user);
        buf_add(out, user);
        buf_add(out, p.login.at == NULL ? STR("@") : STR(":***@"));
    }
    buf_add(out, p.place);
    add_parameters(p.query, out);
}

void url_add_place(str url, struct buf *out) {
    struct url_parts p = url_split(url);
    buf_add(out, p.is_ambiguous ? STR("***") : p.place);
}
