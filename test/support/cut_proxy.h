/*
 * cut_proxy: a TCP proxy in front of a PostgreSQL server, which can break the connection exactly
 * when a COMMIT passes. It has its own threads; any thread may set what happens next.
 */
#ifndef ADMITONE_TEST_CUT_PROXY_H
#define ADMITONE_TEST_CUT_PROXY_H

#include <stdbool.h>

enum cut {
    CUT_NOTHING,
    CUT_BEFORE_COMMIT, /* the next COMMIT never arrives, and its connection ends */
    CUT_AFTER_COMMIT,  /* it arrives, and its answer does not */
    CUT_SILENT,        /* nothing gets through, and nothing ends */
    CUT_AT_QUESTION,   /* from the next query for the result of a COMMIT on, nothing passes */
    CUT_REFUSED,       /* every connection ends, and new ones at once */
};

struct cut_proxy;

/* In front of a server on this machine. */
struct cut_proxy *cut_proxy_start(int server_port);
int cut_proxy_port(const struct cut_proxy *p);
/* The two at a COMMIT are for one; then comes `then`. */
void cut_proxy_set(struct cut_proxy *p, enum cut now, enum cut then);
/* Whether the COMMIT that was waited for has come. */
bool cut_proxy_has_cut(struct cut_proxy *p);
void cut_proxy_stop(struct cut_proxy *p);

#endif
