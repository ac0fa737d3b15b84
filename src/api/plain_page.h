/*
 * plain_page: the page of an event for browsers without scripts, which the server renders: a form
 * to take a place, then the place, on a page that loads itself again; and, for an admitted user,
 * the way on, and forms to hold seats, confirm and cancel. The forms are answered by the handlers
 * of the API, and their answers are turned into pages.
 */
#ifndef ADMITONE_API_PLAIN_PAGE_H
#define ADMITONE_API_PLAIN_PAGE_H

#include "api/api.h"

/* GET /e/{type}/{id}?view=plain */
void plain_page_get(struct api *api, struct exchange *x, const str *captures);
/* POST /e/{type}/{id}: one of the forms. Answers with a redirect to the page. */
void plain_page_post(struct api *api, struct exchange *x, const str *captures);
/* For exchange.present, where a path is a page: shows a problem that comes before its handler. */
void plain_page_present(struct exchange *x, int status);

#endif
