/*
 * nodes: the background work of a server that shares its stores with other nodes. It rebuilds Redis
 * when that is in the wrong incarnation, follows the announcements of other nodes, finishes pending
 * operations that they left, reconciles the stores, publishes facts, and answers from the ledger
 * while Redis can't be reached.
 */
#ifndef ADMITONE_CLI_NODES_H
#define ADMITONE_CLI_NODES_H

#include "api/api.h"
#include "cli/settings.h"
#include "run/worker.h"
#include "service/event_sync.h"
#include "service/fact_publisher.h"
#include "service/finish_pending.h"
#include "service/rebuilder.h"
#include "service/reconcile_job.h"
#include "service/relay.h"
#include "service/snapshot.h"

struct nodes {
    struct api *api;
    struct rebuilder rebuilder;
    struct event_sync event_sync;
    char name[LEDGER_NODE_NAME_BYTES];
    struct relay relay;
    struct finish_pending finish_pending;
    struct reconcile_job reconcile_job;
    struct fact_publisher fact_publisher; /* its sink is NULL: facts are not published */
    struct degraded_reads degraded_reads;
    struct snapshot snapshot;
    pthread_mutex_t lock;
    bool listens; /* under lock: announcements are passed on to the workers */
};

/* Also connects it with the services of the api. `facts`: where facts are published; NULL: they are
 * not. Before the workers are made. */
void nodes_init(struct nodes *n, struct api *api, struct fact_sink *facts,
                const struct settings *s);
/* Gives the worker the work that only one worker of the node does. Before the worker starts. */
void nodes_start_on(struct nodes *n, struct worker *w);
/* The name of this node in the logs of other nodes. Before the workers start. */
void nodes_set_name(struct nodes *n, const char *listening);
/* When the workers run. Returns when this node has loaded the events, and uses the hot store or has
 * waited for it for a while. False, and `why`: the hot store belongs to another cluster. */
bool nodes_start(struct nodes *n, struct buf *why);
/* From any thread: announcements are no longer passed on. nodes_stop_on then ends the work, on the
 * worker's thread. */
void nodes_stop_listening(struct nodes *n);
void nodes_stop_on(struct nodes *n);
/* On the same thread, when every request is answered: changes of events wait for the other nodes
 * until then. */
void nodes_end_sync(struct nodes *n);
bool nodes_are_busy(struct nodes *n);
/* When the workers have ended; before the stores are closed. */
void nodes_stop(struct nodes *n);
void nodes_deinit(struct nodes *n);

#endif
