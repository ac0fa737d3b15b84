/* The ledger's contract, on SQLite. */
#include "ledger_raw.h"
#include "ledger_suite.h"

static struct ledger *open_sqlite(struct harness *h, int64_t queue_max) {
    return raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .queue_max = queue_max});
}

static void take_seat(struct harness *h, const struct event *e, const struct section *s,
                      int64_t seat_no, const char *state) {
    raw_reservation(h, (unsigned)seat_no, e, s, seat_no, state);
}

static void void_entry(struct harness *h, int64_t event_key, uint64_t seq) {
    raw_sql(
        h,
        "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at, finished_at)"
        " VALUES (%lld, %lld, 'a', 8, 'VOID', 1000, 2000)"
        " ON CONFLICT DO UPDATE SET status = 'VOID', finished_at = 2000",
        (long long)event_key, (long long)seq);
}

static void forget_event(struct harness *h, int64_t event_key) {
    raw_sql(h, "DELETE FROM sections WHERE event_id = %lld", (long long)event_key);
    raw_sql(h, "DELETE FROM events WHERE id = %lld", (long long)event_key);
}

int main(void) {
    static const struct ledger_adapter sqlite = {.open = open_sqlite,
                                                 .take_seat = take_seat,
                                                 .void_entry = void_entry,
                                                 .forget_event = forget_event};
    return ledger_suite_run(&sqlite) + ledger_queue_suite_run(&sqlite) +
           ledger_hold_suite_run(&sqlite) + ledger_reservation_suite_run(&sqlite) +
           ledger_nodes_suite_run(&sqlite) + ledger_facts_suite_run(&sqlite) +
           ledger_reservation_model_suite_run(&sqlite);
}
