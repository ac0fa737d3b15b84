/* Renders the view without scripts. */
#include "api/plain_page.h"

#include "api/pages.h"

void plain_page_get(struct api *api, struct exchange *x, const str *captures) {
    (void)captures;
    struct page_set *set = pages_take(api->pages, x);
    if (set == NULL) return;
    size_t language = pages_language(set, x);
    pages_add_headers(x, set->texts.codes[language]);
    struct buf *out = reply_start(x, 200);
    buf_add(out, STR("<!doctype html><title>"));
    html_escape(out, page_text(&set->texts, language, STR("plain.title")));
    buf_add(out, STR("</title>"));
    reply_send(x, STR("text/html; charset=utf-8"));
    pages_give_back(api->pages, set);
}
