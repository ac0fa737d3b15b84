/*
 * One transaction. The statements of its records are sent together, in the order of submission, but
 * for accepted requests, which come last; consecutive records of one kind are one statement where
 * possible. Then come the sections' counts,
 * then the audit rows of confirmations and cancellations that a key has made, and then the commit,
 * which is sent only when everything else has been answered: if the connection breaks before that,
 * nothing was written.
 */
#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger/postgres_internal.h"

static const struct pg_kind *kind_of(enum ledger_kind kind) {
    switch (kind) {
    case LEDGER_ENTER:
        return &pg_kind_enter;
    case LEDGER_ENTER_VOID:
        return &pg_kind_enter_void;
    case LEDGER_ADMIT:
        return &pg_kind_admit;
    case LEDGER_END:
        return &pg_kind_end;
    case LEDGER_HOLD:
        return &pg_kind_hold;
    case LEDGER_HOLD_VOID:
        return &pg_kind_hold_void;
    case LEDGER_CONFIRM:
        return &pg_kind_confirm;
    case LEDGER_CANCEL:
        return &pg_kind_cancel;
    case LEDGER_EXPIRE:
        return &pg_kind_expire;
    case LEDGER_REQUEST_PUT:
        return &pg_kind_request_put;
    case LEDGER_REQUEST_DECIDE:
        return &pg_kind_request_decide;
    default: /* written alone, step by step */
        return NULL;
    }
}

bool pg_record_counts(const struct ledger_record *r) {
    return r->kind == LEDGER_HOLD || r->kind == LEDGER_CONFIRM || r->kind == LEDGER_CANCEL ||
           r->kind == LEDGER_EXPIRE ||
           (r->kind == LEDGER_END && ((const struct ledger_end *)r)->cancel_count > 0);
}

/* Resets the results: undo may run before the first write. */
static void record_clear(struct ledger_record *r) {
    r->result = ERR_OK;
    if (r->kind == LEDGER_EVENT_PUT) ((struct ledger_event_put *)r)->stored = NULL;
    if (r->kind == LEDGER_CONFIRM) ((struct ledger_confirm *)r)->stored = NULL;
    if (r->kind == LEDGER_CANCEL) ((struct ledger_cancel *)r)->stored = NULL;
    record_undo(r);
}

/* --- the beginning: its number, and the incarnation that is in force --- */

static bool needs_epoch(const struct pg_batch *b) {
    for (size_t i = 0; i < b->count; i++)
        if (pg_record_epoch(b->records[i]) != 0) return true;
    return false;
}

static void send_begin(struct pg *db, const struct pg_batch *b, bool with_epoch) {
    char timeout[32];
    pg_send_cells(db, "BEGIN", NULL, 0);
    if (b->lock_timeout_ms > 0) {
        snprintf(timeout, sizeof timeout, "%lld", (long long)b->lock_timeout_ms);
        pg_send(db, "SELECT set_config('lock_timeout', $1, true)", pg_cell_text(timeout));
    }
    pg_send(db,
            "INSERT INTO commits(session, number, at) VALUES ($1, $2, $3)"
            " ON CONFLICT (session) DO UPDATE SET number = $2, at = $3"
            " RETURNING pg_current_xact_id()::text",
            pg_cell_uuid(&b->session), pg_cell_i64(b->number), pg_cell_i64(clock_wall_ms()));
    /* The node that begins the next incarnation waits until this transaction has ended. */
    if (with_epoch)
        pg_send_cells(db, "SELECT number FROM epochs WHERE name = 'hot' FOR SHARE", NULL, 0);
    pg_sync(db);
}

static bool pg_batch_begin(struct pg *db, struct pg_batch *b, int64_t *epoch) {
    bool with_epoch = needs_epoch(b);
    struct pg_rows rows;
    int64_t until_ns = db->until_ns;
    int64_t begun_ns = clock_steady_ns() + b->begin_ms * 1000000;
    if (b->begin_ms > 0 && begun_ns < until_ns) db->until_ns = begun_ns;
    pg_pipeline(db);
    send_begin(db, b, with_epoch);
    pg_receive(db, &rows);
    pg_rows_clear(&rows);
    if (b->lock_timeout_ms > 0) {
        pg_receive(db, &rows);
        pg_rows_clear(&rows);
    }
    if (pg_receive(db, &rows) && pg_next(&rows))
        str_copy(pg_str(&rows, 0), b->transaction, sizeof b->transaction);
    pg_rows_clear(&rows);
    *epoch = 0;
    if (with_epoch) {
        if (pg_receive(db, &rows) && pg_next(&rows)) *epoch = pg_i64(&rows, 0);
        pg_rows_clear(&rows);
    }
    bool ok = pg_pipeline_end(db);
    db->until_ns = until_ns;
    return ok;
}

/* The batch belongs to an older incarnation: it is refused. */
static bool is_late(struct ledger_record *r, int64_t epoch) {
    uint32_t of = pg_record_epoch(r);
    if (of == 0 || of == epoch) return false;
    r->result = ERR_RECOVERING;
    return true;
}

/* --- the records --- */

/* How many from `first` on are written by one statement. */
static size_t run_length(const struct pg_batch *b, const bool *late, size_t first) {
    enum ledger_kind kind = b->records[first]->kind;
    size_t end = first + 1;
    if (!kind_of(kind)->many) return 1;
    while (end < b->count && b->records[end]->kind == kind && !late[end]) end++;
    return end - first;
}

static void send_all(struct pg *db, const struct pg_batch *b, const bool *late, size_t *sent) {
    for (size_t i = 0; i < b->count;) {
        size_t n = late[i] ? 1 : run_length(b, late, i);
        if (!late[i]) sent[i] = kind_of(b->records[i]->kind)->send(db, b->records + i, n, b->wait);
        i += n;
    }
    pg_sync(db);
}

static bool receive_run(struct pg *db, struct pg_batch *b, size_t first, size_t n, size_t sent,
                        struct pg_section_counts *t) {
    struct pg_rows rows = {0};
    bool ok = true;
    for (size_t i = 0; i < sent; i++) {
        pg_rows_clear(&rows);
        ok = pg_receive(db, &rows) && ok;
    }
    if (ok)
        ok = kind_of(b->records[first]->kind)
                 ->read(db, &rows, b->records + first, n, t, b->blocked + first);
    pg_rows_clear(&rows);
    return ok;
}

/* All are received, also behind one that failed; the first that did is the culprit. */
static bool receive_all(struct pg *db, struct pg_batch *b, const bool *late, const size_t *sent,
                        struct pg_section_counts *t) {
    struct pg_failure first = {0};
    bool ok = true;
    for (size_t i = 0; i < b->count;) {
        size_t n = late[i] ? 1 : run_length(b, late, i);
        if (!late[i] && !receive_run(db, b, i, n, sent[i], t) && ok) {
            ok = false;
            first = db->failure;
            b->culprit = i;
            b->culprit_count = n;
        }
        i += n;
    }
    bool in_step = pg_pipeline_end(db);
    if (!ok && pg_alive(db)) db->failure = first;
    return ok && in_step;
}

static bool apply_together(struct pg *db, struct pg_batch *b, int64_t epoch) {
    struct pg_section_counts counts = {0};
    bool *late = mem_new(b->count * sizeof *late);
    size_t *sent = mem_new(b->count * sizeof *sent);
    for (size_t i = 0; i < b->count; i++) late[i] = is_late(b->records[i], epoch);
    pg_pipeline(db);
    send_all(db, b, late, sent);
    bool ok = receive_all(db, b, late, sent, &counts);
    if (ok) {
        b->at_section_counts = true;
        b->culprit = 0;
        b->culprit_count = b->count;
        ok = pg_section_counts_write(db, &counts) && pg_audit_add_acts(db, b->records, b->count);
    }
    mem_free(late);
    mem_free(sent);
    pg_section_counts_deinit(&counts);
    return ok;
}

/* Records that need several steps are written one at a time. */
static bool apply_alone(struct pg *db, struct ledger_record *r) {
    switch (r->kind) {
    case LEDGER_EVENT_PUT:
        return pg_event_put_apply(db, (struct ledger_event_put *)r);
    case LEDGER_EVENT_DELETE:
        return pg_event_delete_apply(db, (struct ledger_event_delete *)r);
    case LEDGER_ACT:
        return pg_act_apply(db, (struct ledger_act *)r);
    case LEDGER_FACTS_RELAYED:
        return pg_facts_relayed_apply(db, (struct ledger_facts_relayed *)r);
    case LEDGER_FACTS_PUBLISH:
        return pg_facts_publish_apply(db, (struct ledger_facts_publish *)r);
    case LEDGER_REQUEST_LEASE:
        return pg_request_lease_apply(db, (struct ledger_request_lease *)r);
    case LEDGER_NODE_REPORT:
        return pg_node_report_apply(db, (struct ledger_node_report *)r);
    case LEDGER_NODES_DROP:
        return pg_nodes_drop_apply(db, (struct ledger_nodes_drop *)r);
    default:
        assert(false && "a question was submitted");
        return false;
    }
}

static bool pg_batch_apply(struct pg *db, struct pg_batch *b, int64_t epoch) {
    if (kind_of(b->records[0]->kind) != NULL) return apply_together(db, b, epoch);
    assert(b->count == 1);
    return apply_alone(db, b->records[0]);
}

/* --- the whole --- */

static enum pg_end end_without_effect(struct pg *db, struct pg_batch *b) {
    bool lost = !pg_alive(db);
    pg_rollback(db);
    for (size_t i = 0; i < b->count; i++) record_undo(b->records[i]);
    return lost ? PG_LOST : PG_FAILED;
}

/* So they are one statement, which locks the rows of their partitions in the order of the
 * partitions: with several statements two nodes could wait for each other. No other record of the
 * batch depends on an accepted request. */
static void pg_batch_put_requests_last(struct pg_batch *b) {
    struct ledger_record **requests = mem_new(b->count * sizeof *requests);
    size_t request_count = 0;
    size_t others = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->records[i]->kind == LEDGER_REQUEST_PUT)
            requests[request_count++] = b->records[i];
        else
            b->records[others++] = b->records[i];
    }
    for (size_t i = 0; i < request_count; i++) b->records[others + i] = requests[i];
    mem_free(requests);
}

enum pg_end pg_transact(struct pg *db, struct pg_batch *b) {
    int64_t epoch = 0;
    assert(b->count > 0);
    pg_batch_put_requests_last(b);
    b->culprit = 0;
    b->culprit_count = b->count;
    b->at_section_counts = false;
    for (size_t i = 0; i < b->count; i++) {
        b->blocked[i] = false;
        record_clear(b->records[i]);
    }
    if (!pg_batch_begin(db, b, &epoch) || !pg_batch_apply(db, b, epoch) || !pg_sound(db))
        return end_without_effect(db, b);
    b->at_section_counts = false;
    if (pg_exec(db, "COMMIT")) return PG_COMMITTED;
    if (!pg_alive(db)) return PG_UNKNOWN;
    return end_without_effect(db, b);
}
