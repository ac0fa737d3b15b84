/* bench_queue_position ROUNDS: fills a queue with ten million waiting entries and prints, as JSON,
 * how long it takes to look up the position of a random one. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/queue.h"
#include "measured.h"
#include "splitmix.h"

#define ENTRIES 10000000
/* One of this many entries is in the lane in front. */
#define FRONT_EVERY 100
#define LOOKS 2000000
#define ROUNDS_MAX 9
#define NOW_MS INT64_C(1700000000000)

static struct queue *open_queue(void) {
    struct queue_config config = {.version = 1,
                                  .hours = {.state = EVENT_PAUSED,
                                            .opens_at_ms = CLOCK_NONE_MS,
                                            .closes_at_ms = CLOCK_NONE_MS},
                                  .rules = {.max_waiting = ENTRIES,
                                            .max_active = 100,
                                            .entry_batch_size = 50,
                                            .entry_interval_s = 1,
                                            .active_ttl_s = 600,
                                            .grace_s = 300}};
    return queue_new(&config);
}

/* Returns how many bytes the names have. */
static size_t fill(struct queue *q) {
    size_t bytes = 0;
    for (unsigned i = 1; i <= ENTRIES; i++) {
        char user[24];
        struct place place;
        int len = snprintf(user, sizeof user, "user%u", i);
        unsigned lane = i % FRONT_EVERY == 0 ? 0 : LANE_DEFAULT;
        queue_enter(q, (str){user, (size_t)len}, lane, NOW_MS, &place);
        assert(place.seq == i && place.status == ENTRY_WAITING);
        queue_settle_enter(q, place.seq, true);
        bytes += (size_t)len;
    }
    return bytes;
}

/* The one in front of its lane, and the very last. */
static void check(const struct queue *q) {
    assert(queue_position(q, FRONT_EVERY) == 1);
    assert(queue_position(q, 1) == ENTRIES / FRONT_EVERY + 1);
    assert(queue_position(q, ENTRIES - 1) == ENTRIES);
}

/* Depends on the answer before, so that no two questions overlap. */
static uint64_t next_seq(uint64_t *state, uint64_t answer) {
    *state ^= answer;
    return (next_random(state) >> 32) * ENTRIES / (UINT64_C(1) << 32) + 1;
}

static double positions_ns(const struct queue *q, uint64_t *state) {
    uint64_t position = 0;
    int64_t from_ns = clock_steady_ns();
    for (int i = 0; i < LOOKS; i++) {
        position = queue_position(q, next_seq(state, position));
        assert(position > 0);
    }
    return (double)(clock_steady_ns() - from_ns) / LOOKS;
}

static double looks_ns(const struct queue *q, uint64_t *state) {
    struct place place = {0};
    int64_t from_ns = clock_steady_ns();
    for (int i = 0; i < LOOKS; i++) {
        bool known = queue_look(q, next_seq(state, place.position), NOW_MS, &place);
        assert(known && place.position > 0);
    }
    return (double)(clock_steady_ns() - from_ns) / LOOKS;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "bench_queue_position ROUNDS: from 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    double position_ns[ROUNDS_MAX];
    double look_ns[ROUNDS_MAX];
    uint64_t state = 1;
    size_t before = resident_bytes();
    int64_t from_ns = clock_steady_ns();
    struct queue *q = open_queue();
    size_t name_bytes = fill(q);
    double enter_ns = (double)(clock_steady_ns() - from_ns) / ENTRIES;
    double bytes = (double)(resident_bytes() - before - name_bytes) / ENTRIES;
    check(q);
    for (int i = 0; i < rounds; i++) {
        position_ns[i] = positions_ns(q, &state);
        look_ns[i] = looks_ns(q, &state);
    }
    queue_free(q);
    printf("{\"entries\": %d, \"enterNs\": %.2f, \"bytesPerEntry\": %.2f", ENTRIES, enter_ns,
           bytes);
    print_list("positionNs", position_ns, rounds);
    print_list("lookNs", look_ns, rounds);
    printf("}\n");
    return 0;
}
