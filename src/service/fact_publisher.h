/*
 * fact_publisher: publishes the facts of the ledger to a topic (port/fact_sink.h), for other
 * systems that follow the sale: each fact at least once, and the facts of an event in their order.
 *
 * Every node has one, on one worker; a lease in the ledger lets one node publish at a time. It
 * reads pages of facts after the watermark, publishes a page, and then reads the next. With each
 * renewal of the lease the watermark is stored, so after a crash the next node publishes the facts
 * of about the last second again.
 *
 * Why the order holds although a node that has lost its lease may still be publishing: each node
 * begins at a watermark up to which all facts are in the topic, and publishes in order and without
 * gaps from there on. So whichever node was the first to publish a fact, the facts before it were
 * in the topic already. What the other node adds are duplicates.
 */
#ifndef ADMITONE_SERVICE_FACT_PUBLISHER_H
#define ADMITONE_SERVICE_FACT_PUBLISHER_H

#include <stdatomic.h>

#include "port/fact_sink.h"
#include "port/ledger.h"
#include "run/ticker.h"

#define FACT_PUBLISHER_PAGE 500

struct fact_publisher {
    struct ledger *ledger;
    struct fact_sink *sink;

    /* Private. */
    struct ticker ticker;
    _Atomic int under_way;     /* calls of the ledger and the sink; and the release, at the stop */
    _Atomic int64_t oldest_ms; /* wall: of the first fact that is not published; 0: there is none */
    bool is_stopping;
    struct {
        struct uuid node;
        bool is_ours;
        bool is_asking;
        int64_t asked_ms;        /* steady */
        struct sale_mark stored; /* the watermark, as the ledger has it from this node */
        struct ledger_facts_publish record;
    } lease;
    struct sale_mark mark; /* the watermark: all facts up to this one are in the topic */
    bool is_working;       /* a page is being read or published */
    struct ledger_facts_page page;
    struct fact *facts[FACT_PUBLISHER_PAGE];
    struct buf text; /* keys and values of the batch */
    struct fact_message messages[FACT_PUBLISHER_PAGE];
    struct fact_batch batch;
};

/* `ledger` and `sink` are filled in. Before the worker starts. */
void fact_publisher_init(struct fact_publisher *p, uv_loop_t *loop);
/* On its worker's thread: ends the batch that is under way, and then releases the lease. */
void fact_publisher_stop(struct fact_publisher *p);
/* From any thread. */
bool fact_publisher_is_busy(struct fact_publisher *p);
/* The age of the oldest fact that this node has still to publish; 0: there is none, or another node
 * publishes. From any thread. */
int64_t fact_publisher_lag_ms(struct fact_publisher *p);
/* When it is no longer busy. */
void fact_publisher_deinit(struct fact_publisher *p);

#endif
