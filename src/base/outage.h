/*
 * outage: reports in the log that something the process depends on is lost: one line when it
 * is, one a minute while it is, and one when it is back, however many threads notice. What
 * comes and goes (one of many connections fails) is reported once, until it has been calm for a
 * while. Safe from any thread.
 */
#ifndef ADMITONE_BASE_OUTAGE_H
#define ADMITONE_BASE_OUTAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct outage {
    pthread_mutex_t lock;
    const char *name;    /* of the dependency */
    const char *meaning; /* what users notice while it is lost */
    _Atomic bool is_lost;
    bool is_told;     /* that it is lost */
    int64_t since_ms; /* steady, as are the others */
    int64_t told_ms;  /* when it was last reported */
    int64_t back_ms;  /* when it was last back; 0: never */
    char address[256];
};

/* The texts must live as long as it. */
void outage_init(struct outage *o, const char *name, const char *meaning);
void outage_deinit(struct outage *o);
/* It can't be reached there, and why. The address must not have a password in it. */
void outage_lost(struct outage *o, const char *address, const char *why);
/* It answers. Whether it was lost. Costs nothing if it was not. */
bool outage_back(struct outage *o);

#endif
