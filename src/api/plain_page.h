/*
 * plain_page: the page of an event for browsers without scripts, which the server renders: a form
 * to take a place, then the place, on a page that loads itself again.
 */
#ifndef ADMITONE_API_PLAIN_PAGE_H
#define ADMITONE_API_PLAIN_PAGE_H

#include "api/api.h"

/* GET /e/{type}/{id}?view=plain */
void plain_page_get(struct api *api, struct exchange *x, const str *captures);

#endif
