/*
 * page_texts: the texts of the pages, in each language. A language is one JSON object of keys and
 * texts, lang/xx.json of the pages' files; a folder of the operator's may add languages and replace
 * texts. A text that a language does not have is the English one.
 *
 * After page_texts_load nothing changes; any thread may read.
 */
#ifndef ADMITONE_API_PAGE_TEXTS_H
#define ADMITONE_API_PAGE_TEXTS_H

#include "api/page_files.h"

#define LANGUAGES_MAX 32
#define LANGUAGE_CODE_BYTES 16

struct page_language;

struct page_texts {
    struct page_language *languages[LANGUAGES_MAX];
    str codes[LANGUAGES_MAX]; /* "en" */
    size_t count;
};

/* `folder` is the operator's; empty: there is none. False: `why`. page_texts_deinit in any case. */
bool page_texts_load(struct page_texts *texts, const struct page_file *files, const char *folder,
                     struct buf *why);
void page_texts_deinit(struct page_texts *texts);

/* The number of the language; `count` when there is none. */
size_t page_texts_find(const struct page_texts *texts, str code);
/* The language's name in itself: "English". */
str page_texts_name(const struct page_texts *texts, size_t language);
/* `at` is NULL when there is no such key. */
str page_text(const struct page_texts *texts, size_t language, str key);

/* The texts whose keys start with one of the prefixes, as members of a JSON object, each with a
 * comma behind it. `prefixes` ends with an empty one. */
void page_texts_add_json(const struct page_texts *texts, size_t language, const str *prefixes,
                         struct buf *out);
/* [{"code":"en","name":"English"},…] */
void page_texts_add_languages(const struct page_texts *texts, struct buf *out);

/* The text in HTML, also in the value of an attribute. */
void html_escape(struct buf *out, str text);
/* JSON for a script element of HTML, which would end at "</script". */
void html_add_json(struct buf *out, str json);

#endif
