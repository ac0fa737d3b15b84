/* The table of nodes: how far each node has followed the changes of events. */
#include "ledger/postgres_internal.h"

bool pg_node_report_apply(struct pg *db, struct ledger_node_report *report) {
    int64_t changed = 0;
    report->record.result = ERR_OK;
    bool ok = report->registers
                  ? pg_run(db, NULL,
                           "INSERT INTO nodes(id, name, applied) VALUES ($1, $2, $3)"
                           " ON CONFLICT (id) DO NOTHING",
                           pg_cell_uuid(&report->node), pg_cell_str(report->name),
                           pg_cell_i64(report->applied))
                  : pg_run(db, &changed, "UPDATE nodes SET applied = $2 WHERE id = $1",
                           pg_cell_uuid(&report->node), pg_cell_i64(report->applied));
    report->was_there = changed == 1;
    return ok;
}

bool pg_nodes_drop_apply(struct pg *db, struct ledger_nodes_drop *drop) {
    struct pg_rows rows = {0};
    drop->record.result = ERR_OK;
    bool ok = pg_query(db, &rows, "DELETE FROM nodes WHERE applied <= $1 RETURNING name",
                       pg_cell_i64(drop->version));
    drop->count = ok ? rows.count : 0;
    drop->name[0] = '\0';
    if (ok && pg_next(&rows)) str_copy(pg_str(&rows, 0), drop->name, sizeof drop->name);
    pg_rows_clear(&rows);
    return ok;
}

bool pg_nodes_read(struct pg *db, struct ledger_nodes_read *read) {
    return pg_number(db, &read->lowest, "SELECT coalesce(min(applied), $1) FROM nodes",
                     pg_cell_i64(INT64_MAX));
}

bool pg_node_applied(struct pg *db, struct ledger_events_read *read) {
    struct pg_rows rows = {0};
    bool ok = pg_query(db, &rows,
                       "SELECT coalesce(max(applied) FILTER (WHERE id = $1), 0), count(*)"
                       " FROM nodes",
                       pg_cell_uuid(&read->node)) &&
              pg_next(&rows);
    read->node_applied = ok ? pg_i64(&rows, 0) : 0;
    read->node_count = ok ? pg_i64(&rows, 1) : 0;
    pg_rows_clear(&rows);
    return ok;
}

bool pg_node_leave(struct pg *db, const struct uuid *node) {
    return pg_run(db, NULL, "DELETE FROM nodes WHERE id = $1", pg_cell_uuid(node));
}
