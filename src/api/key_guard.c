/* Wrong keys per client address: a fixed table of small sets, under a mutex. A new address takes
 * the place of the one in its set whose last wrong key is the oldest. */
#include "api/key_guard.h"

#include <assert.h>
#include <pthread.h>
#include <sys/random.h>

#include "base/mem.h"

#define SETS 512
#define SET_SIZE 8

struct suspect {
    struct address block;
    int64_t wrong; /* keys; 0: this place is free */
    int64_t last_ms;
    int64_t waits_until_ms;
    int64_t warned_ms;
    int64_t unlogged; /* wrong keys since warned_ms */
};

struct key_guard {
    pthread_mutex_t lock;
    uint64_t seed; /* random, so that no client can choose addresses of one set */
    struct suspect sets[SETS][SET_SIZE];
};

struct key_guard *key_guard_new(void) {
    struct key_guard *g = mem_new(sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    ssize_t got = getrandom(&g->seed, sizeof g->seed, 0);
    assert(got == sizeof g->seed);
    return g;
}

void key_guard_free(struct key_guard *g) {
    if (g == NULL) return;
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

/* A client with IPv6 has at least a /64. An IPv4 address is 16 bytes with a prefix of its own. */
static struct address block_of(const struct address *a) {
    struct address block = *a;
    if (!address_is_v4(a)) memset(block.bytes + 8, 0, 8);
    return block;
}

static struct suspect *set_of(struct key_guard *g, const struct address *block) {
    str bytes = {(const char *)block->bytes, sizeof block->bytes};
    return g->sets[str_hash(bytes, g->seed) % SETS];
}

static bool is_known(const struct suspect *s, const struct address *block, int64_t now_ms) {
    return s->wrong > 0 && now_ms - s->last_ms < KEY_GUARD_MEMORY_MS &&
           memcmp(&s->block, block, sizeof *block) == 0;
}

int64_t key_guard_wait_ms(struct key_guard *g, const struct address *a, int64_t now_ms) {
    struct address block = block_of(a);
    int64_t wait_ms = 0;
    pthread_mutex_lock(&g->lock);
    struct suspect *set = set_of(g, &block);
    for (size_t i = 0; i < SET_SIZE; i++)
        if (is_known(&set[i], &block, now_ms) && set[i].waits_until_ms > now_ms)
            wait_ms = set[i].waits_until_ms - now_ms;
    pthread_mutex_unlock(&g->lock);
    return wait_ms;
}

/* The record of the address, new if it has none. */
static struct suspect *suspect_find(struct key_guard *g, const struct address *block,
                                    int64_t now_ms) {
    struct suspect *set = set_of(g, block);
    struct suspect *oldest = &set[0];
    for (size_t i = 0; i < SET_SIZE; i++) {
        if (is_known(&set[i], block, now_ms)) return &set[i];
        bool is_free = set[i].wrong == 0;
        if (is_free || (oldest->wrong > 0 && set[i].last_ms < oldest->last_ms)) oldest = &set[i];
    }
    *oldest = (struct suspect){.block = *block, .warned_ms = now_ms - KEY_GUARD_WARN_EVERY_MS};
    return oldest;
}

static int64_t wait_after(int64_t wrong) {
    int64_t doublings = wrong - KEY_GUARD_FREE - 1;
    if (doublings < 0) return 0;
    return doublings > 6 ? KEY_GUARD_WAIT_MS_MAX : INT64_C(1000) << doublings;
}

int64_t key_guard_wrong(struct key_guard *g, const struct address *a, int64_t now_ms) {
    struct address block = block_of(a);
    int64_t unlogged = 0;
    pthread_mutex_lock(&g->lock);
    struct suspect *s = suspect_find(g, &block, now_ms);
    s->wrong++;
    s->unlogged++;
    s->last_ms = now_ms;
    s->waits_until_ms = now_ms + wait_after(s->wrong);
    if (now_ms - s->warned_ms >= KEY_GUARD_WARN_EVERY_MS) {
        unlogged = s->unlogged;
        s->unlogged = 0;
        s->warned_ms = now_ms;
    }
    pthread_mutex_unlock(&g->lock);
    return unlogged;
}
