/* The ledger's contract, on PostgreSQL; the part with a model is a program of its own. */
#include "ledger_postgres.h"
#include "ledger_suite.h"

static void take_seat(struct harness *h, const struct event *e, const struct section *s,
                      int64_t seat_no, const char *state) {
    (void)h;
    scratch_reservation(postgres_database(), (unsigned)seat_no, e, s, seat_no, state);
}

static void void_entry(struct harness *h, int64_t event_key, uint64_t seq) {
    (void)h;
    scratch_sql(postgres_database(),
                "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at,"
                " finished_at) VALUES (%lld, %lld, 'a', 8, 'VOID', 1000, 2000)"
                " ON CONFLICT (event_id, seq) DO UPDATE SET status = 'VOID', finished_at = 2000",
                (long long)event_key, (long long)seq);
}

static void forget_event(struct harness *h, int64_t event_key) {
    (void)h;
    scratch_sql(postgres_database(), "DELETE FROM sections WHERE event_id = %lld",
                (long long)event_key);
    scratch_sql(postgres_database(), "DELETE FROM events WHERE id = %lld", (long long)event_key);
}

int main(void) {
    static const struct ledger_adapter postgres = {.open = postgres_open,
                                                   .take_seat = take_seat,
                                                   .void_entry = void_entry,
                                                   .forget_event = forget_event,
                                                   .writes_beside = true};
    int failed = ledger_suite_run(&postgres) + ledger_queue_suite_run(&postgres) +
                 ledger_hold_suite_run(&postgres) + ledger_reservation_suite_run(&postgres) +
                 ledger_nodes_suite_run(&postgres) + ledger_facts_suite_run(&postgres);
    postgres_drop();
    return failed;
}
