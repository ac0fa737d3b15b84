/*
 * simulator: lets a crowd of virtual users come to this server, over HTTP, on servers that run with
 * --demo: /admin/simulator. One crowd at a time; each node of a cluster has a simulator of its own.
 * Each act of an administrator is in the audit trail before it takes effect.
 *
 * Virtual users are anonymous users like any others: they have no key, and the limits on arrival
 * apply to them as to every client with their address. Safe from any thread.
 */
#ifndef ADMITONE_API_SIMULATOR_H
#define ADMITONE_API_SIMULATOR_H

#include "api/api.h"

struct simulator_options {
    const char *listening;  /* the server's own address; an "any" address is taken as loopback */
    size_t connections_max; /* at least 2; streams have most of them */
    /* The server's cap for one address, of which virtual users take half; 0: there is none. */
    size_t connections_per_address_max;
};

struct simulator *simulator_new(const struct simulator_options *o, const struct api *api);
/* Ends the crowd at once, and starts no other one; when the server is to stop. */
void simulator_stop(struct simulator *s);
/* After simulator_stop. */
void simulator_free(struct simulator *s);

#endif
