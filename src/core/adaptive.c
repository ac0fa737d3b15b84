/* When an adaptive section becomes hot or calm. */
#include "core/adaptive.h"

#include <assert.h>

static void heat(struct adaptive *a, int64_t now_ms) {
    a->hot = true;
    a->heated_ms = now_ms;
}

bool adaptive_look(struct adaptive *a, const struct adaptive_rules *rules, int64_t now_ms) {
    if (a->under_way > rules->hot_above) heat(a, now_ms);
    bool rested = now_ms - a->heated_ms >= rules->rest_ms;
    if (a->hot && rested && a->under_way < rules->calm_below) a->hot = false;
    return a->hot;
}

bool adaptive_begin(struct adaptive *a, const struct adaptive_rules *rules, int64_t crowd,
                    int64_t now_ms) {
    a->under_way++;
    if (crowd > rules->hot_above) heat(a, now_ms);
    return adaptive_look(a, rules, now_ms);
}

void adaptive_waited(struct adaptive *a, const struct adaptive_rules *rules, int64_t waited_ms,
                     int64_t now_ms) {
    if (waited_ms >= rules->wait_ms) heat(a, now_ms);
}

void adaptive_end(struct adaptive *a) {
    assert(a->under_way > 0);
    a->under_way--;
}
