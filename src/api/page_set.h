/*
 * page_set: the pages and their assets, ready to be sent. They are put together once, when the
 * server starts: each page in each language, the shared script in front of each page's own, all of
 * it also compressed. So an answer is a copy of bytes.
 *
 * In a page, {{texts}} is the JSON of its texts, {{languages}} a JSON array, {{lang}} the language,
 * {{t:KEY}} a text, {{asset:NAME}} the URL of an asset, and {{plain}} the URL of the view without
 * scripts.
 *
 * After page_set_new nothing changes; any thread may read.
 */
#ifndef ADMITONE_API_PAGE_SET_H
#define ADMITONE_API_PAGE_SET_H

#include "api/gzip.h"
#include "api/page_texts.h"

enum page_kind { PAGE_HOME, PAGE_EVENT, PAGE_ADMIN, PAGE_KINDS };

#define PAGE_ETAG_BYTES 24

/* One form of a body: as it is, or compressed. */
struct page_body {
    str bytes;
    char etag[PAGE_ETAG_BYTES]; /* with its quotes */
};

struct page_content {
    str type;
    struct page_body plain;
    struct page_body gzip; /* `at` NULL: it would not be smaller */
    char version[17];      /* of an asset: in its URL */
};

struct page_asset {
    const char *name; /* "event.js" */
    struct page_content content;
};

/* The event's page has {{plain}}, which depends on the request: it stands between two halves. */
struct page_halves {
    str before;
    str after;
    struct gzip_part gzip_before;
    struct gzip_part gzip_after;
};

struct page_set {
    struct page_texts texts;
    size_t language;                        /* the number of the usual one */
    struct page_content *pages[PAGE_KINDS]; /* one for each language */
    struct page_halves *event_halves;       /* likewise */
    struct page_asset *assets;
    size_t asset_count;
    str name; /* of the site */
};

/* Texts live as long as the program. */
struct page_options {
    const char *web_dir;  /* read the files from there at each request; empty: embedded */
    const char *texts;    /* a folder with texts of the operator's; empty: none */
    const char *language; /* the usual one */
    const char *name;
    const char *accent; /* "#rrggbb"; empty: the style sheet's */
    const char *logo;   /* a URL; empty: none */
};

/* NULL: `why`. */
struct page_set *page_set_new(const struct page_options *options, struct buf *why);
void page_set_free(struct page_set *set);

/* NULL: there is no such asset. */
const struct page_asset *page_set_asset(const struct page_set *set, str name);
/* Adds the URL of an asset; false: there is no such asset. */
bool page_set_add_asset_url(const struct page_set *set, str name, struct buf *out);

#endif
