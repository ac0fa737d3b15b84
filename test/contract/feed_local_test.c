/* The feed's contract, on the ledger: SQLite and PostgreSQL. */
#include "feed/local.h"
#include "feed_suite.h"
#include "ledger_postgres.h"
#include "ledger_raw.h"

static struct ledger *open_sqlite(struct harness *h, int64_t queue_max) {
    return raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .queue_max = queue_max});
}

static struct feed *open_alone(struct ledger *l, size_t workers) {
    return local_feed_new(l, workers, false);
}

static struct feed *open_shared(struct ledger *l, size_t workers) {
    return local_feed_new(l, workers, true);
}

int main(void) {
    static const struct feed_adapter on_sqlite = {
        .open_ledger = open_sqlite, .open = open_alone, .knows_ids = true, .knows_results = true};
    static const struct feed_adapter on_postgres = {.open_ledger = postgres_open,
                                                    .open = open_shared,
                                                    .knows_ids = true,
                                                    .knows_results = true};
    int failed = feed_suite_run(&on_sqlite) + feed_suite_run(&on_postgres);
    postgres_drop();
    return failed;
}
