/*
 * The seat map against a model of it: an array, linear scans, the rule in the words of seat_map.h.
 * First every pattern of a small section and every quantity; then seeded random histories, in which
 * every answer is compared (history.h).
 */
#include "core/seat_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "history.h"

#define SEATS_MOST 60000
#define CLAIMS 64

struct model {
    uint32_t capacity;
    char state[SEATS_MOST + 1];
    uint64_t holder[SEATS_MOST + 1];
};

/* Some claims that were made, live or not: what others may name. */
struct claim {
    uint64_t holder;
    size_t count;
    uint32_t seats[SEATS_PER_CALL_MAX];
};

/* How a history goes. */
struct scenario {
    const char *name;
    uint32_t capacity;
    uint32_t most; /* seats of a claim */
    int steps;
    int taken_percent; /* at the start */
    int check_every;
};

static struct model m;
static struct seat_map *map;
static struct claim claims[CLAIMS];
static uint64_t next_holder;
static const struct scenario *scenario;

/* From `low` to `high`, both included. */
static uint32_t some_between(uint32_t low, uint32_t high) {
    return (uint32_t)between(low, high);
}

/* ---- the model ---- */

static uint32_t count_in(char state) {
    uint32_t count = 0;
    for (uint32_t seat = 1; seat <= m.capacity; seat++) count += m.state[seat] == state;
    return count;
}

static void model_put(uint32_t seat, char state, uint64_t holder) {
    m.state[seat] = state;
    m.holder[seat] = holder;
}

/* How long the run is that begins here; 0: none does. */
static uint32_t run_length(uint32_t first) {
    if (m.state[first] != 'A' || (first > 1 && m.state[first - 1] == 'A')) return 0;
    uint32_t length = 0;
    while (first + length <= m.capacity && m.state[first + length] == 'A') length++;
    return length;
}

/* Rules 1 to 3 for one run; returns its first seat. Its length, or n if it is longer, in *take. */
static uint32_t model_choose(uint32_t n, uint32_t *take) {
    uint32_t rule_1 = 0;
    uint32_t rule_1_length = 0;
    uint32_t rule_2 = 0;
    uint32_t rule_3 = 0;
    uint32_t rule_3_length = 0;
    for (uint32_t first = 1; first <= m.capacity; first++) {
        uint32_t length = run_length(first);
        if (length == 0) continue;
        if ((length == n || length >= n + 2) && (rule_1 == 0 || length < rule_1_length)) {
            rule_1 = first;
            rule_1_length = length;
        }
        if (length == n + 1 && rule_2 == 0) rule_2 = first;
        if (length > rule_3_length) {
            rule_3 = first;
            rule_3_length = length;
        }
    }
    *take = rule_1 != 0 || rule_2 != 0 ? n : rule_3_length;
    return rule_1 != 0 ? rule_1 : rule_2 != 0 ? rule_2 : rule_3;
}

/* The least number of runs that n seats can come from. */
static uint32_t fewest_runs(uint32_t n) {
    static uint32_t of_length[SEATS_MOST + 1];
    memset(of_length, 0, (m.capacity + 1) * sizeof *of_length);
    for (uint32_t first = 1; first <= m.capacity; first++) of_length[run_length(first)]++;
    uint32_t runs = 0;
    uint32_t got = 0;
    for (uint32_t length = m.capacity; length > 0; length--)
        for (; of_length[length] > 0 && got < n; of_length[length]--, runs++) got += length;
    return runs;
}

static enum seats_outcome model_claim_any(uint32_t n, uint64_t holder) {
    uint32_t available = count_in('A');
    if (available == 0) return SEATS_SOLD_OUT;
    if (available < n) return SEATS_NOT_ENOUGH;
    uint32_t fewest = fewest_runs(n);
    uint32_t runs = 0;
    while (n > 0) {
        uint32_t take;
        uint32_t first = model_choose(n, &take);
        for (uint32_t seat = first; seat < first + take; seat++) model_put(seat, 'H', holder);
        n -= take;
        runs++;
    }
    CHECK(runs == fewest);
    return SEATS_DONE;
}

static bool named_before(const uint32_t *seats, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (seats[j] == seats[i]) return true;
    return false;
}

static bool has_fault(const uint32_t *seats, size_t i, enum seats_outcome fault, char from,
                      uint64_t holder) {
    uint32_t seat = seats[i];
    if (fault == SEATS_OUT_OF_RANGE) return seat < 1 || seat > m.capacity;
    if (seat < 1 || seat > m.capacity) return false;
    switch (fault) {
    case SEATS_TWICE:
        return named_before(seats, i);
    case SEATS_NOT_THEIRS:
        return from != 'A' && (m.state[seat] == 'A' || m.holder[seat] != holder);
    case SEATS_OTHER_STATE:
        return from != 'A' && m.state[seat] != from;
    case SEATS_TAKEN:
        return from == 'A' && m.state[seat] != 'A';
    default:
        return false;
    }
}

static enum seats_outcome model_change(const struct claim *c, char from, char to, uint64_t holder,
                                       struct claim *refused) {
    static const enum seats_outcome faults[] = {SEATS_OUT_OF_RANGE, SEATS_TWICE, SEATS_NOT_THEIRS,
                                                SEATS_OTHER_STATE, SEATS_TAKEN};
    refused->count = 0;
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        for (size_t i = 0; i < c->count; i++)
            if (has_fault(c->seats, i, faults[f], from, holder))
                refused->seats[refused->count++] = c->seats[i];
        if (refused->count > 0) return faults[f];
    }
    for (size_t i = 0; i < c->count; i++) model_put(c->seats[i], to, to == 'A' ? 0 : holder);
    return SEATS_DONE;
}

/* ---- both at once ---- */

static void check_all(void) {
    static char shown[SEATS_MOST];
    CHECK(seat_map_capacity(map) == m.capacity);
    CHECK(seat_map_render(map, 1, shown, sizeof shown) == m.capacity);
    CHECK(memcmp(shown, m.state + 1, m.capacity) == 0);
    for (uint32_t seat = 1; seat <= m.capacity; seat++) {
        enum seat_state state;
        uint64_t holder;
        CHECK(seat_map_look(map, seat, &state, &holder));
        CHECK((char)state == m.state[seat] && holder == m.holder[seat]);
    }
    struct seat_counts c = seat_map_counts(map);
    CHECK(c.available == count_in('A') && c.held == count_in('H') && c.confirmed == count_in('C'));
}

static uint32_t some_size(void) {
    uint32_t most = one_in(3) ? scenario->most : scenario->most / 4 + 1;
    return some_between(1, most);
}

/* Free seats are suggested, adjacent if there is such a run; they are not taken. */
static void check_suggested(uint32_t n, uint64_t spread, enum seats_outcome expected) {
    static uint32_t seats[SEATS_PER_CALL_MAX];
    CHECK(seat_map_suggest(map, n, spread, seats) == expected);
    if (expected != SEATS_DONE) return;
    uint32_t longest = 0;
    for (uint32_t seat = 1; seat <= m.capacity; seat++) {
        uint32_t length = run_length(seat);
        if (length > longest) longest = length;
    }
    for (uint32_t i = 0; i < n; i++) {
        CHECK(seats[i] >= 1 && seats[i] <= m.capacity && m.state[seats[i]] == 'A');
        CHECK(i == 0 || (longest >= n ? seats[i] == seats[i - 1] + 1 : seats[i] > seats[i - 1]));
    }
}

static enum seats_outcome expected_of_any(uint32_t n) {
    uint32_t free = count_in('A');
    return free >= n ? SEATS_DONE : free == 0 ? SEATS_SOLD_OUT : SEATS_NOT_ENOUGH;
}

static void step_suggest(void) {
    uint32_t n = some_size();
    uint64_t spread = one_in(2) ? some_between(1, 2 * m.capacity) : history_random();
    check_suggested(n, spread, expected_of_any(n));
}

static void step_claim_any(void) {
    static uint32_t suggested[SEATS_PER_CALL_MAX];
    struct claim *c = &claims[some_between(0, CLAIMS - 1)];
    c->holder = next_holder++;
    c->count = some_size();
    enum seats_outcome expected = model_claim_any((uint32_t)c->count, c->holder);
    CHECK(seat_map_suggest(map, (uint32_t)c->count, 0, suggested) == expected);
    CHECK(seat_map_claim_any(map, (uint32_t)c->count, c->holder, c->seats) == expected);
    if (expected != SEATS_DONE) {
        c->count = 0;
        return;
    }
    /* As many as in the model, ascending, and each is in the model: the same. */
    for (size_t i = 0; i < c->count; i++) {
        CHECK(i == 0 || c->seats[i] > c->seats[i - 1]);
        CHECK(m.holder[c->seats[i]] == c->holder);
        CHECK(suggested[i] == c->seats[i]);
    }
}

static void change(const struct claim *c, char from, char to, uint64_t holder) {
    static struct claim refused;
    static struct claim expected;
    enum seats_outcome outcome;
    if (from == 'A')
        outcome = seat_map_claim(map, c->seats, c->count, holder, refused.seats, &refused.count);
    else if (to == 'C')
        outcome = seat_map_confirm(map, c->seats, c->count, holder, refused.seats, &refused.count);
    else if (from == 'H')
        outcome = seat_map_release(map, c->seats, c->count, holder, refused.seats, &refused.count);
    else
        outcome = seat_map_cancel(map, c->seats, c->count, holder, refused.seats, &refused.count);
    CHECK(outcome == model_change(c, from, to, holder, &expected));
    CHECK(refused.count == expected.count);
    CHECK(memcmp(refused.seats, expected.seats, refused.count * sizeof *refused.seats) == 0);
}

static void shuffle(struct claim *c) {
    for (size_t i = c->count; i > 1; i--) {
        size_t j = some_between(0, (uint32_t)i - 1);
        uint32_t seat = c->seats[i - 1];
        c->seats[i - 1] = c->seats[j];
        c->seats[j] = seat;
    }
}

/* Seats near each other that are mostly free, in any order; now and then with a mistake. */
static void step_claim_named(void) {
    struct claim *c = &claims[some_between(0, CLAIMS - 1)];
    c->holder = next_holder++;
    uint32_t wanted = some_size();
    if (wanted > 20) wanted = 20;
    uint32_t seat = some_between(1, m.capacity);
    for (c->count = 0; c->count < wanted && seat <= m.capacity; seat += some_between(1, 2))
        if (m.state[seat] == 'A' || one_in(200)) c->seats[c->count++] = seat;
    if (c->count == 0) c->seats[c->count++] = some_between(1, m.capacity);
    if (one_in(15)) c->seats[c->count++] = c->seats[0];
    if (one_in(30)) c->seats[c->count++] = m.capacity + some_between(1, 3);
    if (one_in(30)) c->seats[c->count++] = 0;
    if (one_in(2)) shuffle(c);
    change(c, 'A', 'H', c->holder);
}

/* A claim of before, as it is, or with a mistake. */
static void step_change(void) {
    static const char moves[][2] = {{'H', 'C'}, {'H', 'A'}, {'C', 'A'}};
    static struct claim c;
    c = claims[some_between(0, CLAIMS - 1)];
    if (c.count == 0) return;
    const char *move = moves[some_between(0, 2)];
    uint64_t holder = c.holder;
    if (one_in(4)) shuffle(&c);
    if (one_in(4)) c.count = some_between(1, (uint32_t)c.count);
    if (one_in(30)) holder = claims[some_between(0, CLAIMS - 1)].holder;
    if (one_in(30))
        c.seats[some_between(0, (uint32_t)c.count - 1)] = some_between(0, m.capacity + 1);
    if (holder != 0) change(&c, move[0], move[1], holder);
}

/* The seats of a reservation, from one of them on, are confirmed or released. */
static void step_return(void) {
    static struct claim c;
    uint32_t seat = some_between(1, m.capacity);
    while (seat <= m.capacity && m.state[seat] == 'A') seat++;
    if (seat > m.capacity) return;
    char from = m.state[seat];
    c.holder = m.holder[seat];
    for (c.count = 0; seat <= m.capacity && c.count < scenario->most; seat++)
        if (m.state[seat] == from && m.holder[seat] == c.holder) c.seats[c.count++] = seat;
    if (one_in(4)) shuffle(&c);
    change(&c, from, from == 'H' && one_in(4) ? 'C' : 'A', c.holder);
}

static void step_sync(void) {
    static const char states[] = {'A', 'H', 'C'};
    uint32_t seat = some_between(0, m.capacity + 1);
    char state = states[some_between(0, 2)];
    uint64_t holder = state == 'A' ? 0 : one_in(2) ? next_holder : some_between(1, 3);
    bool known = seat >= 1 && seat <= m.capacity;
    bool expected = known && (m.state[seat] != state || m.holder[seat] != holder);
    CHECK(seat_map_sync(map, seat, (enum seat_state)state, holder) == expected);
    if (known) model_put(seat, state, holder);
}

static void step_resize(void) {
    uint32_t most = scenario->capacity + scenario->capacity / 4;
    uint32_t capacity = some_between(1, most < SEATS_MOST ? most : SEATS_MOST);
    bool expected = true;
    for (uint32_t seat = capacity + 1; seat <= m.capacity; seat++)
        if (m.state[seat] != 'A') expected = false;
    CHECK(seat_map_resize(map, capacity) == expected);
    if (!expected) return;
    for (uint32_t seat = m.capacity + 1; seat <= capacity; seat++) model_put(seat, 'A', 0);
    m.capacity = capacity;
}

/* The process dies and comes back. */
static void step_restart(void) {
    seat_map_free(map);
    map = seat_map_new(m.capacity);
    for (uint32_t seat = 1; seat <= m.capacity; seat++)
        if (m.state[seat] != 'A')
            CHECK(seat_map_sync(map, seat, (enum seat_state)m.state[seat], m.holder[seat]));
}

static void begin_history(void) {
    next_holder = 1000;
    m.capacity = scenario->capacity;
    memset(claims, 0, sizeof claims);
    for (uint32_t seat = 1; seat <= m.capacity; seat++) {
        bool taken = some_between(1, 100) <= (uint32_t)scenario->taken_percent;
        model_put(seat, taken ? 'C' : 'A', taken ? some_between(1, 999) : 0);
    }
    map = seat_map_new(m.capacity);
    step_restart();
}

static void end_history(void) {
    check_all();
    seat_map_free(map);
}

/* name, capacity, most, steps, taken_percent, check_every */
static const struct scenario scenarios[] = {
    {"tiny", 12, 6, 30000, 0, 1},
    {"small", 60, 10, 20000, 0, 1},
    {"middle", 700, 70, 8000, 0, 10},
    {"fragments", 700, 40, 8000, 70, 10},
    {"large", 20000, SEATS_PER_CALL_MAX, 1200, 5, 100},
    {"large and full", SEATS_MOST, 100, 600, 95, 100},
};

static void random_histories_give_what_a_simple_model_gives(void **state) {
    (void)state;
    static const struct history_act acts[] = {
        {350, step_claim_any}, {130, step_claim_named}, {120, step_change},
        {330, step_return},    {50, step_suggest},      {12, step_sync},
        {6, step_resize},      {2, step_restart},       {0},
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        scenario = &scenarios[i];
        history_run(&(struct history){.name = scenario->name,
                                      .seeds = 2,
                                      .steps = scenario->steps,
                                      .acts = acts,
                                      .begin = begin_history,
                                      .check = check_all,
                                      .check_every = scenario->check_every,
                                      .end = end_history});
    }
}

static void every_quantity_of_every_pattern_follows_the_rule(void **state) {
    (void)state;
    enum { CAPACITY = 11 };
    static const struct scenario every_pattern = {.name = "every pattern"};
    scenario = &every_pattern;
    m.capacity = CAPACITY;
    for (uint32_t pattern = 0; pattern < UINT32_C(1) << CAPACITY; pattern++)
        for (uint32_t n = 1; n <= CAPACITY + 1; n++) {
            uint32_t seats[CAPACITY + 1];
            map = seat_map_new(CAPACITY);
            for (uint32_t seat = 1; seat <= CAPACITY; seat++) {
                bool taken = (pattern >> (seat - 1) & 1) != 0;
                model_put(seat, taken ? 'C' : 'A', taken ? 999 : 0);
                if (taken) CHECK(seat_map_sync(map, seat, SEAT_CONFIRMED, 999));
            }
            for (uint64_t spread = 1; spread <= CAPACITY; spread++)
                check_suggested(n, spread, expected_of_any(n));
            CHECK(seat_map_claim_any(map, n, 1, seats) == model_claim_any(n, 1));
            check_all();
            seat_map_free(map);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_quantity_of_every_pattern_follows_the_rule),
        cmocka_unit_test(random_histories_give_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
