/*
 * pages: answers with the pages and their assets: the language and the encoding that the client
 * wants, conditional requests, and the headers that keep scripts of others out.
 */
#ifndef ADMITONE_API_PAGES_H
#define ADMITONE_API_PAGES_H

#include "api/api.h"
#include "api/page_set.h"

struct pages {
    struct page_options options;
    struct page_set *set;
};

/* False: `why`. */
bool pages_init(struct pages *pages, const struct page_options *options, struct buf *why);
void pages_deinit(struct pages *pages);

/* The pages for one answer; the caller gives them to pages_give_back. With options.web_dir this
 * reads the files again. NULL: the files can't be read, and the request has been answered. */
struct page_set *pages_take(struct pages *pages, struct exchange *x);
void pages_give_back(struct pages *pages, struct page_set *set);

/* The language of a request's answer, while the handler runs. One that is chosen by ?lang= is kept
 * in a cookie. */
size_t pages_language(const struct page_set *set, struct exchange *x);
/* What stands behind "rd=" in the query, as it was sent; `at` is NULL when there is none. */
str pages_return_query(const struct exchange *x);
/* The headers that every page has; `cache` is its Cache-Control. */
void pages_add_headers(struct exchange *x, str language, str cache);

#endif
