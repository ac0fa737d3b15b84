/* GET /, /e/{type}/{id}, /admin and /assets/{name}. */
#include "api/pages.h"

#include "api/accept.h"
#include "api/plain_page.h"
#include "api/users.h"
#include "base/clock.h"

#define LANGUAGE_COOKIE "admitone_lang"

static const char page_headers[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: https:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'\r\n"
    "Referrer-Policy: same-origin\r\n"
    "Vary: Accept-Encoding, Accept-Language, Cookie\r\n"
    "X-Content-Type-Options: nosniff\r\n";
static const char asset_headers[] = "Vary: Accept-Encoding\r\n"
                                    "X-Content-Type-Options: nosniff\r\n";

/* ---- the pages ---- */

bool pages_init(struct pages *pages, const struct page_options *options, struct buf *why) {
    pages->options = *options;
    pages->set = page_set_new(options, why);
    return pages->set != NULL;
}

void pages_deinit(struct pages *pages) {
    page_set_free(pages->set);
}

struct page_set *pages_take(struct pages *pages, struct exchange *x) {
    if (pages->options.web_dir[0] == '\0') return pages->set;
    struct buf why = {0};
    struct page_set *set = page_set_new(&pages->options, &why);
    if (set == NULL) reply_bytes(x, 500, STR("text/plain; charset=utf-8"), buf_str(&why));
    buf_deinit(&why);
    return set;
}

void pages_give_back(struct pages *pages, struct page_set *set) {
    if (set != pages->set) page_set_free(set);
}

/* ---- the language ---- */

static bool is_language(void *to, str value) {
    const struct page_set *set = to;
    return page_texts_find(&set->texts, value) < set->texts.count;
}

/* The language that ?lang= names, if there is one. */
static str asked_language(const struct page_set *set, struct exchange *x) {
    bool bad;
    str asked = query_value(x, STR("lang"), &bad);
    bool exists = asked.len > 0 && is_language((void *)(uintptr_t)set, asked);
    return exists ? asked : (str){NULL, 0};
}

static void keep_language(struct exchange *x, str language) {
    struct buf cookie = {0};
    buf_addf(&cookie, LANGUAGE_COOKIE "=%.*s; Path=/; Max-Age=31536000; SameSite=Lax; HttpOnly%s",
             (int)language.len, language.at, exchange_secure(x) ? "; Secure" : "");
    reply_header(x, STR("Set-Cookie"), buf_str(&cookie));
    buf_deinit(&cookie);
}

size_t pages_language(const struct page_set *set, struct exchange *x) {
    const struct page_texts *texts = &set->texts;
    str asked = asked_language(set, x);
    if (asked.at != NULL)
        keep_language(x, asked);
    else
        asked = cookie_value(x, STR(LANGUAGE_COOKIE), is_language, (void *)(uintptr_t)set);
    if (asked.at != NULL) return page_texts_find(texts, asked);
    return accept_language(http_header(&x->request, STR("Accept-Language")), texts->codes,
                           texts->count, set->language);
}

void pages_add_headers(struct exchange *x, str language, str cache) {
    reply_header(x, STR("Cache-Control"), cache);
    reply_header(x, STR("Content-Language"), language);
    reply_header_lines(x, STR(page_headers));
}

/* ---- answers ---- */

/* Whether the client has these bytes already. */
static bool has_etag(const struct exchange *x, const char *etag) {
    str rest = http_header(&x->request, STR("If-None-Match"));
    str one;
    while (rest.len > 0 && str_split(&rest, ',', &one)) {
        one = str_trim(one);
        if (str_eq(one, STR("*"))) return true;
        if (str_starts(one, STR("W/"))) one = str_skip(one, 2);
        if (str_eq(one, str_of(etag))) return true;
    }
    return false;
}

static void send_content(struct exchange *x, const struct page_content *content) {
    bool is_gzip = content->gzip.bytes.at != NULL &&
                   accept_gzip(http_header(&x->request, STR("Accept-Encoding")));
    const struct page_body *body = is_gzip ? &content->gzip : &content->plain;
    x->present = NULL; /* it would turn a 304 into a page */
    reply_header(x, STR("ETag"), str_of(body->etag));
    if (has_etag(x, body->etag)) {
        reply_empty(x, 304);
        return;
    }
    if (is_gzip) reply_header(x, STR("Content-Encoding"), STR("gzip"));
    reply_bytes(x, 200, content->type, body->bytes);
}

static void send_page(struct api *api, struct exchange *x, enum page_kind kind) {
    struct page_set *set = pages_take(api->pages, x);
    if (set == NULL) return;
    size_t language = pages_language(set, x);
    pages_add_headers(x, set->texts.codes[language], STR("no-cache"));
    send_content(x, &set->pages[kind][language]);
    pages_give_back(api->pages, set);
}

void page_get_home(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    send_page(api, x, PAGE_HOME);
}

void page_get_admin(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    send_page(api, x, PAGE_ADMIN);
}

void page_get_asset(struct api *api, struct exchange *x, const str *captures) {
    struct page_set *set = pages_take(api->pages, x);
    if (set == NULL) return;
    const struct page_asset *asset = page_set_asset(set, captures[0]);
    if (asset == NULL) {
        reply_problem(x, ERR_NOT_FOUND, "%s", "There is no such asset.");
    } else {
        bool bad;
        bool is_version = str_eq(query_value(x, STR("v"), &bad), str_of(asset->content.version));
        reply_header_lines(x, STR(asset_headers));
        reply_header(x, STR("Cache-Control"),
                     is_version ? STR("public, max-age=31536000, immutable") : STR("no-cache"));
        send_content(x, &asset->content);
    }
    pages_give_back(api->pages, set);
}

/* ---- the page of an event ---- */

static bool is_shown(struct api *api, const str *captures) {
    catalogue_read_lock(api->events.catalogue);
    const struct event *e = catalogue_find(api->events.catalogue, captures[0], captures[1]);
    bool shown = e != NULL && event_is_public(e, clock_wall_ms());
    catalogue_read_unlock(api->events.catalogue);
    return shown;
}

str pages_return_query(const struct exchange *x) {
    str rest = x->request.query;
    str pair;
    while (rest.len > 0 && str_split(&rest, '&', &pair))
        if (str_starts(pair, STR("rd="))) return str_skip(pair, 3);
    return (str){NULL, 0};
}

/* The page for a client that is to come back to another site: the URL of the plain view has that
 * site's, too. And the page of an event that does not exist. */
static void send_event_page(struct exchange *x, const struct page_halves *halves, str return_query,
                            int status) {
    struct buf url = {0};
    bool is_gzip = accept_gzip(http_header(&x->request, STR("Accept-Encoding")));
    buf_add(&url, STR("?view=plain"));
    if (return_query.len > 0) {
        buf_add(&url, STR("&amp;rd="));
        html_escape(&url, return_query);
    }
    struct buf *out = reply_start(x, status);
    if (is_gzip) {
        reply_header(x, STR("Content-Encoding"), STR("gzip"));
        gzip_join(&halves->gzip_before, buf_str(&url), &halves->gzip_after, out);
    } else {
        buf_add(out, halves->before);
        buf_add(out, buf_str(&url));
        buf_add(out, halves->after);
    }
    buf_deinit(&url);
    x->present = NULL;
    reply_send(x, STR("text/html; charset=utf-8"));
}

void page_get_event(struct api *api, struct exchange *x, const str *captures) {
    bool bad;
    if (str_starts(query_value(x, STR("view"), &bad), STR("plain"))) {
        plain_page_get(api, x, captures);
        return;
    }
    bool shown = is_shown(api, captures);
    str return_query = pages_return_query(x);
    if (shown && return_query.len == 0) {
        send_page(api, x, PAGE_EVENT);
        return;
    }
    struct page_set *set = pages_take(api->pages, x);
    if (set == NULL) return;
    size_t language = pages_language(set, x);
    pages_add_headers(x, set->texts.codes[language], STR("no-cache"));
    send_event_page(x, &set->event_halves[language], return_query, shown ? 200 : 404);
    pages_give_back(api->pages, set);
}

void page_post_event(struct api *api, struct exchange *x, const str *captures) {
    plain_page_post(api, x, captures);
}
