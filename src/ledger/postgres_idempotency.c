#include "ledger/postgres_internal.h"

void pg_idempotency_init(struct idempotency *i) {
    i->replayed = false;
    i->replayed_status = 0;
    i->replayed_text = (struct buf){0};
}

bool pg_idempotency_get(struct pg *db, struct ledger_idempotency_get *get) {
    struct idempotency *i = get->idempotency;
    struct pg_rows rows;
    pg_idempotency_init(i);
    if (!pg_query(db, &rows,
                  "SELECT body_digest = $4, status, response FROM idempotency"
                  " WHERE user_id = $1 AND route = $2 AND key = $3",
                  pg_cell_str(i->user), pg_cell_str(i->route), pg_cell_str(i->key),
                  pg_cell_bytes(i->digest, sizeof i->digest)))
        return false;
    get->record.result = ERR_OK;
    if (!pg_next(&rows)) return true;
    i->replayed = pg_bool(&rows, 0);
    if (i->replayed && !idempotency_status_ok(pg_i64(&rows, 1))) {
        pg_rows_clear(&rows);
        pg_idempotency_init(i);
        return pg_unexpected(db);
    }
    if (i->replayed) {
        i->replayed_status = (int)pg_i64(&rows, 1);
        buf_add(&i->replayed_text, pg_str(&rows, 2));
    } else {
        get->record.result = ERR_IDEMPOTENCY_MISMATCH;
    }
    pg_rows_clear(&rows);
    return true;
}
