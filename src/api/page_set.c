/* Puts the pages together. */
#include "api/page_set.h"

#include <stdio.h>

#include "base/json_out.h"
#include "base/mem.h"
#include "core/sha256.h"

static const struct page_form {
    const char *file;
    str prefixes[4]; /* of the keys of the page's texts */
} forms[PAGE_KINDS] = {
    [PAGE_HOME] = {"home.html", {STR_INIT("common."), STR_INIT("home.")}},
    [PAGE_EVENT] = {"event.html", {STR_INIT("common."), STR_INIT("event."), STR_INIT("seats.")}},
    [PAGE_ADMIN] = {"admin.html", {STR_INIT("common."), STR_INIT("admin.")}},
};

/* The shared script, in front of the scripts of pages. */
#define COMMON_SCRIPT "common.js"
static const char *const page_scripts[] = {"home.js", "event.js", "admin.js"};

static const struct {
    str ending;
    str type;
} types[] = {
    {STR_INIT(".css"), STR_INIT("text/css; charset=utf-8")},
    {STR_INIT(".js"), STR_INIT("text/javascript; charset=utf-8")},
    {STR_INIT(".svg"), STR_INIT("image/svg+xml")},
    {STR_INIT(".png"), STR_INIT("image/png")},
    {STR_INIT(".ico"), STR_INIT("image/x-icon")},
};

/* ---- contents ---- */

static void hash_of(str bytes, char out[17]) {
    unsigned char digest[SHA256_BYTES];
    sha256_of(bytes, digest);
    for (size_t i = 0; i < 8; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* Takes over the memory of `bytes`. */
static void content_init(struct page_content *c, str type, struct buf *bytes) {
    struct buf gzip = {0};
    *c = (struct page_content){.type = type, .plain.bytes = buf_str(bytes)};
    hash_of(buf_str(bytes), c->version);
    snprintf(c->plain.etag, sizeof c->plain.etag, "\"%s\"", c->version);
    snprintf(c->gzip.etag, sizeof c->gzip.etag, "\"%s-gz\"", c->version);
    gzip_compress(buf_str(bytes), &gzip);
    if (gzip.len < bytes->len)
        c->gzip.bytes = buf_str(&gzip);
    else
        buf_deinit(&gzip);
    *bytes = (struct buf){0};
}

static void content_deinit(struct page_content *c) {
    mem_free((void *)(uintptr_t)c->plain.bytes.at);
    mem_free((void *)(uintptr_t)c->gzip.bytes.at);
}

/* ---- assets ---- */

static bool ends_with(str text, str end) {
    return text.len > end.len && str_eq(str_skip(text, text.len - end.len), end);
}

/* `at` NULL: the file is no asset. */
static str type_of(str name) {
    if (str_eq(name, STR(COMMON_SCRIPT))) return (str){NULL, 0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (ends_with(name, types[i].ending)) return types[i].type;
    return (str){NULL, 0};
}

static bool is_page_script(const char *name) {
    for (size_t i = 0; i < sizeof page_scripts / sizeof page_scripts[0]; i++)
        if (strcmp(page_scripts[i], name) == 0) return true;
    return false;
}

static void make_assets(struct page_set *set, const struct page_file *files) {
    str common = page_files_find(files, STR(COMMON_SCRIPT));
    size_t room = 0;
    for (; files->name != NULL; files++) {
        str type = type_of(str_of(files->name));
        struct buf bytes = {0};
        if (type.at == NULL) continue;
        if (is_page_script(files->name) && common.len > 0) {
            buf_add(&bytes, common);
            buf_add_char(&bytes, '\n');
        }
        buf_add(&bytes, files->bytes);
        set->assets = mem_make_room(set->assets, set->asset_count, &room, sizeof *set->assets);
        struct page_asset *asset = &set->assets[set->asset_count++];
        asset->name = mem_copy_str(str_of(files->name));
        content_init(&asset->content, type, &bytes);
    }
}

const struct page_asset *page_set_asset(const struct page_set *set, str name) {
    for (size_t i = 0; i < set->asset_count; i++)
        if (str_eq(str_of(set->assets[i].name), name)) return &set->assets[i];
    return NULL;
}

bool page_set_add_asset_url(const struct page_set *set, str name, struct buf *out) {
    const struct page_asset *asset = page_set_asset(set, name);
    if (asset != NULL) buf_addf(out, "/assets/%s?v=%s", asset->name, asset->content.version);
    return asset != NULL;
}

/* ---- pages ---- */

/* One page while it is put together. */
struct assembly {
    const struct page_set *set;
    const struct page_options *options;
    const struct page_form *form;
    size_t language;
    struct buf out;
    bool has_plain;
    size_t plain_at; /* where {{plain}} stood */
};

static void add_texts(struct assembly *a) {
    struct buf json = {0};
    struct json_out j;
    buf_add_char(&json, '{');
    page_texts_add_json(&a->set->texts, a->language, a->form->prefixes, &json);
    struct buf own = {0};
    json_out_init(&j, &own);
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("page.name"), str_of(a->options->name));
    json_out_str(&j, STR("page.accent"), str_of(a->options->accent));
    json_out_str(&j, STR("page.logo"), str_of(a->options->logo));
    json_out_object_end(&j);
    json_out_done(&j);
    buf_add(&json, str_skip(buf_str(&own), 1));
    html_add_json(&a->out, buf_str(&json));
    buf_deinit(&json);
    buf_deinit(&own);
}

static bool add_text(struct assembly *a, str key) {
    str text = str_eq(key, STR("page.name")) ? str_of(a->options->name)
                                             : page_text(&a->set->texts, a->language, key);
    if (text.at != NULL) html_escape(&a->out, text);
    return text.at != NULL;
}

static void add_languages(struct assembly *a) {
    struct buf json = {0};
    page_texts_add_languages(&a->set->texts, &json);
    html_add_json(&a->out, buf_str(&json));
    buf_deinit(&json);
}

/* False: there is no such marker, text or asset. */
static bool add_marker(struct assembly *a, str marker) {
    if (str_starts(marker, STR("t:"))) return add_text(a, str_skip(marker, 2));
    if (str_starts(marker, STR("asset:")))
        return page_set_add_asset_url(a->set, str_skip(marker, 6), &a->out);
    if (str_eq(marker, STR("texts"))) {
        add_texts(a);
    } else if (str_eq(marker, STR("languages"))) {
        add_languages(a);
    } else if (str_eq(marker, STR("lang"))) {
        buf_add(&a->out, a->set->texts.codes[a->language]);
    } else if (str_eq(marker, STR("plain")) && !a->has_plain) {
        a->has_plain = true;
        a->plain_at = a->out.len;
    } else {
        return false;
    }
    return true;
}

static bool fill(struct assembly *a, str html, struct buf *why) {
    const char *open;
    while (html.len > 0 && (open = memmem(html.at, html.len, "{{", 2)) != NULL) {
        buf_add(&a->out, (str){html.at, (size_t)(open - html.at)});
        html = str_skip(html, (size_t)(open - html.at) + 2);
        const char *close = html.len > 0 ? memmem(html.at, html.len, "}}", 2) : NULL;
        str marker = {html.at, close == NULL ? 0 : (size_t)(close - html.at)};
        if (!add_marker(a, marker)) {
            buf_addf(why, "%s: {{%.*s}} is no marker, or its text or asset does not exist",
                     a->form->file, (int)(marker.len < 80 ? marker.len : 80), marker.at);
            return false;
        }
        html = str_skip(html, marker.len + 2);
    }
    buf_add(&a->out, html);
    return true;
}

static str copy_of(str text) {
    return (str){mem_copy_str(text), text.len};
}

static bool make_page(struct page_set *set, const struct page_options *options, str html,
                      enum page_kind kind, size_t language, struct buf *why) {
    struct assembly a = {
        .set = set, .options = options, .form = &forms[kind], .language = language};
    bool ok = fill(&a, html, why);
    if (ok && kind == PAGE_EVENT) {
        struct page_halves *halves = &set->event_halves[language];
        size_t at = a.has_plain ? a.plain_at : a.out.len;
        halves->before = copy_of((str){a.out.bytes, at});
        halves->after = copy_of(str_skip(buf_str(&a.out), at));
        gzip_part_init(&halves->gzip_before, halves->before, false);
        gzip_part_init(&halves->gzip_after, halves->after, true);
        buf_clear(&a.out);
        buf_add(&a.out, halves->before);
        if (a.has_plain) buf_add(&a.out, STR("?view=plain"));
        buf_add(&a.out, halves->after);
    }
    if (ok) content_init(&set->pages[kind][language], STR("text/html; charset=utf-8"), &a.out);
    buf_deinit(&a.out);
    return ok;
}

static bool make_pages(struct page_set *set, const struct page_options *options,
                       const struct page_file *files, struct buf *why) {
    set->event_halves = mem_new(set->texts.count * sizeof *set->event_halves);
    for (enum page_kind kind = 0; kind < PAGE_KINDS; kind++) {
        str html = page_files_find(files, str_of(forms[kind].file));
        if (html.at == NULL) {
            buf_addf(why, "%s is missing", forms[kind].file);
            return false;
        }
        set->pages[kind] = mem_new(set->texts.count * sizeof *set->pages[kind]);
        for (size_t language = 0; language < set->texts.count; language++)
            if (!make_page(set, options, html, kind, language, why)) return false;
    }
    return true;
}

static bool choose_language(struct page_set *set, const struct page_options *options,
                            struct buf *why) {
    set->language = page_texts_find(&set->texts, str_of(options->language));
    if (set->language < set->texts.count) return true;
    buf_addf(why, "page.language: there are no texts for \"%s\"", options->language);
    return false;
}

struct page_set *page_set_new(const struct page_options *options, struct buf *why) {
    struct page_set *set = mem_new(sizeof *set);
    struct page_file *own = NULL;
    const struct page_file *files = embedded_files;
    set->name = str_of(options->name);
    if (options->web_dir[0] != '\0') files = own = page_files_read(options->web_dir, why);
    bool ok = files != NULL && page_texts_load(&set->texts, files, options->texts, why) &&
              choose_language(set, options, why);
    if (ok) make_assets(set, files);
    ok = ok && make_pages(set, options, files, why);
    page_files_free(own);
    if (ok) return set;
    page_set_free(set);
    return NULL;
}

void page_set_free(struct page_set *set) {
    if (set == NULL) return;
    for (size_t language = 0; language < set->texts.count; language++) {
        for (size_t kind = 0; kind < PAGE_KINDS; kind++)
            if (set->pages[kind] != NULL) content_deinit(&set->pages[kind][language]);
        if (set->event_halves == NULL) continue;
        mem_free((void *)(uintptr_t)set->event_halves[language].before.at);
        mem_free((void *)(uintptr_t)set->event_halves[language].after.at);
        gzip_part_deinit(&set->event_halves[language].gzip_before);
        gzip_part_deinit(&set->event_halves[language].gzip_after);
    }
    for (size_t kind = 0; kind < PAGE_KINDS; kind++) mem_free(set->pages[kind]);
    mem_free(set->event_halves);
    for (size_t i = 0; i < set->asset_count; i++) {
        mem_free((void *)(uintptr_t)set->assets[i].name);
        content_deinit(&set->assets[i].content);
    }
    mem_free(set->assets);
    page_texts_deinit(&set->texts);
    mem_free(set);
}
