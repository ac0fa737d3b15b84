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

/* The pages for one answer, for pages_give_back. With options.web_dir they are read anew. NULL:
 * they can't be read, and the request has been answered. */
struct page_set *pages_take(struct pages *pages, struct exchange *x);
void pages_give_back(struct pages *pages, struct page_set *set);

/* The language of a request's answer, while the handler runs. */
size_t pages_language(const struct page_set *set, struct exchange *x);
/* The headers that every page has. */
void pages_add_headers(struct exchange *x, str language);

#endif
