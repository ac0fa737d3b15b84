/*
 * address: the address of Redis, from the URL of --hot:
 *   redis://[[user]:password@]host[:port][/database]
 *   redis+sentinel://[[user]:password@]host:port[,host:port…]/master[/database]
 * User and password are those of Redis, percent-encoded where necessary; Sentinels get none.
 */
#ifndef ADMITONE_HOT_REDIS_ADDRESS_H
#define ADMITONE_HOT_REDIS_ADDRESS_H

#include "base/buf.h"

#define REDIS_HOSTS_MAX 8
#define REDIS_TEXT_BYTES 256
#define REDIS_ADDRESS_TEXT_BYTES (2 * REDIS_TEXT_BYTES + 32)

struct redis_address {
    bool sentinel; /* the hosts are Sentinels, and know the master by its name */
    size_t host_count;
    struct redis_host {
        char name[REDIS_TEXT_BYTES];
        uint16_t port;
    } hosts[REDIS_HOSTS_MAX];
    char master[REDIS_TEXT_BYTES];
    char user[REDIS_TEXT_BYTES];     /* empty: the default one */
    char password[REDIS_TEXT_BYTES]; /* empty: none */
    int64_t database;
};

/* False: `why` says what is wrong, for people; it does not repeat the password. */
bool redis_address_parse(str url, struct redis_address *out, struct buf *why);
/* For the log, without the password: "host:port", or "master (Sentinel host:port)". */
void redis_address_format(const struct redis_address *a, char out[REDIS_ADDRESS_TEXT_BYTES]);

#endif
