/*
 * http1_feeding: feeds requests to the parser in pieces, for its tests. feeding_accepted and
 * feeding_refused parse a request whole, byte by byte and in every cut in two, each time in a block
 * that moves between the feeds. So every test that uses them also checks that the result does not
 * depend on how the bytes arrive.
 */
#ifndef ADMITONE_TEST_HTTP1_FEEDING_H
#define ADMITONE_TEST_HTTP1_FEEDING_H

#include "net/http1.h"

/* One request being fed in pieces. */
struct feeding {
    struct http1 p;
    char *block;
    size_t len;
    enum http1_step step;
    int continues;
};

void feeding_init(struct feeding *f);
void feeding_add(struct feeding *f, str more);

/* Parses in all ways; `f` is left as after one feed of everything, and its block is the caller's,
 * here and below. */
void feeding_parse(struct feeding *f, str input);
/* Accepted, and the last `behind` bytes of the input are not its own. */
struct http_request feeding_accepted(struct feeding *f, str input, size_t behind);
void feeding_refused(enum err expected, str input);

#endif
