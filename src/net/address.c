/* Parsing, comparing and printing of IP addresses, networks and endpoints. */
#include "net/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>

static const unsigned char mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool address_is_v4(const struct address *a) {
    return memcmp(a->bytes, mapped_prefix, sizeof mapped_prefix) == 0;
}

static struct address from_v4(const void *four_bytes) {
    struct address a;
    memcpy(a.bytes, mapped_prefix, sizeof mapped_prefix);
    memcpy(a.bytes + sizeof mapped_prefix, four_bytes, 4);
    return a;
}

struct address address_of(const struct sockaddr_storage *from) {
    if (from->ss_family == AF_INET)
        return from_v4(&((const struct sockaddr_in *)(const void *)from)->sin_addr);
    assert(from->ss_family == AF_INET6);
    struct address a;
    memcpy(a.bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, sizeof a.bytes);
    return a;
}

bool address_is_loopback(const struct address *a) {
    static const struct address v6_loopback = {{[15] = 1}};
    return (address_is_v4(a) && a->bytes[12] == 127) || memcmp(a, &v6_loopback, sizeof *a) == 0;
}

static bool in_network(const struct address *a, const struct network *n) {
    size_t whole = (size_t)n->bits / 8;
    int rest = n->bits % 8;
    if (memcmp(a->bytes, n->base.bytes, whole) != 0) return false;
    return rest == 0 || ((a->bytes[whole] ^ n->base.bytes[whole]) >> (8 - rest)) == 0;
}

bool address_in(const struct address *a, const struct networks *n) {
    for (size_t i = 0; i < n->count; i++)
        if (in_network(a, &n->of[i])) return true;
    return false;
}

bool address_parse(str text, struct address *out) {
    char copy[ADDRESS_TEXT_BYTES];
    struct in_addr v4;
    if (!str_copy(text, copy, sizeof copy)) return false;
    if (inet_pton(AF_INET, copy, &v4) == 1) {
        *out = from_v4(&v4);
        return true;
    }
    return inet_pton(AF_INET6, copy, out->bytes) == 1;
}

void address_format(const struct address *a, char out[ADDRESS_TEXT_BYTES]) {
    const char *done = address_is_v4(a) ? inet_ntop(AF_INET, a->bytes + 12, out, ADDRESS_TEXT_BYTES)
                                        : inet_ntop(AF_INET6, a->bytes, out, ADDRESS_TEXT_BYTES);
    assert(done != NULL);
}

static bool network_parse(str text, struct network *out) {
    str rest = text;
    str base;
    str bits_text;
    if (!str_split(&rest, '/', &base) || !address_parse(base, &out->base)) return false;
    int width = address_is_v4(&out->base) ? 32 : 128;
    int64_t bits = width;
    if (str_split(&rest, '/', &bits_text) &&
        (rest.at != NULL || !str_to_i64(bits_text, &bits) || bits < 0 || bits > width))
        return false;
    out->bits = (int)bits + (128 - width);
    return true;
}

bool networks_parse(str list, struct networks *out) {
    *out = (struct networks){0};
    str rest = str_trim(list);
    if (rest.len == 0) return true;
    str one;
    while (str_split(&rest, ',', &one)) {
        if (out->count == NETWORKS_MAX || !network_parse(str_trim(one), &out->of[out->count]))
            return false;
        out->count++;
    }
    return true;
}

bool endpoint_parse(str text, struct sockaddr_storage *out) {
    *out = (struct sockaddr_storage){0};
    size_t colon = text.len;
    while (colon > 0 && text.at[colon - 1] != ':') colon--;
    int64_t port;
    if (colon == 0 || !str_to_i64(str_skip(text, colon), &port) || port < 0 || port > 65535)
        return false;
    str host = {text.at, colon - 1};
    bool v6 = host.len >= 2 && host.at[0] == '[' && host.at[host.len - 1] == ']';
    if (v6) host = (str){host.at + 1, host.len - 2};

    char copy[ADDRESS_TEXT_BYTES];
    if (!str_copy(host, copy, sizeof copy)) return false;
    if (v6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)out;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, copy, &six->sin6_addr) == 1;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)out;
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, str_eq(host, STR("localhost")) ? "127.0.0.1" : copy,
                     &four->sin_addr) == 1;
}

bool address_parse_forwarded(str text, struct address *out) {
    struct sockaddr_storage endpoint;
    if (address_parse(text, out)) return true;
    bool is_bracketed = text.len >= 2 && text.at[0] == '[';
    if (is_bracketed && text.at[text.len - 1] == ']')
        return address_parse((str){text.at + 1, text.len - 2}, out);
    bool is_number = is_bracketed || (text.len > 0 && text.at[0] >= '0' && text.at[0] <= '9');
    if (!is_number || !endpoint_parse(text, &endpoint)) return false;
    *out = address_of(&endpoint);
    return true;
}

void endpoint_format(const struct sockaddr_storage *from, char out[ADDRESS_TEXT_BYTES]) {
    char host[INET6_ADDRSTRLEN];
    bool v6 = from->ss_family == AF_INET6;
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)from;
    const void *raw = v6 ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr;
    const char *done = inet_ntop(from->ss_family, raw, host, sizeof host);
    assert(done != NULL);
    int port = ntohs(v6 ? six->sin6_port : four->sin_port);
    snprintf(out, ADDRESS_TEXT_BYTES, v6 ? "[%s]:%d" : "%s:%d", host, port);
}
