#include "core/ranking.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "splitmix.h"

static uint64_t random_state;

static uint64_t random_below(uint64_t end) {
    return next_random(&random_state) % end;
}

/* Each member's current key in the ranking, as its callers keep it. */
static struct map places;

static void setup(struct ranking *r) {
    ranking_init(r);
    map_init(&places);
}

static void teardown(struct ranking *r) {
    struct ranked *place;
    for (size_t at = 0; (place = map_next(&places, &at)) != NULL;) mem_free(place);
    map_deinit(&places);
    ranking_deinit(r);
}

static struct ranked *place_of(int64_t member) {
    struct ranked *place = map_get(&places, map_key(&member));
    if (place == NULL) map_put(&places, map_key(&member), place = mem_new(sizeof *place));
    return place;
}

static void set(struct ranking *r, int64_t member, int64_t score, int64_t since) {
    struct ranked to = {member, score, since};
    ranking_set(r, place_of(member), to);
    assert_memory_equal(place_of(member), &to, sizeof to);
}

static bool removed(struct ranking *r, int64_t member) {
    size_t before = r->count;
    ranking_remove(r, place_of(member));
    assert_int_equal(place_of(member)->member, 0);
    return r->count < before;
}

static size_t rank_of(const struct ranking *r, int64_t member) {
    return ranking_rank(r, place_of(member));
}

/* From the first to the last. */
static void assert_members(const struct ranking *r, const int64_t *members, size_t count) {
    struct ranked got[16];
    assert_true(count < sizeof got / sizeof *got);
    assert_int_equal(r->count, count);
    assert_int_equal(ranking_top(r, got, sizeof got / sizeof *got), count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(got[i].member, members[i]);
        assert_int_equal(rank_of(r, members[i]), i + 1);
    }
}

static void an_empty_ranking_has_no_elements(void **state) {
    (void)state;
    struct ranking r;
    struct ranked out;
    setup(&r);
    assert_members(&r, NULL, 0);
    assert_int_equal(rank_of(&r, 7), 0);
    assert_false(removed(&r, 7));
    assert_int_equal(ranking_top(&r, &out, 1), 0);
    set(&r, 7, 1, 1);
    assert_true(removed(&r, 7));
    assert_false(removed(&r, 7));
    assert_members(&r, NULL, 0);
    teardown(&r);
}

static void the_highest_score_is_first(void **state) {
    (void)state;
    struct ranking r;
    setup(&r);
    set(&r, 1, -5, 0);
    set(&r, 2, INT64_MAX, 0);
    set(&r, 3, 0, 0);
    set(&r, 4, INT64_MIN, 0);
    set(&r, -5, 12, 0);
    assert_members(&r, (int64_t[]){2, -5, 3, 1, 4}, 5);
    teardown(&r);
}

static void of_equal_scores_the_one_that_has_it_longest_is_first_and_then_the_lowest(void **state) {
    (void)state;
    struct ranking r;
    setup(&r);
    set(&r, 9, 3, 100);
    set(&r, 4, 3, 100);
    set(&r, 8, 3, 50);
    set(&r, -2, 3, 100);
    set(&r, 1, 3, INT64_MAX);
    set(&r, 6, 3, INT64_MIN);
    assert_members(&r, (int64_t[]){6, 8, -2, 4, 9, 1}, 6);
    teardown(&r);
}

static void the_extremes_of_all_numbers_have_their_places_in_a_large_ranking(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    struct ranking r;
    setup(&r);
    for (int64_t i = 1; i <= COUNT; i++) set(&r, i, i, 0);
    set(&r, INT64_MIN, INT64_MAX, INT64_MIN);
    set(&r, INT64_MAX, INT64_MIN, INT64_MAX);
    assert_int_equal(rank_of(&r, INT64_MIN), 1);
    assert_int_equal(rank_of(&r, COUNT), 2);
    assert_int_equal(rank_of(&r, INT64_MAX), COUNT + 2);
    set(&r, INT64_MIN, INT64_MIN, INT64_MIN);
    assert_int_equal(rank_of(&r, INT64_MIN), COUNT + 1);
    assert_int_equal(rank_of(&r, INT64_MAX), COUNT + 2);
    assert_true(removed(&r, INT64_MIN));
    assert_int_equal(rank_of(&r, INT64_MAX), COUNT + 1);
    teardown(&r);
}

static void a_member_moves_when_it_is_set_again(void **state) {
    (void)state;
    struct ranking r;
    setup(&r);
    for (int64_t member = 1; member <= 4; member++) set(&r, member, 10, member);
    set(&r, 3, 11, 20);
    assert_members(&r, (int64_t[]){3, 1, 2, 4}, 4);
    set(&r, 1, 11, 21);
    assert_members(&r, (int64_t[]){3, 1, 2, 4}, 4);
    set(&r, 3, 9, 22);
    assert_members(&r, (int64_t[]){1, 2, 4, 3}, 4);
    set(&r, 3, 9, 22);
    assert_members(&r, (int64_t[]){1, 2, 4, 3}, 4);
    teardown(&r);
}

static void the_first_are_as_many_as_asked_for_or_all(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    struct ranking r;
    static struct ranked out[COUNT + 1];
    setup(&r);
    for (int64_t i = 1; i <= COUNT; i++) set(&r, i, -i, 0);
    for (size_t max = 0; max <= COUNT + 1; max++) {
        size_t got = ranking_top(&r, out, max);
        assert_int_equal(got, max < COUNT ? max : COUNT);
        if (got > 0) assert_int_equal(out[got - 1].member, got);
    }
    for (size_t i = 0; i < COUNT; i++) assert_int_equal(out[i].member, i + 1);
    teardown(&r);
}

/* The members 1 to MANY have the scores 1 to MANY in another order; of them those remain whose
 * score is a multiple of `every`, up to `most`. */
enum { MANY = 100000 };

static int64_t member_with(int64_t score) {
    return score * 7919 % MANY + 1;
}

static void assert_multiples(const struct ranking *r, int64_t every, int64_t most) {
    static struct ranked all[MANY];
    int64_t count = most / every;
    assert_int_equal(ranking_top(r, all, MANY), count);
    for (int64_t i = 0; i < count; i++) {
        int64_t score = (count - i) * every;
        if (all[i].score != score || all[i].member != member_with(score) ||
            rank_of(r, all[i].member) != (size_t)i + 1)
            fail_msg("score %lld is not at rank %lld", (long long)score, (long long)i + 1);
    }
}

static void a_large_ranking_shrinks_from_all_sides_and_grows_again(void **state) {
    (void)state;
    struct ranking r;
    setup(&r);
    for (int round = 0; round < 2; round++) {
        for (int64_t member = 1; member <= MANY; member++) set(&r, member, -member, 0);
        for (int64_t score = 1; score <= MANY; score++) set(&r, member_with(score), score, 0);
        assert_multiples(&r, 1, MANY);
        for (int64_t score = 1; score <= MANY; score++)
            if (score % 10 != 0) assert_true(removed(&r, member_with(score)));
        assert_multiples(&r, 10, MANY);
        for (int64_t score = MANY; score > MANY / 2; score -= 10)
            assert_true(removed(&r, member_with(score)));
        assert_multiples(&r, 10, MANY / 2);
        for (int64_t score = 10; score <= MANY / 2; score += 10)
            assert_true(removed(&r, member_with(score)));
        assert_members(&r, NULL, 0);
    }
    teardown(&r);
}

/* The model: a sorted array, in which everything is found by a walk. */
#define MODEL_MAX 4000

static struct ranked model[MODEL_MAX];
static size_t model_count;

static bool model_in_front(const struct ranked *a, const struct ranked *b) {
    if (a->score != b->score) return a->score > b->score;
    if (a->since != b->since) return a->since < b->since;
    return a->member < b->member;
}

/* Its rank, or 0. */
static size_t model_rank(int64_t member) {
    for (size_t i = 0; i < model_count; i++)
        if (model[i].member == member) return i + 1;
    return 0;
}

static bool model_remove(int64_t member) {
    size_t rank = model_rank(member);
    if (rank == 0) return false;
    memmove(model + rank - 1, model + rank, (model_count - rank) * sizeof *model);
    model_count--;
    return true;
}

static void model_set(struct ranked to) {
    model_remove(to.member);
    size_t at = 0;
    while (at < model_count && model_in_front(&model[at], &to)) at++;
    memmove(model + at + 1, model + at, (model_count - at) * sizeof *model);
    model[at] = to;
    model_count++;
}

/* How a history goes: numbers are from 1 to these. */
struct kind {
    uint64_t members;
    uint64_t scores;
    uint64_t times;
};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, %llu members, step %d: %s", (unsigned long long)seed,             \
                     (unsigned long long)kind->members, step, #condition);                         \
    } while (0)

static void check_all(const struct ranking *r, uint64_t seed, const struct kind *kind, int step) {
    static struct ranked all[MODEL_MAX + 1];
    CHECK(ranking_top(r, all, MODEL_MAX + 1) == model_count);
    CHECK(model_count == 0 || memcmp(all, model, model_count * sizeof *model) == 0);
    for (size_t i = 0; i < model_count; i++) CHECK(rank_of(r, model[i].member) == i + 1);
}

static void check_some(const struct ranking *r, uint64_t seed, const struct kind *kind, int step) {
    int64_t member = (int64_t)random_below(kind->members) + 1;
    struct ranked page[40];
    size_t max = random_below(40);
    size_t rank = model_rank(member);
    CHECK(r->count == model_count);
    CHECK(rank_of(r, member) == rank);
    CHECK(ranking_top(r, page, max) == (model_count < max ? model_count : max));
    for (size_t i = 0; i < model_count && i < max; i++)
        CHECK(memcmp(&page[i], &model[i], sizeof *page) == 0);
}

/* One to be set: often one more than it had, as a board counts; else anything. */
static struct ranked next_place(const struct kind *kind) {
    struct ranked to = {.member = (int64_t)random_below(kind->members) + 1,
                        .score = (int64_t)random_below(kind->scores),
                        .since = (int64_t)random_below(kind->times)};
    size_t rank = random_below(2) == 0 ? model_rank(to.member) : 0;
    if (rank > 0) to.score = model[rank - 1].score + 1;
    return to;
}

/* It grows for a while, then shrinks to zero members, and so on. */
static void run_history(uint64_t seed, const struct kind *kind, int steps) {
    struct ranking r;
    setup(&r);
    random_state = seed;
    model_count = 0;
    bool grows = true;
    int emptied = 0;
    for (int step = 0; step < steps; step++) {
        if (model_count == 0 || random_below(kind->members * 6) == 0) grows = true;
        if (random_below(kind->members * 4) == 0) grows = false;
        if (random_below(8) < (grows ? 6 : 1)) {
            struct ranked to = next_place(kind);
            model_set(to);
            set(&r, to.member, to.score, to.since);
        } else {
            bool any = grows || model_count == 0;
            int64_t member = any ? (int64_t)random_below(kind->members) + 1
                                 : model[random_below(model_count)].member;
            CHECK(removed(&r, member) == model_remove(member));
            if (model_count == 0) emptied++;
        }
        check_some(&r, seed, kind, step);
        if (step % 1000 == 0) check_all(&r, seed, kind, step);
    }
    int step = steps;
    check_all(&r, seed, kind, step);
    while (model_count > 0) {
        int64_t member = model[random_below(model_count)].member;
        CHECK(removed(&r, member) && model_remove(member));
        if (model_count % 100 == 0) check_all(&r, seed, kind, step);
    }
    CHECK(r.count == 0 && (kind->members > 100 || emptied > 0));
    teardown(&r);
}

static void a_random_history_gives_what_a_simple_model_gives(void **state) {
    (void)state;
    const struct kind kinds[] = {
        {.members = 5, .scores = 3, .times = 3},
        {.members = 80, .scores = 1, .times = 1},
        {.members = 600, .scores = 4, .times = 1000},
        {.members = MODEL_MAX - 1, .scores = 10, .times = 5},
        {.members = MODEL_MAX - 1, .scores = 1000000, .times = 1000000},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (uint64_t seed = 1; seed <= 2; seed++) run_history(seed, &kinds[i], 20000);
        run_history((uint64_t)clock_wall_ms(), &kinds[i], 10000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_ranking_has_no_elements),
        cmocka_unit_test(the_highest_score_is_first),
        cmocka_unit_test(of_equal_scores_the_one_that_has_it_longest_is_first_and_then_the_lowest),
        cmocka_unit_test(the_extremes_of_all_numbers_have_their_places_in_a_large_ranking),
        cmocka_unit_test(a_member_moves_when_it_is_set_again),
        cmocka_unit_test(the_first_are_as_many_as_asked_for_or_all),
        cmocka_unit_test(a_large_ranking_shrinks_from_all_sides_and_grows_again),
        cmocka_unit_test(a_random_history_gives_what_a_simple_model_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
