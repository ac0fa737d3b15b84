/* Reads the languages, and looks up their texts. */
#include "api/page_texts.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/json_out.h"
#include "base/mem.h"

#define ENGLISH STR("en")
#define NAME_KEY "common.languageName"

struct page_language {
    char code[LANGUAGE_CODE_BYTES];
    json_t *texts; /* an object of strings */
};

size_t page_texts_find(const struct page_texts *texts, str code) {
    size_t at = 0;
    while (at < texts->count && !str_eq(texts->codes[at], code)) at++;
    return at;
}

static str text_of(const struct page_language *l, const char *key) {
    const json_t *text = json_object_get(l->texts, key);
    if (text == NULL) return (str){NULL, 0};
    return (str){json_string_value(text), json_string_length(text)};
}

str page_text(const struct page_texts *texts, size_t language, str key) {
    char name[128];
    if (!str_copy(key, name, sizeof name)) return (str){NULL, 0};
    str text = text_of(texts->languages[language], name);
    return text.at != NULL ? text
                           : text_of(texts->languages[page_texts_find(texts, ENGLISH)], name);
}

str page_texts_name(const struct page_texts *texts, size_t language) {
    str name = text_of(texts->languages[language], NAME_KEY);
    return name.at != NULL ? name : texts->codes[language];
}

/* ---- loading ---- */

static bool code_ok(str code) {
    char text[LANGUAGE_CODE_BYTES];
    return str_copy(code, text, sizeof text) &&
           str_matches(text, "^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$");
}

static struct page_language *add_language(struct page_texts *texts, str code) {
    struct page_language *l = mem_new(sizeof *l);
    str_copy(code, l->code, sizeof l->code);
    texts->languages[texts->count] = l;
    texts->codes[texts->count++] = str_of(l->code);
    return l;
}

/* An object of strings with known keys; `english` NULL: any. NULL: `why`. */
static json_t *read_texts(const char *path, str bytes, const struct page_language *english,
                          struct buf *why) {
    json_error_t error;
    const char *key;
    json_t *text;
    json_t *texts = json_loadb(bytes.at, bytes.len, JSON_REJECT_DUPLICATES, &error);
    if (texts == NULL)
        buf_addf(why, "%s:%d: invalid JSON: %s", path, error.line, error.text);
    else if (!json_is_object(texts))
        buf_addf(why, "%s: must be one JSON object of keys and texts", path);
    else
        json_object_foreach(texts, key, text) {
            if (english != NULL && json_object_get(english->texts, key) == NULL)
                buf_addf(why, "%s: unknown key \"%s\"", path, key);
            else if (!json_is_string(text))
                buf_addf(why, "%s: the text of \"%s\" is not a string", path, key);
            if (why->len > 0) break;
        }
    if (why->len == 0) return texts;
    json_decref(texts);
    return NULL;
}

/* The code in "xx.json"; `at` NULL: it is another file. */
static str code_in(str name) {
    str end = STR(".json");
    if (name.len <= end.len || !str_eq(str_skip(name, name.len - end.len), end))
        return (str){NULL, 0};
    return (str){name.at, name.len - end.len};
}

static bool load_own(struct page_texts *texts, const struct page_file *files, struct buf *why) {
    for (; files->name != NULL; files++) {
        str name = str_of(files->name);
        if (!str_starts(name, STR("lang/"))) continue;
        str code = code_in(str_skip(name, 5));
        if (code.at == NULL || !code_ok(code) || texts->count == LANGUAGES_MAX) {
            buf_addf(why, "%s: the name of a language's file is xx.json", files->name);
            return false;
        }
        struct page_language *l = add_language(texts, code);
        l->texts = read_texts(files->name, files->bytes, NULL, why);
        if (l->texts == NULL) return false;
    }
    if (page_texts_find(texts, ENGLISH) < texts->count) return true;
    buf_add(why, STR("lang/en.json is missing"));
    return false;
}

static bool load_override(struct page_texts *texts, const char *path, str code, struct buf *why) {
    struct buf bytes = {0};
    json_t *read = NULL;
    size_t at = page_texts_find(texts, code);
    if (!code_ok(code))
        buf_addf(why, "%s: the name of a language's file is xx.json, as in de.json", path);
    else if (at == texts->count && texts->count == LANGUAGES_MAX)
        buf_addf(why, "%s: there may be %d languages", path, LANGUAGES_MAX);
    else if (page_file_read(path, &bytes, why))
        read = read_texts(path, buf_str(&bytes), texts->languages[page_texts_find(texts, ENGLISH)],
                          why);
    buf_deinit(&bytes);
    if (read == NULL) return false;
    if (at < texts->count) {
        json_object_update(texts->languages[at]->texts, read);
        json_decref(read);
    } else {
        add_language(texts, code)->texts = read;
    }
    return true;
}

static bool load_overrides(struct page_texts *texts, const char *folder, struct buf *why) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0) buf_addf(why, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        str code = code_in(str_of(entries[i]->d_name));
        struct buf path = {0};
        buf_addf(&path, "%s/%s", folder, entries[i]->d_name);
        if (why->len == 0 && code.at != NULL && code.at[0] != '.')
            load_override(texts, buf_cstr(&path), code, why);
        buf_deinit(&path);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return why->len == 0;
}

bool page_texts_load(struct page_texts *texts, const struct page_file *files, const char *folder,
                     struct buf *why) {
    *texts = (struct page_texts){0};
    return load_own(texts, files, why) && (folder[0] == '\0' || load_overrides(texts, folder, why));
}

void page_texts_deinit(struct page_texts *texts) {
    for (size_t i = 0; i < texts->count; i++) {
        json_decref(texts->languages[i]->texts);
        mem_free(texts->languages[i]);
    }
    texts->count = 0;
}

/* ---- rendering ---- */

void page_texts_add_json(const struct page_texts *texts, size_t language, const str *prefixes,
                         struct buf *out) {
    const struct page_language *english = texts->languages[page_texts_find(texts, ENGLISH)];
    const char *key;
    json_t *unused;
    json_object_foreach(english->texts, key, unused) {
        const str *prefix = prefixes;
        while (prefix->len > 0 && !str_starts(str_of(key), *prefix)) prefix++;
        if (prefix->len == 0) continue;
        buf_add_char(out, '"');
        json_out_escape(out, str_of(key));
        buf_add(out, STR("\":\""));
        json_out_escape(out, page_text(texts, language, str_of(key)));
        buf_add(out, STR("\","));
    }
}

void page_texts_add_languages(const struct page_texts *texts, struct buf *out) {
    struct json_out j;
    json_out_init(&j, out);
    json_out_array(&j, STR(""));
    for (size_t i = 0; i < texts->count; i++) {
        json_out_object(&j, STR(""));
        json_out_str(&j, STR("code"), texts->codes[i]);
        json_out_str(&j, STR("name"), page_texts_name(texts, i));
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_done(&j);
}

void html_escape(struct buf *out, str text) {
    for (size_t i = 0; i < text.len; i++) {
        switch (text.at[i]) {
        case '&':
            buf_add(out, STR("&amp;"));
            break;
        case '<':
            buf_add(out, STR("&lt;"));
            break;
        case '>':
            buf_add(out, STR("&gt;"));
            break;
        case '"':
            buf_add(out, STR("&quot;"));
            break;
        case '\'':
            buf_add(out, STR("&#39;"));
            break;
        default:
            buf_add_char(out, text.at[i]);
        }
    }
}

void html_add_json(struct buf *out, str json) {
    for (size_t i = 0; i < json.len; i++)
        if (json.at[i] == '<')
            buf_add(out, STR("\\u003c"));
        else
            buf_add_char(out, json.at[i]);
}
