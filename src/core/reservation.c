/* Words of reservations, which strategy suits a section, and confirmation codes. */
#include "core/reservation.h"

#include <assert.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"

const str reservation_status_words[] = {
#define STATUS_WORD(symbol) STR_INIT(#symbol),
    RESERVATION_STATUS_MAP(STATUS_WORD)
#undef STATUS_WORD
        {NULL, 0},
};

#define WORD(symbol, word) STR_INIT(word),
const str strategy_words[] = {STRATEGY_MAP(WORD){NULL, 0}};
#undef WORD

bool strategy_suits(enum strategy s, bool ledger_decides) {
    switch (s) {
    case STRATEGY_SLOT:
    case STRATEGY_LOCK:
    case STRATEGY_ADAPTIVE:
        return !ledger_decides;
    case STRATEGY_OPTIMISTIC:
    case STRATEGY_PESSIMISTIC:
    case STRATEGY_DISTRIBUTED_LOCK:
        return ledger_decides;
    case STRATEGY_QUEUE:
        break;
    }
    return true;
}

struct reservation *reservation_new(uint32_t seat_count) {
    struct reservation *r = mem_new(sizeof *r + seat_count * sizeof *r->seats);
    r->seat_count = seat_count;
    r->seats = (uint32_t *)(r + 1);
    r->confirmed_ms = CLOCK_NONE_MS;
    r->ended_ms = CLOCK_NONE_MS;
    return r;
}

void confirmation_code_new(char out[CONFIRMATION_CODE_CHARS + 1]) {
    static const char letters[] = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    static_assert(sizeof letters - 1 == 32, "five bits choose one, all alike");
    unsigned char random[CONFIRMATION_CODE_CHARS];
    ssize_t got = getrandom(random, sizeof random, 0);
    assert(got == sizeof random); /* so few bytes come at once or not at all */
    for (int i = 0; i < CONFIRMATION_CODE_CHARS; i++) out[i] = letters[random[i] & 31];
    out[CONFIRMATION_CODE_CHARS] = '\0';
}

struct live_reservation reservation_live(const struct reservation *r) {
    assert(reservation_is_live(r->status));
    return (struct live_reservation){.id = r->id,
                                     .user = str_of(r->user),
                                     .entry_seq = r->entry_seq,
                                     .section_key = r->section_key,
                                     .seats = r->seats,
                                     .seat_count = r->seat_count,
                                     .status = r->status,
                                     .expires_ms = r->expires_ms};
}

bool reservation_times_ok(const struct reservation *r) {
    return clock_writable(r->expires_ms) && clock_writable(r->created_ms) &&
           clock_writable(r->confirmed_ms) && clock_writable(r->ended_ms);
}
