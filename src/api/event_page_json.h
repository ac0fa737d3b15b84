/*
 * event_page_json: an event's texts (its page, its return hosts, its notice) as JSON, in and out.
 */
#ifndef ADMITONE_API_EVENT_PAGE_JSON_H
#define ADMITONE_API_EVENT_PAGE_JSON_H

#include "api/json_in.h"
#include "base/json_out.h"
#include "core/event.h"

/* Sets those of `page`, `returnHosts` and `notice` that the body has, and leaves the others; of
 * `page`, likewise each member. null sets back to nothing. The event may move: *e. False: *problem
 * says why, and the event is as it was. */
bool event_texts_from_json(struct event **e, const json_t *body, struct json_problem *problem);

void event_texts_to_json(struct json_out *j, const struct event *e);
/* The member `notice`: null when there is none. */
void notice_to_json(struct json_out *j, str notice);

#endif
