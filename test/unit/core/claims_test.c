/* Rules of claims that the contract suite of port/seats.h can't check through the port. */
#include "core/claims.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/clock.h"

#define T0 INT64_C(1700002800000)
#define SECTION 5
#define MANY 3000

static struct section section = {.key = SECTION, .capacity = 1000000};
static struct event event = {.key = 1,
                             .version = 1,
                             .state = EVENT_OPEN,
                             .opens_at_ms = CLOCK_NONE_MS,
                             .closes_at_ms = CLOCK_NONE_MS,
                             .hold_s = 60,
                             .max_per_user = 1000,
                             .section_count = 1,
                             .sections = &section};

static struct uuid id_of(uint32_t number) {
    struct uuid id = {{0}};
    memcpy(id.bytes + 12, &number, sizeof number);
    return id;
}

static enum claim_outcome claim(struct claims *c, uint32_t id, const char *user, uint32_t count,
                                uint32_t *seats) {
    struct claim_request w = {.id = id_of(id),
                              .user = str_of(user),
                              .entry_seq = 1,
                              .is_active = true,
                              .section_key = SECTION,
                              .count = count};
    struct claim_info info;
    size_t seat_count;
    return claims_claim(c, &w, T0, &info, seats, &seat_count);
}

static void an_older_configuration_changes_nothing(void **state) {
    (void)state;
    struct claims *c = claims_new(&event);
    struct event other = event;
    uint32_t seat;
    other.max_per_user = 0;
    claims_configure(c, &other); /* the same version */
    other.version = 0;
    claims_configure(c, &other);
    assert_int_equal(claim(c, 1, "ann", 1, &seat), CLAIM_DONE);
    other.version = 2;
    claims_configure(c, &other);
    assert_int_equal(claim(c, 2, "ann", 1, &seat), CLAIM_LIMIT);
    claims_free(c);
}

/* At first everything refuses the claim; then one reason after the other is removed. */
static void what_refuses_is_looked_for_in_the_order_of_the_outcomes(void **state) {
    (void)state;
    struct section of_seats = {
        .key = SECTION, .capacity = 2, .mode = SECTION_MODE_SEAT, .status = SECTION_CLOSED};
    struct event e = event;
    e.state = EVENT_CLOSED;
    e.max_per_user = 2;
    e.section_count = 0;
    e.sections = &of_seats;
    struct claims *c = claims_new(&e);
    struct claim_request w = {
        .id = id_of(1), .user = STR("ann"), .section_key = SECTION, .count = 3};
    for (enum claim_outcome expected = CLAIM_NOT_ACTIVE; expected <= CLAIM_NOT_ENOUGH; expected++) {
        struct claim_info info;
        uint32_t seats[3];
        size_t count;
        if (expected == CLAIM_EVENT_CLOSED) w.is_active = true;
        if (expected == CLAIM_NO_SECTION) e.state = EVENT_OPEN;
        if (expected == CLAIM_SECTION_CLOSED) e.section_count = 1;
        if (expected == CLAIM_SECTION_MAINTENANCE) of_seats.status = SECTION_MAINTENANCE;
        if (expected == CLAIM_LIMIT) of_seats.status = SECTION_OPEN;
        if (expected == CLAIM_LEDGER_DECIDES) w.count = 2;
        if (expected == CLAIM_SOLD_OUT) continue;
        if (expected == CLAIM_NOT_ENOUGH) of_seats.capacity = 1;
        e.version++;
        claims_configure(c, &e);
        assert_int_equal(claims_claim(c, &w, T0, &info, seats, &count), expected);
        assert_int_equal(count, expected == CLAIM_LEDGER_DECIDES ? 2 : 0);
        assert_int_equal(claims_totals(c).held, 0);
    }
    claims_free(c);
}

/* In every step, with few seats and with many; nothing is left behind, and nothing freed twice. */
static void what_lives_when_it_is_freed_is_freed_with_it(void **state) {
    (void)state;
    struct claims *c = claims_new(&event);
    uint32_t seats[1000];
    static const char *const users[] = {"ann", "somebody with a long name", "just sixteen ch.",
                                        "and somebody with seventeen"};
    uint32_t id = 1;
    for (int user = 0; user < 4; user++)
        for (uint32_t count = 1; count <= 30; count++, id++) {
            struct uuid uuid = id_of(id);
            assert_int_equal(claim(c, id, users[user], count, seats), CLAIM_DONE);
            if (user > 0) assert_true(claims_settle(c, &uuid, true));
            if (user > 1) assert_true(claims_follow(c, &uuid, RESERVATION_CONFIRMED));
            if (user > 2) assert_true(claims_follow(c, &uuid, RESERVATION_CANCELLED));
        }
    struct seat_counts totals = claims_totals(c);
    assert_int_equal(totals.held, 2 * 465);
    assert_int_equal(totals.confirmed, 465);
    claims_free(c);
}

/* Slots of reservations are reused: operations on the old id do not affect the new one. */
static void a_place_that_is_used_again_has_nothing_of_the_old_one(void **state) {
    (void)state;
    struct claims *c = claims_new(&event);
    uint32_t seat;
    struct claim_ref due[4];
    for (uint32_t id = 1; id < MANY; id++) {
        struct uuid uuid = id_of(id);
        assert_int_equal(claim(c, id, "ann", 1, &seat), CLAIM_DONE);
        assert_int_equal(seat, 1);
        assert_true(claims_settle(c, &uuid, true));
        assert_true(claims_follow(c, &uuid, RESERVATION_CANCELLED));
    }
    assert_int_equal(claim(c, MANY, "ann", 1, &seat), CLAIM_DONE);
    assert_int_equal(claims_due(c, T0 + 60000, due, 4), 0); /* pending */
    struct uuid last = id_of(MANY);
    claims_settle(c, &last, true);
    assert_int_equal(claims_due(c, T0 + 60000, due, 4), 1);
    assert_true(uuid_eq(&due[0].id, &last));
    struct claim_info info[2];
    assert_int_equal(claims_of(c, STR("ann"), 0, info, 2), 1);
    claims_free(c);
}

/* A repeated request after a lost answer gets it, whatever else would refuse it by now. */
static void a_repeated_hold_is_recognised_by_its_id_before_it_is_judged(void **state) {
    (void)state;
    struct section small = {.key = SECTION, .capacity = 10};
    struct event e = event;
    e.sections = &small;
    struct claims *c = claims_new(&e);
    struct claim_request w = {.id = id_of(1),
                              .user = STR("ann"),
                              .entry_seq = 1,
                              .is_active = true,
                              .section_key = SECTION,
                              .count = 3};
    struct claim_info info;
    uint32_t seats[4];
    size_t count;
    assert_int_equal(claims_claim(c, &w, T0, &info, seats, &count), CLAIM_DONE);
    e.section_count = 0;
    e.state = EVENT_CLOSED;
    e.max_per_user = 1;
    e.version++;
    claims_configure(c, &e);
    w.is_active = false;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(claims_claim(c, &w, T0 + 5, &info, seats, &count), CLAIM_THERE);
        assert_int_equal(count, 3);
        assert_int_equal(seats[2], 3);
        assert_int_equal(info.pending, i == 0);
        assert_int_equal(info.expires_ms, T0 + 60000);
        assert_int_equal(info.section_key, SECTION);
        claims_settle(c, &w.id, true);
    }
    w.user = STR("bob");
    assert_int_equal(claims_claim(c, &w, T0, &info, seats, &count), CLAIM_KEY_REUSED);
    assert_int_equal(count, 0);
    w.user = STR("ann");
    assert_true(claims_follow(c, &w.id, RESERVATION_CANCELLED));
    assert_int_equal(claims_claim(c, &w, T0, &info, seats, &count), CLAIM_NOT_ACTIVE);
    claims_free(c);
}

static void words_stand_in_the_order_of_the_states(void **state) {
    (void)state;
    assert_true(str_eq(reservation_status_words[RESERVATION_HELD], STR("HELD")));
    assert_true(str_eq(reservation_status_words[RESERVATION_EXPIRED], STR("EXPIRED")));
    assert_null(reservation_status_words[RESERVATION_EXPIRED + 1].at);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_configuration_changes_nothing),
        cmocka_unit_test(what_refuses_is_looked_for_in_the_order_of_the_outcomes),
        cmocka_unit_test(what_lives_when_it_is_freed_is_freed_with_it),
        cmocka_unit_test(a_place_that_is_used_again_has_nothing_of_the_old_one),
        cmocka_unit_test(a_repeated_hold_is_recognised_by_its_id_before_it_is_judged),
        cmocka_unit_test(words_stand_in_the_order_of_the_states),
    };
    return cmocka_run_group_tests_name("claims", tests, NULL, NULL);
}
