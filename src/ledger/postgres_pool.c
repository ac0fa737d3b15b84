/*
 * Pools: threads that take from one inbox, each with a private connection. The pool writes holds of
 * `seat` sections, a transaction each; the waiters wait for locked rows; the readers answer
 * questions.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "ledger/postgres_internal.h"
#include "run/mailbox.h"

struct pool_thread {
    struct pg_pool *lane;
    struct pg_session session;
    pthread_t thread;
};

struct pg_pool {
    struct inbox inbox;
    _Atomic int64_t *depth;
    int thread_count;
    struct pool_thread threads[PG_WAITER_THREADS];
};

/* --- writing --- */

static void *run_writing(void *arg) {
    struct pool_thread *t = arg;
    struct ledger_record *r = NULL;
    bool ended = false;
    while (!ended) {
        if (inbox_take(&t->lane->inbox, &r, 1, INT64_MAX, &ended) == 0) continue;
        if (t->session.db.handle != NULL && !t->session.opening) pg_look(&t->session.db);
        if (pg_session_write(&t->session, &r, 1) == 1) records_hand_back(&r, 1, t->lane->depth);
    }
    return NULL;
}

/* --- reading --- */

/* The audit's page hands memory over, but not when it failed. */
static bool pg_answer_page(struct pg *db, struct ledger_audit_page *page) {
    page->json = (struct buf){0};
    page->next = 0;
    if (pg_audit_page(db, page)) return true;
    buf_deinit(&page->json);
    page->json = (struct buf){0};
    page->next = 0;
    return false;
}

static bool pg_answer_of(struct pg *db, struct ledger_record *r) {
    switch (r->kind) {
    case LEDGER_ENTRY_GET:
        return pg_entry_get(db, (struct ledger_entry_get *)r);
    case LEDGER_RESERVATION_GET:
        return pg_reservation_get(db, (struct ledger_reservation_get *)r);
    case LEDGER_SEATS_READ:
        return pg_seats_read(db, (struct ledger_seats_read *)r);
    case LEDGER_IDEMPOTENCY_GET:
        return pg_idempotency_get(db, (struct ledger_idempotency_get *)r);
    case LEDGER_REQUESTS_GET:
        return pg_requests_get(db, (struct ledger_requests_get *)r);
    case LEDGER_REQUESTS_READ:
        return pg_requests_read(db, (struct ledger_requests_read *)r);
    case LEDGER_REQUESTS_OPEN:
        return pg_requests_open(db, (struct ledger_requests_open *)r);
    case LEDGER_EVENTS_READ:
        return pg_events_read(db, (struct ledger_events_read *)r);
    case LEDGER_WAITING_READ:
        return pg_waiting_read(db, (struct ledger_waiting_read *)r);
    case LEDGER_FACTS_READ:
        return pg_facts_read(db, (struct ledger_facts_read *)r);
    case LEDGER_SALES_READ:
        return pg_sales_read(db, (struct ledger_sales_read *)r);
    case LEDGER_FACTS_PAGE:
        return pg_facts_page(db, (struct ledger_facts_page *)r);
    case LEDGER_NODES_READ:
        return pg_nodes_read(db, (struct ledger_nodes_read *)r);
    case LEDGER_AUDIT_PAGE:
        return pg_answer_page(db, (struct ledger_audit_page *)r);
    default:
        assert(false && "a record was asked");
        return false;
    }
}

/* Questions that need several statements are answered in one transaction, from one snapshot. */
static bool answer_in_one(struct pg *db, struct ledger_record *r) {
    bool several = r->kind == LEDGER_EVENTS_READ || r->kind == LEDGER_AUDIT_PAGE;
    if (!several) return pg_answer_of(db, r) && pg_sound(db);
    bool ok = pg_exec(db, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY") &&
              pg_answer_of(db, r) && pg_sound(db);
    /* The transaction wrote nothing, so the answer is valid even if COMMIT fails; it must not be
     * read again. */
    if (ok && !pg_exec(db, "COMMIT")) pg_rollback(db);
    return ok;
}

/* A connection that was lost unnoticed is replaced, and the question asked again. */
static void pg_answer(struct pg_session *s, struct ledger_record *r) {
    for (int tries = 0; tries < 2; tries++) {
        r->result = ERR_OK;
        if (!pg_session_ready(s)) break;
        s->db.until_ns = clock_steady_ns() + pg_session_first_ms(s, tries) * 1000000;
        if (answer_in_one(&s->db, r)) {
            s->answered_ns = clock_steady_ns();
            outage_back(s->outage);
            return;
        }
        bool alive = pg_alive(&s->db);
        pg_rollback(&s->db);
        if (alive) break;
    }
    r->result = ERR_LEDGER_FAILED;
    if (!pg_note_outage(s->outage, &s->db, s->settings.url))
        log_error(msg("a read from the ledger failed; its request is answered with 503"),
                  PG_SERVER(&s->db), kv("error", s->db.failure.text));
}

static void *run_reading(void *arg) {
    struct pool_thread *t = arg;
    struct ledger_record *r = NULL;
    bool ended = false;
    while (!ended) {
        if (inbox_take(&t->lane->inbox, &r, 1, INT64_MAX, &ended) == 0) continue;
        pg_answer(&t->session, r);
        records_hand_back(&r, 1, NULL);
    }
    return NULL;
}

/* --- lanes --- */

static void start_thread(struct pg_pool *l, const char *name, void *(*run)(void *)) {
    int number = l->thread_count++;
    struct pool_thread *t = &l->threads[number];
    t->lane = l;
    int failed = thread_start(&t->thread, name, number, run, t);
    assert(failed == 0 && "no thread can be started");
}

struct pg_pool *pg_pool_start(const char *name, const struct postgres_ledger_options *o,
                              int threads, struct pg_pool *waiters, _Atomic int64_t *depth) {
    assert(threads <= PG_WAITER_THREADS);
    struct pg_pool *l = mem_new(sizeof *l);
    l->depth = depth;
    inbox_init(&l->inbox, o->queue_max);
    for (int i = 0; i < threads; i++) {
        pg_session_init(&l->threads[i].session, o, waiters == NULL, 1);
        l->threads[i].session.waiters = waiters == NULL ? NULL : &waiters->inbox;
        /* Even without wait, a record waits for the moment in which another transaction commits. */
        l->threads[i].session.wait_briefly = waiters != NULL;
        start_thread(l, name, run_writing);
    }
    return l;
}

struct pg_pool *pg_readers_start(const struct postgres_ledger_options *o) {
    struct pg_pool *l = mem_new(sizeof *l);
    inbox_init(&l->inbox, o->asks_max);
    for (int i = 0; i < PG_READER_THREADS; i++) {
        pg_session_init(&l->threads[i].session, o, false, 1);
        l->threads[i].session.settings.read_only = true;
        l->threads[i].session.settings.writes = false;
        start_thread(l, "ledger read", run_reading);
    }
    return l;
}

enum err pg_pool_put(struct pg_pool *l, struct ledger_record *r) {
    return inbox_put(&l->inbox, r);
}

struct inbox *pg_pool_inbox(struct pg_pool *l) {
    return &l->inbox;
}

void pg_pool_stop(struct pg_pool *l) {
    inbox_close(&l->inbox);
    for (int i = 0; i < l->thread_count; i++) {
        pthread_join(l->threads[i].thread, NULL);
        pg_session_deinit(&l->threads[i].session);
    }
    inbox_deinit(&l->inbox);
    mem_free(l);
}
