/*
 * base64url: bytes as letters, digits, '-' and '_' (RFC 4648, section 5), without padding. Any
 * bytes have exactly one text: a text with padding, or with spare bits other than 0, is refused.
 */
#ifndef ADMITONE_BASE_BASE64URL_H
#define ADMITONE_BASE_BASE64URL_H

#include "base/str.h"

/* The number of characters for a number of bytes, and the reverse for a valid text. */
#define BASE64URL_CHARS(bytes) (((bytes)*8 + 5) / 6)
#define BASE64URL_BYTES(chars) ((chars)*6 / 8)

/* Writes BASE64URL_CHARS(len) characters, and no terminator. */
void base64url_encode(const void *bytes, size_t len, char *out);
/* Writes BASE64URL_BYTES(text.len) bytes; false when it is not base64url. */
bool base64url_decode(str text, void *out);

#endif
