/*
 * event_json: an event as JSON, in and out.
 */
#ifndef ADMITONE_API_EVENT_JSON_H
#define ADMITONE_API_EVENT_JSON_H

#include "api/api.h"
#include "api/json_in.h"
#include "base/json_out.h"

/* A new event from the body of a PUT, with defaults for absent fields; NULL: *problem. */
struct event *event_from_json(const json_t *body, const struct event_defaults *defaults, str type,
                              str id, struct json_problem *problem);

/* Changes the event by the body of a PATCH: its fields are set, the rest stays; `sections`, if
 * present, is the whole new list. The event may move: *e. */
bool event_patch_json(struct event **e, const json_t *body, struct json_problem *problem);

/* Changes one section by the body of a PATCH. */
bool section_patch_json(struct section *s, const json_t *body, struct json_problem *problem);

/* Changes the queue's rules, and the event's notice, by the body of a PATCH. False: the event is
 * not to be used. The event may move: *e. */
bool queue_patch_json(struct event **e, const json_t *body, struct json_problem *problem);
void queue_rules_to_json(struct json_out *j, str key, const struct queue_rules *q);

/* Members with the counts of a queue, for an object that is open. */
void queue_counts_to_json(struct json_out *j, const struct queue_counts *c);

enum event_json_kind {
    EVENT_JSON_LISTED, /* the public fields without the texts */
    EVENT_JSON_PUBLIC,
    EVENT_JSON_ADMIN, /* all fields */
};
void event_to_json(struct json_out *j, str key, const struct event *e, enum event_json_kind kind,
                   struct api *api);
/* About how many bytes event_to_json writes with LISTED. */
size_t event_json_bytes(const struct event *e);

#endif
