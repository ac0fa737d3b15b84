/*
 * The writer: takes the records that have been submitted, writes them in one transaction, and hands
 * them back after the commit. While there is no connection, records are answered at once.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "ledger/postgres_internal.h"

/* How often an idle writer looks whether it could write. */
#define LOOK_INTERVAL_NS INT64_C(1000000000)
#define DOWN_STEP_MS 20
#define BATCH_MIN 16
#define BATCH_SHARE 8
/* A smaller batch does not show how long a record takes. */
#define SAMPLE_MIN 8

/* One line when writing begins to fail, and one when it works again. A lost connection is logged by
 * pg_note_outage. */
static void pg_writer_note_writable(struct pg_writer *w, bool writable) {
    struct pg_session *s = &w->session;
    atomic_store(&w->read_only, !writable && pg_failed_with(&s->db, PG_READ_ONLY));
    bool before = atomic_exchange(&w->writable, writable);
    bool is_outage =
        writable ? outage_back(s->outage) : pg_note_outage(s->outage, &s->db, s->settings.url);
    if (before && !writable && !is_outage)
        log_error(msg("the ledger cannot write; changes are refused with 503 until it can"),
                  PG_SERVER(&s->db), kv("error", s->db.failure.text));
    else if (writable && w->is_logged)
        log_info(msg("the ledger can write again"));
    w->is_logged = !writable && (w->is_logged || !is_outage);
}

/* Answers what waits. Whether the inbox is closed and empty. */
static bool fail_waiting(struct pg_writer *w) {
    struct ledger_record *some[64];
    bool ended = false;
    size_t taken;
    while ((taken = inbox_take(&w->inbox, some, 64, 0, &ended)) > 0) {
        for (size_t i = 0; i < taken; i++) some[i]->result = ERR_LEDGER_FAILED;
        records_hand_back(some, taken, w->depth);
    }
    return ended;
}

/* While the writer asks what became of a commit. */
static void while_asking(void *to) {
    struct pg_writer *w = to;
    pg_writer_note_writable(w, false);
    fail_waiting(w);
}

/* A batch should take a fraction of the deadline, because all its records wait for the slowest. The
 * last batch without an exception shows how many records that may be. */
static size_t batch_limit(const struct pg_writer *w, size_t taken, int64_t took_ns) {
    int64_t each_ns = took_ns / (int64_t)taken + 1;
    int64_t limit = w->session.deadline_ms * 1000000 / BATCH_SHARE / each_ns;
    if (limit < BATCH_MIN) limit = BATCH_MIN;
    return (size_t)limit < w->batch_max ? (size_t)limit : w->batch_max;
}

static int64_t pg_writer_write_batch(struct pg_writer *w, size_t taken) {
    int64_t began_ns = clock_steady_ns();
    size_t done = pg_session_write(&w->session, w->batch, taken);
    int64_t took_ns = clock_steady_ns() - began_ns;
    pg_writer_note_writable(w, !w->session.failing);
    observe(HISTOGRAM_LEDGER_BATCH_RECORDS, taken);
    observe(HISTOGRAM_LEDGER_COMMIT_SECONDS, (uint64_t)took_ns / 1000);
    records_hand_back(w->batch, done, w->depth);
    return took_ns;
}

/* A ledger that can't write may get no records, so it finds out by itself when it can again. */
static void pg_writer_look(struct pg_writer *w) {
    if (!pg_look(&w->session.db) || !pg_look_writable(&w->session.db)) return;
    if (!w->session.failing) outage_back(w->session.outage); /* others may have lost theirs */
    if (w->session.failing && pg_session_probe(&w->session)) pg_writer_note_writable(w, true);
}

static void *pg_writer_run(void *arg) {
    struct pg_writer *w = arg;
    bool ended = false;
    size_t limit = w->batch_max;
    struct batch_history history = {0};
    while (!ended) {
        if (!pg_session_up(&w->session, 0)) {
            pg_writer_note_writable(w, false);
            if (pg_session_up(&w->session, DOWN_STEP_MS))
                pg_writer_note_writable(w, true);
            else
                ended = fail_waiting(w);
            continue;
        }
        size_t taken = inbox_take_batch(&w->inbox, &history, w->batch, limit,
                                        clock_steady_ns() + LOOK_INTERVAL_NS, &ended);
        if (taken > 0) {
            int64_t took_ns = pg_writer_write_batch(w, taken);
            batch_history_add(&history, taken, took_ns);
            if (taken >= SAMPLE_MIN) limit = batch_limit(w, taken, took_ns);
        } else if (!ended) {
            pg_writer_look(w);
        }
    }
    return NULL;
}

void pg_writer_start(struct pg_writer *w, const struct postgres_ledger_options *o,
                     struct pg_pool *waiters, _Atomic int64_t *depth) {
    w->session.waiters = pg_pool_inbox(waiters);
    w->session.idle = while_asking;
    w->session.to = w;
    w->depth = depth;
    w->batch_max = (size_t)o->batch_max;
    w->batch = mem_new(w->batch_max * sizeof *w->batch);
    inbox_init(&w->inbox, o->queue_max);
    atomic_store(&w->writable, true);
    int failed = thread_start(&w->thread, "ledger", THREAD_ALONE, pg_writer_run, w);
    assert(failed == 0 && "no thread can be started");
}

void pg_writer_stop(struct pg_writer *w) {
    inbox_close(&w->inbox);
    pthread_join(w->thread, NULL);
    pg_session_deinit(&w->session);
    inbox_deinit(&w->inbox);
    mem_free(w->batch);
}

enum err pg_writer_put(struct pg_writer *w, struct ledger_record *r) {
    return inbox_put(&w->inbox, r);
}
