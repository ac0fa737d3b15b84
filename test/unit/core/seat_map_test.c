#include "core/seat_map.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "splitmix.h"

#define ALICE 0xA11CE
#define BOB 0xB0B
/* The holder of the seats that are taken before a test begins. */
#define EARLIER 7

#define SEAT_LIST(...) ((const uint32_t[]){__VA_ARGS__})
#define SEAT_COUNT(...) (sizeof SEAT_LIST(__VA_ARGS__) / sizeof(uint32_t))
/* DO(confirm, m, ALICE, 1, 2): the outcome; the refused ones are left in `refused`. */
#define DO(verb, m, holder, ...)                                                                   \
    seat_map_##verb(m, SEAT_LIST(__VA_ARGS__), SEAT_COUNT(__VA_ARGS__), holder, refused,           \
                    &refused_count)
#define assert_refused(...)                                                                        \
    do {                                                                                           \
        assert_int_equal(refused_count, SEAT_COUNT(__VA_ARGS__));                                  \
        assert_memory_equal(refused, SEAT_LIST(__VA_ARGS__), sizeof SEAT_LIST(__VA_ARGS__));       \
    } while (0)

static uint32_t refused[SEATS_PER_CALL_MAX];
static size_t refused_count;

/* A section as its map shows it. */
static struct seat_map *section(const char *map) {
    uint32_t capacity = (uint32_t)strlen(map);
    struct seat_map *m = seat_map_new(capacity);
    for (uint32_t seat = 1; seat <= capacity; seat++)
        if (map[seat - 1] != 'A')
            assert_true(seat_map_sync(m, seat, (enum seat_state)map[seat - 1], EARLIER));
    return m;
}

static void assert_map(const struct seat_map *m, const char *expected) {
    char shown[4096] = {0};
    assert_true(strlen(expected) < sizeof shown);
    assert_int_equal(seat_map_render(m, 1, shown, sizeof shown), strlen(expected));
    assert_string_equal(shown, expected);
    struct seat_counts c = {0};
    for (const char *s = expected; *s != 0; s++) {
        c.available += *s == 'A';
        c.held += *s == 'H';
        c.confirmed += *s == 'C';
    }
    struct seat_counts counts = seat_map_counts(m);
    assert_memory_equal(&counts, &c, sizeof c);
}

static uint64_t holder_of(const struct seat_map *m, uint32_t seat) {
    enum seat_state state;
    uint64_t holder;
    assert_true(seat_map_look(m, seat, &state, &holder));
    assert_int_equal(state == SEAT_AVAILABLE, holder == 0);
    return holder;
}

/* Claims n of `before`; `after` shows the claimed ones as *. */
static void assert_claims(const char *before, uint32_t n, const char *after) {
    struct seat_map *m = section(before);
    uint32_t seats[SEATS_PER_CALL_MAX];
    char shown[256] = {0};
    assert_true(strlen(before) < sizeof shown);
    assert_int_equal(seat_map_claim_any(m, n, ALICE, seats), SEATS_DONE);
    size_t len = seat_map_render(m, 1, shown, sizeof shown);
    assert_int_equal(len, strlen(before));
    for (uint32_t i = 0; i < n; i++) {
        assert_true(i == 0 || seats[i] > seats[i - 1]);
        assert_int_equal(shown[seats[i] - 1], 'H');
        assert_int_equal(holder_of(m, seats[i]), ALICE);
        shown[seats[i] - 1] = '*';
    }
    assert_string_equal(shown, after);
    seat_map_free(m);
}

/* ---- the rule for a quantity ---- */

static void a_run_that_fits_exactly_is_taken_first(void **state) {
    (void)state;
    assert_claims("AAAAHAAHAAA", 2, "AAAAH**HAAA");
    assert_claims("AAAHA", 1, "AAAH*");
    assert_claims("AAAA", 4, "****");
}

static void of_longer_runs_the_shortest_that_leaves_no_orphan(void **state) {
    (void)state;
    assert_claims("AAAAAHAAAAHAAA", 2, "AAAAAH**AAHAAA");
    assert_claims("AAAHAAAAAAHAAAAA", 2, "AAAHAAAAAAH**AAA");
    assert_claims("AAHAAA", 1, "AAH*AA");
}

static void an_orphan_is_left_rather_than_a_group_split(void **state) {
    (void)state;
    assert_claims("AAAHA", 2, "**AHA");
    assert_claims("AHAHAAAHAAA", 2, "AHAH**AHAAA");
    assert_claims("AAH", 1, "*AH");
}

static void of_equal_runs_the_one_with_the_lowest_numbers(void **state) {
    (void)state;
    assert_claims("HAAHAAHAA", 2, "H**HAAHAA");
    assert_claims("HAAAAHAAAA", 2, "H**AAHAAAA");
    assert_claims("HHHAAHAA", 1, "HHH*AHAA");
}

static void seats_come_from_the_start_of_the_run(void **state) {
    (void)state;
    assert_claims("AAAAAAAA", 3, "***AAAAA");
    assert_claims("HHAAAAAH", 3, "HH***AAH");
}

static void a_group_too_large_for_any_run_is_split_as_little_as_can_be(void **state) {
    (void)state;
    /* The longest whole, the rest where it fits. */
    assert_claims("AAHAAAHAHA", 5, "**H***HAHA");
    /* Of equally long runs the lowest; the rest then prefers an exact run. */
    assert_claims("AAAHAAAHAAAHA", 4, "***HAAAHAAAH*");
    /* The rest leaves no orphan where it can: two of four, not of three. */
    assert_claims("AAAAHAAAHAAAAHAAAA", 6, "****HAAAH**AAHAAAA");
    /* ... and leaves one where it must. */
    assert_claims("AAAHAAAHAAA", 5, "***H**AHAAA");
    /* Several whole ones. */
    assert_claims("AHAHAHAHA", 3, "*H*H*HAHA");
    assert_claims("AHAAHAAAH", 6, "*H**H***H");
    /* Rule 1 is applied again after each: five are left, then three. */
    assert_claims("AAHAAAAAHAAAHAA", 8, "AAH*****H***HAA");
}

static void a_claim_of_all_that_is_left_succeeds_however_scattered(void **state) {
    (void)state;
    assert_claims("AHACAAH", 4, "*H*C**H");
    struct seat_map *m = seat_map_new(2 * SEATS_PER_CALL_MAX);
    uint32_t seats[SEATS_PER_CALL_MAX];
    for (uint32_t seat = 1; seat <= 2 * SEATS_PER_CALL_MAX; seat += 2)
        assert_true(seat_map_sync(m, seat, SEAT_CONFIRMED, EARLIER));
    assert_int_equal(seat_map_claim_any(m, SEATS_PER_CALL_MAX, BOB, seats), SEATS_DONE);
    for (uint32_t i = 0; i < SEATS_PER_CALL_MAX; i++) assert_int_equal(seats[i], 2 * i + 2);
    assert_int_equal(seat_map_counts(m).available, 0);
    seat_map_free(m);
}

/* ---- suggestions ---- */

/* Are free, adjacent and ascending. */
static void assert_fit(const struct seat_map *m, const uint32_t *seats, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(holder_of(m, seats[i]), 0);
        assert_int_equal(seats[i], seats[0] + i);
    }
}

static void a_suggestion_is_what_the_rule_would_take_and_takes_nothing(void **state) {
    (void)state;
    static const char map[] = "AAAHAAAHAAAHA";
    struct seat_map *m = section(map);
    for (uint32_t n = 1; n <= 10; n++) {
        uint32_t suggested[10];
        uint32_t claimed[10];
        assert_int_equal(seat_map_suggest(m, n, 0, suggested), SEATS_DONE);
        assert_map(m, map);
        assert_int_equal(seat_map_claim_any(m, n, ALICE, claimed), SEATS_DONE);
        assert_memory_equal(suggested, claimed, n * sizeof *claimed);
        assert_int_equal(seat_map_release(m, claimed, n, ALICE, refused, &refused_count),
                         SEATS_DONE);
    }
    seat_map_free(m);
}

static void a_suggestion_with_a_spread_begins_where_it_says_or_near_it(void **state) {
    (void)state;
    struct seat_map *m = section("HAAAHAHHHH");
    uint32_t seats[3];
    assert_int_equal(seat_map_suggest(m, 2, 11, seats), SEATS_DONE); /* from seat 2 on */
    assert_int_equal(seats[0], 2);
    assert_int_equal(seat_map_suggest(m, 2, 12, seats), SEATS_DONE);
    assert_int_equal(seats[0], 3);
    assert_int_equal(seat_map_suggest(m, 1, 4, seats), SEATS_DONE); /* 5 is taken: the next */
    assert_int_equal(seats[0], 6);
    assert_int_equal(seat_map_suggest(m, 1, 7, seats), SEATS_DONE); /* from 8 on, and around */
    assert_int_equal(seats[0], 2);
    assert_int_equal(seat_map_suggest(m, 2, 3, seats), SEATS_DONE); /* too few from 4 on */
    assert_fit(m, seats, 2);
    assert_int_equal(seat_map_suggest(m, 3, 9, seats), SEATS_DONE);
    assert_int_equal(seats[0], 2);
    seat_map_free(m);
    m = section("AAHAA");
    for (uint64_t spread = 0; spread < 20; spread++) { /* none is long enough: by the rule */
        assert_int_equal(seat_map_suggest(m, 3, spread, seats), SEATS_DONE);
        assert_memory_equal(seats, SEAT_LIST(1, 2, 4), sizeof seats);
    }
    assert_map(m, "AAHAA");
    seat_map_free(m);
}

static void nothing_is_suggested_when_there_is_not_enough_pitfall_30(void **state) {
    (void)state;
    uint32_t seats[3];
    struct seat_map *m = section("HAHA");
    struct seat_map *full = section("HC");
    for (uint64_t spread = 0; spread < 10; spread++) {
        assert_int_equal(seat_map_suggest(m, 3, spread, seats), SEATS_NOT_ENOUGH);
        assert_int_equal(seat_map_suggest(m, 2, spread, seats), SEATS_DONE);
        assert_int_equal(seat_map_suggest(full, 1, spread, seats), SEATS_SOLD_OUT);
    }
    seat_map_free(m);
    seat_map_free(full);
}

/* How many different seats are suggested first to a thousand concurrent requests. */
static int count_places(const struct seat_map *m, uint32_t n) {
    static bool told[SECTION_CAPACITY_MAX + 1];
    uint64_t random_state = 1;
    uint32_t seats[SEATS_PER_CALL_MAX];
    int places = 0;
    memset(told, 0, sizeof told);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(seat_map_suggest(m, n, next_random(&random_state), seats), SEATS_DONE);
        assert_fit(m, seats, n);
        places += told[seats[0]] ? 0 : 1;
        told[seats[0]] = true;
    }
    return places;
}

static void concurrent_suggestions_are_different_seats(void **state) {
    (void)state;
    struct seat_map *m = seat_map_new(200000);
    assert_true(count_places(m, 2) > 980);
    for (uint32_t seat = 1; seat <= 190000; seat++) seat_map_sync(m, seat, SEAT_HELD, EARLIER);
    assert_true(count_places(m, 2) > 900); /* also when all are sold but for the last ones */
    seat_map_free(m);
    m = seat_map_new(200000);
    uint64_t random_state = 1;
    for (uint32_t seat = 1; seat <= 200000; seat++)
        if (next_random(&random_state) % 10 != 0) seat_map_sync(m, seat, SEAT_HELD, EARLIER);
    assert_true(count_places(m, 1) > 950); /* 20,000 single seats, 2,000 pairs */
    assert_true(count_places(m, 2) > 600);
    seat_map_free(m);
}

static void seats_can_be_checked_whichever_reservation_has_them(void **state) {
    (void)state;
    struct seat_map *m = section("AHCA");
    assert_int_equal(seat_map_check(m, SEAT_LIST(4, 3, 2, 1), 4, refused, &refused_count),
                     SEATS_DONE);
    assert_int_equal(seat_map_check(m, SEAT_LIST(1, 2, 2, 1), 4, refused, &refused_count),
                     SEATS_TWICE);
    assert_refused(2, 1);
    assert_int_equal(seat_map_check(m, SEAT_LIST(1, 1, 5, 0), 4, refused, &refused_count),
                     SEATS_OUT_OF_RANGE);
    assert_refused(5, 0);
    assert_map(m, "AHCA");
    seat_map_free(m);
}

/* ---- named seats ---- */

static void named_seats_become_the_holders_in_any_order(void **state) {
    (void)state;
    struct seat_map *m = section("AAAAAAAAAA");
    assert_int_equal(DO(claim, m, ALICE, 7, 3, 4, 8, 1), SEATS_DONE);
    assert_int_equal(refused_count, 0);
    assert_map(m, "HAHHAAHHAA");
    assert_int_equal(holder_of(m, 8), ALICE);
    assert_int_equal(holder_of(m, 9), 0);
    /* The index knows: two adjacent ones are at 5, 6 and at 9, 10. */
    uint32_t seats[2];
    assert_int_equal(seat_map_claim_any(m, 2, BOB, seats), SEATS_DONE);
    assert_int_equal(seats[0], 5);
    assert_int_equal(DO(release, m, ALICE, 8, 7), SEATS_DONE);
    assert_map(m, "HAHHHHAAAA");
    seat_map_free(m);
}

/* ---- compare and set ---- */

static void a_seat_goes_from_free_to_held_to_confirmed_to_free(void **state) {
    (void)state;
    struct seat_map *m = section("AAAA");
    assert_int_equal(DO(claim, m, ALICE, 2, 3), SEATS_DONE);
    assert_map(m, "AHHA");
    assert_int_equal(DO(confirm, m, ALICE, 2, 3), SEATS_DONE);
    assert_map(m, "ACCA");
    assert_int_equal(holder_of(m, 2), ALICE);
    assert_int_equal(DO(cancel, m, ALICE, 2, 3), SEATS_DONE);
    assert_map(m, "AAAA");
    assert_int_equal(DO(claim, m, BOB, 1, 2, 3, 4), SEATS_DONE);
    assert_int_equal(DO(release, m, BOB, 1, 4), SEATS_DONE);
    assert_map(m, "AHHA");
    seat_map_free(m);
}

static void only_the_holder_changes_a_seat_pitfall_25(void **state) {
    (void)state;
    struct seat_map *m = section("AAAAAA");
    DO(claim, m, ALICE, 1, 2);
    DO(claim, m, BOB, 3, 4);
    DO(confirm, m, BOB, 4);
    assert_int_equal(DO(confirm, m, ALICE, 1, 2, 3), SEATS_NOT_THEIRS);
    assert_refused(3);
    assert_int_equal(DO(release, m, ALICE, 6, 1, 3), SEATS_NOT_THEIRS);
    assert_refused(6, 3);
    assert_int_equal(DO(cancel, m, ALICE, 4), SEATS_NOT_THEIRS);
    assert_int_equal(DO(confirm, m, ALICE, 5), SEATS_NOT_THEIRS);
    assert_map(m, "HHHCAA");
    seat_map_free(m);
}

static void a_second_release_frees_nothing_pitfalls_27_and_29(void **state) {
    (void)state;
    struct seat_map *m = section("AAA");
    DO(claim, m, ALICE, 1, 2);
    assert_int_equal(DO(release, m, ALICE, 1, 2), SEATS_DONE);
    assert_int_equal(DO(release, m, ALICE, 1, 2), SEATS_NOT_THEIRS);
    assert_refused(1, 2);
    /* The next holder's hold, and confirmation, are safe from the one before. */
    DO(claim, m, BOB, 2);
    assert_int_equal(DO(release, m, ALICE, 2), SEATS_NOT_THEIRS);
    assert_int_equal(DO(release, m, ALICE, 1, 2), SEATS_NOT_THEIRS);
    DO(confirm, m, BOB, 2);
    assert_int_equal(DO(cancel, m, ALICE, 2), SEATS_NOT_THEIRS);
    assert_map(m, "ACA");
    assert_int_equal(holder_of(m, 2), BOB);
    seat_map_free(m);
}

static void an_expiry_does_not_undo_a_confirmation_pitfall_28(void **state) {
    (void)state;
    struct seat_map *m = section("AAA");
    DO(claim, m, ALICE, 1, 2, 3);
    DO(confirm, m, ALICE, 2);
    assert_int_equal(DO(release, m, ALICE, 1, 2, 3), SEATS_OTHER_STATE);
    assert_refused(2);
    assert_int_equal(DO(cancel, m, ALICE, 1, 2, 3), SEATS_OTHER_STATE);
    assert_refused(1, 3);
    assert_int_equal(DO(confirm, m, ALICE, 1, 2), SEATS_OTHER_STATE);
    assert_refused(2);
    assert_map(m, "HCH");
    /* A seat of another holder is reported before a seat in another state. */
    DO(release, m, ALICE, 3);
    assert_int_equal(DO(release, m, ALICE, 1, 2, 3), SEATS_NOT_THEIRS);
    assert_refused(3);
    seat_map_free(m);
}

/* ---- updates from the ledger, size, looks ---- */

static void a_seat_becomes_what_the_ledger_has_whatever_it_was(void **state) {
    (void)state;
    struct seat_map *m = section("AHC");
    for (uint32_t seat = 1; seat <= 3; seat++) {
        assert_true(seat_map_sync(m, seat, SEAT_CONFIRMED, ALICE));
        assert_false(seat_map_sync(m, seat, SEAT_CONFIRMED, ALICE));
        assert_true(seat_map_sync(m, seat, SEAT_CONFIRMED, BOB));
        assert_true(seat_map_sync(m, seat, SEAT_HELD, BOB));
        assert_int_equal(holder_of(m, seat), BOB);
    }
    assert_map(m, "HHH");
    assert_true(seat_map_sync(m, 2, SEAT_AVAILABLE, 0));
    assert_false(seat_map_sync(m, 2, SEAT_AVAILABLE, 0));
    assert_false(seat_map_sync(m, 0, SEAT_AVAILABLE, 0));
    assert_false(seat_map_sync(m, 4, SEAT_HELD, BOB));
    assert_map(m, "HAH");
    seat_map_free(m);
}

static void a_section_grows_and_shrinks_down_to_its_last_taken_seat(void **state) {
    (void)state;
    struct seat_map *m = section("AHACA");
    assert_true(seat_map_resize(m, 8));
    assert_map(m, "AHACAAAA");
    assert_int_equal(seat_map_capacity(m), 8);
    uint32_t seats[4];
    assert_int_equal(seat_map_claim_any(m, 4, ALICE, seats), SEATS_DONE);
    assert_map(m, "AHACHHHH");
    assert_false(seat_map_resize(m, 7));
    assert_map(m, "AHACHHHH");
    assert_int_equal(DO(release, m, ALICE, 5, 6, 7, 8), SEATS_DONE);
    assert_false(seat_map_resize(m, 3));
    assert_true(seat_map_resize(m, 4));
    assert_map(m, "AHAC");
    assert_int_equal(DO(claim, m, ALICE, 5), SEATS_OUT_OF_RANGE);
    assert_int_equal(holder_of(m, 2), EARLIER);
    assert_true(seat_map_resize(m, 4));
    assert_int_equal(DO(cancel, m, EARLIER, 4), SEATS_DONE);
    assert_int_equal(DO(release, m, EARLIER, 2), SEATS_DONE);
    assert_true(seat_map_resize(m, 1));
    assert_map(m, "A");
    assert_true(seat_map_resize(m, 3)); /* what comes back is free */
    assert_map(m, "AAA");
    assert_int_equal(seat_map_claim_any(m, 3, ALICE, seats), SEATS_DONE);
    seat_map_free(m);
}

static void a_part_of_the_map_can_be_shown(void **state) {
    (void)state;
    struct seat_map *m = section("AHCAHC");
    char shown[8];
    memset(shown, '?', sizeof shown);
    assert_int_equal(seat_map_render(m, 2, shown, 3), 3);
    assert_memory_equal(shown, "HCA?????", 8);
    assert_int_equal(seat_map_render(m, 5, shown, 8), 2);
    assert_memory_equal(shown, "HCA?????", 8);
    assert_int_equal(seat_map_render(m, 0, shown, 8), 0);
    assert_int_equal(seat_map_render(m, 7, shown, 8), 0);
    enum seat_state seat_is;
    uint64_t holder;
    assert_false(seat_map_look(m, 0, &seat_is, &holder));
    assert_false(seat_map_look(m, 7, &seat_is, &holder));
    assert_true(seat_map_look(m, 6, &seat_is, &holder));
    assert_int_equal(seat_is, SEAT_CONFIRMED);
    assert_int_equal(holder, EARLIER);
    seat_map_free(m);
}

/* Allocated bytes; ASan replaces the allocator. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void) {
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void a_seat_takes_twelve_bytes_whatever_is_taken(void **state) {
    (void)state;
    size_t before = allocated();
    struct seat_map *m = seat_map_new(SECTION_CAPACITY_MAX);
    size_t empty = allocated() - before;
    for (uint32_t seat = 2; seat <= SECTION_CAPACITY_MAX; seat += 2)
        assert_true(seat_map_sync(m, seat, SEAT_HELD, seat));
    assert_int_equal(allocated() - before, empty);
    print_message("%.2f bytes per seat\n", (double)empty / SECTION_CAPACITY_MAX);
    assert_true(empty <= (size_t)SECTION_CAPACITY_MAX * 12);
    seat_map_free(m);
    struct seat_map *small = seat_map_new(10);
    assert_true(allocated() - before <= 2048);
    seat_map_free(small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_fits_exactly_is_taken_first),
        cmocka_unit_test(of_longer_runs_the_shortest_that_leaves_no_orphan),
        cmocka_unit_test(an_orphan_is_left_rather_than_a_group_split),
        cmocka_unit_test(of_equal_runs_the_one_with_the_lowest_numbers),
        cmocka_unit_test(seats_come_from_the_start_of_the_run),
        cmocka_unit_test(a_group_too_large_for_any_run_is_split_as_little_as_can_be),
        cmocka_unit_test(a_claim_of_all_that_is_left_succeeds_however_scattered),
        cmocka_unit_test(a_suggestion_is_what_the_rule_would_take_and_takes_nothing),
        cmocka_unit_test(a_suggestion_with_a_spread_begins_where_it_says_or_near_it),
        cmocka_unit_test(nothing_is_suggested_when_there_is_not_enough_pitfall_30),
        cmocka_unit_test(concurrent_suggestions_are_different_seats),
        cmocka_unit_test(seats_can_be_checked_whichever_reservation_has_them),
        cmocka_unit_test(named_seats_become_the_holders_in_any_order),
        cmocka_unit_test(a_seat_goes_from_free_to_held_to_confirmed_to_free),
        cmocka_unit_test(only_the_holder_changes_a_seat_pitfall_25),
        cmocka_unit_test(a_second_release_frees_nothing_pitfalls_27_and_29),
        cmocka_unit_test(an_expiry_does_not_undo_a_confirmation_pitfall_28),
        cmocka_unit_test(a_seat_becomes_what_the_ledger_has_whatever_it_was),
        cmocka_unit_test(a_section_grows_and_shrinks_down_to_its_last_taken_seat),
        cmocka_unit_test(a_part_of_the_map_can_be_shown),
        cmocka_unit_test(a_seat_takes_twelve_bytes_whatever_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
