/*
 * api: the HTTP interface: finds the handler of a request, checks who asks, reads JSON, calls
 * services and renders their answers. Knows no socket and no store.
 *
 * One struct api serves all workers; it is not written after the start, but for `stopping`.
 */
#ifndef ADMITONE_API_API_H
#define ADMITONE_API_API_H

#include <stdatomic.h>

#include "net/server.h"
#include "service/events.h"

#define ROUTE_CAPTURES_MAX 4

/* What a new event gets where its JSON is silent. */
struct event_defaults {
    struct queue_rules queue;
    int64_t hold_s;
    int64_t max_per_user;
    char currency[4];
};

struct api {
    struct events events;
    struct net *net;
    struct event_defaults defaults;
    str admin_key;
    str cors_origins; /* "*", or a list with commas */
    int64_t started_ms;
    _Atomic bool stopping;
};

/* One listener's view: an admin listener of its own takes the admin paths off the public one. */
struct api_site {
    struct net_site net; /* first */
    struct api *api;
    bool serves_admin;
    bool serves_public;
};

void api_site_init(struct api_site *site, struct api *api, bool serves_public, bool serves_admin);

/* `captures`: the path's variable parts, decoded, valid until the handler returns. */
typedef void api_handler(struct api *api, struct exchange *x, const str *captures);

/* The handlers, by file. */
api_handler events_list, events_get;                                     /* events.c */
api_handler admin_event_put, admin_event_get, admin_event_patch;         /* admin.c */
api_handler admin_event_delete, admin_section_patch, admin_audit;        /* admin.c */
api_handler system_health, system_ready, system_metrics, system_openapi; /* system.c */

/* The value of a query parameter, decoded into the arena; `at` is NULL when it is absent, and
 * *bad is set when it can't be decoded. */
str query_value(struct exchange *x, str name, bool *bad);
/* A whole number in a range; `otherwise` when it is absent. False: the problem has been answered.
 */
bool query_i64(struct exchange *x, str name, int64_t min, int64_t max, int64_t otherwise,
               int64_t *out);

#endif
