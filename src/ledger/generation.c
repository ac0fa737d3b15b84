/* The numbers of a new generation, and the warning that there is one. */
#include "ledger/generation.h"

#include <assert.h>
#include <sys/random.h>

#include "base/log.h"

#define SEQS_PER_MS_BITS 5
/* So that the number stays below 2^48. */
#define TIME_MS_MAX ((INT64_C(1) << (48 - SEQS_PER_MS_BITS)) - 1000)

uint32_t generation_random(uint32_t before) {
    uint32_t number = 0;
    while (number == 0 || number == before) {
        ssize_t got = getrandom(&number, sizeof number, 0);
        assert(got == sizeof number); /* so few bytes are never delivered in part */
    }
    return number;
}

uint64_t generation_first_seq(int64_t now_ms) {
    if (now_ms < 0) now_ms = 0;
    if (now_ms > TIME_MS_MAX) now_ms = TIME_MS_MAX;
    return ((uint64_t)now_ms << SEQS_PER_MS_BITS) + 1;
}

bool generation_makes_sense(int64_t number, int64_t first_seq) {
    return number >= 0 && number <= UINT32_MAX && first_seq >= 0 && first_seq < INT64_C(1) << 48;
}

void generation_warn(const char *ledger, const char *reason) {
    log_warn(msg("the ledger begins a new generation: entry tokens that were issued before are "
                 "void; users keep the places that the ledger has, and get new tokens by entering "
                 "again"),
             kv("ledger", ledger), kv("reason", reason));
}
