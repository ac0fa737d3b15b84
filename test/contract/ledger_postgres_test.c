/* The ledger's contract, on PostgreSQL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ledger/postgres.h"
#include "ledger_suite.h"
#include "postgres_scratch.h"

/* The database of the harness that was opened last: no test has two. */
static struct {
    struct scratch scratch;
    char folder[256]; /* of the harness; "": none */
} current;

static void shut(void) {
    if (current.folder[0] != '\0') scratch_shut(&current.scratch);
    current.folder[0] = '\0';
}

static struct ledger *open_postgres(struct harness *h, int64_t queue_max) {
    struct buf why = {0};
    struct ledger *l = NULL;
    if (!str_eq(str_of(h->folder), str_of(current.folder))) {
        shut();
        scratch_open(&current.scratch);
        str_copy(str_of(h->folder), current.folder, sizeof current.folder);
    }
    struct postgres_ledger_options o = {.url = current.scratch.url, .queue_max = queue_max};
    if (postgres_ledger_open(&o, &l, &why) != ERR_OK) fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
    return l;
}

static void take_seat(struct harness *h, const struct event *e, const struct section *s,
                      int64_t seat_no, const char *state) {
    (void)h;
    scratch_reservation(&current.scratch, (unsigned)seat_no, e, s, seat_no, state);
}

static void void_entry(struct harness *h, int64_t event_key, uint64_t seq) {
    (void)h;
    scratch_sql(&current.scratch,
                "INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at,"
                " finished_at) VALUES (%lld, %lld, 'a', 8, 'VOID', 1000, 2000)"
                " ON CONFLICT (event_id, seq) DO UPDATE SET status = 'VOID', finished_at = 2000",
                (long long)event_key, (long long)seq);
}

int main(void) {
    static const struct ledger_adapter postgres = {.open = open_postgres,
                                                   .take_seat = take_seat,
                                                   .void_entry = void_entry,
                                                   .writes_beside = true};
    int failed = ledger_suite_run(&postgres) + ledger_queue_suite_run(&postgres) +
                 ledger_hold_suite_run(&postgres) + ledger_reservation_suite_run(&postgres) +
                 ledger_nodes_suite_run(&postgres) + ledger_facts_suite_run(&postgres) +
                 ledger_reservation_model_suite_run(&postgres);
    shut();
    return failed;
}
