/*
 * Measures a reservation in the hot store in memory, through its port: claim, settle and cancel in
 * a section of a million seats; prints JSON. `make bench` shows the claims; for the rest:
 *   cmake --build build/release --target bench_seats_claim && build/release/bench_seats_claim
 *
 * In each round a thousand claims are made and settled, and then as many older ones, chosen at
 * random, are cancelled, so the section stays equally full. Every call is timed alone; `clock_ns`
 * is the time of an empty measurement, and is not subtracted. `lock` is an acquisition and a
 * release of a lock without contention.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hot/memory.h"
#include "hot/memory_locks.h"
#include "splitmix.h"

#define EVENT 1
#define SECTION 2
#define SEATS 1000000
#define USERS 100000
#define CALLS 1000
#define SAMPLES (100 * CALLS)
#define LOCK_MS 1000

enum call { CLAIM, SETTLE, CANCEL, LOCK, CALL_COUNT };
static const char *const call_names[] = {"claim", "settle", "cancel", "lock"};

static uint64_t random_state = 1;
static int64_t samples[CALL_COUNT][SAMPLES];
static size_t sample_count;
static struct uuid *ids;
static size_t id_count;
static struct memory *memory;
static uint64_t entries[USERS];
static char names[USERS][20];
static int64_t now_ms;

static void must(bool right, const char *what) {
    if (right) return;
    fprintf(stderr, "seats_claim: %s\n", what);
    exit(1);
}

static enum err submit_enter(struct enter_op *e) {
    (void)e;
    return ERR_OK;
}
static enum err submit_claim(struct claim_op *c) {
    (void)c;
    return ERR_OK;
}
static void on_entered(struct enter_op *e) {
    must(e->place.status == ENTRY_ACTIVE, "enter");
}
static void on_entry_settled(struct settle_op *s) {
    must(s->op.result == ERR_OK, "settle the entry");
}
static void on_claimed(struct claim_op *c) {
    must(c->op.result == ERR_OK && c->outcome == CLAIM_DONE, "claim");
}
static void on_claim_settled(struct claim_settle_op *s) {
    must(s->op.result == ERR_OK, "settle");
}
static void on_followed(struct follow_op *f) {
    must(f->changes[0].changed, "cancel");
}
static void on_locked(struct lock_op *l) {
    must(l->outcome == LOCK_ACQUIRED, "acquire");
}
static void on_released(struct lock_hold_op *h) {
    must(h->outcome == LOCK_RELEASED, "release");
}

static void let_in(int user) {
    snprintf(names[user], sizeof names[user], "user-%d", user);
    struct enter_op e = {.op = {.event_key = EVENT, .now_ms = now_ms},
                         .user = str_of(names[user]),
                         .lane = LANE_DEFAULT,
                         .submit = submit_enter,
                         .done = on_entered};
    queues_enter(memory_queues(memory), &e);
    entries[user] = e.place.seq;
    bool kept = true;
    struct settle_op s = {
        .op = e.op, .seqs = &entries[user], .kept = &kept, .count = 1, .done = on_entry_settled};
    queues_settle(memory_queues(memory), &s);
}

static int64_t claim(uint32_t each) {
    uint32_t seats[SEATS_PER_CALL_MAX];
    int user = (int)(next_random(&random_state) % USERS);
    ids[id_count] = uuid_new(now_ms);
    struct claim_op c = {.op = {.event_key = EVENT, .now_ms = now_ms},
                         .request = {.id = ids[id_count++],
                                     .user = str_of(names[user]),
                                     .entry_seq = entries[user],
                                     .section_key = SECTION,
                                     .count = each},
                         .seats = seats,
                         .submit = submit_claim,
                         .done = on_claimed};
    int64_t start_ns = clock_steady_ns();
    seats_claim(memory_seats(memory), &c);
    return clock_steady_ns() - start_ns;
}

static int64_t settle_last(void) {
    bool kept = true;
    struct claim_settle_op s = {.op = {.event_key = EVENT, .now_ms = now_ms},
                                .ids = &ids[id_count - 1],
                                .kept = &kept,
                                .count = 1,
                                .done = on_claim_settled};
    int64_t start_ns = clock_steady_ns();
    seats_settle(memory_seats(memory), &s);
    return clock_steady_ns() - start_ns;
}

static int64_t cancel_any(void) {
    size_t at = next_random(&random_state) % id_count;
    struct reservation_change news = {.id = ids[at], .status = RESERVATION_CANCELLED};
    ids[at] = ids[--id_count];
    struct follow_op f = {.op = {.event_key = EVENT, .now_ms = now_ms},
                          .changes = &news,
                          .count = 1,
                          .done = on_followed};
    int64_t start_ns = clock_steady_ns();
    seats_follow(memory_seats(memory), &f);
    return clock_steady_ns() - start_ns;
}

static int64_t lock_and_release(struct locks *locks, size_t number) {
    char name[32];
    snprintf(name, sizeof name, "lock:{CONCERT:1}:%zu", number);
    struct lock_op l = {
        .name = str_of(name), .now_ms = now_ms, .lease_ms = LOCK_MS, .done = on_locked};
    struct lock_hold_op h = {.name = l.name, .now_ms = now_ms, .done = on_released};
    int64_t start_ns = clock_steady_ns();
    locks_acquire(locks, &l);
    h.fence = l.fence;
    locks_release(locks, &h);
    return clock_steady_ns() - start_ns;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_row(enum call call, uint32_t seats, uint32_t percent, const char *end) {
    int64_t *ns = samples[call];
    double sum = 0;
    for (size_t i = 0; i < sample_count; i++) sum += (double)ns[i];
    qsort(ns, sample_count, sizeof *ns, by_value);
    printf("    { \"call\": \"%s\", \"seats\": %u, \"full_percent\": %u, \"mean_ns\": %.0f, "
           "\"p50_ns\": %lld, "
           "\"p99_ns\": %lld, \"max_ns\": %lld }%s\n",
           call_names[call], seats, percent, sum / (double)sample_count,
           (long long)ns[sample_count / 2], (long long)ns[sample_count * 99 / 100],
           (long long)ns[sample_count - 1], end);
}

static void open_event(void) {
    static struct section section = {.key = SECTION, .capacity = SEATS};
    struct event e = {.key = EVENT,
                      .version = 1,
                      .state = EVENT_OPEN,
                      .opens_at_ms = CLOCK_NONE_MS,
                      .closes_at_ms = CLOCK_NONE_MS,
                      .hold_s = 300,
                      .max_per_user = PER_USER_MAX,
                      .section_count = 1,
                      .sections = &section,
                      .queue = {.max_waiting = USERS,
                                .max_active = USERS,
                                .entry_batch_size = USERS,
                                .entry_interval_s = 1,
                                .active_ttl_s = 86400,
                                .grace_s = 86400}};
    memory = memory_new();
    queues_restore_event(memory_queues(memory), &e);
    for (int i = 0; i < USERS; i++) let_in(i);
}

static void measure(uint32_t each, uint32_t percent) {
    open_event();
    id_count = 0;
    ids = mem_new((SEATS / each + CALLS) * sizeof *ids);
    size_t fill = percent == 99 ? SEATS / each : SEATS / each * percent / 100;
    while (id_count < fill) {
        claim(each);
        settle_last();
    }
    while (id_count > SEATS / each * percent / 100) cancel_any();
    for (sample_count = 0; sample_count < SAMPLES; sample_count += CALLS) {
        for (size_t i = sample_count; i < sample_count + CALLS; i++) {
            samples[CLAIM][i] = claim(each);
            samples[SETTLE][i] = settle_last();
        }
        for (size_t i = sample_count; i < sample_count + CALLS; i++)
            samples[CANCEL][i] = cancel_any();
    }
    for (enum call call = CLAIM; call <= CANCEL; call++) print_row(call, each, percent, ",");
    mem_free(ids);
    memory_free(memory);
}

int main(void) {
    now_ms = clock_wall_ms();
    int64_t start_ns = clock_steady_ns();
    for (int i = 0; i < SAMPLES; i++) clock_steady_ns();
    printf("{\n  \"seats\": %d,\n  \"clock_ns\": %.0f,\n  \"rows\": [\n", SEATS,
           (double)(clock_steady_ns() - start_ns) / SAMPLES);
    measure(1, 99);
    measure(4, 99);
    measure(1, 1);
    struct memory_locks *m = memory_locks_new(1);
    for (sample_count = 0; sample_count < SAMPLES; sample_count++)
        samples[LOCK][sample_count] = lock_and_release(memory_locks_port(m), sample_count);
    print_row(LOCK, 0, 0, "");
    memory_locks_free(m);
    printf("  ]\n}\n");
    return 0;
}
