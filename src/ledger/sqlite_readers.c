/* The threads that answer questions, each on a read-only connection. */
#include <assert.h>

#include "base/log.h"
#include "base/thread.h"
#include "ledger/sqlite_internal.h"
#include "run/mailbox.h"

/* The audit's page hands memory over, but not when it failed. */
static int sqlite_answer_page(struct db *db, struct ledger_audit_page *page) {
    page->json = (struct buf){0};
    page->next = 0;
    int rc = audit_page(db, page);
    if (rc == SQLITE_OK) return rc;
    buf_deinit(&page->json);
    page->json = (struct buf){0};
    page->next = 0;
    return rc;
}

static int sqlite_answer_of(struct db *db, struct ledger_record *r) {
    switch (r->kind) {
    case LEDGER_ENTRY_GET:
        return entry_get(db, (struct ledger_entry_get *)r);
    case LEDGER_RESERVATION_GET:
        return reservation_get(db, (struct ledger_reservation_get *)r);
    case LEDGER_SEATS_READ:
        return seats_read(db, (struct ledger_seats_read *)r);
    case LEDGER_IDEMPOTENCY_GET:
        return idempotency_get(db, (struct ledger_idempotency_get *)r);
    case LEDGER_REQUESTS_GET:
        return requests_get(db, (struct ledger_requests_get *)r);
    case LEDGER_REQUESTS_READ:
        return requests_read(db, (struct ledger_requests_read *)r);
    case LEDGER_REQUESTS_OPEN:
        return requests_open(db, (struct ledger_requests_open *)r);
    case LEDGER_FACTS_READ:
        return facts_read(db, (struct ledger_facts_read *)r);
    case LEDGER_SALES_READ:
        return sales_read(db, (struct ledger_sales_read *)r);
    case LEDGER_FACTS_PAGE:
        return facts_page(db, (struct ledger_facts_page *)r);
    case LEDGER_AUDIT_PAGE:
        return sqlite_answer_page(db, (struct ledger_audit_page *)r);
    case LEDGER_EVENTS_READ:
        return events_news(db, (struct ledger_events_read *)r);
    case LEDGER_WAITING_READ:
        return waiting_read(db, (struct ledger_waiting_read *)r);
    default:
        assert(false && "a record was asked");
        return SQLITE_MISUSE;
    }
}

static void sqlite_answer(struct db *db, struct ledger_record *r) {
    r->result = ERR_OK;
    int rc = sqlite_answer_of(db, r);
    if (rc == SQLITE_OK) return;
    r->result = ERR_LEDGER_FAILED;
    log_error(msg("a read from the ledger failed; its request is answered with 503"),
              kv("error", sqlite3_errstr(rc)));
    db_rollback(db);
}

static void *run_reader(void *arg) {
    struct reader *reader = arg;
    struct ledger_record *r = NULL;
    bool ended = false;
    while (!ended) {
        if (inbox_take(reader->inbox, &r, 1, INT64_MAX, &ended) == 0) continue;
        sqlite_answer(&reader->db, r);
        mailbox_post(r->task.home, &r->task);
    }
    return NULL;
}

/* Closes the inbox first, so that the threads end. */
static void stop_some(struct readers *rs, int started) {
    inbox_close(&rs->inbox);
    for (int i = 0; i < started; i++) {
        pthread_join(rs->each[i].thread, NULL);
        db_close(&rs->each[i].db);
    }
    inbox_deinit(&rs->inbox);
}

enum err readers_start(struct readers *rs, const struct sqlite_ledger_options *o, struct buf *why) {
    inbox_init(&rs->inbox, o->asks_max);
    for (int i = 0; i < READERS; i++) {
        struct reader *reader = &rs->each[i];
        reader->inbox = &rs->inbox;
        bool open = db_open(&reader->db, o->path, DB_READ, why) == SQLITE_OK;
        if (open && thread_start(&reader->thread, "ledger read", i, run_reader, reader) == 0)
            continue;
        if (open) {
            buf_addf(why, "cannot start a reader's thread for %s", o->path);
            db_close(&reader->db);
        }
        stop_some(rs, i);
        return ERR_LEDGER_FAILED;
    }
    return ERR_OK;
}

void readers_stop(struct readers *rs) {
    stop_some(rs, READERS);
}

enum err readers_ask(struct readers *rs, struct ledger_record *r) {
    return inbox_put(&rs->inbox, r);
}
