/*
 * site_fixture: the public API on one worker that runs in the test's thread, without services
 * behind it: a test adds those that it needs to `api`. Its clients are sockets of the same thread.
 */
#ifndef ADMITONE_TEST_SITE_FIXTURE_H
#define ADMITONE_TEST_SITE_FIXTURE_H

#include "api/api.h"
#include "net/server.h"

struct site_fixture {
    struct api api; /* with a catalogue, which is empty */
    struct api_worker api_worker;
    struct worker worker;

    /* Private. */
    struct api_site site;
    struct net_worker *net_worker;
    struct sockaddr_storage address;
    bool drained;
};

/* Listens. `f` is all zeroes, but for the services that the test has added. */
void site_fixture_open(struct site_fixture *f, int64_t max_connections, int64_t stream_lag_bytes);
/* A connected socket that does not block, on which this path was asked for. `receive_bytes` (0: as
 * usual) is how much it may receive before it is read. */
int site_fixture_get(const struct site_fixture *f, const char *path, int receive_bytes);
/* Ends the streams and answers what is under way, if that was not done. */
void site_fixture_drain(struct site_fixture *f);
/* Drains, and frees everything but the services that the test has added. No store may have a
 * question of it. */
void site_fixture_close(struct site_fixture *f);

#endif
