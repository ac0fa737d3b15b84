/*
 * connection_caps: how many connections the process may have, of clients and of virtual users, so
 * that neither can use up its files.
 */
#ifndef ADMITONE_CLI_CONNECTION_CAPS_H
#define ADMITONE_CLI_CONNECTION_CAPS_H

#include "base/buf.h"
#include "cli/settings.h"

struct connection_caps {
    int64_t clients;
    int64_t virtual; /* which the simulator opens; their other ends are among the clients' */
};

/* Raises the limit on open files as far as it may. False, and `why`: there are too few. */
bool connection_caps_find(const struct settings *set, size_t worker_count,
                          struct connection_caps *out, struct buf *why);

#endif
