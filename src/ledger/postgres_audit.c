/* The audit table: one row per administrative act, and pages of them for the API. */
#include <assert.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "ledger/postgres_internal.h"

/* A page is rendered in memory, so it has a bound whatever was asked for. */
#define PAGE_ROWS_MAX 1000
/* A page ends early when it has grown to this: one that does not read it costs no more. */
#define PAGE_BYTES_MAX (256 * 1024)

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

static void pg_audit_render(struct json_out *j, const struct pg_rows *rows) {
    json_out_object(j, STR(""));
    json_out_i64(j, STR("id"), pg_i64(rows, 0));
    json_out_time(j, STR("at"), pg_i64(rows, 1));
    json_out_str(j, STR("actor"), pg_str(rows, 2));
    json_out_str(j, STR("act"), pg_str(rows, 3));
    json_out_str(j, STR("subject"), pg_str(rows, 4));
    json_out_raw(j, STR("detail"), pg_str(rows, 5));
    json_out_object_end(j);
}

bool pg_audit_page(struct pg *db, struct ledger_audit_page *page) {
    assert(page->limit > 0);
    int64_t limit = page->limit < PAGE_ROWS_MAX ? page->limit : PAGE_ROWS_MAX;
    int64_t last = 0;
    struct pg_rows rows = {0};
    struct json_out j;
    page->json = (struct buf){0};
    page->next = 0;
    /* One row more than asked for shows whether there is a next page. */
    if (!pg_query(db, &rows,
                  "SELECT id, at, actor, act, subject, detail FROM audit"
                  " WHERE id < $1 ORDER BY id DESC LIMIT $2",
                  pg_cell_i64(page->before > 0 ? page->before : INT64_MAX), pg_cell_i64(limit + 1)))
        return false;
    json_out_init(&j, &page->json);
    json_out_array(&j, STR(""));
    for (int64_t n = 0; pg_next(&rows); n++) {
        if (n == limit || page->json.len >= PAGE_BYTES_MAX) {
            page->next = last;
            pg_rows_clear(&rows);
            break;
        }
        last = pg_i64(&rows, 0);
        pg_audit_render(&j, &rows);
    }
    json_out_array_end(&j);
    json_out_done(&j);
    return true;
}
