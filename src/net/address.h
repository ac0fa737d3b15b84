/*
 * address: IP addresses as values, networks to compare them with, and their text forms.
 * An IPv4 address is kept as its IPv6 mapping, so there is one kind to compare.
 */
#ifndef ADMITONE_NET_ADDRESS_H
#define ADMITONE_NET_ADDRESS_H

#include <netinet/in.h>

#include "base/str.h"

/* "[ffff:…:255.255.255.255]:65535" and its terminator. */
#define ADDRESS_TEXT_BYTES 64

struct address {
    unsigned char bytes[16];
};

struct network {
    struct address base;
    int bits; /* of the 128 that must agree */
};

#define NETWORKS_MAX 32

struct networks {
    struct network of[NETWORKS_MAX];
    size_t count;
};

struct address address_of(const struct sockaddr_storage *from);
/* Whether it is the mapping of an IPv4 address. */
bool address_is_v4(const struct address *a);
bool address_is_loopback(const struct address *a);
bool address_in(const struct address *a, const struct networks *n);
/* "192.0.2.7" or "2001:db8::7". */
bool address_parse(str text, struct address *out);
/* The same in a header of a proxy, where some add the port: "192.0.2.7:4711", "[2001:db8::7]:4711",
 * "[2001:db8::7]". */
bool address_parse_forwarded(str text, struct address *out);
void address_format(const struct address *a, char out[ADDRESS_TEXT_BYTES]);

/* "192.0.2.0/24, 2001:db8::/32, 192.0.2.7"; empty is no network. */
bool networks_parse(str list, struct networks *out);

/* "127.0.0.1:8080", "[::1]:8080"; what to bind or connect to. */
bool endpoint_parse(str text, struct sockaddr_storage *out);
void endpoint_format(const struct sockaddr_storage *from, char out[ADDRESS_TEXT_BYTES]);

#endif
