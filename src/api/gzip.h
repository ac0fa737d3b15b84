/*
 * gzip: compresses bytes as RFC 1952 says. For bytes that are compressed once and sent often.
 */
#ifndef ADMITONE_API_GZIP_H
#define ADMITONE_API_GZIP_H

#include "base/buf.h"

void gzip_compress(str bytes, struct buf *out);

#endif
