/*
 * demo: events to try the server with: a concert that has a section of each mode, and a time deal.
 */
#ifndef ADMITONE_CLI_DEMO_H
#define ADMITONE_CLI_DEMO_H

#include "api/api.h"
#include "service/events.h"

/* Creates those demo events that are not there yet, and calls `done` when all are durable; on the
 * calling thread, which has a mailbox. */
void demo_create(struct events *events, void (*done)(void *arg, enum err result), void *arg);

struct demo_site {
    const char *url;
    const char *admin_url; /* where the admin paths are */
    const char *admin_key_path;
    enum users_auth auth;
};

/* Writes commands for a first try, which work as they are. */
void demo_tour(struct buf *out, const struct demo_site *site);

#endif
