/* Checks texts, colours and hosts, and the addresses to which users may return. */
#include "core/event_page.h"

#define HOST_NAME_BYTES_MAX 253
#define HOST_LABEL_BYTES_MAX 63
#define LANGUAGE_BYTES_MAX 35

/* ---- texts ---- */

static size_t count_characters(str text) {
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++) count += ((unsigned char)text.at[i] & 0xc0) != 0x80;
    return count;
}

bool prose_ok(str text, size_t chars_max) {
    str rest = text;
    str line;
    if (count_characters(text) > chars_max) return false;
    while (str_split(&rest, '\n', &line))
        if (!str_is_text(line)) return false;
    return true;
}

static bool is_one_of(char c, const char *chars) {
    return c != '\0' && strchr(chars, c) != NULL;
}

bool page_accent_ok(str colour) {
    if (colour.len != 7 || colour.at[0] != '#') return false;
    for (size_t i = 1; i < colour.len; i++)
        if (!is_one_of(colour.at[i], "0123456789abcdefABCDEF")) return false;
    return true;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The first part, of 2 or 3 letters, or a further one, of 1 to 8 letters and digits. */
static bool language_part_ok(str part, bool is_first) {
    if (part.len < (is_first ? 2 : 1) || part.len > (is_first ? 3 : 8)) return false;
    for (size_t i = 0; i < part.len; i++)
        if (!is_letter(part.at[i]) && (is_first || !is_digit(part.at[i]))) return false;
    return true;
}

bool page_language_ok(str code) {
    str rest = code;
    str part;
    if (code.len == 0 || code.len > LANGUAGE_BYTES_MAX) return false;
    for (bool is_first = true; str_split(&rest, '-', &part); is_first = false)
        if (!language_part_ok(part, is_first)) return false;
    return true;
}

/* ---- hosts ---- */

/* A host with its port, which is 0 if none is named. */
struct site {
    str name;
    int64_t port;
};

static bool label_ok(str label) {
    if (label.len == 0 || label.len > HOST_LABEL_BYTES_MAX) return false;
    if (label.at[0] == '-' || label.at[label.len - 1] == '-') return false;
    for (size_t i = 0; i < label.len; i++)
        if (!is_letter(label.at[i]) && !is_digit(label.at[i]) && label.at[i] != '-') return false;
    return true;
}

static bool host_name_ok(str name) {
    str rest = name;
    str label;
    if (name.len == 0 || name.len > HOST_NAME_BYTES_MAX) return false;
    while (str_split(&rest, '.', &label))
        if (!label_ok(label)) return false;
    return true;
}

static bool port_read(str text, int64_t *port) {
    for (size_t i = 0; i < text.len; i++)
        if (!is_digit(text.at[i])) return false;
    return text.len > 0 && text.at[0] != '0' && str_to_i64(text, port) && *port <= 65535;
}

static bool site_read(str text, struct site *out) {
    str rest = text;
    out->port = 0;
    if (!str_split(&rest, ':', &out->name) || !host_name_ok(out->name)) return false;
    return rest.at == NULL || port_read(rest, &out->port);
}

bool return_host_ok(str host) {
    struct site site;
    for (size_t i = 0; i < host.len; i++)
        if (host.at[i] >= 'A' && host.at[i] <= 'Z') return false;
    return site_read(host, &site);
}

bool return_hosts_ok(str list) {
    str rest = list;
    str host;
    size_t count = 0;
    if (list.len == 0) return true;
    while (str_split(&rest, ',', &host))
        if (++count > RETURN_HOSTS_MAX || !return_host_ok(host)) return false;
    return true;
}

/* ---- addresses ---- */

/* Printable ASCII that no browser changes, and that ends no attribute and no header. */
static bool address_is_plain(str address, size_t bytes_max) {
    if (address.len == 0 || address.len > bytes_max) return false;
    for (size_t i = 0; i < address.len; i++)
        if (address.at[i] <= ' ' || address.at[i] > '~' || is_one_of(address.at[i], "\\\"'<>`"))
            return false;
    return true;
}

/* "//host" is another site, not a path. */
static bool is_own_path(str address) {
    return address.at[0] == '/' && (address.len == 1 || address.at[1] != '/');
}

/* Reads the host of a URL, with the scheme's usual port if it names none. */
static bool url_site(str url, str scheme, int64_t usual_port, struct site *out) {
    if (url.len < scheme.len || !str_eq_nocase((str){url.at, scheme.len}, scheme)) return false;
    str rest = str_skip(url, scheme.len);
    size_t len = 0;
    while (len < rest.len && !is_one_of(rest.at[len], "/?#")) len++;
    if (!site_read((str){rest.at, len}, out)) return false;
    if (out->port == 0) out->port = usual_port;
    return true;
}

static bool site_is(const struct site *site, str host, int64_t usual_port) {
    struct site named;
    if (!site_read(host, &named)) return false;
    if (named.port == 0) named.port = usual_port;
    return site->port == named.port && str_eq_nocase(site->name, named.name);
}

bool page_logo_ok(str address) {
    struct site site;
    if (!address_is_plain(address, PAGE_LOGO_BYTES_MAX)) return false;
    return is_own_path(address) || url_site(address, STR("https://"), 443, &site);
}

bool event_may_return_to(const struct event *e, str url, str own_host) {
    struct site site;
    str hosts = e->return_hosts;
    str host;
    int64_t usual_port = 443;
    if (!address_is_plain(url, RETURN_URL_BYTES_MAX)) return false;
    if (is_own_path(url)) return true;
    if (!url_site(url, STR("https://"), usual_port, &site)) {
        usual_port = 80;
        if (!url_site(url, STR("http://"), usual_port, &site)) return false;
    }
    if (own_host.len > 0 && site_is(&site, own_host, usual_port)) return true;
    if (hosts.len == 0) return false;
    while (str_split(&hosts, ',', &host))
        if (site_is(&site, host, usual_port)) return true;
    return false;
}
