/*
 * metrics: counters and histograms. Every thread counts in its own block, so counting is one
 * addition without a lock; a scrape adds the blocks up. Blocks are never freed. Gauges are not kept
 * here: api/system.c asks the modules that own them.
 *
 * The two tables below have a row for each counter and histogram with fixed labels. A module whose
 * labels depend on its own lists uses the numbers from COUNTERS and HISTOGRAMS on, and renders them
 * itself (service/reservation_metrics.h).
 */
#ifndef ADMITONE_BASE_METRICS_H
#define ADMITONE_BASE_METRICS_H

#include <assert.h>

#include "base/buf.h"

/* X(symbol, name, labels, help): rows of one name stand together. */
#define COUNTER_MAP(X)                                                                             \
    X(CONNECTIONS_ACCEPTED, "admitone_connections_accepted_total", "", "Connections accepted")     \
    X(CONNECTIONS_CLOSED, "admitone_connections_closed_total", "", "Connections closed")           \
    X(CONNECTIONS_REFUSED_TOTAL, "admitone_connections_refused_total", "cap=\"total\"",            \
      "Connections refused by a cap")                                                              \
    X(CONNECTIONS_REFUSED_ADDRESS, "admitone_connections_refused_total", "cap=\"address\"", "")    \
    X(CONNECTIONS_DROPPED, "admitone_connections_dropped_total", "",                               \
      "Connections closed because unread answers took too much memory")                            \
    X(TIMEOUT_HEADERS, "admitone_timeouts_total", "wait=\"headers\"",                              \
      "Connections closed because the client was too slow")                                        \
    X(TIMEOUT_BODY, "admitone_timeouts_total", "wait=\"body\"", "")                                \
    X(TIMEOUT_IDLE, "admitone_timeouts_total", "wait=\"idle\"", "")                                \
    X(TIMEOUT_WRITE, "admitone_timeouts_total", "wait=\"write\"", "")                              \
    X(HTTP_2XX, "admitone_http_responses_total", "class=\"2xx\"", "Answers by status class")       \
    X(HTTP_3XX, "admitone_http_responses_total", "class=\"3xx\"", "")                              \
    X(HTTP_4XX, "admitone_http_responses_total", "class=\"4xx\"", "")                              \
    X(HTTP_5XX, "admitone_http_responses_total", "class=\"5xx\"", "")                              \
    X(ADMIN_KEYS_WRONG, "admitone_admin_key_failures_total", "reason=\"wrong\"",                   \
      "Requests whose key was wrong, or not looked at because of earlier wrong ones")              \
    X(ADMIN_KEYS_DELAYED, "admitone_admin_key_failures_total", "reason=\"delayed\"", "")           \
    X(LIMITED_PLACES_ADDRESS, "admitone_limited_total", "what=\"place\",by=\"address\"",           \
      "Requests refused by the limits on arrival")                                                 \
    X(LIMITED_PLACES_BLOCK, "admitone_limited_total", "what=\"place\",by=\"block\"", "")           \
    X(LIMITED_REQUESTS_ADDRESS, "admitone_limited_total", "what=\"request\",by=\"address\"", "")   \
    X(LIMITED_REQUESTS_BLOCK, "admitone_limited_total", "what=\"request\",by=\"block\"", "")       \
    X(SSE_OPENED, "admitone_sse_opened_total", "", "Streams opened")                               \
    X(SSE_CLOSED, "admitone_sse_closed_total", "", "Streams closed, by the client or the server")  \
    X(SSE_DROPPED, "admitone_sse_dropped_total", "",                                               \
      "Streams closed because the client did not read fast enough")                                \
    X(SSE_EVENTS, "admitone_sse_events_total", "", "Events sent to streams")                       \
    X(QUEUE_ADMISSIONS, "admitone_queue_admissions_total", "", "Waiting users who were admitted")  \
    X(QUEUE_COMPLETIONS, "admitone_queue_completions_total", "",                                   \
      "Entries completed by a purchase")                                                           \
    X(QUEUE_LEAVES, "admitone_queue_leaves_total", "", "Entries ended because the user left")      \
    X(QUEUE_EXPIRIES_ACTIVE, "admitone_queue_expiries_total", "status=\"active\"",                 \
      "Entries that expired")                                                                      \
    X(QUEUE_EXPIRIES_GRACE, "admitone_queue_expiries_total", "status=\"waiting\"", "")             \
    X(QUEUE_REJECTIONS, "admitone_queue_rejections_total", "", "Enters refused: queue full")       \
    X(RESERVATION_GUARD_REFUSALS, "admitone_reservation_guard_refusals_total", "",                 \
      "Seats offered by the hot store that were taken in the ledger")                              \
    X(RESERVATION_SOLD_OUT_ANSWERS, "admitone_reservation_sold_out_answers_total", "",             \
      "Requests answered with sold_out")                                                           \
    X(RESERVATION_CONFIRMS, "admitone_reservation_confirms_total", "", "Holds confirmed")          \
    X(RESERVATION_CANCELS, "admitone_reservation_cancels_total", "",                               \
      "Reservations cancelled, confirmed ones included")                                           \
    X(RESERVATION_EXPIRIES, "admitone_reservation_expiries_total", "", "Holds that expired")       \
    X(REQUESTS_ACCEPTED, "admitone_requests_accepted_total", "", "Asynchronous requests accepted") \
    X(REQUESTS_SUCCESS, "admitone_requests_decided_total", "result=\"SUCCESS\"",                   \
      "Asynchronous requests decided by this node")                                                \
    X(REQUESTS_SOLD_OUT, "admitone_requests_decided_total", "result=\"FAIL_SOLD_OUT\"", "")        \
    X(REQUESTS_ALREADY_RESERVED, "admitone_requests_decided_total",                                \
      "result=\"FAIL_ALREADY_RESERVED\"", "")                                                      \
    X(REQUESTS_CONFLICT, "admitone_requests_decided_total", "result=\"FAIL_CONFLICT\"", "")        \
    X(REQUESTS_NOT_ACTIVE, "admitone_requests_decided_total", "result=\"FAIL_NOT_ACTIVE\"", "")    \
    X(REQUESTS_NOT_FOUND, "admitone_requests_decided_total", "result=\"FAIL_NOT_FOUND\"", "")      \
    X(REQUESTS_FAIL, "admitone_requests_decided_total", "result=\"FAIL\"", "")                     \
    X(REQUEST_RETRIES, "admitone_request_retries_total", "",                                       \
      "Tries of an asynchronous request that failed and were repeated")                            \
    X(REQUESTS_DEAD, "admitone_request_dead_letters_total", "",                                    \
      "Messages that this node moved to the topic of dead letters")                                \
    X(ADAPTIVE_SWITCHES_SLOT, "admitone_adaptive_switches_total", "to=\"slot\"",                   \
      "Changes of an adaptive section between lock and slot")                                      \
    X(ADAPTIVE_SWITCHES_LOCK, "admitone_adaptive_switches_total", "to=\"lock\"", "")               \
    X(HOT_REBUILDS, "admitone_hot_rebuilds_total", "",                                             \
      "Rebuilds of Redis from the ledger by this node")                                            \
    X(HOT_FINISHED_ENTERS, "admitone_hot_finished_total", "what=\"enter\"",                        \
      "Operations that another node left pending and this node finished or undid")                 \
    X(HOT_FINISHED_ADMISSIONS, "admitone_hot_finished_total", "what=\"admission\"", "")            \
    X(HOT_FINISHED_CLAIMS, "admitone_hot_finished_total", "what=\"claim\"", "")                    \
    X(HOT_FINISHED_EXPIRIES, "admitone_hot_finished_total", "what=\"expiry\"", "")                 \
    X(HOT_HEALED_ENTRIES, "admitone_hot_healed_total", "what=\"entry\"",                           \
      "Changes that Redis had missed and received again")                                          \
    X(HOT_HEALED_RESERVATIONS, "admitone_hot_healed_total", "what=\"reservation\"", "")            \
    X(FACTS_RELAYED, "admitone_facts_relayed_total", "", "Facts relayed to the hot store")         \
    X(FACTS_PUBLISHED, "admitone_facts_published_total", "",                                       \
      "Facts published to the topic of facts")                                                     \
    X(RANKINGS_SALES, "admitone_rankings_sales_total", "", "Facts counted by the rankings")        \
    X(RECONCILE_ENTRIES_OVER, "admitone_reconcile_differences_total", "what=\"entry_over\"",       \
      "Differences found between Redis and the ledger")                                            \
    X(RECONCILE_ENTRIES_MISSING, "admitone_reconcile_differences_total", "what=\"entry_missing\"", \
      "")                                                                                          \
    X(RECONCILE_ENTRIES_STATUS, "admitone_reconcile_differences_total", "what=\"entry_status\"",   \
      "")                                                                                          \
    X(RECONCILE_ENTRIES_LATE, "admitone_reconcile_differences_total", "what=\"entry_late\"", "")   \
    X(RECONCILE_RESERVATIONS_OVER, "admitone_reconcile_differences_total",                         \
      "what=\"reservation_over\"", "")                                                             \
    X(RECONCILE_RESERVATIONS_MISSING, "admitone_reconcile_differences_total",                      \
      "what=\"reservation_missing\"", "")                                                          \
    X(RECONCILE_RESERVATIONS_STATUS, "admitone_reconcile_differences_total",                       \
      "what=\"reservation_status\"", "")                                                           \
    X(RECONCILE_REPAIRS, "admitone_reconcile_repairs_total", "", "Differences repaired")           \
    X(LEDGER_RECORDS, "admitone_ledger_records_total", "", "Records written to the ledger")        \
    X(LEDGER_REFUSED_FULL, "admitone_ledger_refused_total", "", "Records refused: queue full")     \
    X(LEDGER_BATCH_FAILURES, "admitone_ledger_batch_failures_total", "", "Batches rolled back")    \
    X(LEDGER_CHECKPOINTS, "admitone_ledger_checkpoints_total", "", "WAL checkpoints run")          \
    X(LEDGER_RETIRED_ROWS, "admitone_ledger_retired_rows_total", "", "Rows removed by retention")

/* X(symbol, name, labels, unit of the sum per count, help): rows of one name stand together;
 * buckets are powers of two. */
#define HISTOGRAM_MAP(X)                                                                           \
    X(REQUEST_SECONDS, "admitone_request_duration_seconds", "", 1e-6,                              \
      "From reading a request to its answer")                                                      \
    X(REQUEST_DECIDED_SECONDS, "admitone_request_decided_seconds", "", 1e-3,                       \
      "From the acceptance of an asynchronous request to its result")                              \
    X(QUEUE_WAIT_SECONDS, "admitone_queue_wait_seconds", "", 1e-3, "Wait from enter to ACTIVE")    \
    X(QUEUE_ESTIMATE_ERROR_SECONDS, "admitone_queue_estimate_error_seconds", "", 1e-3,             \
      "Difference between the estimated and the real wait")                                        \
    X(QUEUE_ENTER_SECONDS, "admitone_queue_enter_seconds", "", 1e-9,                               \
      "Duration of an enter in the hot store")                                                     \
    X(QUEUE_LOOK_SECONDS, "admitone_queue_look_seconds", "", 1e-9,                                 \
      "Duration of a status lookup in the hot store; one of 16 is measured")                       \
    X(QUEUE_ADMIT_SECONDS, "admitone_queue_admit_seconds", "", 1e-9,                               \
      "Duration of one admission step")                                                            \
    X(SLOT_CLAIM_SECONDS, "admitone_slot_claim_seconds", "", 1e-9,                                 \
      "Duration of a claim of seats in the hot store")                                             \
    X(LEDGER_COMMIT_SECONDS, "admitone_ledger_commit_seconds", "", 1e-6,                           \
      "Duration of one batch, including fsync")                                                    \
    X(LEDGER_BATCH_RECORDS, "admitone_ledger_batch_records", "", 1, "Records per batch")

enum counter {
#define COUNTER_ENUM(symbol, ...) COUNT_##symbol,
    COUNTER_MAP(COUNTER_ENUM)
#undef COUNTER_ENUM
        COUNTERS
};

enum histogram {
#define HISTOGRAM_ENUM(symbol, ...) HISTOGRAM_##symbol,
    HISTOGRAM_MAP(HISTOGRAM_ENUM)
#undef HISTOGRAM_ENUM
        HISTOGRAMS
};

/* How many there may be, those that other modules render included. */
#define COUNTERS_MAX 192
#define HISTOGRAMS_MAX 16
static_assert(COUNTERS <= COUNTERS_MAX && HISTOGRAMS <= HISTOGRAMS_MAX, "the rows have room");

/* `counter` is an enum counter, or one of another module's numbers; so is `histogram`. */
void count(unsigned counter, uint64_t by);
/* `value` in the histogram's own unit (a row of unit 1e-6 takes microseconds). */
void observe(unsigned histogram, uint64_t value);

/* Over all threads, those that have ended included. */
uint64_t counter_total(unsigned counter);

/* Bucket i holds values below 2^i that the one before it does not; the last one all the rest. */
#define HISTOGRAM_BUCKETS 32
struct histogram_total {
    uint64_t buckets[HISTOGRAM_BUCKETS];
    uint64_t sum;
};
/* Adds what the histogram has counted so far, over all threads. Histograms of one unit may be added
 * up; and two totals of different times subtracted, bucket by bucket. */
void histogram_add_total(unsigned histogram, struct histogram_total *to);
uint64_t histogram_count(const struct histogram_total *t);
/* The value that this share of all values (0 to 1) is not above, in the histogram's own unit: an
 * estimate, as if values were spread evenly over their bucket. 0: there are no values. */
double histogram_quantile(const struct histogram_total *t, double share);

/* The rows of the tables, in the Prometheus text format. */
void metrics_render(struct buf *out);

/* `# HELP` and `# TYPE`; one call of metrics_value or metrics_histogram per series follows. */
void metrics_head(struct buf *out, const char *name, const char *type, const char *help);
/* `labels` are written as they are, between braces; empty for none. */
void metrics_value(struct buf *out, const char *name, const char *labels, int64_t value);
/* `unit`: how many of the name's unit one count is. */
void metrics_histogram(struct buf *out, const char *name, const char *labels, double unit,
                       unsigned histogram);
/* With four decimals. */
void metrics_ratio(struct buf *out, const char *name, const char *labels, double value);

#endif
