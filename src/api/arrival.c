/* The limits on arrival: which client a request counts for, and the answer to one that is refused.
 */
#include "api/arrival.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#define NETWORK_TEXT_BYTES (ADDRESS_TEXT_BYTES + 4)

/* Translators between IPv6 and IPv4 put the addresses of IPv4 clients behind this prefix (RFC
 * 6052), so that it is no single client's. */
static const unsigned char translated_prefix[12] = {0, 0x64, 0xff, 0x9b};

struct limit_client arrival_client(const struct api *api, const struct exchange *x) {
    struct address client = exchange_client(x);
    if (address_in(&client, &api->limits_exempt) || address_in(&client, &api->trusted_proxies))
        return (struct limit_client){0};
    bool is_translated = memcmp(client.bytes, translated_prefix, sizeof translated_prefix) == 0;
    if (address_is_v4(&client) || is_translated) return limit_client_v4(client.bytes + 12);
    return limit_client_v6(client.bytes);
}

/* "192.0.2.7/32", "2001:db8::/56" */
static void format_network(const struct limit_key *k, char out[NETWORK_TEXT_BYTES]) {
    unsigned char bytes[16] = {0};
    bool is_v4 = k->bits <= 32;
    for (size_t i = 0; i < 8; i++) bytes[i] = (unsigned char)(k->prefix >> (56 - 8 * i));
    const char *done =
        inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? bytes + 4 : bytes, out, ADDRESS_TEXT_BYTES);
    assert(done != NULL);
    size_t len = strlen(out);
    snprintf(out + len, NETWORK_TEXT_BYTES - len, "/%u", k->bits);
}

/* One line for a block each minute, and of all blocks one each second: many begin at once when a
 * crowd comes from many. */
static void report(const struct limit_client *c, const char *what,
                   const struct limit_verdict *why) {
    static _Atomic int64_t reported_s;
    static _Atomic int64_t unreported;
    int64_t now_s = clock_steady_ms() / 1000;
    int64_t before_s = atomic_load(&reported_s);
    if (before_s == now_s || !atomic_compare_exchange_strong(&reported_s, &before_s, now_s)) {
        atomic_fetch_add(&unreported, 1);
        return;
    }
    char client[NETWORK_TEXT_BYTES];
    char block[NETWORK_TEXT_BYTES];
    format_network(&c->of[LIMIT_ADDRESS], client);
    format_network(&c->of[LIMIT_BLOCK], block);
    log_warn(msg("requests are refused by the limits on arrival"), kv("client", client),
             kv("block", block), kv("what", what),
             kv("limit_of", why->by == LIMIT_BLOCK ? "block" : "client"),
             kv_i64("other_blocks", atomic_exchange(&unreported, 0)));
}

void arrival_refuse(struct exchange *x, const struct limit_client *c, enum limit_kind kind,
                    const struct limit_verdict *why) {
    static const enum counter counters[LIMIT_KINDS][LIMIT_SCOPES] = {
        {COUNT_LIMITED_PLACES_ADDRESS, COUNT_LIMITED_PLACES_BLOCK},
        {COUNT_LIMITED_REQUESTS_ADDRESS, COUNT_LIMITED_REQUESTS_BLOCK}};
    bool is_place = kind == LIMIT_PLACES;
    count(counters[kind][why->by], 1);
    if (why->begins) report(c, is_place ? "place" : "request", why);
    x->retry_after_s = (why->wait_ns + 999999999) / 1000000000;
    reply_problem(x, is_place ? ERR_TOO_MANY_PLACES : ERR_TOO_MANY_REQUESTS, "%s",
                  is_place ? "No place was taken: so many users behind this network address have "
                             "taken one in a short time. Users who have a place keep it. Try again "
                             "after Retry-After seconds."
                           : "Nothing was done: so many requests came from this network address in "
                             "a short time. Try again after Retry-After seconds.");
}
