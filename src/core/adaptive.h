/*
 * adaptive: the rules by which an `adaptive` section chooses between its two ways of claiming: one
 * after the other under a lock while it is calm, all at once when it is hot. Both claim in the hot
 * store, so a section can change between them at any moment. Pure: no I/O, the clock is an
 * argument; one thread at a time.
 *
 * It becomes hot when more requests are under way than `hot_above`, when a request waited for the
 * lock for `wait_ms` or longer, or when more users than `hot_above` wait in the event's queue.
 * It becomes calm again when fewer are under way than `calm_below` and nothing has made it hot for
 * `rest_ms`. Between the two numbers it stays what it is.
 */
#ifndef ADMITONE_CORE_ADAPTIVE_H
#define ADMITONE_CORE_ADAPTIVE_H

#include <stdbool.h>
#include <stdint.h>

struct adaptive_rules {
    int64_t calm_below;
    int64_t hot_above;
    int64_t wait_ms;
    int64_t rest_ms;
};

struct adaptive {
    int64_t under_way;
    bool hot;
    int64_t heated_ms; /* when something last made, or would have made, it hot */
};

/* A request begins, while `crowd` users wait in the queue. Returns whether the section is hot then.
 */
bool adaptive_begin(struct adaptive *a, const struct adaptive_rules *rules, int64_t crowd,
                    int64_t now_ms);
/* A request has waited for the lock. */
void adaptive_waited(struct adaptive *a, const struct adaptive_rules *rules, int64_t waited_ms,
                     int64_t now_ms);
void adaptive_end(struct adaptive *a);
/* Whether the section is hot now; one that has cooled down becomes calm. */
bool adaptive_look(struct adaptive *a, const struct adaptive_rules *rules, int64_t now_ms);

#endif
