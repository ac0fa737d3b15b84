/* The audit table: one row per administrative act, and pages of them for the API. */
#include "ledger/postgres_internal.h"

bool pg_audit_add(struct pg *db, const struct audit_note *note, int64_t now_ms, int64_t *id) {
    str detail = note->detail.len > 0 ? note->detail : STR("null");
    return pg_run(db, NULL, "SELECT pg_advisory_xact_lock($1::int, 0)",
                  pg_cell_i64(PG_LOCK_AUDIT)) &&
           pg_number(db, id,
                     "INSERT INTO audit(at, actor, act, subject, detail)"
                     " VALUES ($1, $2, $3, $4, $5) RETURNING id",
                     pg_cell_i64(now_ms), pg_cell_str(note->actor), pg_cell_str(note->act),
                     pg_cell_str(note->subject), pg_cell_str(detail));
}

bool pg_act_apply(struct pg *db, struct ledger_act *act) {
    int64_t id;
    return pg_audit_add(db, &act->note, act->now_ms, &id);
}

/* Notes of what a batch has done to reservations and places, as columns. */
struct note_columns {
    struct pg_array at;
    struct pg_array actors;
    struct pg_array acts;
    struct pg_array subjects;
    struct pg_array details;
    size_t count;
};

static void note_columns_add(struct note_columns *c, const struct audit_note *note,
                             int64_t now_ms) {
    pg_array_i64(&c->at, now_ms);
    pg_array_str(&c->actors, note->actor);
    pg_array_str(&c->acts, note->act);
    pg_array_str(&c->subjects, note->subject);
    pg_array_str(&c->details, note->detail);
    c->count++;
}

static void note_columns_take(struct note_columns *c, const struct ledger_record *r) {
    const struct ledger_confirm *confirm = (const struct ledger_confirm *)r;
    const struct ledger_cancel *cancel = (const struct ledger_cancel *)r;
    const struct ledger_enter *enter = (const struct ledger_enter *)r;
    if (r->kind == LEDGER_ENTER && r->result == ERR_OK && enter->note != NULL)
        note_columns_add(c, enter->note, enter->joined_ms);
    if (r->kind == LEDGER_CONFIRM && confirm->confirmed && confirm->note != NULL)
        note_columns_add(c, confirm->note, confirm->now_ms);
    if (r->kind == LEDGER_CANCEL && cancel->cancelled && cancel->note != NULL)
        note_columns_add(c, cancel->note, cancel->now_ms);
}

bool pg_audit_add_acts(struct pg *db, struct ledger_record *const *records, size_t count) {
    struct note_columns c = {0};
    for (size_t i = 0; i < count; i++) note_columns_take(&c, records[i]);
    bool ok = c.count == 0 ||
              (pg_run(db, NULL, "SELECT pg_advisory_xact_lock_shared($1::int, 0)",
                      pg_cell_i64(PG_LOCK_AUDIT)) &&
               pg_run(db, NULL,
                      "INSERT INTO audit(at, actor, act, subject, detail)"
                      " SELECT * FROM unnest($1, $2, $3, $4, $5)",
                      pg_cell_array(&c.at), pg_cell_array(&c.actors), pg_cell_array(&c.acts),
                      pg_cell_array(&c.subjects), pg_cell_array(&c.details)));
    pg_array_deinit(&c.at);
    pg_array_deinit(&c.actors);
    pg_array_deinit(&c.acts);
    pg_array_deinit(&c.subjects);
    pg_array_deinit(&c.details);
    return ok;
}

bool pg_audit_page(struct pg *db, struct ledger_audit_page *page) {
    struct audit_page_writer w;
    struct pg_rows rows = {0};
    audit_page_begin(&w, page);
    bool ok = pg_query(db, &rows,
                       "SELECT id, at, actor, act, subject, detail FROM audit"
                       " WHERE id < $1 ORDER BY id DESC LIMIT $2",
                       pg_cell_i64(page->before > 0 ? page->before : INT64_MAX),
                       pg_cell_i64(w.limit + 1));
    while (ok && pg_next(&rows) &&
           audit_page_add(&w, &(struct audit_row){.id = pg_i64(&rows, 0),
                                                  .at_ms = pg_i64(&rows, 1),
                                                  .actor = pg_str(&rows, 2),
                                                  .act = pg_str(&rows, 3),
                                                  .subject = pg_str(&rows, 4),
                                                  .detail = pg_str(&rows, 5)}))
        continue;
    pg_rows_clear(&rows);
    audit_page_end(&w, ok);
    return ok;
}
