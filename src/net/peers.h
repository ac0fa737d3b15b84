/*
 * peers: how many connections there are, in all and per address, over all workers. Asked once
 * when a connection is accepted and told once when it is closed; nothing of it is on the path of
 * a request. Safe from any thread.
 */
#ifndef ADMITONE_NET_PEERS_H
#define ADMITONE_NET_PEERS_H

#include "base/err.h"
#include "net/address.h"

struct peers;

/* `per_address` 0: no such cap. Loopback and `exempt` (trusted proxies) never count there. */
struct peers *peers_new(int64_t total_max, int64_t per_address_max, const struct networks *exempt);
void peers_free(struct peers *p);

/* OK and counted, or the cap that refuses: OVERLOADED (all) or TOO_MANY_CONNECTIONS (address). */
enum err peers_enter(struct peers *p, const struct address *a);
/* Once for each that was counted. */
void peers_leave(struct peers *p, const struct address *a);
int64_t peers_total(const struct peers *p);

#endif
