/*
 * sha256: a digest of a text, to find out whether two are the same.
 */
#ifndef ADMITONE_CORE_SHA256_H
#define ADMITONE_CORE_SHA256_H

#include "base/str.h"

#define SHA256_BYTES 32

void sha256_of(str text, unsigned char out[SHA256_BYTES]);

#endif
