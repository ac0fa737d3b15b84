/*
 * peers: counts connections, in all and per address, over all workers, and refuses those beyond the
 * caps. Called when a connection is accepted and when it is closed, never for a request. Safe from
 * any thread.
 */
#ifndef ADMITONE_NET_PEERS_H
#define ADMITONE_NET_PEERS_H

#include "base/err.h"
#include "net/address.h"

struct peers;

/* `per_address` 0: no such cap. Loopback and `exempt` (trusted proxies) never count there. */
struct peers *peers_new(int64_t total_max, int64_t per_address_max, const struct networks *exempt);
void peers_free(struct peers *p);

/* OK: the connection is counted. Else a cap is reached: OVERLOADED (of all connections) or
 * TOO_MANY_CONNECTIONS (of the address). */
enum err peers_enter(struct peers *p, const struct address *a);
/* Once for each connection that was counted. */
void peers_leave(struct peers *p, const struct address *a);
int64_t peers_total(const struct peers *p);

#endif
