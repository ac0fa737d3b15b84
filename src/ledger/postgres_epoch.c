/*
 * The number of this opening for writing, and the generation (port/ledger.h). A database that was
 * filled from a dump is recognised: its server, the database or the table has another number than
 * the ledger has noted. A copy of the server's files has the same ones; then an operator begins the
 * next generation with `admitone ledger new-generation`.
 */
#include "base/clock.h"
#include "base/url.h"
#include "ledger/generation.h"
#include "ledger/postgres_internal.h"

#define COMMITS_KEPT_MS (INT64_C(24) * 3600 * 1000)
#define IDENTITY_BYTES 96

struct pg_generation {
    int64_t number;                /* 0: there is none yet */
    int64_t first_seq;             /* 0: it was never restored */
    char identity[IDENTITY_BYTES]; /* of the database, as the ledger has noted it */
    char identity_now[IDENTITY_BYTES];
};

/* Locks the row, so nodes that start at the same time do all of this one after the other. */
static bool pg_epoch_next(struct pg *db, int64_t *number) {
    return pg_number_cells(db, number,
                           "INSERT INTO epochs(name, number) VALUES ('ledger', 1)"
                           " ON CONFLICT (name) DO UPDATE SET number = epochs.number + 1"
                           " RETURNING number",
                           NULL, 0);
}

static bool pg_generation_read_as(struct pg *db, const char *sql, struct pg_generation *g) {
    struct pg_rows rows;
    bool fits = true;
    if (!pg_query_cells(db, &rows, sql, NULL, 0)) return false;
    if (pg_next(&rows)) {
        g->number = pg_i64(&rows, 0);
        g->first_seq = pg_i64(&rows, 1);
        fits = str_copy(pg_str(&rows, 2), g->identity, sizeof g->identity) &&
               str_copy(pg_str(&rows, 3), g->identity_now, sizeof g->identity_now);
    }
    pg_rows_clear(&rows);
    if (!pg_sound(db)) return false;
    return fits || pg_fail(db, PG_CORRUPT, "the identity of the database is too long");
}

#define GENERATION_SQL(server)                                                                     \
    "SELECT coalesce((SELECT number FROM epochs WHERE name = 'generation'), 0),"                   \
    " coalesce((SELECT number FROM epochs WHERE name = 'first_seq'), 0),"                          \
    " coalesce((SELECT identity FROM epochs WHERE name = 'generation'), ''),"                      \
    " (SELECT oid::text FROM pg_database WHERE datname = current_database())"                      \
    " || '/' || 'epochs'::regclass::oid::text" server

/* A role may have been denied the number of the server. */
static bool pg_generation_read(struct pg *db, struct pg_generation *g) {
    int64_t may = 0;
    *g = (struct pg_generation){0};
    if (!pg_number_cells(
            db, &may, "SELECT has_function_privilege('pg_control_system()', 'execute')", NULL, 0))
        return false;
    return pg_generation_read_as(
        db,
        may != 0 ? GENERATION_SQL(" || '/' || (SELECT system_identifier FROM pg_control_system())")
                 : GENERATION_SQL(""),
        g);
}

/* Redis was in step with the data that is gone: it is rebuilt. */
static bool pg_generation_restored(struct pg *db, struct pg_generation *g) {
    g->first_seq = (int64_t)generation_first_seq(clock_wall_ms());
    return pg_run(db, NULL,
                  "INSERT INTO epochs(name, number) VALUES ('first_seq', $1)"
                  " ON CONFLICT (name) DO UPDATE SET number = excluded.number",
                  pg_cell_i64(g->first_seq)) &&
           pg_exec(db, "UPDATE epochs SET identity = '' WHERE name = 'hot'");
}

static bool pg_generation_next(struct pg *db, struct pg_generation *g) {
    g->number = generation_random((uint32_t)g->number);
    return pg_run(db, NULL,
                  "INSERT INTO epochs(name, number, identity) VALUES ('generation', $1, $2)"
                  " ON CONFLICT (name) DO UPDATE"
                  " SET number = excluded.number, identity = excluded.identity",
                  pg_cell_i64(g->number), pg_cell_text(g->identity_now));
}

static const char *pg_restored(const struct pg_generation *g, bool asked_for) {
    if (asked_for) return "an operator asked for it";
    if (g->number == 0 || str_eq(str_of(g->identity), str_of(g->identity_now))) return NULL;
    return "the database was filled from a dump";
}

/* Nodes that run would go on with the old generation. */
static bool pg_no_node_runs(struct pg *db, bool *none) {
    int64_t got = 0;
    bool ok = pg_number(db, &got, "SELECT pg_try_advisory_xact_lock($1::int, 0)",
                        pg_cell_i64(PG_LOCK_CLUSTER));
    *none = got != 0;
    return ok;
}

enum err pg_epoch_begin(struct pg *db, const struct postgres_ledger_options *o,
                        struct pg_epoch *out, struct buf *why) {
    int64_t number = 0;
    struct pg_generation g;
    const char *restored = NULL;
    bool alone = true;
    /* Another node that starts holds the row for a moment. */
    bool ok = pg_exec(db, "BEGIN; SET LOCAL lock_timeout = 0");
    if (ok && o->new_generation) ok = pg_no_node_runs(db, &alone);
    if (ok && !alone) {
        buf_add(why, STR("nodes run on the ledger; stop all of them first"));
        pg_rollback(db);
        return ERR_CONFLICT;
    }
    ok = ok && pg_epoch_next(db, &number) && pg_generation_read(db, &g);
    if (ok && !generation_makes_sense(g.number, g.first_seq))
        ok = pg_fail(db, PG_CORRUPT, "its generation makes no sense");
    if (ok) restored = pg_restored(&g, o->new_generation);
    if (ok && restored != NULL) ok = pg_generation_restored(db, &g);
    if (ok && (restored != NULL || g.number == 0)) ok = pg_generation_next(db, &g);
    /* Of connections that are long gone. */
    if (ok)
        ok = pg_run(db, NULL, "DELETE FROM commits WHERE at < $1",
                    pg_cell_i64(clock_wall_ms() - COMMITS_KEPT_MS));
    ok = ok && pg_exec(db, "COMMIT");
    if (!ok) {
        buf_addf(why, "cannot write the ledger's next epoch: %s", db->failure.text);
        pg_rollback(db);
        return ERR_LEDGER_FAILED;
    }
    if (number > EPOCH_MAX) {
        buf_addf(why, "the ledger's next epoch would be %lld, and %d is the last",
                 (long long)number, EPOCH_MAX);
        return ERR_LEDGER_FAILED;
    }
    if (restored != NULL) {
        struct buf place = {0};
        url_add_place(str_of(o->url), &place);
        generation_warn(buf_cstr(&place), restored);
        buf_deinit(&place);
    }
    out->epoch = (uint32_t)number;
    out->generation = (struct ledger_generation){.number = (uint32_t)g.number,
                                                 .first_seq = (uint64_t)g.first_seq};
    return ERR_OK;
}
