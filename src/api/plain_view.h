/*
 * plain_view: the HTML of an event's page for browsers without scripts (api/plain_page.h). It only
 * writes what it is given.
 */
#ifndef ADMITONE_API_PLAIN_VIEW_H
#define ADMITONE_API_PLAIN_VIEW_H

#include "api/page_set.h"
#include "base/err.h"
#include "core/event.h"
#include "core/queue.h"
#include "core/reservation.h"
#include "core/seat_map.h"

struct plain_view {
    const struct page_set *set;
    size_t language;
    str type; /* of the event; escaped nowhere, because it is a name */
    str id;
    const struct event *event; /* NULL: there is none that may be shown */
    enum event_state state;    /* in force */
    str notice;                /* of the operator; empty: none */
    int64_t now_ms;
    str return_query; /* what stands behind "rd=" in the query, as it was sent; empty: nothing */
    str return_url;   /* where an admitted user may go on to; empty: nowhere */

    bool has_place;
    struct place place;
    bool admits;   /* users who wait are being admitted */
    bool degraded; /* nothing is known of seats */
    struct seat_counts seats;
    struct reservation **reservations; /* live ones of the user */
    size_t reservation_count;
    bool may_confirm; /* users confirm themselves */
};

/* The page of the event, as its user sees it now. */
void plain_view_add(const struct plain_view *v, struct buf *out);
/* A page that says why a request was refused, and leads back. Without an event's name: no link. */
void plain_view_add_problem(const struct plain_view *v, enum err problem, struct buf *out);
/* The path and the query of the page. */
void plain_view_add_url(const struct plain_view *v, struct buf *out);

/* How long the page waits before it loads itself again, in seconds; 0: it does not. */
int64_t plain_view_reload_s(const struct plain_view *v);
int64_t plain_view_problem_reload_s(enum err problem);

#endif
