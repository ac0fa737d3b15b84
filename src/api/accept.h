/*
 * accept: what a client accepts, by its headers Accept-Encoding and Accept-Language (RFC 9110,
 * 12.5). Pure.
 */
#ifndef ADMITONE_API_ACCEPT_H
#define ADMITONE_API_ACCEPT_H

#include "base/str.h"

/* Whether the answer should be gzip: the client accepts it, and does not like it less than the
 * plain bytes. */
bool accept_gzip(str header);

/* The language that the client likes best, as its number in `codes`; `otherwise` when it accepts
 * none of them. "de-CH" finds "de" too (RFC 4647, lookup), and "pt" finds "pt-BR". */
size_t accept_language(str header, const str *codes, size_t count, size_t otherwise);

#endif
