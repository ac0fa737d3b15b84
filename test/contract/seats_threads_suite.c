/* The contract of the events' seats, with several threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "seats_steps.h"

#define CREW_MOST 150
#define IDS_MOST 20000

static const struct queue_adapter *adapter;

struct threads_fixture {
    struct seats_test h;
    pthread_barrier_t together;
    int crew;
    uint64_t entries[CREW_MOST];
    _Atomic uint64_t wrong; /* threads of the test can't fail it themselves */
    _Atomic uint64_t done;
    _Atomic uint64_t refused;
    _Atomic uint64_t round;
    _Atomic bool stop;
    _Atomic uint8_t owners[101]; /* by seat */
    _Atomic uint32_t seat_of[IDS_MOST];
    uint32_t each;
    bool named;
};

static int set_up(void **state) {
    struct threads_fixture *g = mem_new(sizeof *g);
    seats_test_open(&g->h, adapter);
    *state = g;
    return 0;
}

static int tear_down(void **state) {
    struct threads_fixture *g = *state;
    seats_test_close(&g->h);
    mem_free(g);
    return 0;
}

/* ---- a crew ---- */

struct thread_arg {
    struct threads_fixture *g;
    int index;
    void (*work)(struct threads_fixture *g, int index);
    pthread_t thread;
};

static void *run_hand(void *arg) {
    struct thread_arg *h = arg;
    struct store *s = &h->g->h.s;
    if (s->adapter->thread_begins != NULL) s->adapter->thread_begins(s->fixture);
    pthread_barrier_wait(&h->g->together);
    h->work(h->g, h->index);
    if (s->adapter->thread_ends != NULL) s->adapter->thread_ends(s->fixture);
    return NULL;
}

static const char *user_name(int index, char out[16]) {
    snprintf(out, 16, "user%d", index);
    return out;
}

/* That many claims at once, each of an ACTIVE user; returns when all are done. */
static void run_crew(struct threads_fixture *g, int crew,
                     void (*work)(struct threads_fixture *g, int index)) {
    struct thread_arg thread_args[CREW_MOST];
    char user[16];
    pthread_barrier_init(&g->together, NULL, (unsigned)crew);
    g->crew = crew;
    for (int i = 0; i < crew; i++) g->entries[i] = seats_test_admit(&g->h, user_name(i, user));
    for (int i = 0; i < crew; i++) {
        thread_args[i] = (struct thread_arg){.g = g, .index = i, .work = work};
        assert_int_equal(pthread_create(&thread_args[i].thread, NULL, run_hand, &thread_args[i]),
                         0);
    }
    for (int i = 0; i < crew; i++) pthread_join(thread_args[i].thread, NULL);
    pthread_barrier_destroy(&g->together);
    assert_int_equal(g->wrong, 0);
}

static void expect(struct threads_fixture *g, bool right) {
    if (!right) g->wrong++;
}

static struct claimed claim_as(struct threads_fixture *g, int index, uint64_t id, int64_t section,
                               const uint32_t *seats, uint32_t count) {
    char user[16];
    return claim_named(&g->h.s, id, user_name(index, user), g->entries[index], section, seats,
                       count);
}

/* ---- one seat, one owner ---- */

static void claim_one(struct threads_fixture *g, int index) {
    struct claimed c = claim_as(g, index, (uint64_t)index + 1, FLOOR, NULL, 1);
    expect(g, c.outcome == CLAIM_DONE || c.outcome == CLAIM_SOLD_OUT);
    if (c.outcome == CLAIM_SOLD_OUT) g->refused++;
    if (c.outcome != CLAIM_DONE) return;
    g->done++;
    g->owners[c.seats[0]]++;
    step_settle_claim(&g->h.s, KEY, (uint64_t)index + 1, true);
}

static void
a_hundred_and_fifty_claims_of_a_hundred_units_sell_exactly_them_pitfall_30(void **state) {
    struct threads_fixture *g = *state;
    run_crew(g, 150, claim_one);
    assert_int_equal(g->done, 100);
    assert_int_equal(g->refused, 50);
    for (int seat = 1; seat <= 100; seat++) assert_int_equal(g->owners[seat], 1);
    assert_seats(&g->h.s, FLOOR, 0, 100, 0);
}

#define GROUP_ROUNDS 200

/* Five groups of thirty, any seats or the same ones in another order; then all give them back. */
static void claim_in_groups(struct threads_fixture *g, int index) {
    for (uint64_t round = 0; round < GROUP_ROUNDS; round++) {
        uint32_t seats[30];
        uint64_t id = round * 10 + (uint64_t)index + 1;
        for (uint32_t i = 0; i < 30; i++)
            seats[i] = ((uint32_t)index * 17 + (index % 2 == 0 ? i : 29 - i)) % 100 + 1;
        pthread_barrier_wait(&g->together);
        struct claimed c = claim_as(g, index, id, FLOOR, round % 2 == 0 ? NULL : seats, 30);
        bool done = c.outcome == CLAIM_DONE;
        expect(g, done || c.outcome == (round % 2 == 0 ? CLAIM_NOT_ENOUGH : CLAIM_TAKEN));
        if (done) g->done++;
        for (size_t i = 0; done && i < c.count; i++) expect(g, g->owners[c.seats[i]]++ == 0);
        pthread_barrier_wait(&g->together);
        uint64_t now_done = g->done;
        struct section_counts counts = step_section(&g->h.s, KEY, FLOOR);
        expect(g, counts.seats.held == now_done * 30);
        expect(g, round % 2 == 0 ? now_done == 3 : now_done >= 1 && now_done <= 3);
        pthread_barrier_wait(&g->together);
        for (size_t i = 0; done && i < c.count; i++) g->owners[c.seats[i]] = 0;
        if (done) expect(g, step_follow(&g->h.s, KEY, id, RESERVATION_CANCELLED));
        if (done) g->done--;
    }
}

static void groups_at_once_get_all_their_seats_or_none_pitfall_24(void **state) {
    struct threads_fixture *g = *state;
    g->h.e.max_per_user = 30;
    seats_test_configure(&g->h);
    run_crew(g, 5, claim_in_groups);
    assert_seats(&g->h.s, FLOOR, 100, 0, 0);
}

/* ---- limits and keys ---- */

#define LIMIT_ROUNDS 300

static void claim_for_one_user(struct threads_fixture *g, int index) {
    uint64_t limit = (uint64_t)g->h.e.max_per_user;
    for (uint64_t round = 0; round < LIMIT_ROUNDS; round++) {
        uint64_t id = round * 10 + (uint64_t)index + 1;
        pthread_barrier_wait(&g->together);
        struct claimed c =
            claim_any(&g->h.s, id, "user0", g->entries[0], index % 2 == 0 ? FLOOR : BALCONY, 1);
        bool done = c.outcome == CLAIM_DONE;
        expect(g, done || c.outcome == CLAIM_LIMIT);
        if (done) g->done++;
        if (done) step_settle_claim(&g->h.s, KEY, id, true);
        pthread_barrier_wait(&g->together);
        expect(g, g->done == limit);
        pthread_barrier_wait(&g->together);
        if (done) step_follow(&g->h.s, KEY, id, RESERVATION_EXPIRED);
        if (done) g->done--;
    }
}

static void one_user_at_once_in_two_sections_gets_exactly_the_limit(void **state) {
    struct threads_fixture *g = *state;
    for (int64_t limit = 1; limit <= 2; limit++) {
        g->h.e.max_per_user = limit;
        seats_test_configure(&g->h);
        run_crew(g, 5, claim_for_one_user);
        for (int i = 0; i < 5; i++) step_end(&g->h.s, KEY, g->entries[i], ENTRY_LEFT);
        assert_seats(&g->h.s, FLOOR, 100, 0, 0);
        assert_seats(&g->h.s, BALCONY, 100, 0, 0);
    }
}

static void claim_with_one_key(struct threads_fixture *g, int index) {
    struct claim_request w = {.id = id_of((uint64_t)index + 1),
                              .user = STR("user0"),
                              .entry_seq = g->entries[0],
                              .section_key = FLOOR,
                              .count = 2,
                              .key = {5, 6}};
    struct claimed c = step_claim(&g->h.s, KEY, &w, T0);
    expect(g, c.outcome == CLAIM_DONE || c.outcome == CLAIM_THERE);
    expect(g, c.count == 2 && c.seats[0] == 1 && c.seats[1] == 2);
    if (c.outcome == CLAIM_DONE) {
        g->done++;
        g->round = number_of(&c.r.id);
    }
    g->seat_of[index] = (uint32_t)number_of(&c.r.id);
}

static void the_same_key_twenty_times_at_once_is_one_reservation(void **state) {
    struct threads_fixture *g = *state;
    run_crew(g, 20, claim_with_one_key);
    assert_int_equal(g->done, 1);
    for (int i = 0; i < 20; i++) assert_int_equal(g->seat_of[i], g->round);
    assert_seats(&g->h.s, FLOOR, 98, 2, 0);
}

/* ---- ends that race ---- */

#define RACES 2000
#define REMOTE_RACES 500

/* Each of two threads sends another update of the same reservation. */
static void race_ends(struct threads_fixture *g, int index) {
    static const enum reservation_status pairs[3][2] = {
        {RESERVATION_CONFIRMED, RESERVATION_EXPIRED},
        {RESERVATION_CONFIRMED, RESERVATION_CANCELLED},
        {RESERVATION_EXPIRED, RESERVATION_CANCELLED}};
    static const uint32_t seat = 9;
    const uint64_t races = adapter->remote ? REMOTE_RACES : RACES;
    for (uint64_t race = 1; race <= races; race++) {
        const enum reservation_status *pair = pairs[race % 3];
        if (index == 0) {
            expect(g, claim_as(g, 0, race, FLOOR, &seat, 1).outcome == CLAIM_DONE);
            step_settle_claim(&g->h.s, KEY, race, true);
            g->done = 0;
        }
        pthread_barrier_wait(&g->together);
        bool changed = step_follow(&g->h.s, KEY, race, pair[index]);
        if (changed) g->done++;
        pthread_barrier_wait(&g->together);
        if (index == 1) continue;
        struct section_counts c = step_section(&g->h.s, KEY, FLOOR);
        if (pair[0] == RESERVATION_CONFIRMED && pair[1] == RESERVATION_EXPIRED) {
            expect(g, g->done == 1); /* the first one has decided */
            expect(g, changed ? c.seats.confirmed == 1 : c.seats.available == 100);
            step_follow(&g->h.s, KEY, race, RESERVATION_CANCELLED);
        } else {
            expect(g, g->done >= 1 && g->done <= (pair[0] == RESERVATION_CONFIRMED ? 2U : 1U));
            expect(g, c.seats.available == 100);
        }
    }
}

static void ends_that_race_leave_one_state_and_free_once_pitfalls_27_and_28(void **state) {
    struct threads_fixture *g = *state;
    run_crew(g, 2, race_ends);
    assert_seats(&g->h.s, FLOOR, 100, 0, 0);
}

static void claim_until_it_is_over(struct threads_fixture *g, int index) {
    if (index == 0) {
        for (int i = 1; i < g->crew; i++) {
            expect(g, step_end(&g->h.s, KEY, g->entries[i], ENTRY_LEFT));
            g->owners[i] = 1;
        }
        return;
    }
    for (uint64_t i = 0; i < 5000; i++) {
        bool is_over = g->owners[index] == 1;
        uint64_t id = (uint64_t)index * 5000 + i;
        struct claimed c = claim_as(g, index, id, FLOOR, NULL, 1);
        if (is_over) expect(g, c.outcome == CLAIM_NOT_ACTIVE);
        if (c.outcome == CLAIM_DONE) step_settle_claim(&g->h.s, KEY, id, false);
        if (is_over) return;
    }
}

static void a_user_who_has_left_cannot_claim(void **state) {
    struct threads_fixture *g = *state;
    run_crew(g, 4, claim_until_it_is_over);
    assert_seats(&g->h.s, FLOOR, 100, 0, 0);
}

/* ---- the order of the records ---- */

#define PER_HAND 400

static void claim_many(struct threads_fixture *g, int index) {
    for (uint64_t i = 0; i < PER_HAND; i++) {
        uint64_t id = (uint64_t)index * PER_HAND + i + 1;
        struct claimed c = claim_as(g, index, id, FLOOR, NULL, 1);
        expect(g, c.outcome == CLAIM_DONE);
        g->seat_of[id] = c.seats[0];
    }
}

/* Effects of other threads may be reported in another order; but those of each thread are in order,
 * and every seat is reported once. */
static void records_are_submitted_in_the_order_of_the_claims(void **state) {
    struct threads_fixture *g = *state;
    uint64_t last[4] = {0};
    bool submitted[4 * PER_HAND + 1] = {false};
    bool in_order = true;
    g->h.e.max_per_user = 1000;
    g->h.sections[0].capacity = 4 * PER_HAND;
    seats_test_configure(&g->h);
    run_crew(g, 4, claim_many);
    assert_int_equal(store_heard(&g->h.s, g->h.heard, 4096), 4 * PER_HAND);
    /* Seats are given out from the first on. */
    for (uint32_t i = 0; i < 4 * PER_HAND; i++) {
        uint64_t id = g->h.heard[i].entry.seq;
        uint32_t seat = g->seat_of[id];
        assert_true(id > last[(id - 1) / PER_HAND]);
        last[(id - 1) / PER_HAND] = id;
        in_order = in_order && seat == i + 1;
        assert_true(seat >= 1 && seat <= 4 * PER_HAND && !submitted[seat]);
        submitted[seat] = true;
    }
    assert_true(in_order || adapter->remote);
}

/* ---- changes at the same time ---- */

static void change_sections(struct threads_fixture *g) {
    struct event other = g->h.e;
    for (int i = 0; i < 300; i++) {
        g->h.sections[0].capacity = 50 + i % 100;
        g->h.e.section_count = i % 4 == 0 ? 2 : 3;
        seats_test_configure(&g->h);
        other.key = 100 + i;
        step_configure(&g->h.s, &other);
        step_remove(&g->h.s, other.key - 1, other.version);
    }
    g->h.sections[0].capacity = 100;
    seats_test_configure(&g->h);
    g->stop = true;
}

static void sell_meanwhile(struct threads_fixture *g, int index) {
    if (index == 0) {
        change_sections(g);
        return;
    }
    char user[16];
    char map[256];
    uint64_t due[4];
    size_t count;
    for (uint64_t i = 0; !g->stop; i++) {
        uint64_t id = (uint64_t)index << 32 | i;
        struct claimed c = claim_as(g, index, id, FLOOR, NULL, 1 + (uint32_t)i % 4);
        expect(g, c.outcome == CLAIM_DONE);
        bool kept = i % 3 != 0;
        expect(g, step_settle_claim(&g->h.s, KEY, id, kept) == kept);
        struct claim_info info;
        expect(g, step_holds(&g->h.s, KEY, user_name(index, user), 0, &info, 1) == kept);
        step_due(&g->h.s, KEY, T0 + HOLD_MS, due, 4);
        expect(g, step_render(&g->h.s, KEY, FLOOR, 1, map, 255, &count) == ERR_OK);
        expect(g, count >= 50 && count <= 149);
        expect(g, step_follow(&g->h.s, KEY, id, RESERVATION_CANCELLED) == kept);
        step_section(&g->h.s, 100 + (int64_t)i % 300, FLOOR);
    }
}

static void sections_change_and_events_come_and_go_while_others_sell(void **state) {
    struct threads_fixture *g = *state;
    run_crew(g, 4, sell_meanwhile);
    assert_seats(&g->h.s, FLOOR, 100, 0, 0);
    assert_int_equal(step_section(&g->h.s, 398, FLOOR).capacity, 0);
    assert_int_equal(step_section(&g->h.s, 399, FLOOR).seats.available, 149);
}

int seats_threads_suite_run(const struct queue_adapter *of) {
    adapter = of;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_hundred_and_fifty_claims_of_a_hundred_units_sell_exactly_them_pitfall_30),
        TEST(groups_at_once_get_all_their_seats_or_none_pitfall_24),
        TEST(one_user_at_once_in_two_sections_gets_exactly_the_limit),
        TEST(the_same_key_twenty_times_at_once_is_one_reservation),
        TEST(ends_that_race_leave_one_state_and_free_once_pitfalls_27_and_28),
        TEST(a_user_who_has_left_cannot_claim),
        TEST(records_are_submitted_in_the_order_of_the_claims),
        TEST(sections_change_and_events_come_and_go_while_others_sell),
    };
#undef TEST
    return cmocka_run_group_tests_name("seats contract: threads", tests, NULL, NULL);
}
