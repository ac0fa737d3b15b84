/* The lookup of a request's Idempotency-Key. The row is written with its hold (ledger_hold_2). */
#include "ledger/postgres_internal.h"

bool pg_idempotency_get(struct pg *db, struct ledger_idempotency_get *get) {
    struct idempotency *i = get->idempotency;
    struct pg_rows rows;
    i->replayed = false;
    /* The second column is of rows that an older version wrote: postgres_schema_4.sql. */
    if (!pg_query(db, &rows,
                  "SELECT body_digest = $4, coalesce(reservation_id, substr(response, 8, 36)::uuid)"
                  " FROM idempotency WHERE user_id = $1 AND route = $2 AND key = $3",
                  pg_cell_str(i->user), pg_cell_str(i->route), pg_cell_str(i->key),
                  pg_cell_bytes(i->digest, sizeof i->digest)))
        return false;
    get->record.result = ERR_OK;
    if (!pg_next(&rows)) return true;
    i->replayed = pg_bool(&rows, 0);
    if (!i->replayed) get->record.result = ERR_IDEMPOTENCY_MISMATCH;
    bool ok = pg_uuid(&rows, 1, &i->reservation);
    pg_rows_clear(&rows);
    return ok || pg_unexpected(db);
}
