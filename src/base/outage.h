/*
 * outage: logs that a dependency of the process is unavailable: one line when it is lost, one line
 * a minute while it is lost, and one when it is back, however many threads notice. A dependency
 * that is lost and back repeatedly (one of many connections fails) is logged once, until it has
 * been back for a while. Safe from any thread.
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
    bool is_told;     /* the log says that it is lost */
    int64_t since_ms; /* steady, as are the others */
    int64_t told_ms;  /* when it was last reported */
    int64_t back_ms;  /* when it was last back; 0: never */
    char address[256];
};

/* The texts must live as long as it. */
void outage_init(struct outage *o, const char *name, const char *meaning);
void outage_deinit(struct outage *o);
/* Reports that the dependency can't be reached at the address, and why. The address must not
 * contain a password. */
void outage_lost(struct outage *o, const char *address, const char *why);
/* Reports that the dependency answers. Returns whether it was lost. Cheap if it was not. */
bool outage_back(struct outage *o);

#endif
