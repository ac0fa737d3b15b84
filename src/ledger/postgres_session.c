/*
 * A thread's connection, which is opened again when it breaks, with growing backoff. A batch on it
 * ends in one of these ways:
 *
 *   - It is committed; blocked records go on to the waiters.
 *   - One record failed, or met a deadlock: the others are written without it, and it is tried
 *     again alone.
 *   - The connection broke before the commit: nothing was written. It is tried once more if there
 *     is another connection soon; else all records fail.
 *   - It broke at the commit: over another connection the server is asked whether it committed.
 */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ledger/postgres_internal.h"

#define LOCK_TIMEOUT_MS 100
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 1000
/* How long one step of anything takes, so that there is time for something else between. */
#define STEP_MS 20
/* A connection that was lost unnoticed is replaced within this, or what needs it fails. */
#define RENEW_MS 300
/* After so long a connection is idle, and its first answer must come within a part of the deadline.
 */
#define IDLE_NS INT64_C(1000000000)
#define IDLE_DEADLINE_PART 4
#define TRIES_MAX 8

void pg_session_init(struct pg_session *s, const struct postgres_ledger_options *o, bool wait,
                     int64_t batch_max) {
    int64_t lock_ms =
        o->pessimistic_wait_ms > o->deadline_ms ? o->pessimistic_wait_ms : o->deadline_ms;
    int64_t wait_ms = wait ? lock_ms + o->deadline_ms : o->deadline_ms;
    *s = (struct pg_session){
        .settings = {.url = o->url,
                     .writes = true,
                     .wait_ms = wait_ms,
                     .lock_timeout_ms = wait ? lock_ms : LOCK_TIMEOUT_MS,
                     .statement_timeout_ms = wait_ms},
        .id = uuid_new(clock_wall_ms()),
        .outage = o->outage,
        .deadline_ms = o->deadline_ms,
        .queue_wait_ms = o->queue_wait_ms,
        .wait = wait,
        .pessimistic_wait_ms = o->pessimistic_wait_ms,
        .blocked = mem_new((size_t)batch_max * sizeof *s->blocked),
    };
}

void pg_session_deinit(struct pg_session *s) {
    pg_close(&s->db);
    mem_free(s->blocked);
}

/* --- connecting --- */

static void sleep_ms(int64_t ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Each pause is twice as long as the last, give or take a quarter, so that nodes don't come back
 * all at once. */
static void pause_opening(struct pg_session *s) {
    int64_t now_ns = clock_steady_ns();
    s->opening = false;
    s->pause_ms = s->pause_ms * 2 < PAUSE_MIN_MS ? PAUSE_MIN_MS : s->pause_ms * 2;
    if (s->pause_ms > PAUSE_MAX_MS) s->pause_ms = PAUSE_MAX_MS;
    int64_t jitter_ms = now_ns / 1000 % (s->pause_ms / 2) - s->pause_ms / 4;
    s->retry_ns = now_ns + (s->pause_ms + jitter_ms) * 1000000;
}

static void opening_step(struct pg_session *s, int64_t ms) {
    int64_t now_ns = clock_steady_ns();
    if (!s->opening && now_ns < s->retry_ns) {
        int64_t left_ms = (s->retry_ns - now_ns) / 1000000 + 1;
        sleep_ms(left_ms < ms ? left_ms : ms);
        return;
    }
    if (!s->opening) {
        pg_close(&s->db);
        pg_open_begin(&s->db, &s->settings);
        s->opening = true;
        s->opening_until_ns = now_ns + s->deadline_ms * 1000000;
    }
    switch (pg_open_step(&s->db, ms)) {
    case PG_OPENED:
        s->opening = false;
        s->pause_ms = 0;
        return;
    case PG_UNOPENED:
        pause_opening(s);
        return;
    case PG_OPENING:
        if (clock_steady_ns() < s->opening_until_ns) return;
        pg_close(&s->db);
        pause_opening(s);
        return;
    }
}

bool pg_session_up(struct pg_session *s, int64_t ms) {
    int64_t until_ns = clock_steady_ns() + ms * 1000000;
    while (s->opening || !pg_alive(&s->db)) {
        int64_t left_ms = (until_ns - clock_steady_ns()) / 1000000;
        if (left_ms <= 0) return false;
        opening_step(s, left_ms < STEP_MS ? left_ms : STEP_MS);
    }
    return true;
}

bool pg_session_ready(struct pg_session *s) {
    bool is_up = pg_session_up(s, s->was_used ? RENEW_MS : s->deadline_ms);
    s->was_used = true;
    if (!is_up && s->db.failure.text[0] == '\0')
        pg_fail(&s->db, PG_CONNECTION_LOST, "there is no connection");
    return is_up;
}

int64_t pg_session_first_ms(const struct pg_session *s, int tries) {
    bool is_idle = tries == 0 && clock_steady_ns() - s->answered_ns > IDLE_NS;
    return is_idle ? s->deadline_ms / IDLE_DEADLINE_PART : s->deadline_ms;
}

/* --- one transaction, to its end --- */

/* Whether the server says that it has ended. After a crash it may not know the number yet: then it
 * was not committed. Without an answer nothing is known. */
static bool is_decided(struct pg *db, const struct pg_batch *b) {
    int64_t goes_on = 0;
    bool ok = pg_number(db, &goes_on, "SELECT pg_xact_status($1::xid8) = 'in progress'",
                        pg_cell_text(b->transaction));
    return ok ? goes_on == 0 : pg_failed_with(db, PG_INVALID);
}

/* The transaction has ended, or never began: its own row in `commits` shows which. */
static bool is_written(struct pg *db, const struct pg_batch *b, bool *written) {
    int64_t number = 0;
    bool ok = pg_number(db, &number, "SELECT number FROM commits WHERE session = $1",
                        pg_cell_uuid(&b->session));
    *written = number == b->number;
    return ok;
}

static void undo_all(struct pg_batch *b) {
    for (size_t i = 0; i < b->count; i++) record_undo(b->records[i]);
}

static enum pg_end resolve(struct pg_session *s, struct pg_batch *b) {
    int64_t until_ns = clock_steady_ns() + s->deadline_ms * 1000000;
    bool known = false;
    bool written = false;
    struct pg_failure broken = s->db.failure;
    while (!known && clock_steady_ns() < until_ns) {
        if (s->idle != NULL) s->idle(s->to);
        if (!pg_session_up(s, STEP_MS)) continue;
        s->db.until_ns = until_ns;
        if (is_decided(&s->db, b))
            known = is_written(&s->db, b, &written);
        else
            sleep_ms(STEP_MS);
    }
    /* Not a warning: base/outage.h reports the lost connection, once for all of them. */
    log_info(msg("looked up the outcome of a COMMIT whose connection was lost"),
             kv("outcome", !known    ? "unknown"
                           : written ? "committed"
                                     : "not committed"),
             kv("error", broken.text));
    if (known && written) return PG_COMMITTED;
    undo_all(b);
    return known ? PG_LOST : PG_UNKNOWN;
}

static enum pg_end pg_session_transact(struct pg_session *s, struct pg_batch *b) {
    enum pg_end end = PG_LOST;
    b->session = s->id;
    b->wait = s->wait || s->wait_briefly;
    for (int tries = 0; end == PG_LOST && tries < 2; tries++) {
        if (!pg_session_ready(s)) return PG_LOST;
        b->begin_ms = pg_session_first_ms(s, tries);
        b->number = ++s->number;
        s->db.until_ns = clock_steady_ns() + s->settings.wait_ms * 1000000;
        end = pg_transact(&s->db, b);
        if (end != PG_LOST) s->answered_ns = clock_steady_ns();
        if (end != PG_COMMITTED) count(COUNT_LEDGER_BATCH_FAILURES, 1);
        if (end == PG_UNKNOWN) return resolve(s, b);
    }
    return end;
}

/* --- what is done about failures --- */

static bool state_of_class(const struct pg_failure *f, const char *class) {
    return strncmp(f->state, class, 2) == 0;
}

/* Whether the next record would meet the same: the disk, the memory, the schema. */
static bool pg_concerns_all(const struct pg_failure *f) {
    return state_of_class(f, "53") || state_of_class(f, "58") || state_of_class(f, "42");
}

static bool is_lock(const struct pg_failure *f) {
    return strcmp(f->state, PG_LOCK_TIMEOUT) == 0 || strcmp(f->state, PG_CANCELED) == 0;
}

static bool may_go_well(const struct pg_failure *f) {
    return state_of_class(f, "40") || strcmp(f->state, PG_RACE) == 0 ||
           strcmp(f->state, PG_UNIQUE) == 0;
}

static void pg_session_fail_all(struct pg_session *s, struct pg_batch *b, enum err result) {
    const struct pg_failure *f = &s->db.failure;
    bool failed_before = s->failing;
    s->failing = !pg_alive(&s->db) || pg_concerns_all(f);
    if (!pg_note_outage(s->outage, &s->db, s->settings.url) && s->failing && !failed_before)
        log_error(
            msg("a batch of records could not be written; its requests are answered with 503"),
            PG_SERVER(&s->db), kv("error", f->text), kv("state", f->state));
    for (size_t i = 0; i < b->count; i++) b->records[i]->result = result;
}

/* Retention may have removed the deleted event of an enter that was under way. */
static bool is_enter_without_event(struct pg_session *s, const struct ledger_record *r) {
    if (r->kind != LEDGER_ENTER || !pg_alive(&s->db)) return false;
    int64_t key = ((const struct ledger_enter *)r)->event_key;
    int64_t exists = 0;
    return pg_number(&s->db, &exists, "SELECT 1 FROM events WHERE id = $1", pg_cell_i64(key)) &&
           exists == 0;
}

/* One record, alone, has failed. Whether it is worth another try. */
static bool pg_session_try_again(struct pg_session *s, struct pg_batch *b, int tries) {
    const struct pg_failure failure = s->db.failure;
    const struct pg_failure *f = &failure;
    struct ledger_record *r = b->records[0];
    if (is_lock(f) && s->waiters != NULL) {
        b->blocked[0] = true;
        return false;
    }
    if (may_go_well(f) && tries < TRIES_MAX) return true;
    if (is_enter_without_event(s, r)) {
        r->result = ERR_EVENT_NOT_FOUND;
        return false;
    }
    r->result = is_lock(f) && r->kind == LEDGER_HOLD ? ERR_LOCK_TIMEOUT : ERR_LEDGER_FAILED;
    if (r->result == ERR_LEDGER_FAILED)
        log_error(msg("a record could not be written; its request is answered with 503"),
                  kv("record", record_name(r)), kv("error", f->text), kv("state", f->state));
    return false;
}

/* How long it may wait for a lock yet. */
static int64_t lock_left_ms(const struct pg_session *s, const struct ledger_record *r) {
    bool pessimistic = r->kind == LEDGER_HOLD &&
                       ((const struct ledger_hold *)r)->wanted->strategy == STRATEGY_PESSIMISTIC;
    int64_t limit_ms = pessimistic ? s->pessimistic_wait_ms : s->queue_wait_ms;
    int64_t left_ms = limit_ms - (clock_steady_ns() - r->since_ns) / 1000000;
    return left_ms < s->settings.lock_timeout_ms ? left_ms : s->settings.lock_timeout_ms;
}

static void write_single(struct pg_session *s, struct ledger_record **record, bool *blocked) {
    struct pg_batch b = {.records = record, .count = 1, .blocked = blocked};
    for (int tries = 1;; tries++) {
        if (s->wait) b.lock_timeout_ms = lock_left_ms(s, *record);
        if (s->wait && b.lock_timeout_ms <= 0) {
            (*record)->result =
                (*record)->kind == LEDGER_HOLD ? ERR_LOCK_TIMEOUT : ERR_LEDGER_FAILED;
            return;
        }
        switch (pg_session_transact(s, &b)) {
        case PG_COMMITTED:
            s->failing = false;
            count(COUNT_LEDGER_RECORDS, 1);
            return;
        case PG_UNKNOWN:
            pg_session_fail_all(s, &b, ERR_LEDGER_UNKNOWN);
            return;
        case PG_LOST:
            pg_session_fail_all(s, &b, ERR_LEDGER_FAILED);
            return;
        case PG_FAILED:
            break;
        }
        if (pg_concerns_all(&s->db.failure)) {
            bool full = pg_failed_with(&s->db, PG_DISK_FULL);
            pg_session_fail_all(s, &b, full ? ERR_LEDGER_FULL : ERR_LEDGER_FAILED);
            return;
        }
        if (!pg_session_try_again(s, &b, tries)) return;
    }
}

static void write_some(struct pg_session *s, struct ledger_record **records, bool *blocked,
                       size_t count_of);

/* Around the record that failed; where that is not known, in halves. */
static void write_apart(struct pg_session *s, const struct pg_batch *b) {
    size_t first = b->culprit;
    size_t behind = b->culprit + b->culprit_count;
    if (b->culprit_count == b->count) {
        first = b->count / 2;
        behind = first;
    }
    write_some(s, b->records, b->blocked, first);
    write_some(s, b->records + first, b->blocked + first, behind - first);
    write_some(s, b->records + behind, b->blocked + behind, b->count - behind);
}

/* Another transaction keeps a section's row locked: records that need one go to the waiters, and
 * come last here. Returns how many are left. */
static size_t block_counting(struct pg_batch *b) {
    size_t left = 0;
    struct ledger_record **apart = mem_new(b->count * sizeof *apart);
    size_t apart_count = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (pg_record_counts(b->records[i]))
            apart[apart_count++] = b->records[i];
        else
            b->records[left++] = b->records[i];
    }
    for (size_t i = 0; i < apart_count; i++) {
        b->records[left + i] = apart[i];
        b->blocked[left + i] = true;
    }
    mem_free(apart);
    return left;
}

static void write_many(struct pg_session *s, struct pg_batch *b) {
    const struct pg_failure *f = &s->db.failure;
    switch (pg_session_transact(s, b)) {
    case PG_COMMITTED:
        s->failing = false;
        count(COUNT_LEDGER_RECORDS, b->count);
        return;
    case PG_UNKNOWN:
        pg_session_fail_all(s, b, ERR_LEDGER_UNKNOWN);
        return;
    case PG_LOST:
        pg_session_fail_all(s, b, ERR_LEDGER_FAILED);
        return;
    case PG_FAILED:
        break;
    }
    if (pg_concerns_all(f))
        pg_session_fail_all(
            s, b, pg_failed_with(&s->db, PG_DISK_FULL) ? ERR_LEDGER_FULL : ERR_LEDGER_FAILED);
    else if (b->at_section_counts && is_lock(f) && s->waiters != NULL)
        write_some(s, b->records, b->blocked, block_counting(b));
    else
        write_apart(s, b);
}

static void write_some(struct pg_session *s, struct ledger_record **records, bool *blocked,
                       size_t count_of) {
    if (count_of == 1) {
        write_single(s, records, blocked);
    } else if (count_of > 1) {
        struct pg_batch b = {.records = records, .count = count_of, .blocked = blocked};
        write_many(s, &b);
    }
}

/* A function of the database that may wait for locks reports that it did not. */
static void refuse_blocked(struct ledger_record *r) {
    log_error(msg("a record could not be written; its request is answered with 503"),
              kv("record", record_name(r)), kv("error", "the database did not wait for a lock"));
    r->result = ERR_LEDGER_FAILED;
}

size_t pg_session_write(struct pg_session *s, struct ledger_record **records, size_t count_of) {
    size_t done = 0;
    write_some(s, records, s->blocked, count_of);
    for (size_t i = 0; i < count_of; i++) {
        if (s->blocked[i] && s->waiters != NULL) {
            inbox_pass(s->waiters, records[i]);
            continue;
        }
        if (s->blocked[i]) refuse_blocked(records[i]);
        records[done++] = records[i];
    }
    return done;
}

bool pg_session_probe(struct pg_session *s) {
    bool ok = pg_session_up(s, STEP_MS) &&
              pg_run(&s->db, NULL,
                     "INSERT INTO commits(session, number, at) VALUES ($1, $2, $3)"
                     " ON CONFLICT (session) DO UPDATE SET number = $2, at = $3",
                     pg_cell_uuid(&s->id), pg_cell_i64(++s->number), pg_cell_i64(clock_wall_ms()));
    if (ok) s->failing = false;
    return ok;
}
