/* Reads and renders the texts of an event. Its page is kept as compact JSON with its members in one
 * order, so that it is shown without reading it again. */
#include "api/event_page_json.h"

#include <assert.h>

#include "base/mem.h"
#include "core/event_page.h"

/* ---- page ---- */

static str json_text(const json_t *value) {
    return (str){json_string_value(value), json_string_length(value)};
}

static bool name_from_json(const json_t *value, struct json_problem *problem) {
    if (json_is_string(value) && str_is_text(json_text(value)) &&
        prose_ok(json_text(value), PAGE_NAME_CHARS_MAX))
        return true;
    return json_refuse(problem, ERR_INVALID_FIELD,
                       "page.name must be null or a string of 0 to %d characters without control "
                       "characters.",
                       PAGE_NAME_CHARS_MAX);
}

static bool accent_from_json(const json_t *value, struct json_problem *problem) {
    if (json_is_string(value) && page_accent_ok(json_text(value))) return true;
    return json_refuse(problem, ERR_INVALID_FIELD, "%s",
                       "page.accent must be null or a colour as in \"#c2185b\".");
}

static bool logo_from_json(const json_t *value, struct json_problem *problem) {
    if (json_is_string(value) && page_logo_ok(json_text(value))) return true;
    return json_refuse(problem, ERR_INVALID_FIELD,
                       "page.logo must be null, an https URL or a path that begins with one '/', "
                       "of at most %d bytes: ASCII without spaces, quotes, '\\', '<' and '>'.",
                       PAGE_LOGO_BYTES_MAX);
}

/* The beginning of a name that a client sent, for a message. */
static str json_excerpt(const char *name) {
    return str_cut(str_of(name), 64);
}

static bool text_from_json(const char *language, const char *key, const json_t *value,
                           struct json_problem *problem) {
    str shown = json_excerpt(key);
    if (!str_is_name(str_of(key), PAGE_TEXT_KEY_BYTES_MAX))
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "page.texts.%s: \"%.*s\" is no key of a text, which is 1 to %d letters, "
                           "digits, '_', '-' or '.'.",
                           language, (int)shown.len, shown.at, PAGE_TEXT_KEY_BYTES_MAX);
    if (json_is_string(value) && prose_ok(json_text(value), PAGE_TEXT_CHARS_MAX)) return true;
    return json_refuse(problem, ERR_INVALID_FIELD,
                       "page.texts.%s: %s must be a string of 0 to %d characters, with no control "
                       "characters but \\n.",
                       language, key, PAGE_TEXT_CHARS_MAX);
}

static bool language_from_json(const char *language, const json_t *texts,
                               struct json_problem *problem) {
    const char *key;
    json_t *value;
    str shown = json_excerpt(language);
    if (!page_language_ok(str_of(language)))
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "page.texts: \"%.*s\" is no language, as in \"ko\" or \"pt-BR\".",
                           (int)shown.len, shown.at);
    if (!json_is_object(texts) || json_object_size(texts) > PAGE_TEXTS_MAX)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "page.texts.%s must be an object of at most %d texts.", language,
                           PAGE_TEXTS_MAX);
    json_object_foreach((json_t *)(uintptr_t)texts, key, value) {
        if (!text_from_json(language, key, value, problem)) return false;
    }
    return true;
}

static bool languages_from_json(const json_t *value, struct json_problem *problem) {
    const char *language;
    json_t *texts;
    if (!json_is_object(value) || json_object_size(value) > PAGE_LANGUAGES_MAX)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "page.texts must be null or an object of at most %d languages.",
                           PAGE_LANGUAGES_MAX);
    json_object_foreach((json_t *)(uintptr_t)value, language, texts) {
        if (!language_from_json(language, texts, problem)) return false;
    }
    return true;
}

/* The members of a page, in the order in which they are shown. */
static const struct {
    const char *name;
    bool (*check)(const json_t *value, struct json_problem *problem);
} page_members[] = {{"name", name_from_json},
                    {"accent", accent_from_json},
                    {"logo", logo_from_json},
                    {"texts", languages_from_json}};
#define PAGE_MEMBERS (sizeof page_members / sizeof *page_members)

static bool page_members_known(const json_t *page, struct json_problem *problem) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)page, key, value) {
        size_t i = 0;
        while (i < PAGE_MEMBERS && strcmp(page_members[i].name, key) != 0) i++;
        str shown = json_excerpt(key);
        if (i == PAGE_MEMBERS)
            return json_refuse(problem, ERR_UNKNOWN_FIELD, "page.%.*s is not a field here.",
                               (int)shown.len, shown.at);
    }
    return true;
}

/* Puts into `into` each member of the page as it is after the change. */
static bool page_merge(json_t *into, const json_t *before, const json_t *change,
                       struct json_problem *problem) {
    for (size_t i = 0; i < PAGE_MEMBERS; i++) {
        const char *name = page_members[i].name;
        json_t *value = json_object_get(change, name);
        if (value == NULL)
            value = json_object_get(before, name);
        else if (!json_is_null(value) && !page_members[i].check(value, problem))
            return false;
        if (value != NULL && !json_is_null(value)) json_object_set(into, name, value);
    }
    return true;
}

static int add_to_buf(const char *bytes, size_t size, void *to) {
    buf_append(to, bytes, size);
    return 0;
}

/* Writes the page after the change; nothing if it sets nothing. */
static bool page_from_json(const json_t *change, str before, struct buf *out,
                           struct json_problem *problem) {
    if (json_is_null(change)) return true;
    if (!json_is_object(change))
        return json_refuse(problem, ERR_INVALID_FIELD, "%s", "page must be null or an object.");
    if (!page_members_known(change, problem)) return false;
    json_t *old = before.len == 0 ? NULL : json_loadb(before.at, before.len, 0, NULL);
    json_t *page = json_object();
    bool ok = page_merge(page, old, change, problem);
    int dumped = 0;
    if (ok && json_object_size(page) > 0)
        dumped = json_dump_callback(page, add_to_buf, out, JSON_COMPACT);
    assert(dumped == 0);
    if (ok && out->len > PAGE_BYTES_MAX)
        ok = json_refuse(problem, ERR_INVALID_FIELD,
                         "page would have %zu bytes of JSON; it can have %d.", out->len,
                         PAGE_BYTES_MAX);
    json_decref(page);
    json_decref(old);
    return ok;
}

/* ---- the other texts ---- */

static bool hosts_from_json(const json_t *value, struct buf *out, struct json_problem *problem) {
    size_t count = json_array_size(value);
    if (json_is_null(value)) return true;
    if (!json_is_array(value) || count > RETURN_HOSTS_MAX)
        return json_refuse(problem, ERR_INVALID_FIELD,
                           "returnHosts must be null or an array of 0 to %d hosts.",
                           RETURN_HOSTS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *host = json_array_get(value, i);
        if (!json_is_string(host) || !return_host_ok(json_text(host)))
            return json_refuse(problem, ERR_INVALID_FIELD,
                               "returnHosts[%zu] must be a host name in lower case, and its port "
                               "if that is not the usual one, as in \"shop.example\" or "
                               "\"shop.example:8443\".",
                               i);
        if (i > 0) buf_add_char(out, ',');
        buf_add(out, json_text(host));
    }
    return true;
}

static bool notice_from_json(const json_t *value, str *out, struct json_problem *problem) {
    *out = json_is_null(value) ? STR("") : json_text(value);
    if (json_is_null(value) || (json_is_string(value) && prose_ok(*out, NOTICE_CHARS_MAX)))
        return true;
    return json_refuse(problem, ERR_INVALID_FIELD,
                       "notice must be null or a string of 0 to %d characters, with no control "
                       "characters but \\n.",
                       NOTICE_CHARS_MAX);
}

bool event_texts_from_json(struct event **e, const json_t *body, struct json_problem *problem) {
    const json_t *page = json_object_get(body, "page");
    const json_t *hosts = json_object_get(body, "returnHosts");
    const json_t *notice = json_object_get(body, "notice");
    if (page == NULL && hosts == NULL && notice == NULL) return true;
    struct buf page_text = {0};
    struct buf host_text = {0};
    struct event changed = **e;
    bool ok = page == NULL || page_from_json(page, changed.page, &page_text, problem);
    if (page != NULL) changed.page = buf_str(&page_text);
    ok = ok && (hosts == NULL || hosts_from_json(hosts, &host_text, problem));
    if (hosts != NULL) changed.return_hosts = buf_str(&host_text);
    ok = ok && (notice == NULL || notice_from_json(notice, &changed.notice, problem));
    if (ok) {
        struct event *made = event_copy(&changed);
        mem_free(*e);
        *e = made;
    }
    buf_deinit(&page_text);
    buf_deinit(&host_text);
    return ok;
}

void notice_to_json(struct json_out *j, str notice) {
    if (notice.len > 0)
        json_out_str(j, STR("notice"), notice);
    else
        json_out_null(j, STR("notice"));
}

void event_texts_to_json(struct json_out *j, const struct event *e) {
    str hosts = e->return_hosts;
    str host;
    if (e->page.len > 0)
        json_out_raw(j, STR("page"), e->page);
    else
        json_out_null(j, STR("page"));
    json_out_array(j, STR("returnHosts"));
    while (e->return_hosts.len > 0 && str_split(&hosts, ',', &host)) json_out_str(j, STR(""), host);
    json_out_array_end(j);
    notice_to_json(j, e->notice);
}
