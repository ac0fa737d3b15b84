/* Reads the health of the ledger, the hot store and the catalogue. */
#include "service/health.h"

struct health health_read(struct events *ev, struct rebuilder *rebuilder) {
    struct health h = {.hot = ev->hot == NULL ? HOT_STATE_OK : hot_state(ev->hot),
                       .is_recovering = rebuilder != NULL && !rebuilder_is_open(rebuilder),
                       .events_are_late = !events_are_current(ev)};
    ledger_health(ev->ledger, &h.ledger);
    /* A Redis that is reached and refuses writes refuses them to all nodes: to take this one out of
     * the balancer would only keep users from leaving and paying. */
    h.ready = h.ledger.writable && !h.is_recovering && !h.events_are_late;
    return h;
}

str health_ledger_word(const struct health *h) {
    if (h->ledger.writable) return STR("ok");
    return h->ledger.read_only ? STR("readonly") : STR("failing");
}

#define HOT_WORD(symbol, word, meaning) [HOT_STATE_##symbol] = STR_INIT(word),
const str hot_state_words[HOT_STATES] = {HOT_STATE_MAP(HOT_WORD)};
#undef HOT_WORD

str health_hot_word(const struct health *h) {
    return h->is_recovering ? STR("recovering") : hot_state_words[h->hot];
}
