/*
 * url: the parts that may be shown of a store's URL,
 * scheme://user:password@host:port/name?key=value.
 *
 * An "@" behind the first "/" or "?" makes the URL ambiguous: it may belong to a password that is
 * not percent-encoded. Of such a URL only the scheme is shown.
 */
#ifndef ADMITONE_BASE_URL_H
#define ADMITONE_BASE_URL_H

#include "base/buf.h"

bool url_is_ambiguous(str url);

/* Adds the URL with "***" in place of its passwords. A text that is no URL is added as it is. */
void url_redact(str url, struct buf *out);

/* Adds host:port/name: no scheme, no login, and nothing of what follows a question mark. */
void url_add_place(str url, struct buf *out);

#endif
