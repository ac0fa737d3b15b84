/* Parsing of the URLs of Redis that --hot takes (address.h). */
#include "hot/redis/address.h"

#include <hiredis/hiredis.h>
#include <stdio.h>

#define PORT 6379

static bool address_refuse(struct buf *why, const char *text) {
    buf_add(why, str_of(text));
    return false;
}

static int address_hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* "p%40ss" is "p@ss". False: a broken escape, a zero byte, or no room. */
static bool address_decode(str text, char out[REDIS_TEXT_BYTES]) {
    size_t len = 0;
    while (text.len > 0) {
        char c = text.at[0];
        size_t used = 1;
        if (c == '%') {
            if (text.len < 3 || address_hex(text.at[1]) < 0 || address_hex(text.at[2]) < 0)
                return false;
            c = (char)(address_hex(text.at[1]) * 16 + address_hex(text.at[2]));
            used = 3;
        }
        if (c == '\0' || len + 1 >= REDIS_TEXT_BYTES) return false;
        out[len++] = c;
        text = str_skip(text, used);
    }
    out[len] = '\0';
    return true;
}

/* The last position of `c` in s; s.len: there is none. */
static size_t address_find_last(str s, char c) {
    const char *at = s.len == 0 ? NULL : memrchr(s.at, c, s.len);
    return at == NULL ? s.len : (size_t)(at - s.at);
}

static size_t address_find_first(str s, char c) {
    const char *at = s.len == 0 ? NULL : memchr(s.at, c, s.len);
    return at == NULL ? s.len : (size_t)(at - s.at);
}

/* "[user]:password@" in front of the hosts; an "@" in either must be encoded. */
static bool address_parse_login(str *rest, struct redis_address *out, struct buf *why) {
    size_t at = address_find_last(*rest, '@');
    if (at == rest->len) return true;
    str login = {rest->at, at};
    *rest = str_skip(*rest, at + 1);
    size_t colon = address_find_first(login, ':');
    if (colon == login.len)
        return address_refuse(why, "before the @ stands [user]:password, with a colon in it");
    if (!address_decode((str){login.at, colon}, out->user) ||
        !address_decode(str_skip(login, colon + 1), out->password))
        return address_refuse(
            why, "the user or the password is too long or not properly percent-encoded");
    if (out->user[0] != '\0' && out->password[0] == '\0')
        return address_refuse(why, "the user has no password");
    return true;
}

static bool address_parse_port(str text, uint16_t *out, struct buf *why) {
    int64_t port = 0;
    if (!str_to_i64(text, &port) || port < 1 || port > UINT16_MAX)
        return address_refuse(why, "a port is a number from 1 to 65535");
    *out = (uint16_t)port;
    return true;
}

static bool address_is_host_char(char c, bool in_brackets) {
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return is_letter || c == '.' || c == '-' || c == '_' || (in_brackets && (c == ':' || c == '%'));
}

/* "name", "name:port", "[::1]", "[::1]:port". */
static bool address_parse_host(str text, struct redis_host *out, bool needs_port, struct buf *why) {
    bool in_brackets = str_starts(text, STR("["));
    size_t end = address_find_first(text, in_brackets ? ']' : ':');
    if (in_brackets ? end == text.len : end != address_find_last(text, ':'))
        return address_refuse(why, "an IPv6 address must be in brackets: [::1]");
    str name = {text.at + in_brackets, end - in_brackets};
    str rest = str_skip(text, end + in_brackets);
    if (name.len == 0) return address_refuse(why, "a host is missing");
    for (size_t i = 0; i < name.len; i++)
        if (!address_is_host_char(name.at[i], in_brackets))
            return address_refuse(why, "a host has a character that no host's name has");
    if (!str_copy(name, out->name, sizeof out->name))
        return address_refuse(why, "a host is too long");
    out->port = PORT;
    if (rest.len == 0)
        return !needs_port || address_refuse(why, "a Sentinel needs a port: host:port");
    if (rest.at[0] != ':') return address_refuse(why, "behind a host comes its port: host:port");
    return address_parse_port(str_skip(rest, 1), &out->port, why);
}

static bool address_parse_hosts(str hosts, struct redis_address *out, struct buf *why) {
    if (!out->sentinel) {
        if (address_find_first(hosts, ',') < hosts.len)
            return address_refuse(why, "one host only; several are for redis+sentinel://");
        out->host_count = 1;
        return address_parse_host(hosts, &out->hosts[0], false, why);
    }
    str host;
    while (str_split(&hosts, ',', &host)) {
        if (out->host_count == REDIS_HOSTS_MAX)
            return address_refuse(why, "there are more than 8 hosts");
        if (!address_parse_host(host, &out->hosts[out->host_count++], true, why)) return false;
    }
    return out->host_count > 0 || address_refuse(why, "a host is missing");
}

static bool address_parse_database(str text, int64_t *out, struct buf *why) {
    if (text.len == 0) return true;
    if (!str_to_i64(text, out) || *out < 0 || *out > INT32_MAX)
        return address_refuse(why, "the database is a number, 0 or more");
    return true;
}

static bool address_parse_rest(str url, struct redis_address *out, struct buf *why) {
    size_t slash = address_find_first(url, '/');
    str front = {url.at, slash};
    str path = str_skip(url, slash + 1);
    if (!address_parse_login(&front, out, why) || !address_parse_hosts(front, out, why))
        return false;
    if (!out->sentinel) return address_parse_database(path, &out->database, why);
    size_t end = address_find_first(path, '/');
    if (end == 0) return address_refuse(why, "the master's name is missing: …/master");
    if (!address_decode((str){path.at, end}, out->master))
        return address_refuse(why, "the master's name is too long or not properly percent-encoded");
    return address_parse_database(str_skip(path, end + 1), &out->database, why);
}

bool redis_address_parse(str url, struct redis_address *out, struct buf *why) {
    *out = (struct redis_address){0};
    if (str_starts(url, STR("redis://"))) return address_parse_rest(str_skip(url, 8), out, why);
    if (str_starts(url, STR("redis+sentinel://"))) {
        out->sentinel = true;
        return address_parse_rest(str_skip(url, 17), out, why);
    }
    if (str_starts(url, STR("rediss://"))) {
        buf_addf(why, "rediss:// needs TLS, which the installed hiredis %d.%d.%d does not have",
                 HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
        return false;
    }
    if (str_starts(url, STR("redis+cluster://")))
        return address_refuse(why, "redis+cluster:// is not there yet");
    return address_refuse(why, "it starts with redis:// or redis+sentinel://");
}

void redis_address_format(const struct redis_address *a, char out[REDIS_ADDRESS_TEXT_BYTES]) {
    const struct redis_host *host = &a->hosts[0];
    snprintf(out, REDIS_ADDRESS_TEXT_BYTES, a->sentinel ? "%s (Sentinel %s:%u)" : "%s%s:%u",
             a->master, host->name, host->port);
}
