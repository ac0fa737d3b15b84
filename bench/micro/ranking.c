/*
 * bench_ranking ROUNDS: measures a board of a hundred thousand members; prints JSON.
 *
 * A set adds one to the score of a random member. `ties`: all scores begin with 0, so thousands are
 * equal, and a member moves far with every set. `spread`: hardly any two scores are equal, so most
 * members keep their rank. A top 10 is timed alone, after a hundred sets; the time includes reading
 * the clock. Ranks are those of random members; each is read after the one before is known. Sets
 * and ranks are measured in CPU time, so other processes do not count.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "core/ranking.h"
#include "measured.h"
#include "splitmix.h"

#define MEMBERS 100000
#define TOP 10
#define SETS 2000000
#define TOPS 10000
#define SETS_BETWEEN 100
#define RANKS 1000000
#define SPREAD INT64_C(1000000000)
#define ROUNDS_MAX 9

static uint64_t random_state = 1;
static int64_t now_ms = INT64_C(1700000000000);
static struct ranked places[MEMBERS + 1]; /* where each member stands */

/* Like event keys, these are not consecutive. */
static int64_t member_of(size_t number) {
    return (int64_t)number * 7919;
}

static size_t any_number(void) {
    return (size_t)((next_random(&random_state) >> 32) * MEMBERS >> 32) + 1;
}

static void fill(struct ranking *r, int64_t spread) {
    ranking_init(r);
    for (size_t i = 1; i <= MEMBERS; i++) {
        int64_t score = spread == 0 ? 0 : (int64_t)(next_random(&random_state) % (uint64_t)spread);
        places[i] = (struct ranked){0};
        ranking_set(r, &places[i], (struct ranked){member_of(i), score, now_ms++});
    }
}

static void add_one(struct ranking *r) {
    size_t number = any_number();
    struct ranked to = {member_of(number), places[number].score + 1, now_ms++};
    ranking_set(r, &places[number], to);
}

/* The CPU time of this thread. */
static int64_t core_ns(void) {
    struct timespec t;
    int failed = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    assert(failed == 0);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static double sets_ns(struct ranking *r) {
    int64_t from_ns = core_ns();
    for (int i = 0; i < SETS; i++) add_one(r);
    return (double)(core_ns() - from_ns) / SETS;
}

static double tops_ns(struct ranking *r) {
    int64_t sum_ns = 0;
    for (int i = 0; i < TOPS; i++) {
        struct ranked top[TOP];
        for (int n = 0; n < SETS_BETWEEN; n++) add_one(r);
        int64_t from_ns = clock_steady_ns();
        size_t got = ranking_top(r, top, TOP);
        sum_ns += clock_steady_ns() - from_ns;
        assert(got == TOP && top[0].score >= top[TOP - 1].score);
    }
    return (double)sum_ns / TOPS;
}

static double ranks_ns(const struct ranking *r) {
    int64_t from_ns = core_ns();
    for (int i = 0; i < RANKS; i++) {
        size_t rank = ranking_rank(r, &places[any_number()]);
        assert(rank >= 1 && rank <= MEMBERS);
        random_state ^= rank;
    }
    return (double)(core_ns() - from_ns) / RANKS;
}

/* Every member has the score that it was given, and the rank at which it is listed. */
static void check(const struct ranking *r) {
    static struct ranked all[MEMBERS];
    size_t got = ranking_top(r, all, MEMBERS);
    assert(got == MEMBERS && r->count == MEMBERS);
    for (size_t i = 0; i < MEMBERS; i++) {
        assert(i == 0 || all[i - 1].score > all[i].score ||
               (all[i - 1].score == all[i].score && all[i - 1].since < all[i].since));
        const struct ranked *place = &places[all[i].member / member_of(1)];
        assert(all[i].score == place->score && ranking_rank(r, place) == i + 1);
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "bench_ranking ROUNDS: from 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    struct ranking ties;
    struct ranking spread;
    double set_ns[ROUNDS_MAX];
    double spread_ns[ROUNDS_MAX];
    double top_ns[ROUNDS_MAX];
    double rank_ns[ROUNDS_MAX];
    size_t before = resident_bytes();
    fill(&ties, 0);
    double filled = (double)(resident_bytes() - before) / MEMBERS;
    for (int i = 0; i < rounds; i++) {
        set_ns[i] = sets_ns(&ties);
        top_ns[i] = tops_ns(&ties);
        rank_ns[i] = ranks_ns(&ties);
    }
    check(&ties);
    ranking_deinit(&ties);
    fill(&spread, SPREAD);
    for (int i = 0; i < rounds; i++) spread_ns[i] = sets_ns(&spread);
    check(&spread);
    ranking_deinit(&spread);
    printf("{\"members\": %d, \"bytesPerMember\": %.2f", MEMBERS, filled);
    print_list("setNs", set_ns, rounds);
    print_list("setSpreadNs", spread_ns, rounds);
    print_list("topNs", top_ns, rounds);
    print_list("rankNs", rank_ns, rounds);
    printf("}\n");
    return 0;
}
