/*
 * event_page: what an event may set of its waiting room, and to which addresses the room may send
 * its users.
 */
#ifndef ADMITONE_CORE_EVENT_PAGE_H
#define ADMITONE_CORE_EVENT_PAGE_H

#include "core/event.h"

/* Text for people: UTF-8 of at most that many characters, with no control characters but newlines.
 */
bool prose_ok(str text, size_t chars_max);
/* "#c2185b" */
bool page_accent_ok(str colour);
/* An https URL, or a path of this site. It may stand in an HTML attribute. */
bool page_logo_ok(str address);
/* "ko", "pt-BR" */
bool page_language_ok(str code);

/* A host name in lower case, or an IPv4 address; then, unless the port is the usual one, ":port".
 */
bool return_host_ok(str host);
/* Such hosts, separated by commas; or none. */
bool return_hosts_ok(str list);

/*
 * Whether the waiting room may send its users to `url`. The URL is not trusted: anyone can make a
 * link to the room. Allowed are http and https URLs of the event's return hosts or of this site
 * (`own_host`, as in the Host header; empty: not known), and paths of this site. To exclude URLs
 * that a browser could parse differently, a URL has no user name, no backslash, only printable
 * ASCII, and at most RETURN_URL_BYTES_MAX bytes. A host without a port means the default port of
 * the URL's scheme.
 */
bool event_may_return_to(const struct event *e, str url, str own_host);

#endif
